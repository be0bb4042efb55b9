//! What may be found in the key of the last fence, whoever wrote it. The random steps find there what the scripts wrote.

use std::time::Duration;

use leasehold_core::{Fence, HolderView, LockName, Mode, Owner, Reply, Step, Ttl};

use super::model::START_US;
use super::server::Redis;

const LAST: u64 = START_US + 5_000;

/// A server whose lock is held by the first of [`Ours::OWNERS`] unless it was taken away.
struct Ours {
    redis: Redis,
    name: LockName,
    fence_key: String,
}

impl Ours {
    fn start() -> Self {
        let mut redis = Redis::start();
        redis.reset(START_US);
        let name = LockName::new("orders").unwrap();
        let fence_key = name.beside(":lh-fence");
        Self {
            redis,
            name,
            fence_key,
        }
    }

    /// Begins anew, with someone who holds and `fence` as it is found.
    fn finds(&mut self, fence: &str) {
        self.redis.flush();
        let (key, token) = (self.name.key(), owner().token().to_owned());
        self.redis.command(&["SET", key, &token, "PX", "30000"]);
        self.redis
            .command(&["SET", &self.fence_key, fence, "PX", "30000"]);
    }

    fn step(&mut self, step: Step) -> Reply {
        let steps = [(self.name.clone(), step)];
        self.redis.apply(&steps).unwrap().remove(0).unwrap()
    }

    fn holds(&mut self, step: Step) -> u64 {
        match self.step(step) {
            Reply::Held(held) => held.fence.unwrap().get(),
            other => panic!("{other:?}"),
        }
    }

    /// The last fence, and what is seen of the holder.
    fn sees(&mut self) -> (Option<u64>, HolderView) {
        match self.step(Step::Inspect) {
            Reply::Seen(seen) => (seen.fence.map(Fence::get), seen.holder.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn keeps(&mut self) -> String {
        self.redis.command(&["GET", &self.fence_key]).text()
    }

    /// The fence of the next grant.
    fn grants(&mut self) -> u64 {
        self.redis.command(&["DEL", self.name.key()]);
        self.holds(Step::Acquire {
            owner: owner(),
            mode: Mode::Exclusive,
            ttl: ttl(),
            wait: None,
        })
    }
}

fn owner() -> Owner {
    Owner::new(1, leasehold_core::ClientId::new(0xc0), "host", 1, "").unwrap()
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(30)).unwrap()
}

fn extend(block: bool) -> Step {
    Step::Extend {
        owner: owner(),
        ttl: ttl(),
        block,
        fence: None,
    }
}

fn break_by(fence: u64) -> Step {
    let fence = Fence::new(fence);
    Step::Break { fence }
}

#[test]
fn what_nobody_could_have_written_counts_as_lost() {
    let mut lock = Ours::start();
    let max = Fence::MAX.get();
    let (beyond, pair_beyond) = (max.to_string(), format!("{max} {LAST}"));
    let wrong_order = format!("{LAST} {}", LAST + 1);
    let (three, two_spaces) = (format!("{LAST} 5 5"), format!("{LAST}  5"));
    let (half, behind) = (format!("{LAST} "), format!(" {LAST}"));
    let (signed, line) = (format!("{LAST} -5"), format!("{LAST} 5\n"));
    let huge = format!("{LAST} {}", "9".repeat(400));
    let texts: [&str; 12] = [
        "",
        "a fence",
        &beyond,
        &pair_beyond,
        &wrong_order,
        &three,
        &two_spaces,
        &half,
        &behind,
        &signed,
        &line,
        &huge,
    ];
    for text in texts {
        lock.finds(text);
        let (last, holder) = lock.sees();
        let seen = (last, holder.fence, holder.held_for);
        assert_eq!(seen, (None, None, None), "{text:?}");
        assert!(matches!(lock.step(break_by(LAST)), Reply::NotHeld(Some(_))));
        assert_eq!(lock.grants(), START_US, "{text:?}");
        assert_eq!(lock.keeps(), START_US.to_string());

        lock.finds(text);
        assert_eq!(lock.holds(extend(false)), START_US, "{text:?}");
        assert_eq!(lock.keeps(), START_US.to_string());

        lock.finds(text);
        let drawn = START_US + (Fence::REFILL - 1) * Fence::BLOCK;
        assert_eq!(lock.holds(extend(true)), drawn, "{text:?}");
        assert_eq!(lock.keeps(), format!("{drawn} {START_US}"));
        assert_eq!(lock.step(break_by(START_US)), Reply::Released);
    }
}

#[test]
fn the_fence_of_the_grant_stands_behind_the_last_one() {
    let mut lock = Ours::start();
    let granted = START_US - 2_000_000;
    for (text, granted) in [
        (LAST.to_string(), LAST),
        (format!("{LAST} {LAST}"), LAST),
        (format!("{LAST} {granted}"), granted),
        (format!("{LAST} 0"), 0),
    ] {
        lock.finds(&text);
        let (last, holder) = lock.sees();
        let held_for = Duration::from_micros(START_US.saturating_sub(granted));
        assert_eq!((last, holder.held_for), (Some(LAST), Some(held_for)));
        assert_eq!(holder.fence, Some(Fence::new(granted)));
        assert_eq!(lock.holds(extend(false)), granted);
        assert_eq!(lock.keeps(), text, "as it was");

        let drawn = LAST + Fence::REFILL * Fence::BLOCK;
        assert_eq!(lock.holds(extend(true)), drawn);
        assert_eq!(lock.keeps(), format!("{drawn} {granted}"));
        assert_eq!(lock.grants(), drawn + Fence::BLOCK);
        assert_eq!(lock.keeps(), (drawn + Fence::BLOCK).to_string());

        lock.finds(&text);
        assert_eq!(lock.step(break_by(granted)), Reply::Released);
    }
}
