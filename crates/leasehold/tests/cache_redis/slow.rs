//! A load that takes longer than its lease.

use crate::fleet::{Fleet, total};

#[test]
fn renewed_it_stays_the_only_one() {
    let mut fleet = Fleet::start(4);
    let told = fleet.all("offer key=hot every=20000 ms=7000 takes=6000 lease=3000");
    assert_eq!(fleet.source.loads("hot"), 1, "{told:?}");
    assert_eq!(
        total(&told, "busy") + total(&told, "failed") + total(&told, "error"),
        0,
        "{told:?}"
    );
}

/// Without renewals, other processes load too, one for each lease. The cache keeps the first value that arrives, and serves all callers
/// with it. A lock with a check at the end would discard every value.
#[test]
fn not_renewed_it_still_fills_the_cache() {
    let mut fleet = Fleet::start(4);
    let told = fleet.all("offer key=hot every=20000 ms=6000 takes=3000 lease=1000 load_at_most=0");
    let loads = fleet.source.loads("hot");
    assert!((2..=4).contains(&loads), "{loads} loads: {told:?}");
    assert_eq!(
        total(&told, "busy") + total(&told, "failed") + total(&told, "error"),
        0,
        "{told:?}"
    );
    assert!(total(&told, "fresh") > 20, "it is stored: {told:?}");
    let told = fleet.all("offer key=hot callers=10");
    assert_eq!(total(&told, "fresh"), 40, "{told:?}");
}
