//! A client that counts another quorum than the mark of a node: the random steps seldom meet a waiter there.

use leasehold_core::Reply;
use leasehold_core::quorum::NoVote;

use super::Case;
use super::node::{Role, terms};
use super::server::Redis;
use super::steps::{Ask, Event, Hearing, Meant, Number, Span, Who};
use super::tally::Tally;

fn proposes(owner: usize, ttl_ms: u64, number: Number, wait: Option<Hearing>) -> Ask {
    Ask::Acquire {
        who: Who::Any(owner),
        ttl_ms,
        block: 1,
        wait,
        number,
    }
}

fn by(others: bool, ask: Ask) -> Event {
    let lock = 0;
    Event::Ask { lock, ask, others }
}

/// Plays these events at a node, and compares it with core after each.
fn plays(events: impl IntoIterator<Item = Event>) {
    let (mut redis, mut tally) = (Redis::start_as(Role::Node), Tally::default());
    let mut case = Case::new(&mut redis, &mut tally, 0);
    for event in events {
        if let Err(difference) = case.happens(event) {
            panic!("{}{difference}", case.story);
        }
    }
}

/// The node has lost its data, a client of the other quorum has marked it, and the quarantine is over.
fn marked_by_others() -> [Event; 3] {
    let span = Span::Millis(15_000);
    [
        Event::FlushAll,
        by(true, proposes(0, 10, Number::Clock(0), None)),
        Event::Time { lock: 0, span },
    ]
}

#[test]
fn the_mark_says_which_counter_counts() {
    let takes = by(true, proposes(0, 10, Number::Clock(0), None));
    plays(
        marked_by_others()
            .into_iter()
            .chain([takes, Event::EvictCounter]),
    );
}

/// A step that frees a lock grants it to the next waiter, and draws its fence. Had it a counter of its own terms, its client would be
/// trusted from then on. So each step is refused, in its short form and in its long one.
#[test]
fn a_client_of_another_quorum_is_refused_at_every_step() {
    let strange = [
        proposes(4, 1_000, Number::Clock(1), None),
        proposes(4, 1_000, Number::Ahead(0), Some(Hearing::Channel)),
        Ask::Extend {
            who: Who::Holder,
            ttl_ms: 1_000,
            under: Some(Meant::Grant),
        },
        Ask::Release {
            who: Who::Holder,
            keep_ms: None,
            under: Some(Meant::Grant),
        },
        Ask::Release {
            who: Who::Any(4),
            keep_ms: None,
            under: None,
        },
        Ask::GiveBack {
            who: Who::Holder,
            meant: Meant::Grant,
        },
        Ask::Break(Meant::Grant),
        Ask::Inspect,
    ];
    let (own, waits) = (Number::Ahead(0), Some(Hearing::Channel));
    let mut events = vec![
        by(false, proposes(0, 1_000, Number::Clock(0), None)),
        by(false, proposes(2, 30_000, own, waits)),
    ];
    // While the lease lasts, and at its end, when any step would grant the lock to the waiter.
    for span in [Span::Micros(1), Span::LeaseEnd(1)] {
        events.push(Event::Time { lock: 0, span });
        // Thrice, since each third request begins with the long form.
        events.extend(
            strange
                .iter()
                .cycle()
                .take(3 * strange.len())
                .map(|ask| by(true, *ask)),
        );
    }
    plays(events);
}

#[test]
fn a_refusal_names_the_terms_of_the_mark() {
    let mut redis = Redis::start_as(Role::Node);
    let mut tally = Tally::default();
    let case = Case::new(&mut redis, &mut tally, 0);
    let name = case.model.names[0].clone();
    let steps = [(name.clone(), leasehold_core::Step::Inspect)];
    let kind = case.redis.kind(&steps);
    let answered = case.redis.apply_as(kind, &steps, true).unwrap();
    let refusal = Reply::NoVote(NoVote::OtherTerms(terms()));
    assert_eq!(answered, [Ok(refusal)]);
}
