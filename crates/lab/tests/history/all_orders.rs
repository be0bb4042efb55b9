//! Small histories, judged by trying all orders: could a fenced mutex have granted these leases in some order? The answer must
//! agree with I1, I2 and I3 together.

use fastrand::Rng;
use leasehold_lab::history::{Invariant, Verdict};

use crate::text::{Text, campaign, complete, held, invoke};

const HISTORIES: u64 = 10_000;

/// The essential data of a lease.
#[derive(Debug, Clone)]
struct Small {
    invoked: u64,
    completed: u64,
    fence: u64,
    until: u64,
    /// An ok extend: invoked, completed, new deadline.
    extended: Option<(u64, u64, u64)>,
    released: Option<u64>,
    unknown: bool,
}

impl Small {
    /// Until when the lock must have been held: for no time if the lease was over before its holder knew of it.
    fn end(&self) -> u64 {
        let until = match self.extended {
            None => self.until,
            Some((_, completed, until)) if until > completed => until,
            // The answer came after the new deadline had passed.
            Some((_, completed, until)) => self.until.max(until).min(completed),
        };
        let end = until.min(self.released.unwrap_or(u64::MAX));
        if end > self.completed { end } else { 0 }
    }
}

/// Whether some order of the remaining leases is possible for a mutex that was held until `free` with `fence`.
fn possible(left: &[Small], free: u64, fence: u64) -> bool {
    left.is_empty()
        || (0..left.len()).any(|at| {
            let next = &left[at];
            let given = next.invoked.max(free);
            if next.fence <= fence || given > next.completed {
                return false;
            }
            let rest: Vec<Small> = [&left[..at], &left[at + 1..]].concat();
            possible(&rest, given.max(next.end()), next.fence)
        })
}

/// Mostly a history of a mutex, sometimes with a change.
fn draw(rng: &mut Rng) -> Vec<Small> {
    let (mut free, mut fence) = (20, 0);
    let mut all = Vec::new();
    for _ in 0..=rng.u64(..5) {
        let given = free + rng.u64(..2);
        let completed = given + rng.u64(..8);
        fence += 1 + rng.u64(..2);
        let until = completed.saturating_sub(2) + rng.u64(..16);
        let extended = (rng.u64(..100) < 30).then(|| {
            let invoked = completed + rng.u64(..3);
            let done = invoked + rng.u64(..4);
            (invoked, done, until.max(invoked + rng.u64(..10)))
        });
        let extended = extended.filter(|(invoked, _, _)| *invoked <= until);
        let last = extended.map_or(completed, |(_, done, _)| done);
        let this = Small {
            invoked: given.saturating_sub(rng.u64(..12)),
            completed,
            fence,
            until,
            extended,
            released: (rng.u64(..100) < 60).then(|| last + rng.u64(..8)),
            unknown: rng.u64(..100) < 10,
        };
        if !this.unknown {
            free = given.max(this.end());
        }
        all.push(this);
    }
    for _ in 0..rng.u64(..5) {
        let at = rng.usize(..all.len());
        let change = 1 + rng.u64(..12);
        let this = &mut all[at];
        match rng.u64(..6) {
            0 => this.fence = change,
            1 => this.invoked = this.invoked.saturating_sub(change),
            2 => this.completed = this.invoked.max(this.completed.saturating_sub(change)),
            3 => this.until += change,
            4 => this.released = this.released.map(|released| released + change),
            _ => this.invoked = this.completed.min(this.invoked + change),
        }
    }
    all
}

fn text(all: &[Small]) -> Text {
    let mut text = Text::new(campaign(10));
    for (small, proc) in all.iter().zip(1..) {
        text.worker(
            proc,
            invoke(proc, 1, "acquire", "m1", &format!("o{proc}"), small.invoked),
        );
        if small.unknown {
            text.worker(proc, complete(proc, 1, "unknown", small.completed));
            continue;
        }
        text.worker(
            proc,
            held(proc, 1, small.fence, small.until, small.completed),
        );
        if let Some((invoked, completed, until)) = small.extended {
            text.worker(
                proc,
                invoke(proc, 2, "extend", "m1", &format!("o{proc}"), invoked),
            );
            text.worker(proc, held(proc, 2, small.fence, until, completed));
        }
        if let Some(released) = small.released {
            text.worker(
                proc,
                invoke(proc, 3, "release", "m1", &format!("o{proc}"), released),
            );
            text.worker(proc, complete(proc, 3, "ok", released));
        }
    }
    text
}

fn rejected(verdict: &Verdict) -> bool {
    use Invariant::{Exclusion, FenceOrder, UniqueFence};
    [UniqueFence, FenceOrder, Exclusion]
        .iter()
        .any(|it| verdict.found.contains_key(it))
}

#[test]
fn the_judge_and_all_orders_agree() {
    let (mut sound, mut broken) = (0, 0);
    for seed in 0..HISTORIES {
        let all = draw(&mut Rng::with_seed(seed));
        let verdict = text(&all).judge().unwrap();
        // An acquire without outcome may have had the lock for no time, so it fits any order.
        let known: Vec<Small> = all.iter().filter(|small| !small.unknown).cloned().collect();
        let possible = possible(&known, 0, 0);
        assert_eq!(
            possible,
            !rejected(&verdict),
            "seed {seed}: {all:#?}\n{verdict}"
        );
        if possible {
            sound += 1;
        } else {
            broken += 1;
        }
    }
    assert!(
        sound > HISTORIES / 5 && broken > HISTORIES / 5,
        "{sound} sound, {broken} broken"
    );
}
