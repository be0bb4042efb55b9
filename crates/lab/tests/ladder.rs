//! Each rung violates its stated property in the stated number of steps, or holds within its bounds.
#![allow(clippy::unwrap_used, reason = "a test may")]

use leasehold_lab::ladder::check::{RungResult, check_rung, find_out, is_none_within, shortest};
use leasehold_lab::ladder::property::LadderProperty::{
    self, Child, Exclusion, FenceOrder, LostUpdate, Ownership, Recovery, StaleWrite,
};
use leasehold_lab::ladder::rungs::{self, Rung};
use leasehold_lab::report::{Checked, Judged, Verdict};

/// Every rung, its violated property, and the length of the shortest trace.
const STORIES: [(&str, &[(LadderProperty, usize)]); 26] = [
    ("setnx-del", &[(Recovery, 6)]),
    (
        "multi-setnx-expire",
        &[(Exclusion, 6), (Recovery, 8), (Ownership, 5)],
    ),
    (
        "setnx-expire",
        &[(Exclusion, 7), (Recovery, 6), (Ownership, 6)],
    ),
    ("set-ex-del", &[(Exclusion, 6), (Ownership, 5)]),
    ("set-ex-get-del", &[(Exclusion, 7), (Ownership, 6)]),
    ("timestamp-del-setnx", &[(Exclusion, 11), (Ownership, 10)]),
    ("getset-skew", &[(Exclusion, 5)]),
    ("getset-delayed", &[(Exclusion, 15)]),
    ("getset-del", &[(Exclusion, 8), (Ownership, 7)]),
    ("getset-check-del", &[(Exclusion, 9), (Ownership, 8)]),
    ("getset-no-owner", &[(Exclusion, 5), (Ownership, 4)]),
    ("set-px-lua", &[]),
    ("set-px-lua-stale-write", &[(StaleWrite, 7)]),
    ("set-px-lua-lost-update", &[(LostUpdate, 9)]),
    ("set-px-lua-fenced", &[]),
    ("wrapper-orphan", &[(Child, 6)]),
    ("redlock", &[]),
    ("redlock-restart", &[(Exclusion, 7)]),
    ("redlock-clock-jump", &[(Exclusion, 7)]),
    ("redlock-late-validity", &[(Exclusion, 8)]),
    ("quorum", &[]),
    ("quorum-restart", &[]),
    ("quorum-clock-jump", &[]),
    (
        "quorum-no-quarantine",
        &[
            (Exclusion, 5),
            (FenceOrder, 5),
            (StaleWrite, 9),
            (LostUpdate, 9),
        ],
    ),
    ("quorum-early-counter", &[(FenceOrder, 7)]),
    ("quorum-no-certificate", &[(FenceOrder, 8)]),
];

#[test]
fn each_rung_violates_its_stated_property_and_none_sooner() {
    let mut found = Vec::new();
    for rung in rungs::all() {
        if rung.breaks.is_none() {
            found.push((rung.name, Vec::new()));
            continue;
        }
        let checked = check_rung(rung, rung.bounds);
        let broken = |(&property, judged): (&LadderProperty, _)| match judged {
            Verdict::Violated { steps, .. } => Some((property, steps)),
            _ => None,
        };
        let verdicts = checked.properties.into_iter().map(|judged| judged.verdict);
        let broken: Vec<_> = rung.asks.iter().zip(verdicts).filter_map(broken).collect();
        for &(property, steps) in &broken {
            assert!(is_none_within(rung, rung.bounds, property, steps - 1));
            assert!(!is_none_within(rung, rung.bounds, property, steps));
        }
        assert!(
            broken
                .iter()
                .any(|(property, _)| rung.breaks == Some(*property))
        );
        found.push((rung.name, broken));
    }
    let expected = STORIES.map(|(name, broken)| (name, broken.to_vec()));
    assert_eq!(found, expected);
}

#[test]
fn the_lock_of_a_script_is_exhausted_within_its_bounds() {
    is_exhausted("set-px-lua", 50_000);
}

#[test]
fn a_fence_at_first_touch_is_exhausted_within_its_bounds() {
    is_exhausted("set-px-lua-fenced", 20_000);
}

#[test]
fn redlock_is_exhausted_within_its_bounds() {
    is_exhausted("redlock", 100_000);
}

#[test]
fn the_fenced_quorum_is_exhausted_within_its_bounds() {
    is_exhausted("quorum", 300_000);
}

#[test]
fn quorum_with_a_quarantine_is_exhausted_within_its_bounds() {
    is_exhausted("quorum-restart", 300_000);
}

/// The lock is held by two, so the resource has something to refuse.
#[test]
fn fences_of_a_quorum_hold_where_a_clock_jump_breaks_exclusion() {
    is_exhausted("quorum-clock-jump", 100_000);
    let rung = rungs::find("quorum-clock-jump").unwrap();
    let two_holders = shortest(rung, rung.bounds, Exclusion).unwrap();
    assert_eq!(two_holders.lines.len(), 5);
}

fn is_exhausted(name: &str, least: usize) {
    let rung = rungs::find(name).unwrap();
    let RungResult::Explored(checked) = find_out(rung) else {
        panic!("{name} is broken");
    };
    assert!(checked.states > least, "{checked:?}");
    for judged in &checked.properties {
        assert_eq!(judged.verdict, Verdict::Exhausted, "{checked:?}");
    }
}

/// Of equal clients only one may begin, which saves states; this must not hide a trace.
#[test]
fn it_does_not_matter_which_of_like_clients_begins() {
    for name in ["set-ex-del", "timestamp-del-setnx", "getset-delayed"] {
        let rung = rungs::find(name).unwrap();
        assert!(rung.are_alike);
        let any_begins: &'static Rung = Box::leak(Box::new(Rung {
            are_alike: false,
            ..*rung
        }));
        let few = check_rung(rung, rung.bounds);
        let many = check_rung(any_begins, rung.bounds);
        assert!(few.states < many.states);
        let steps = |judged: &Judged| match judged.verdict {
            Verdict::Violated { steps, .. } => Some(steps),
            _ => None,
        };
        let of = |checked: &Checked| checked.properties.iter().map(steps).collect::<Vec<_>>();
        assert_eq!(of(&few), of(&many), "{name}");
    }
}

#[test]
fn names_are_found() {
    for rung in rungs::all() {
        assert!(std::ptr::eq::<Rung>(rungs::find(rung.name).unwrap(), *rung));
    }
    assert!(rungs::find("setnx").is_none());
}
