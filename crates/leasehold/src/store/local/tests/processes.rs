//! Processes that end, and hosts that reboot.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_process_that_is_gone_is_free_at_once() {
    for gone in [
        format!("pid = {}", reaped()),
        "started = started + 1".into(),
    ] {
        let host = Host::new(Clock::virtual_time());
        let (a, b) = (host.peer(1), host.peer(2));
        assert!(held(&a.acquire(3600).await));
        assert!(busy(&b.acquire(30).await));
        host.sql(&format!("UPDATE clients SET {gone} WHERE client = 1"));
        assert!(held(&b.acquire(30).await), "{gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_process_is_gone_is_passed_over() {
    let host = Host::new(Clock::virtual_time());
    let (a, b, c) = (host.peer(1), host.peer(2), host.peer(3));
    assert!(held(&a.acquire(30).await) && busy(&b.acquire(30).await) && busy(&c.acquire(30).await));
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 2",
        reaped()
    ));
    a.release(None).await;
    assert!(held(&c.acquire(30).await));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_be_seen_counts_until_its_deadline() {
    for hidden in [
        "UPDATE clients SET namespace = 'pid:[1]', pid = 1, started = 1",
        "DELETE FROM clients",
    ] {
        let host = Host::new(Clock::virtual_time());
        let (a, b) = (host.peer(1), host.peer(2));
        assert!(held(&a.acquire(3600).await));
        host.sql(&format!("{hidden} WHERE client = 1"));
        host.clock.suspend(Duration::from_secs(3599));
        assert!(busy(&b.acquire(30).await));
        host.clock.suspend(Duration::from_secs(2));
        assert!(held(&b.acquire(30).await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_kept_after_its_release_outlives_the_process() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    assert_eq!(a.release(Some(seconds(60))).await, Reply::Released);
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 1",
        reaped()
    ));
    host.clock.suspend(Duration::from_secs(59));
    let c = host.peer(3);
    assert!(busy(&b.acquire(30).await) && busy(&c.acquire(30).await));
    host.clock.suspend(Duration::from_secs(2));
    assert!(held(&b.acquire(30).await));
}

#[tokio::test(start_paused = true)]
async fn kept_hold_extended_by_other_process_outlives_its_taker() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    assert_eq!(a.release(Some(seconds(10))).await, Reply::Released);
    let owner = a.owner(1);
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 1",
        reaped()
    ));
    drop(a);
    // A client that knows only the token.
    let c = host.peer(3);
    let (ttl, fence) = (seconds(60), None);
    let extend = Step::Extend {
        owner: owner.clone(),
        ttl,
        fence,
    };
    assert!(held(&c.step(extend).await));
    host.clock.suspend(Duration::from_secs(59));
    assert!(busy(&b.acquire(30).await), "it was extended");
    let keep = None;
    let released = c.step(Step::Release { owner, keep, fence }).await;
    assert_eq!(released, Reply::Released);
    assert!(held(&b.acquire(30).await));
}

#[test]
fn a_boot_clears_all_locks_and_fences_go_on() {
    let host = Host::new(Clock::system());
    let (a, b) = (host.peer(1), host.peer(2));
    let before = pollster::block_on(async {
        assert!(held(&a.acquire(3600).await));
        assert!(busy(&b.acquire(3600).await));
        a.fence().await.unwrap()
    });
    // As if the clock had been ahead when the clients took the locks. The fence is above any wall time.
    let high = before.get() + 1_000_000_000_000;
    host.sql(&format!(
        "UPDATE counter SET used_at_ms = used_at_ms + 100000000, fence = {high}"
    ));
    let c = host.peer(3);
    assert_eq!((host.count("locks"), host.count("clients")), (0, 1));
    pollster::block_on(async {
        assert!(held(&c.acquire(30).await));
        assert_eq!(c.fence().await.unwrap().get(), high + 1);
        // The counter now has a time of this boot, so the store does not clear the locks again.
        assert!(busy(&host.peer(4).acquire(30).await));
    });
}

/// A process that this host cannot see may extend a lease for months.
#[test]
fn a_boot_shows_in_the_last_extension_too() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    pollster::block_on(async {
        assert!(held(&a.acquire(3600).await));
        // As if the store had granted the lock soon after the boot.
        host.sql("UPDATE counter SET used_at_ms = 1");
        assert!(held(&a.acquire(7200).await), "extended");
    });
    host.sql(
        "UPDATE counter SET used_at_ms = used_at_ms + 100000000 WHERE used_at_ms > 1;
         UPDATE clients SET namespace = 'pid:[1]', pid = 1, started = 1;",
    );
    assert!(held(&pollster::block_on(host.peer(2).acquire(30))));
}

#[test]
fn the_same_boot_clears_nothing() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    pollster::block_on(async {
        assert!(held(&a.acquire(3600).await));
        assert!(busy(&host.peer(2).acquire(30).await));
    });
}

#[tokio::test(start_paused = true)]
async fn unused_entries_are_deleted() {
    let host = Host::new(Clock::virtual_time());
    let a = host.peer(1);
    assert!(held(&a.acquire(3600).await));
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 1",
        reaped()
    ));
    drop(a);
    let rows = || ["locks", "clients", "counter"].map(|table| host.count(table));
    assert_eq!(rows(), [1, 1, 1], "the row tells that the process is gone");
    drop(host.peer(2));
    assert_eq!(rows(), [0, 0, 1]);
}

/// Its client is known by its token in the queue only.
#[tokio::test(start_paused = true)]
async fn client_of_a_waiter_is_known_until_it_leaves_the_queue() {
    let host = Host::new(Clock::virtual_time());
    // The largest id is a negative number in the file.
    let (a, b) = (host.peer(1), host.peer(u64::MAX));
    assert!(held(&a.acquire(30).await) && busy(&b.acquire(30).await));
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = -1",
        reaped()
    ));
    drop(b);
    drop(host.peer(3));
    let rows = || ["locks", "clients"].map(|table| host.count(table));
    assert_eq!(rows(), [1, 2], "others learn that the waiter is gone");
    assert_eq!(a.release(None).await, Reply::Released);
    assert_eq!(rows(), [0, 2]);
    drop(host.peer(3));
    assert_eq!(rows(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn names_are_those_that_are_held_or_waited_for() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    host.clock.suspend(Duration::from_secs(30));
    assert_eq!(b.store.index(None).await.unwrap(), ["orders:42"]);
    host.clock.suspend(Duration::from_millis(1));
    assert!(b.store.index(None).await.unwrap().is_empty());
    assert_eq!(host.count("locks"), 1, "not tidied yet");
    drop(host.peer(3));
    assert_eq!(host.count("locks"), 0);
}
