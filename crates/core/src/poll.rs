//! When a waiter polls the store. Safety never depends on it: polls bound the delay if wakes are lost.

use std::time::Duration;

use crate::line::PASSED_OVER;

/// Milliseconds per place in the queue between two polls, for a waiter that is subscribed to wakes and for one that is not;
/// the longest poll interval; the delay per place after the end of the lease.
const POLL_PER_PLACE: u64 = 1_000;
const POLL_PER_PLACE_UNSUBSCRIBED: u64 = 250;
const POLL_MAX: u64 = 15_000;
const POLL_STAGGER: u64 = 10;

/// The poll interval of the first waiter behind a foreign holder, and of the [`PASSED_OVER`] waiters behind it. With the 10 %
/// jitter that clients add, it is below 100 ms. Further back, it grows by [`POLL_FOREIGN`] for each place.
const POLL_FOREIGN: u64 = 50;
const POLL_FOREIGN_NEAR: u64 = 90;

/// How long a waiter with `ahead` waiters before it sleeps before it polls again, if it receives no wake.
///
/// - In general: one second per place (250 ms if it is not `listening` for wakes), at most 15 s.
/// - If the holder's lease ends sooner: at the end of the lease, plus 10 ms for each waiter ahead.
/// - Behind a `foreign` holder: see below. A foreign holder sends no wake when it ends.
///
/// Behind a foreign holder, the first waiter polls each 50 ms, and the next [`PASSED_OVER`] waiters each 90 ms. Thus the first
/// of them that is alive has the lock within 100 ms. Further back the interval is 50 ms for each waiter ahead, less 30 of
/// them, at most 15 s.
///
/// Every waiter takes the end of the lease into account, not only the first. A waiter receives nothing while it moves up, so
/// the waiter that is first when a lease expires may have polled last from far behind. The staggered polls arrive one by one,
/// and the first of them advances the queue for all. If the last reply named a holder in its [`CLAIM_WINDOW`] (as in a fast
/// queue), an unclaimed grant costs that window, 10 ms for each waiter ahead, and the jitter. If the last reply named a holder
/// with a longer lease, the place decides, and the delay may be 15 s.
///
/// [`CLAIM_WINDOW`]: crate::CLAIM_WINDOW
pub fn poll_after(
    ahead: u32,
    expires_in: Option<Duration>,
    foreign: bool,
    listening: bool,
) -> Duration {
    let places = u64::from(ahead);
    let by_place = match (foreign, listening) {
        (true, _) => behind_foreign(places),
        (false, true) => POLL_PER_PLACE * (places + 1),
        (false, false) => POLL_PER_PLACE_UNSUBSCRIBED * (places + 1),
    };
    let by_place = Duration::from_millis(by_place.min(POLL_MAX));
    // One more millisecond, since a lease still counts at its last one.
    let past = Duration::from_millis(1 + POLL_STAGGER * places);
    expires_in.map_or(by_place, |left| by_place.min(left.saturating_add(past)))
}

fn behind_foreign(ahead: u64) -> u64 {
    const NEAR: u64 = PASSED_OVER as u64;
    match ahead {
        0 => POLL_FOREIGN,
        1..=NEAR => POLL_FOREIGN_NEAR,
        _ => POLL_FOREIGN * (ahead + 2 - NEAR),
    }
}
