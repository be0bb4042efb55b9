//! The invariants T1 to T5 of the timestamp protocol, by number.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use leasehold_core::timestamp::{Content, Reply, Step, Unit, apply, has_passed, is_ahead};
use leasehold_core::{Ttl, VALUE_SHOWN};
use proptest::prelude::*;

const NOW: u64 = 1_767_225_600;
const NOW_US: u64 = NOW * 1_000_000 + 999_999;

fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

fn text(value: &str) -> Content {
    Content::Text(value.into())
}

fn acquire(content: &mut Content) -> Reply {
    apply(
        Unit::Seconds,
        NOW_US,
        content,
        &Step::Acquire { ttl: ttl(30) },
    )
}

#[test]
fn t1_t2_only_a_deadline_passed_for_all_is_taken_over() {
    for (ahead, taken) in [(-2, true), (-1, true), (0, false), (1, false), (30, false)] {
        let before = Content::of(NOW.checked_add_signed(ahead).unwrap());
        let mut content = before.clone();
        let reply = acquire(&mut content);
        assert_eq!(matches!(reply, Reply::Held { .. }), taken, "{ahead}");
        assert_eq!(content == before, !taken, "{ahead}: {content:?}");
    }
    // A part of a second counts as a whole one.
    let mut content = text(&format!("{}.5", NOW - 1));
    assert!(matches!(
        acquire(&mut content),
        Reply::Busy { deadline: NOW, .. }
    ));
    assert!(!is_ahead(NOW, NOW) && !has_passed(NOW, NOW));
}

#[test]
fn t3_value_that_is_no_time_is_not_touched() {
    let token = "lh1.00000000000000000000000000000005.0000000000000009.h:1:";
    let others = [
        "",
        "0",
        "1",
        "-1767225600",
        "+1767225600",
        " 1767225600",
        "1767225600 ",
        "01767225600",
        "1.8e9",
        "1767225600.",
        ".5",
        "1767225600.5.5",
        "1767225600,5",
        "176722560",
        "0176722560",
        "176722560000",
        "1767225600000",
        "176722560000000",
        "1767225600\0",
        "١٧٦٧٢٢٥٦٠٠",
        token,
    ];
    let other_types = [Content::Other("hash".into()), Content::Text(vec![0xff; 10])];
    for before in others.map(text).into_iter().chain(other_types) {
        let mut content = before.clone();
        assert_eq!(acquire(&mut content), Reply::Foreign(before.clone()));
        let mine = vec![1, NOW];
        let release = Step::Release { mine };
        let reply = apply(Unit::Seconds, NOW_US, &mut content, &release);
        assert!(matches!(reply, Reply::NotHeld { .. }), "{before:?}");
        assert_eq!(content, before);
    }
}

#[test]
fn t3_no_number_is_a_time_in_both_units() {
    for value in ["1767225600", "17672256000", "1767225600.25"] {
        assert!(Unit::Seconds.read(value.as_bytes()).is_some(), "{value}");
        assert_eq!(Unit::Millis.read(value.as_bytes()), None, "{value}");
    }
    for value in ["1767225600000", "17672256000000", "1767225600000.0"] {
        assert!(Unit::Millis.read(value.as_bytes()).is_some(), "{value}");
        assert_eq!(Unit::Seconds.read(value.as_bytes()), None, "{value}");
    }
}

#[test]
fn t3_value_longer_than_others_are_shown_is_no_time() {
    let of_length = |length| format!("{NOW}.{}", "0".repeat(length - 11));
    let read = |length| Unit::Seconds.read(of_length(length).as_bytes());
    assert_eq!(read(VALUE_SHOWN), Some(NOW));
    assert_eq!(read(VALUE_SHOWN + 1), None);
}

#[test]
fn t3_a_clock_that_was_never_set_writes_nothing() {
    let mut content = Content::Nothing;
    let step = Step::Acquire { ttl: ttl(30) };
    let reply = apply(Unit::Seconds, 5_000_000, &mut content, &step);
    assert_eq!(reply, Reply::BadClock { at_us: 5_000_000 });
    assert_eq!(content, Content::Nothing);
}

#[test]
fn t4_only_ones_own_deadline_that_lies_ahead_is_touched() {
    for (stands, mine, ours) in [
        (NOW + 9, vec![NOW + 9], true),
        (NOW + 9, vec![NOW + 5, NOW + 9], true),
        (NOW + 1, vec![NOW + 1], true),
        (NOW, vec![NOW], false),
        (NOW - 1, vec![NOW - 1], false),
        (NOW + 9, vec![NOW + 8], false),
        (NOW + 9, vec![], false),
    ] {
        let to = NOW + 31;
        let extend = Step::Extend {
            to,
            ttl: ttl(30),
            mine: mine.clone(),
        };
        for (step, after) in [
            (Step::Release { mine: mine.clone() }, Content::Nothing),
            (extend, Content::of(to)),
        ] {
            let mut content = Content::of(stands);
            let reply = apply(Unit::Seconds, NOW_US, &mut content, &step);
            let refused = matches!(reply, Reply::NotHeld { .. });
            assert_eq!(refused, !ours, "{stands} {step:?}");
            assert_eq!(content, if ours { after } else { Content::of(stands) });
        }
    }
    // Another notation of the deadline was not written by this client.
    let mut content = text(&format!("{}.0", NOW + 9));
    let release = Step::Release {
        mine: vec![NOW + 9],
    };
    let reply = apply(Unit::Seconds, NOW_US, &mut content, &release);
    assert!(matches!(reply, Reply::NotHeld { .. }));
}

#[test]
fn t5_a_deadline_covers_the_ttl_and_hardly_more() {
    let mut content = Content::Nothing;
    let reply = acquire(&mut content);
    assert_eq!(
        reply,
        Reply::Held {
            deadline: NOW + 31,
            at_us: NOW_US
        }
    );
    assert_eq!(content, text("1767225631"));
    for (to, fits) in [(30, false), (31, true), (32, true), (33, false)] {
        let to = NOW + to;
        let mut content = Content::of(NOW + 9);
        let step = Step::Extend {
            to,
            ttl: ttl(30),
            mine: vec![NOW + 9],
        };
        let reply = apply(Unit::Seconds, NOW_US, &mut content, &step);
        let again = Reply::Again { at_us: NOW_US };
        assert_eq!(reply != again, fits, "{to}");
        assert_eq!(content, Content::of(if fits { to } else { NOW + 9 }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// T5, for any unit, TTL and time.
    #[test]
    fn a_grant_outlasts_its_ttl(
        millis in 10_u64..86_400_000,
        now_us in 1_000_000_000_000_000_u64..4_000_000_000_000_000,
        in_seconds in any::<bool>(),
    ) {
        let unit = if in_seconds { Unit::Seconds } else { Unit::Millis };
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        let mut content = Content::Nothing;
        let reply = apply(unit, now_us, &mut content, &Step::Acquire { ttl });
        let Reply::Held { deadline, .. } = reply else { panic!("{reply:?}") };
        let lasts_us = deadline * unit.micros() - now_us;
        prop_assert!(lasts_us > millis * 1_000);
        prop_assert!(lasts_us <= millis * 1_000 + 2 * unit.micros());
        // And no other client takes it over before that.
        let almost = deadline * unit.micros() + unit.micros() - 1;
        let reply = apply(unit, almost, &mut content, &Step::Acquire { ttl });
        prop_assert_eq!(reply, Reply::Busy { deadline, at_us: almost });
        let reply = apply(unit, almost + 1, &mut content, &Step::Acquire { ttl });
        let taken_over = matches!(reply, Reply::Held { .. });
        prop_assert!(taken_over);
    }
}
