//! A lock that is handed on faster than the store draws fences for it: the next one waits for them, and for nothing else.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{ClientId, Fence, Label, LockName, Owner, Ttl};

use super::Lines;
use crate::clock::Moment;
use crate::lease::line::{Caller, Do, Ending, Seat, Terms, Todo};

const NOW: Moment = Moment::from_micros(1_000_000);

/// Long enough for no test to see its end.
const LATER: Option<Moment> = Some(Moment::from_micros(9_000_000));

/// Who waits, and whether it still does.
#[derive(Clone, Default)]
struct Someone(Rc<Cell<bool>>);

impl Caller for Someone {
    fn is_gone(&self) -> bool {
        self.0.get()
    }
}

fn name() -> LockName {
    LockName::new("m").unwrap()
}

fn terms(seconds: u64) -> Terms {
    Terms {
        ttl: Ttl::new(Duration::from_secs(seconds)).unwrap(),
        note: Label::new("note", "").unwrap(),
    }
}

fn owner(number: u128) -> Owner {
    Owner::new(number, ClientId::new(1), "host", 1, "").unwrap()
}

fn seat(id: u64) -> Seat<Someone> {
    Seat {
        id,
        terms: terms(30),
        once: false,
        caller: Someone::default(),
    }
}

/// A lease is its fence.
type World = Lines<Someone, u64>;

struct Scene {
    lines: World,
    held: Owner,
    /// The fence of the lease that is out.
    fence: u64,
}

impl Scene {
    fn enter(&mut self, seat: Seat<Someone>) -> Todo<Someone, u64> {
        let next = |_: &Terms| owner(2);
        let make = |_: &Seat<Someone>, _: &Owner, fence: Fence, _: &u64| fence.get();
        self.lines.enter(&name(), seat, next, NOW, |_| true, make)
    }

    fn give_back(&mut self) -> Todo<Someone, u64> {
        let next = |_: &Terms| owner(2);
        let make = |_: &Seat<Someone>, _: &Owner, fence: Fence, _: &u64| fence.get();
        let ending = Ending::HandOn {
            linger_until: LATER,
        };
        let held = self.held.clone();
        self.lines
            .give_back(&name(), &held, next, (ending, true), NOW, make)
    }

    fn refilled(&mut self, fence: Option<u64>) -> Todo<Someone, u64> {
        let next = |_: &Terms| owner(2);
        let make = |_: &Seat<Someone>, _: &Owner, fence: Fence, _: &u64| fence.get();
        let (held, fence) = (self.held.clone(), fence.map(Fence::new));
        self.lines
            .refilled(&name(), &held, (fence, NOW), next, |_| true, make)
    }

    /// The last fence of the grant's block is out, and the store was asked for more, once.
    fn at_the_end_of_the_block() -> Self {
        let mut scene = Self {
            lines: World::default(),
            held: owner(1),
            fence: 1_000,
        };
        let ask = scene.lines.enter(
            &name(),
            seat(0),
            |_| owner(1),
            NOW,
            |_| true,
            |_, _, _, _| 0,
        );
        assert_eq!(said(&ask), ["ask 1"]);
        let grant = (Fence::new(1_000), 0);
        let taken = scene
            .lines
            .taken(&name(), &owner(1), |_| owner(2), grant, NOW, |_, _| 1_000);
        assert_eq!(said(&taken.unwrap()), ["grant 0 1000"]);
        let mut asked = 0;
        for number in 1..64 {
            assert!(said(&scene.give_back()).iter().all(|what| what == "look"));
            let todo = said(&scene.enter(seat(number)));
            scene.fence += 1;
            assert_eq!(todo[0], format!("grant {number} {}", scene.fence));
            asked += todo.iter().filter(|what| *what == "refill 1").count();
        }
        assert_eq!(asked, 1);
        scene
    }
}

/// What is to be done, in words.
fn said(todo: &Todo<Someone, u64>) -> Vec<String> {
    let number = |owner: &Owner| owner.token()[4..36].trim_start_matches('0').to_owned();
    let words = |what: &Do<Someone, u64>| match what {
        Do::Ask(ask) => format!("ask {}", number(&ask.owner)),
        Do::Grant { seat, lease, .. } => format!("grant {} {lease}", seat.id),
        Do::Busy(seat) => format!("busy {}", seat.id),
        Do::Waits(id) => format!("waits {id}"),
        Do::Release { owner, .. } => format!("release {}", number(owner)),
        Do::Undo { owner, .. } => format!("undo {}", number(owner)),
        Do::Fail(seat, _) => format!("fail {}", seat.id),
        Do::Refill(owner) => format!("refill {}", number(owner)),
        Do::Linger(_) => "look".into(),
    };
    todo.iter().map(words).collect()
}

/// The first fence of the last block of the refill that follows the grant.
const DRAWN: u64 = 1_064 + 15 * 64;

#[test]
fn who_waits_when_the_fences_run_out_gets_the_first_of_the_next_ones() {
    let mut scene = Scene::at_the_end_of_the_block();
    assert_eq!(said(&scene.enter(seat(70))), ["waits 70"]);
    assert!(said(&scene.give_back()).is_empty(), "nobody is served yet");
    assert_eq!(said(&scene.enter(seat(71))), ["waits 71"]);
    assert_eq!(said(&scene.refilled(Some(DRAWN))), ["grant 70 1064"]);
    assert_eq!(said(&scene.give_back()), ["grant 71 1065"]);
    scene.lines.check();
}

#[test]
fn who_comes_to_an_idle_lock_without_fences_waits_for_them() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.give_back();
    let gone = seat(70);
    let caller = gone.caller.clone();
    assert!(said(&scene.enter(gone)).is_empty());
    let once = Seat {
        once: true,
        ..seat(71)
    };
    assert_eq!(said(&scene.enter(once)), ["waits 71"], "nobody holds it");
    let late = Seat {
        once: true,
        ..seat(72)
    };
    assert_eq!(said(&scene.enter(late)), ["waits 72"]);
    caller.0.set(true);
    let todo = said(&scene.refilled(Some(DRAWN)));
    assert_eq!(todo, ["grant 71 1064", "busy 72"]);
}

#[test]
fn fences_that_cannot_be_had_send_the_next_one_to_the_store() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.enter(seat(70));
    scene.give_back();
    assert_eq!(said(&scene.refilled(None)), ["release 1", "ask 2"]);
    scene.lines.check();
}

#[test]
fn fences_that_are_no_news_do_too() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.enter(seat(70));
    scene.give_back();
    assert_eq!(said(&scene.refilled(Some(1_000))), ["release 1", "ask 2"]);
}

#[test]
fn a_lock_lost_meanwhile_is_given_back_and_asked_for() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.enter(seat(70));
    scene.give_back();
    let held = scene.held.clone();
    let todo = scene.lines.lost(&name(), &held, |_| owner(2), NOW);
    assert_eq!(said(&todo), ["release 1", "ask 2"]);
    assert!(said(&scene.refilled(Some(DRAWN))).is_empty(), "old news");
}

#[test]
fn a_lock_that_nobody_waits_for_any_more_goes_back_when_the_fences_come() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.enter(seat(70));
    scene.give_back();
    assert!(scene.lines.leave(&name(), 70).is_some());
    assert_eq!(said(&scene.refilled(Some(DRAWN))), ["release 1"]);
    assert!(scene.lines.is_empty());
}

#[test]
fn other_terms_go_back_to_the_store() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.give_back();
    scene.enter(seat(70));
    let other = Seat {
        terms: terms(5),
        ..seat(71)
    };
    scene.enter(other);
    scene.lines.leave(&name(), 70);
    assert_eq!(said(&scene.refilled(Some(DRAWN))), ["release 1", "ask 2"]);
}

#[test]
fn closing_tells_who_waits_for_fences() {
    let mut scene = Scene::at_the_end_of_the_block();
    scene.enter(seat(70));
    scene.give_back();
    let (seats, leases) = scene.lines.close();
    assert_eq!((seats.len(), leases.len()), (1, 1));
}
