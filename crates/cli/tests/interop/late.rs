//! Measures how soon a Leasehold waiter gets a lock. The times are told; a machine that is late fails no story.

use std::time::Duration;

use crate::peer::Peer;
use crate::scene::{EXPIRES_SOON, NAME, SLACK, millis, now};

/// The usual limit between a foreign release and the grant to a Leasehold waiter, which polls each 50 ms.
pub(crate) const SOON: Duration = Duration::from_millis(100);

/// How long something took.
pub(crate) fn timed(something: impl FnOnce()) -> Duration {
    let began = now();
    something();
    now().since(began)
}

/// Tells how soon a Leasehold waiter has the lock after each foreign release that `again` measures.
pub(crate) fn seen_soon(again: impl FnMut() -> Duration) -> String {
    const TIMES: usize = 5;
    let mut took: Vec<Duration> = std::iter::repeat_with(again).take(TIMES).collect();
    took.sort_unstable();
    let (median, worst) = (took[TIMES / 2], took[TIMES - 1]);
    assert!(worst <= SOON + SLACK, "{took:?}");
    format!(
        "seen by Leasehold after {} (median; worst {})",
        millis(median),
        millis(worst)
    )
}

/// How long after the end of a dead client's lease, which `expire_soon` sets, the heir has the lock.
pub(crate) fn after_the_end(expire_soon: impl FnOnce(), heir: &mut Peer, ttl: &str) -> Duration {
    let before = now();
    expire_soon();
    let set = now();
    assert_eq!(heir.ask(&format!("wait {NAME} {ttl}")), "held");
    let taken = now();
    // The end was set between the two times, and a server counts whole milliseconds.
    let at_least = taken.since(before) + Duration::from_millis(2);
    assert!(at_least >= EXPIRES_SOON, "not before its end");
    taken.since(set).saturating_sub(EXPIRES_SOON)
}
