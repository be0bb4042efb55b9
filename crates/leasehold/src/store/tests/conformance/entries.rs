//! Cache entries: the data that a store keeps of them, and the notices that it sends.

use leasehold_core::cache::{CommitOutcome, Format, POLL, POLL_UNSUBSCRIBED, Reply};
use leasehold_core::{LockName, Mode, Owner};

use super::peer::name;
use super::reader::{Entries, FRESH, LEASE, Reader, STALE, fresh, stale, text, ttl, two};
use super::worlds::World;
use super::{MS, SECOND};

pub(super) async fn one_loads_and_all_have_it(world: &impl World) {
    let (a, b) = two(world).await;
    assert_eq!(a.looks().await, None);
    let version = a.loads().await;
    assert!(matches!(
        a.commits(version, "{}").await,
        CommitOutcome::Fresh(_)
    ));
    let found = b.finds().await;
    assert_eq!((found.header.version, text(&found)), (version, "{}".into()));
    assert_eq!(
        (found.header.load_ms, found.header.format),
        (246, Format::Json)
    );
    assert_eq!(b.looks().await, Some(fresh("{}")));
}

pub(super) async fn concurrent_requests_wait_for_the_load(world: &impl World) {
    let (a, b) = two(world).await;
    a.loads().await;
    for _ in 0..2 {
        let reply = b.asks().await;
        assert!(
            matches!(reply, Reply::Busy { stale: None, .. }),
            "{reply:?}"
        );
    }
    world.advance(LEASE.saturating_sub(10 * MS));
    // One millisecond after its last one, the lease has ended.
    let Reply::Busy { poll_after, .. } = b.asks().await else {
        panic!("the lease has not ended")
    };
    assert_eq!(poll_after, 11 * MS);
}

pub(super) async fn listening_waiter_is_woken_when_load_ends<W: Entries>(world: &W) {
    let (a, b) = two(world).await;
    let ends = [
        "by a value",
        "by giving up",
        "by a failure",
        "by an invalidation",
    ];
    for (at, end) in ends.into_iter().enumerate() {
        world.advance(FRESH);
        let version = a.loads().await;
        let poll = if W::TELLS { POLL } else { POLL_UNSUBSCRIBED };
        for _ in 0..2 {
            let Reply::Busy { poll_after, .. } = b.asks().await else {
                panic!("{end}: another loads")
            };
            assert_eq!(poll_after, poll);
        }
        match at {
            0 => drop(a.commits(version, "1").await),
            1 => a.abandons(None).await,
            2 => a.abandons(Some((SECOND, "no"))).await,
            _ => a.invalidates(false).await,
        }
        assert_eq!(b.is_told().await, W::TELLS, "{end}");
        assert!(!b.is_told().await && !a.is_told().await, "{end}: once");
    }
}

pub(super) async fn value_is_fresh_until_soft_expiry_then_stale_for_a_while(world: &impl World) {
    let (a, b) = two(world).await;
    let version = a.loads().await;
    a.commits(version, "1").await;
    world.advance(FRESH.saturating_sub(MS));
    b.finds().await;
    world.advance(MS);
    let Reply::Load {
        stale: Some(old), ..
    } = b.asks().await
    else {
        panic!("stale, and sent along")
    };
    assert_eq!(text(&old), "1");
    let Reply::Busy { stale: Some(_), .. } = a.asks().await else {
        panic!("stale, and another loads")
    };
    world.advance(STALE);
    // Its last millisecond may or may not count.
    world.advance(MS);
    assert_eq!(a.looks().await, None);
    assert!(matches!(a.asks().await, Reply::Load { stale: None, .. }));
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
    assert_eq!(a.commits(first, "1").await, CommitOutcome::Stale);
    assert_eq!(b.looks().await, Some(stale("1")));
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

pub(super) async fn entries_do_not_touch_each_other_nor_the_lock_of_their_name(world: &impl World) {
    let (a, mut b) = two(world).await;
    b.key = LockName::new("another").unwrap();
    let (one, two) = (a.loads().await, b.loads().await);
    a.commits(one, "1").await;
    b.commits(two, "2").await;
    a.invalidates(true).await;
    assert_eq!((a.looks().await, b.looks().await), (None, Some(fresh("2"))));
    // A name without a cache entry is an ordinary lock.
    let owner = Owner::new(7, a.client, "host", 1, "a test").unwrap();
    let (mode, ttl) = (Mode::Exclusive, ttl(LEASE));
    let step = leasehold_core::Step::Acquire {
        owner,
        mode,
        ttl,
        block: leasehold_core::Block::ONE,
        wait: None,
    };
    let reply = a.store.apply(&name(), step).await.unwrap();
    assert!(matches!(reply, leasehold_core::Reply::Held(_)), "{reply:?}");
}

pub(super) async fn many_are_looked_up_at_once(world: &impl World) {
    let mut a = Reader::of(world, 1).await;
    let names = (0..1_200).map(|at| LockName::new(&format!("entry {at}")).unwrap());
    let names: Vec<_> = names.collect();
    for at in [0, 511, 512, 1_199] {
        a.key = names[at].clone();
        let version = a.loads().await;
        a.commits(version, &at.to_string()).await;
    }
    let found = a.looks_at(&names).await;
    assert_eq!(found.values.len(), names.len());
    for (at, value) in found.values.iter().enumerate() {
        let there = [0, 511, 512, 1_199].contains(&at).then(|| at.to_string());
        assert_eq!(value.as_ref().map(text), there);
    }
    assert!(a.looks_at(&[]).await.values.is_empty());
}
