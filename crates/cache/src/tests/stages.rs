//! Each stage of a shared load for callers that asked before, during or after it (G3).

use std::time::Duration;

use leasehold::{Clock, Moment, StoreErrorKind, testing};
use leasehold_core::cache::{CommitOutcome, Format, Header, Value, Version};

use crate::load::{Demand, Found, LoadOutcome, Progress, Stage};
use crate::value::{Origin, Refusal};

fn at(moment: u64) -> Moment {
    Clock::manual().now().after(Duration::from_micros(moment))
}

fn value() -> Value {
    let header = Header {
        invalidated: false,
        version: Version::new(7),
        stored_ms: 1_000,
        soft_ms: 61_000,
        load_ms: 1,
        format: Format::Raw,
    };
    Value {
        header,
        body: vec![7].into(),
    }
}

/// A caller that asked at 10.
fn want(must_be_fresh: bool) -> Demand {
    Demand {
        asked: at(10),
        leads: false,
        must_be_fresh,
        unread: Version::default(),
    }
}

/// The caller's result in one letter: `.` waits on, `a` asks again, `r` gets a refusal, or the first letter of the value's origin.
fn word(want: &Demand, progress: &Progress) -> char {
    match want.evaluate(progress) {
        None => '.',
        Some(Err(Refusal::GaveUp)) => 'a',
        Some(Err(_)) => 'r',
        Some(Ok(offer)) => match offer.origin {
            Origin::Fresh => 'F',
            Origin::Stale => 'S',
            Origin::Loaded => 'L',
            Origin::Waited => 'W',
        },
    }
}

/// The results for a caller that takes a stale value and for one that does not.
fn words(progress: &Progress) -> String {
    [false, true]
        .map(|strict| word(&want(strict), progress))
        .iter()
        .collect()
}

/// A value in the answer to a request that was sent at this moment.
fn found(sent: u64) -> Found {
    Found {
        value: value(),
        now_ms: 2_000,
        sent: at(sent),
    }
}

fn shown(sent: u64) -> Progress {
    Progress {
        stale: Some(found(sent)),
        stage: Stage::Asking,
    }
}

fn loaded(began: u64) -> Progress {
    let (value, began) = (value(), at(began));
    Progress {
        stale: None,
        stage: Stage::Loaded { value, began },
    }
}

fn ended(outcome: LoadOutcome) -> Progress {
    Progress {
        stale: None,
        stage: Stage::Ended(outcome),
    }
}

#[test]
fn what_the_store_said_is_for_those_who_asked_before() {
    assert_eq!(words(&Progress::default()), "..");
    for (sent, stale, fresh) in [(9, "..", "aa"), (10, "S.", "WW"), (11, "S.", "WW")] {
        let over = ended(LoadOutcome::Found(found(sent)));
        assert_eq!(words(&over), fresh, "{sent:?}");
        assert_eq!(words(&shown(sent)), stale, "{sent:?}");
    }
}

#[test]
fn a_stale_value_that_cannot_be_read_is_not_taken_again() {
    for (unread, word_of) in [(6, 'S'), (7, '.'), (8, '.')] {
        let unread = Version::new(unread);
        let want = Demand {
            unread,
            ..want(false)
        };
        assert_eq!(word(&want, &shown(10)), word_of, "{unread:?}");
    }
}

#[test]
fn loaded_value_is_fresh_if_begun_or_kept_after_question() {
    for (began, words_of) in [(9, ".."), (10, "WW"), (11, "WW")] {
        assert_eq!(words(&loaded(began)), words_of);
    }
    let fresh = Some(CommitOutcome::Fresh(61_000));
    for (began, sent, kept, words_of) in [
        (10, 12, None, "WW"),
        (10, 12, Some(CommitOutcome::Stale), "WW"),
        (10, 12, Some(CommitOutcome::Overtaken), "WW"),
        (9, 10, fresh, "WW"),
        (9, 9, fresh, "Sa"),
        (9, 10, None, "Sa"),
        (9, 10, Some(CommitOutcome::Stale), "Sa"),
        (9, 10, Some(CommitOutcome::Overtaken), "Sa"),
    ] {
        let over = ended(LoadOutcome::Loaded {
            value: value(),
            began: at(began),
            sent: at(sent),
            kept,
        });
        assert_eq!(words(&over), words_of, "{began} {sent} {kept:?}");
    }
}

#[test]
fn refusals_are_for_all_who_wait() {
    let refused = |refusal| ended(LoadOutcome::Refused(refusal));
    let leads = Demand {
        leads: true,
        ..want(false)
    };
    assert_eq!(words(&refused(Refusal::GaveUp)), "aa");
    let closed = testing::store_error(StoreErrorKind::Closed);
    assert_eq!(words(&refused(closed.into())), "rr");
    assert_eq!(words(&refused(Refusal::Nothing)), "rr");
    assert_eq!(word(&leads, &loaded(10)), 'L');
}
