//! Loads of cache entries that are late, overtaken or failed, and the entry after them.

use leasehold_core::cache::{CommitOutcome, Reply};

use super::reader::{Entries, FRESH, LEASE, fresh, stale, text, two};
use super::worlds::World;
use super::{MS, SECOND};

pub(super) async fn a_late_value_is_kept_if_there_is_none(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    world.advance(LEASE + MS);
    let second = b.loads().await;
    assert!(matches!(
        a.commits(first, "1").await,
        CommitOutcome::Fresh(_)
    ));
    assert_eq!(text(&b.finds().await), "1");
    assert!(matches!(
        b.commits(second, "2").await,
        CommitOutcome::Fresh(_)
    ));
    assert_eq!(text(&a.finds().await), "2");
}

pub(super) async fn a_late_value_never_replaces_a_newer_one(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    world.advance(LEASE + MS);
    let second = b.loads().await;
    b.commits(second, "2").await;
    assert_eq!(a.commits(first, "1").await, CommitOutcome::Overtaken);
    assert_eq!(a.looks().await, Some(fresh("2")));
}

pub(super) async fn an_invalidated_value_is_stale_and_the_next_one_is_loaded(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    a.commits(first, "1").await;
    b.invalidates(false).await;
    assert_eq!(a.looks().await, Some(stale("1")));
    let Reply::Load {
        version,
        stale: Some(old),
        ..
    } = a.asks().await
    else {
        panic!("stale, and sent along")
    };
    assert!(version > first && old.header.invalidated);
    assert!(matches!(
        a.commits(version, "2").await,
        CommitOutcome::Fresh(_)
    ));
    assert_eq!(b.looks().await, Some(fresh("2")));
}

pub(super) async fn a_load_from_before_an_invalidation_fills_as_stale(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    b.invalidates(false).await;
    let second = b.loads().await;
    assert_eq!(a.commits(first, "1").await, CommitOutcome::Stale);
    assert_eq!(a.looks().await, Some(stale("1")));
    assert!(matches!(
        b.commits(second, "2").await,
        CommitOutcome::Fresh(_)
    ));
    assert_eq!(a.commits(first, "1").await, CommitOutcome::Overtaken);
}

pub(super) async fn a_removed_value_is_gone_and_does_not_come_back_as_fresh(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    a.commits(first, "1").await;
    b.invalidates(true).await;
    assert_eq!(a.looks().await, None);
    assert_eq!(
        a.commits(first, "1").await,
        CommitOutcome::Stale,
        "a repeat"
    );
    assert_eq!(a.looks().await, Some(stale("1")));
    b.invalidates(true).await;
    assert!(b.loads().await > first);
}

pub(super) async fn load_without_control_fills_as_stale(world: &impl Entries) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    world.forget_control(&a.key);
    assert_eq!(a.commits(first, "1").await, CommitOutcome::Stale);
    // A new control does not know the earlier versions.
    let second = b.loads().await;
    assert!(second > first);
    assert_eq!(a.looks().await, Some(stale("1")));
    assert!(matches!(
        b.commits(second, "2").await,
        CommitOutcome::Fresh(_)
    ));
}

pub(super) async fn failed_load_causes_back_off(world: &impl World) {
    let (a, b) = two(world).await;
    for failures_before in 0..3 {
        let Reply::Load { failures, .. } = a.asks().await else {
            panic!("nobody loads")
        };
        assert_eq!(failures, failures_before);
        a.abandons(Some((SECOND, "größe 7 < 8"))).await;
        for reader in [&a, &b] {
            let Reply::BackOff { left, error, .. } = reader.asks().await else {
                panic!("the source is left alone")
            };
            assert_eq!((left, error.as_str()), (SECOND + MS, "größe 7 < 8"));
        }
        world.advance(SECOND);
        assert!(
            matches!(b.asks().await, Reply::BackOff { .. }),
            "its last millisecond"
        );
        world.advance(MS);
    }
    let version = a.loads().await;
    a.commits(version, "1").await;
    world.advance(FRESH);
    assert!(
        matches!(b.asks().await, Reply::Load { failures: 0, .. }),
        "it works again"
    );
}

pub(super) async fn abandoned_load_goes_to_next_client(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.loads().await;
    a.abandons(None).await;
    assert!(b.loads().await > first);
}

pub(super) async fn a_load_that_was_taken_over_ends_nothing(world: &impl World) {
    let (a, b) = two(world).await;
    a.loads().await;
    world.advance(LEASE + MS);
    b.loads().await;
    a.abandons(Some((SECOND, "too late"))).await;
    assert_eq!(a.renews().await, Reply::NotLoading);
    assert!(matches!(a.asks().await, Reply::Busy { .. }));
    assert_eq!(b.renews().await, Reply::Renewed);
}
