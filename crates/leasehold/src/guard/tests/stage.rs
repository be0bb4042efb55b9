//! Each stage of a shared load for callers that asked before, during or after it (G3).

use leasehold_core::cache::{CommitOutcome, Format, Header, Value, Version};

use crate::clock::Moment;
use crate::error::StoreError;
use crate::guard::answer::{Origin, Refusal};
use crate::guard::stage::{CommitReport, Demand, LoadOutcome, LoadStage, StaleValue, WaitResult};

const fn at(moment: u64) -> Moment {
    Moment::from_micros(moment)
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
fn word(want: &Demand, stage: &LoadStage) -> char {
    match want.evaluate(stage) {
        None => '.',
        Some(WaitResult::Again) => 'a',
        Some(WaitResult::Refuse(_)) => 'r',
        Some(WaitResult::Take { origin, .. }) => match origin {
            Origin::Fresh => 'F',
            Origin::Stale => 'S',
            Origin::Loaded => 'L',
            Origin::Waited => 'W',
        },
    }
}

/// The results for a caller that takes a stale value and for one that does not.
fn words(stage: &LoadStage) -> String {
    [false, true]
        .map(|strict| word(&want(strict), stage))
        .iter()
        .collect()
}

#[test]
fn what_the_store_said_is_for_those_who_asked_before() {
    assert_eq!(words(&LoadStage::Asking), "..");
    for (sent, stale, found) in [(9, "..", "aa"), (10, "S.", "WW"), (11, "S.", "WW")] {
        let (value, now_ms, sent) = (value(), 2_000, at(sent));
        let stage = LoadStage::Ended(LoadOutcome::Found(value.clone(), now_ms, sent));
        assert_eq!(words(&stage), found, "{sent:?}");
        let shown_then = StaleValue {
            value,
            now_ms,
            sent,
        };
        assert_eq!(words(&LoadStage::Stale(shown_then)), stale, "{sent:?}");
    }
}

#[test]
fn a_stale_value_that_cannot_be_read_is_not_taken_again() {
    let stage = |sent| {
        LoadStage::Stale(StaleValue {
            value: value(),
            now_ms: 2_000,
            sent: at(sent),
        })
    };
    for (unread, word_of) in [(6, 'S'), (7, '.'), (8, '.')] {
        let unread = Version::new(unread);
        let want = Demand {
            unread,
            ..want(false)
        };
        assert_eq!(word(&want, &stage(10)), word_of, "{unread:?}");
    }
}

#[test]
fn loaded_value_is_fresh_if_begun_or_kept_after_question() {
    for (began, words_of) in [(9, ".."), (10, "WW"), (11, "WW")] {
        assert_eq!(words(&LoadStage::Loaded(value(), at(began))), words_of);
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
        let (began, sent) = (at(began), at(sent));
        let report = CommitReport { began, sent, kept };
        let stage = LoadStage::Ended(LoadOutcome::Loaded(value(), report));
        assert_eq!(words(&stage), words_of, "{report:?}");
    }
}

#[test]
fn a_runtime_that_ended_is_a_refusal_for_its_caller_only() {
    let stage = |refusal| LoadStage::Ended(LoadOutcome::Refused(refusal));
    let leads = Demand {
        leads: true,
        ..want(false)
    };
    assert_eq!(words(&stage(Refusal::GaveUp)), "aa");
    assert_eq!(word(&leads, &stage(Refusal::GaveUp)), 'r');
    let closed = || stage(Refusal::Store(StoreError::closed()));
    assert_eq!(words(&closed()), "rr");
    assert_eq!(words(&LoadStage::Ended(LoadOutcome::Unwanted)), "aa");
    assert_eq!(words(&LoadStage::Ended(LoadOutcome::Nothing)), "rr");
    assert_eq!(word(&leads, &LoadStage::Loaded(value(), at(10))), 'L');
}
