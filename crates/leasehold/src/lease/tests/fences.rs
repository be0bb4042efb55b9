//! Fences that run out. When a block is used up, the client releases the lock and asks for a new block at once. The size of the new
//! block follows the number of waiters in its line.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Block, Fence, Held, Label, LockName, Mode, Owner, Reply, Step, Ttl};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::lease::effects::{Effect, To};
use crate::lease::hold::Hold;
use crate::lease::identity::Identity;
use crate::lease::machine::{About, Event, Machine, Release};
use crate::lease::terms::Terms;
use crate::lease::waiter::{AcquireOutcome, AcquireRequest, WaitLimit};

const SECOND: Duration = Duration::from_secs(1);

/// The machine of one client. Its owners have numbers from 1.
struct Scene {
    clock: Clock,
    machine: Machine,
    owners: Vec<Owner>,
    /// The lease that was granted last.
    lease: Option<Arc<Hold>>,
    callers: HashMap<u64, oneshot::Receiver<AcquireOutcome>>,
}

impl Scene {
    fn new() -> Self {
        let clock = Clock::manual();
        let about = About {
            store: "scene:".into(),
            outage_timeout: SECOND * 60,
            request_timeout: SECOND * 2,
        };
        let identity = Arc::new(Identity::seeded(1, 1));
        Self {
            machine: Machine::new(about, identity, clock.clone()),
            clock,
            owners: Vec::new(),
            lease: None,
            callers: HashMap::new(),
        }
    }

    fn handle(&mut self, event: Event) -> Vec<String> {
        self.machine.handle(self.clock.now(), event);
        let effects = self.machine.effects.take();
        effects
            .into_iter()
            .filter_map(|effect| self.says(effect))
            .collect()
    }

    /// Carries out the effect. Returns it in words, if it concerns the store or a grant.
    fn says(&mut self, effect: Effect) -> Option<String> {
        match effect {
            Effect::Send {
                step: Step::Acquire { owner, block, .. },
                ..
            } => {
                self.owners.push(owner);
                Some(format!("ask {} for {}", self.owners.len(), block.get()))
            }
            Effect::Send {
                step: Step::Release { owner, .. },
                ..
            } => {
                let at = self.owners.iter().position(|other| *other == owner);
                Some(format!("release {}", at.unwrap() + 1))
            }
            Effect::Grant(waiter, hold) => {
                let said = format!("grant {} {}", waiter.id, hold.fence);
                self.lease = Some(hold.clone());
                waiter.served(hold).unwrap();
                Some(said)
            }
            Effect::Refuse(waiter, error) => {
                waiter.fail(&error);
                None
            }
            _ => None,
        }
    }

    fn enter_with(&mut self, id: u64, ttl: Duration, linger: Duration) -> Vec<String> {
        let terms = Terms {
            ttl: Ttl::new(ttl).unwrap(),
            note: Label::new("note", "").unwrap(),
            mode: Mode::Exclusive,
        };
        let request = AcquireRequest {
            name: LockName::new("m").unwrap(),
            terms,
            auto_renew: true,
            max_hold: None,
            linger,
            on_wait: None,
            limit: WaitLimit::Forever,
        };
        let (answer, answered) = oneshot::channel();
        self.callers.insert(id, answered);
        self.handle(Event::Asked(id, request, answer))
    }

    fn enter(&mut self, id: u64) -> Vec<String> {
        self.enter_with(id, SECOND * 30, Duration::ZERO)
    }

    /// The lease of this caller may linger.
    fn lingering(&mut self, id: u64) -> Vec<String> {
        self.enter_with(id, SECOND * 30, SECOND)
    }

    /// The store grants the lock to the owner that asked last, with a block of `wanted` fences from `first` on. `queued` others wait.
    fn granted(&mut self, first: u64, wanted: u64, queued: u32) -> Vec<String> {
        let held = Held {
            fence: Some(Fence::new(first)),
            slot: None,
            block: Block::nearest(wanted),
            queued,
        };
        let to = To::Acquisition(self.owners.last().unwrap().clone());
        self.handle(Event::Answered(to, Ok(Reply::Held(held))))
    }

    /// The user of the last lease drops it.
    fn give_back(&mut self) -> Vec<String> {
        let hold = self.lease.take().unwrap();
        self.release(&hold)
    }

    fn release(&mut self, hold: &Arc<Hold>) -> Vec<String> {
        let release = Release::once(hold, None, None, || true).unwrap();
        self.handle(Event::Released(release))
    }

    /// Hands the lease on to each waiter in turn, until the fences are used up. Returns the number of waiters that got the lease, and what
    /// was said last.
    fn hands_on_until_spent(&mut self, first: u64) -> (u64, Vec<String>) {
        for count in 0.. {
            let said = self.give_back();
            if !said[0].starts_with("grant") {
                return (count, said);
            }
            assert_eq!(said[0], format!("grant {count} {}", first + 1 + count));
        }
        unreachable!("blocks have an end")
    }
}

/// Owner 1 holds the lock with a single fence, and these callers wait for it.
fn with_waiters(ids: std::ops::Range<u64>) -> Scene {
    let mut scene = Scene::new();
    assert_eq!(scene.enter(1_000), ["ask 1 for 1"]);
    assert_eq!(scene.granted(1_000, 1, 0), ["grant 1000 1000"]);
    for id in ids {
        assert_eq!(scene.enter(id), Vec::<String>::new());
    }
    scene
}

#[test]
fn who_is_alone_draws_one_fence_and_the_next_one_asks_anew() {
    let mut scene = with_waiters(0..0);
    assert_eq!(scene.give_back(), ["release 1"]);
    assert!(scene.machine.is_empty());
    assert_eq!(scene.enter(0), ["ask 2 for 1"]);
}

#[test]
fn spent_block_is_released_and_requested_at_once() {
    let mut scene = with_waiters(0..1);
    assert_eq!(scene.give_back(), ["release 1", "ask 2 for 4"]);
    assert_eq!(scene.granted(5_000, 4, 0), ["grant 0 5000"]);
    assert_eq!(scene.give_back(), ["release 2"]);
}

#[test]
fn those_in_line_have_four_fences_each() {
    for (tasks, fences) in [(2, 8), (3, 12), (64, 256), (65, 260), (500, 1_024)] {
        let mut scene = with_waiters(0..tasks);
        let asked = format!("ask 2 for {fences}");
        assert_eq!(scene.give_back(), ["release 1", &asked]);
    }
}

#[test]
fn a_block_is_handed_on_in_order_to_its_last_fence() {
    let mut scene = with_waiters(0..41);
    scene.give_back();
    // The client had asked for more fences. It can use only those that the store drew.
    assert_eq!(scene.granted(5_000, 40, 0), ["grant 0 5000"]);
    for id in 1..40 {
        assert_eq!(scene.give_back(), [format!("grant {id} {}", 5_000 + id)]);
    }
    assert_eq!(scene.give_back(), ["release 2", "ask 3 for 160"]);
    assert_eq!(scene.granted(6_000, 160, 0), ["grant 40 6000"]);
}

#[test]
fn spent_block_is_followed_by_one_four_times_as_large() {
    let mut scene = with_waiters(0..2);
    assert_eq!(scene.give_back(), ["release 1", "ask 2 for 8"]);
    let (mut fences, mut next, mut first) = (8, 1_000, 5_000);
    for larger in [32, 128, 512, 1_024, 1_024] {
        scene.granted(first, fences, 0);
        for used in 1..fences {
            scene.enter(next + used);
            let granted = &scene.give_back()[0];
            assert!(
                granted.ends_with(&format!(" {}", first + used)),
                "{granted}"
            );
        }
        let said = scene.give_back();
        assert_eq!(said[1], format!("ask {} for {larger}", scene.owners.len()));
        (fences, next, first) = (larger, next + fences, first + fences);
        scene.enter(next);
    }
}

#[test]
fn unspent_block_is_followed_by_one_for_the_waiters() {
    let mut scene = with_waiters(0..3);
    scene.give_back();
    scene.granted(5_000, 48, 0);
    scene.give_back();
    for id in [10, 11] {
        scene.enter_with(id, SECOND * 5, Duration::ZERO);
    }
    assert_eq!(scene.give_back(), ["grant 2 5002"]);
    // The other waiters have other terms, so the client releases the lock and asks again.
    assert_eq!(scene.give_back(), ["release 2", "ask 3 for 8"]);
}

#[test]
fn block_is_limited_while_other_clients_wait() {
    for (tasks, fences) in [(1, 1), (2, 2), (16, 16), (17, 17), (18, 17), (500, 17)] {
        let mut scene = Scene::new();
        scene.enter(1_000);
        assert_eq!(scene.granted(1_000, 1, 3), ["grant 1000 1000"]);
        for id in 0..tasks {
            scene.enter(id);
        }
        let asked = format!("ask 2 for {fences}");
        assert_eq!(scene.give_back(), ["release 1", &asked]);
    }
}

#[test]
fn a_stay_that_others_end_asks_for_no_more_because_it_was_long() {
    let mut scene = Scene::new();
    scene.enter(1_000);
    scene.granted(1_000, 17, 3);
    for id in 0..20 {
        scene.enter(id);
    }
    let (handed_on, said) = scene.hands_on_until_spent(1_000);
    assert_eq!(handed_on, 16);
    assert_eq!(said, ["release 1", "ask 2 for 4"]);
}

#[test]
fn a_lease_that_may_linger_has_four() {
    let mut scene = Scene::new();
    assert_eq!(scene.lingering(0), ["ask 1 for 4"]);
    assert_eq!(scene.granted(1_000, 4, 0), ["grant 0 1000"]);
    for id in 1..4 {
        assert_eq!(scene.give_back(), Vec::<String>::new(), "it is idle");
        assert_eq!(scene.lingering(id), [format!("grant {id} {}", 1_000 + id)]);
    }
    scene.give_back();
    let said = scene.lingering(4);
    assert_eq!(said, ["release 1", "ask 2 for 16"], "in one request");
    assert_eq!(scene.granted(9_000, 16, 0), ["grant 4 9000"]);
}

#[test]
fn who_lingers_asks_for_four_at_least() {
    for (tasks, fences) in [(1, 4), (4, 16), (5, 20)] {
        let mut scene = with_waiters(0..0);
        for id in 0..tasks {
            scene.lingering(id);
        }
        let asked = format!("ask 2 for {fences}");
        assert_eq!(scene.give_back(), ["release 1", &asked]);
    }
}

#[test]
fn who_has_gone_needs_no_fence() {
    let mut scene = with_waiters(0..2);
    scene.callers.remove(&0);
    assert_eq!(scene.give_back(), ["release 1", "ask 2 for 4"]);
    assert_eq!(scene.granted(5_000, 4, 0), ["grant 1 5000"]);
}

#[test]
fn a_single_fence_can_be_lost_like_any_other() {
    let mut scene = with_waiters(0..2);
    let lost = scene.lease.take().unwrap();
    scene.clock.advance(SECOND * 31);
    assert_eq!(scene.handle(Event::Passed), ["ask 2 for 8"]);
    assert_eq!(scene.granted(5_000, 8, 0), ["grant 0 5000"]);
    // The user of the lost lease notices the loss and gives the lease back.
    assert_eq!(scene.release(&lost), ["release 1"], "and nothing else");
    assert_eq!(scene.give_back(), ["grant 1 5001"]);
}

#[test]
fn closing_tells_who_waits_for_fences_and_forgets_them() {
    let mut scene = with_waiters(0..2);
    scene.give_back();
    assert_eq!(scene.handle(Event::Closed), Vec::<String>::new());
    for id in 0..2 {
        let answered = scene.callers.get_mut(&id).unwrap().try_recv();
        assert!(matches!(answered, Ok(Err(_))), "{id}");
    }
    assert_eq!(
        scene.granted(5_000, 32, 0),
        ["release 2"],
        "nobody wants it"
    );
}

/// A client hands the lock on only to waiters with the same terms.
#[test]
fn who_wants_other_terms_needs_no_fence() {
    let mut scene = with_waiters(0..0);
    for id in 10..74 {
        scene.enter_with(id, SECOND * u32::try_from(id).unwrap(), Duration::ZERO);
    }
    assert_eq!(scene.give_back(), ["release 1", "ask 2 for 4"]);
    for next in 1..60 {
        scene.granted(10_000 * next, 1, 0);
        // Four, because the block before was used up.
        let asked = &scene.give_back()[1];
        assert!(asked.ends_with(" for 4"), "{asked}");
    }
}
