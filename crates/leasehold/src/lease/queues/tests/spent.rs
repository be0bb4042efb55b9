//! Fences that run out. When a block is used up, the client releases the lock and asks for a new block at once. The size of the new
//! block follows the number of waiters in its queue.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, Fences, Label, LockName, Owner, Ttl};

use crate::clock::Moment;
use crate::lease::queue::{Action, Actions, Ending, QueueEntry, Requester, StoreGrant};
use crate::lease::queues::LocalQueues;
use crate::lease::terms::Terms;

const NOW: Moment = Moment::from_micros(1_000_000);

/// No test reaches this time.
const LATER: Option<Moment> = Some(Moment::from_micros(9_000_000));

/// A caller that waits or has gone, and whose lease may linger or not.
#[derive(Clone, Default)]
struct Someone {
    is_gone: Rc<Cell<bool>>,
    lingers: bool,
}

impl Requester for Someone {
    fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    fn lingers(&self) -> bool {
        self.lingers
    }
}

fn name() -> LockName {
    LockName::new("m").unwrap()
}

fn owner(number: u128) -> Owner {
    Owner::new(number, ClientId::new(1), "host", 1, "").unwrap()
}

fn entry(id: u64) -> QueueEntry<Someone> {
    let terms = Terms {
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        note: Label::new("note", "").unwrap(),
    };
    QueueEntry {
        id,
        terms,
        once: false,
        caller: Someone::default(),
    }
}

fn lingering(id: u64) -> QueueEntry<Someone> {
    let mut entry = entry(id);
    entry.caller.lingers = true;
    entry
}

/// The queues of one client. Its owners have numbers from 1. A lease is represented by its fence.
#[derive(Default)]
struct Scene {
    queues: LocalQueues<Someone, u64>,
    owners: u128,
}

impl Scene {
    /// Makes the owner of the next request.
    fn next(&self) -> impl FnOnce(&Terms) -> Owner + use<> {
        let number = self.owners + 1;
        move |_| owner(number)
    }

    fn says(&mut self, actions: &Actions<Someone, u64>) -> Vec<String> {
        let asks = |what: &&Action<Someone, u64>| matches!(what, Action::Ask(_));
        self.owners += actions.iter().filter(asks).map(|_| 1).sum::<u128>();
        self.queues.check(|_| false);
        said(actions)
    }

    fn enter(&mut self, entry: QueueEntry<Someone>) -> Vec<String> {
        let make = |_: &QueueEntry<Someone>, _: &Owner, fence: Fence, _: &u64| fence.get();
        let actions = (self.queues).enter(&name(), entry, self.next(), NOW, |_| true, make);
        self.says(&actions)
    }

    /// The store grants the lock to the owner that asked last, with a block of `wanted` fences from `first` on. `queued` others wait.
    fn granted(&mut self, (first, wanted): (u64, u64), queued: u32) -> Vec<String> {
        let (first, block) = (Fence::new(first), Block::nearest(wanted));
        let fences = Fences { first, block };
        let grant = StoreGrant { fences, queued };
        let (asked, next) = (owner(self.owners), self.next());
        let make = |_: &_, _: &_| first.get();
        let actions = (self.queues).taken(&name(), &asked, next, grant, NOW, make);
        self.says(&actions.unwrap())
    }

    fn give_back(&mut self, linger_until: Option<Moment>) -> Vec<String> {
        let make = |_: &QueueEntry<Someone>, _: &Owner, fence: Fence, _: &u64| fence.get();
        let (held, ending) = (owner(self.owners), Ending::HandOn { linger_until });
        let next = self.next();
        let actions = (self.queues).give_back(&name(), &held, next, ending, NOW, make);
        self.says(&actions)
    }

    /// Hands the lease on to each waiter in turn, until the fences are used up. Returns the number of waiters that got the lease, and the
    /// last actions.
    fn hands_on_until_spent(&mut self, first: u64) -> (u64, Vec<String>) {
        for count in 0.. {
            let said = self.give_back(None);
            if !said[0].starts_with("grant") {
                return (count, said);
            }
            assert_eq!(said[0], format!("grant {count} {}", first + 1 + count));
        }
        unreachable!("blocks have an end")
    }
}

/// The actions in words.
fn said(actions: &Actions<Someone, u64>) -> Vec<String> {
    let number = |owner: &Owner| owner.token()[4..36].trim_start_matches('0').to_owned();
    let words = |what: &Action<Someone, u64>| match what {
        Action::Ask(ask) => format!("ask {} for {}", number(&ask.owner), ask.block.get()),
        Action::Grant { entry, lease, .. } => format!("grant {} {lease}", entry.id),
        Action::Busy(entry) => format!("busy {}", entry.id),
        Action::Waits(id) => format!("waits {id}"),
        Action::Release { owner, .. } => format!("release {}", number(owner)),
        Action::Undo { owner, .. } => format!("undo {}", number(owner)),
        Action::Fail(entry, _) => format!("fail {}", entry.id),
        Action::Linger(_) => "look".into(),
    };
    actions.iter().map(words).collect()
}

/// Owner 1 holds the lock with a single fence, and these callers wait for it.
fn with_waiters(ids: std::ops::Range<u64>) -> Scene {
    let mut scene = Scene::default();
    assert_eq!(scene.enter(entry(1_000)), ["ask 1 for 1"]);
    assert_eq!(scene.granted((1_000, 1), 0), ["grant 1000 1000"]);
    for id in ids {
        assert_eq!(scene.enter(entry(id)), [format!("waits {id}")]);
    }
    scene
}

#[test]
fn who_is_alone_draws_one_fence_and_the_next_one_asks_anew() {
    let mut scene = with_waiters(0..0);
    assert_eq!(scene.give_back(None), ["release 1"]);
    assert!(scene.queues.is_empty());
    assert_eq!(scene.enter(entry(0)), ["ask 2 for 1"]);
}

#[test]
fn spent_block_is_released_and_requested_at_once() {
    let mut scene = with_waiters(0..1);
    assert_eq!(scene.give_back(None), ["release 1", "ask 2 for 4"]);
    assert_eq!(scene.granted((5_000, 4), 0), ["grant 0 5000"]);
    assert_eq!(scene.give_back(None), ["release 2"]);
}

#[test]
fn those_in_line_have_four_fences_each() {
    for (tasks, fences) in [(2, 8), (3, 12), (64, 256), (65, 260), (500, 1_024)] {
        let mut scene = with_waiters(0..tasks);
        let asked = format!("ask 2 for {fences}");
        assert_eq!(scene.give_back(None), ["release 1", &asked]);
    }
}

#[test]
fn a_block_is_handed_on_in_order_to_its_last_fence() {
    let mut scene = with_waiters(0..41);
    scene.give_back(None);
    // The client had asked for more fences. It can use only those that the store drew.
    assert_eq!(scene.granted((5_000, 40), 0), ["grant 0 5000"]);
    for id in 1..40 {
        assert_eq!(
            scene.give_back(None),
            [format!("grant {id} {}", 5_000 + id)]
        );
    }
    assert_eq!(scene.give_back(None), ["release 2", "ask 3 for 160"]);
    assert_eq!(scene.granted((6_000, 160), 0), ["grant 40 6000"]);
}

#[test]
fn spent_block_is_followed_by_one_four_times_as_large() {
    let mut scene = with_waiters(0..2);
    assert_eq!(scene.give_back(None), ["release 1", "ask 2 for 8"]);
    let (mut fences, mut next, mut first) = (8, 1_000, 5_000);
    for larger in [32, 128, 512, 1_024, 1_024] {
        scene.granted((first, fences), 0);
        for used in 1..fences {
            scene.enter(entry(next + used));
            let granted = &scene.give_back(None)[0];
            assert!(
                granted.ends_with(&format!(" {}", first + used)),
                "{granted}"
            );
        }
        let said = scene.give_back(None);
        assert_eq!(said[1], format!("ask {} for {larger}", scene.owners));
        (fences, next, first) = (larger, next + fences, first + fences);
        scene.enter(entry(next));
    }
}

#[test]
fn unspent_block_is_followed_by_one_for_the_waiters() {
    let mut scene = with_waiters(0..3);
    scene.give_back(None);
    scene.granted((5_000, 48), 0);
    scene.give_back(None);
    let other = Terms {
        ttl: Ttl::new(Duration::from_secs(5)).unwrap(),
        ..entry(0).terms
    };
    for id in [10, 11] {
        let terms = other.clone();
        scene.enter(QueueEntry { terms, ..entry(id) });
    }
    assert_eq!(scene.give_back(None), ["grant 2 5002"]);
    // The other waiters have other terms, so the client releases the lock and asks again.
    assert_eq!(scene.give_back(None), ["release 2", "ask 3 for 8"]);
}

#[test]
fn block_is_limited_while_other_clients_wait() {
    for (tasks, fences) in [(1, 1), (2, 2), (16, 16), (17, 17), (18, 17), (500, 17)] {
        let mut scene = Scene::default();
        scene.enter(entry(1_000));
        assert_eq!(scene.granted((1_000, 1), 3), ["grant 1000 1000"]);
        for id in 0..tasks {
            scene.enter(entry(id));
        }
        let asked = format!("ask 2 for {fences}");
        assert_eq!(scene.give_back(None), ["release 1", &asked]);
    }
}

#[test]
fn a_stay_that_others_end_asks_for_no_more_because_it_was_long() {
    let mut scene = Scene::default();
    scene.enter(entry(1_000));
    scene.granted((1_000, 17), 3);
    for id in 0..20 {
        scene.enter(entry(id));
    }
    let (handed_on, said) = scene.hands_on_until_spent(1_000);
    assert_eq!(handed_on, 16);
    assert_eq!(said, ["release 1", "ask 2 for 4"]);
}

#[test]
fn a_lease_that_may_linger_has_four() {
    let mut scene = Scene::default();
    assert_eq!(scene.enter(lingering(0)), ["ask 1 for 4"]);
    assert_eq!(scene.granted((1_000, 4), 0), ["grant 0 1000"]);
    for id in 1..4 {
        let said = scene.give_back(LATER);
        assert!(said.iter().all(|what| what == "look"), "{said:?}");
        assert_eq!(
            scene.enter(lingering(id)),
            [format!("grant {id} {}", 1_000 + id)]
        );
    }
    scene.give_back(LATER);
    let said = scene.enter(lingering(4));
    assert_eq!(said, ["release 1", "ask 2 for 16"], "in one request");
    assert_eq!(scene.granted((9_000, 16), 0), ["grant 4 9000"]);
}

#[test]
fn who_lingers_asks_for_four_at_least() {
    for (tasks, fences) in [(1, 4), (4, 16), (5, 20)] {
        let mut scene = with_waiters(0..0);
        for id in 0..tasks {
            scene.enter(lingering(id));
        }
        let asked = format!("ask 2 for {fences}");
        assert_eq!(scene.give_back(LATER), ["release 1", &asked]);
    }
}

#[test]
fn who_has_gone_needs_no_fence() {
    let mut scene = with_waiters(0..0);
    let gone = entry(0);
    gone.caller.is_gone.set(true);
    scene.enter(gone);
    scene.enter(entry(1));
    assert_eq!(scene.give_back(None), ["release 1", "ask 2 for 4"]);
    assert_eq!(scene.granted((5_000, 4), 0), ["grant 1 5000"]);
}

#[test]
fn a_single_fence_can_be_lost_like_any_other() {
    let mut scene = with_waiters(0..2);
    let held = owner(1);
    let next = scene.next();
    let actions = scene.queues.lost(&name(), &held, next, NOW);
    assert_eq!(scene.says(&actions), ["ask 2 for 8"]);
    assert_eq!(scene.granted((5_000, 8), 0), ["grant 0 5000"]);
    // The user of the lost lease notices the loss and gives the lease back.
    let make = |_: &QueueEntry<Someone>, _: &Owner, fence: Fence, _: &u64| fence.get();
    let (ending, next) = (Ending::GiveBack, scene.next());
    let actions = (scene.queues).give_back(&name(), &held, next, ending, NOW, make);
    assert_eq!(scene.says(&actions), ["release 1"], "and nothing else");
    assert_eq!(scene.give_back(None), ["grant 1 5001"]);
}

#[test]
fn closing_tells_who_waits_for_fences_and_forgets_them() {
    let mut scene = with_waiters(0..2);
    scene.give_back(None);
    let closed = scene.queues.close();
    assert_eq!((closed.entries.len(), closed.leases.len()), (2, 0));
    let (asked, next) = (owner(2), scene.next());
    let first = Fence::new(5_000);
    let block = Block::nearest(32);
    let fences = Fences { first, block };
    let grant = StoreGrant { fences, queued: 0 };
    let taken = (scene.queues).taken(&name(), &asked, next, grant, NOW, |_, _| 0);
    assert!(taken.is_none(), "nobody asked for it");
}

/// A client hands the lock on only to waiters with the same terms.
#[test]
fn who_wants_other_terms_needs_no_fence() {
    let mut scene = with_waiters(0..1);
    for id in 10..74 {
        let ttl = Ttl::new(Duration::from_secs(id)).unwrap();
        let terms = Terms {
            ttl,
            ..entry(0).terms
        };
        scene.enter(QueueEntry { terms, ..entry(id) });
    }
    scene.queues.leave(&name(), 0);
    for next in 1..60 {
        // Four, because the block before was used up.
        let asked = &scene.give_back(None)[1];
        assert!(asked.ends_with(" for 4"), "{asked}");
        scene.granted((10_000 * next, 1), 0);
    }
}
