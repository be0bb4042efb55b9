//! Processes that end, and hosts that reboot.

use super::*;

#[test]
fn the_lock_of_a_process_that_is_gone_is_free_at_once() {
    for is_another_with_its_number in [false, true] {
        let host = Host::still();
        let (a, b) = (host.peer(1), host.peer(2));
        assert!(a.takes(3600) && b.waits(30));
        if is_another_with_its_number {
            host.sql("UPDATE clients SET started = started + 1 WHERE client = 1");
        } else {
            host.ends(1);
        }
        assert!(b.takes(30), "{is_another_with_its_number}");
    }
}

#[test]
fn a_waiter_whose_process_is_gone_is_passed_over() {
    let host = Host::still();
    let [a, b, c] = [1, 2, 3].map(|client| host.peer(client));
    assert!(a.takes(30) && b.waits(30) && c.waits(30));
    host.ends(2);
    a.releases();
    assert!(c.takes(30));
}

#[test]
fn a_process_that_cannot_be_seen_counts_until_its_deadline() {
    for hidden in [
        "UPDATE clients SET namespace = 'pid:[1]', pid = 1, started = 1",
        "DELETE FROM clients",
    ] {
        let host = Host::still();
        let (a, b) = (host.peer(1), host.peer(2));
        assert!(a.takes(3600));
        host.sql(&format!("{hidden} WHERE client = 1"));
        host.passes(3590);
        assert!(b.waits(30));
        host.passes(11);
        assert!(b.takes(30));
    }
}

/// Another process that knows the token may extend and release it.
#[test]
fn a_hold_that_is_kept_after_its_release_outlives_processes() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(a.takes(30));
    assert_eq!(a.release(Some(seconds(60))).unwrap(), Reply::Released);
    let owner = a.owner(1);
    host.ends(1);
    drop(a);
    host.passes(50);
    let c = host.peer(3);
    assert!(b.waits(30) && c.waits(30));
    let (ttl, fence) = (seconds(60), None);
    let extend = Step::Extend {
        owner: owner.clone(),
        ttl,
        fence,
    };
    assert!(matches!(c.step(extend), Reply::Held(_)));
    host.passes(50);
    assert!(b.waits(30), "it was extended");
    let keep = None;
    let release = Step::Release { owner, keep, fence };
    assert_eq!(c.step(release), Reply::Released);
    assert!(b.takes(30));
}

#[test]
fn a_boot_clears_all_locks_and_fences_go_on() {
    let host = Host::running();
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(a.takes(3600) && b.waits(3600));
    // As if the clock had been ahead when the clients took the locks. The fence is above any wall time.
    let high = a.fence().unwrap().get() + 1_000_000_000_000;
    host.sql(&format!(
        "UPDATE counter SET used_at_ms = used_at_ms + 100000000, fence = {high}"
    ));
    let c = host.peer(3);
    assert_eq!((host.count("locks"), host.count("clients")), (0, 1));
    assert!(c.takes(30));
    assert_eq!(c.fence().unwrap().get(), high + 1);
    // The counter now has a time of this boot, so the store does not clear the locks again.
    assert!(host.peer(4).waits(30));
}

/// A process that this host cannot see may extend a lease for months.
#[test]
fn a_boot_shows_in_the_last_extension_too() {
    let host = Host::running();
    let a = host.peer(1);
    assert!(a.takes(3600));
    // As if the store had granted the lock soon after the boot.
    host.sql("UPDATE counter SET used_at_ms = 1");
    assert!(a.takes(7200), "extended");
    host.sql(
        "UPDATE counter SET used_at_ms = used_at_ms + 100000000 WHERE used_at_ms > 1;
         UPDATE clients SET namespace = 'pid:[1]', pid = 1, started = 1;",
    );
    assert!(host.peer(2).takes(30));
}

#[test]
fn unused_entries_are_deleted() {
    let host = Host::still();
    let a = host.peer(1);
    assert!(a.takes(3600));
    host.ends(1);
    drop(a);
    let rows = || ["locks", "clients", "counter"].map(|table| host.count(table));
    assert_eq!(rows(), [1, 1, 1], "the row tells that the process is gone");
    drop(host.peer(2));
    assert_eq!(rows(), [0, 0, 1]);
}

/// Its client is known by its token in the queue only.
#[test]
fn client_of_a_waiter_is_known_until_it_leaves_the_queue() {
    let host = Host::still();
    // The largest id is a negative number in the file.
    let (a, b) = (host.peer(1), host.peer(u64::MAX));
    assert!(a.takes(30) && b.waits(30));
    host.ends(-1);
    drop(b);
    drop(host.peer(3));
    let rows = || ["locks", "clients"].map(|table| host.count(table));
    assert_eq!(rows(), [1, 2], "others learn that the waiter is gone");
    a.releases();
    assert_eq!(rows(), [0, 2]);
    drop(host.peer(3));
    assert_eq!(rows(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn names_are_those_that_are_held_or_waited_for() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(a.takes(30));
    host.passes(30);
    assert_eq!(b.names(), [NAME]);
    host.clock.suspend(Duration::from_millis(1));
    assert!(b.names().is_empty());
    assert_eq!(host.count("locks"), 1, "not tidied yet");
    drop(host.peer(3));
    assert_eq!(host.count("locks"), 0);
}
