//! When a waiter asks again. Must never be needed for safety: it only says how soon the queue moves if wakes get lost.

use std::time::Duration;

use crate::line::PASSED_OVER;

/// Wait per place in the queue between two polls, for a waiter that is told when its turn comes and for one that is not;
/// its limit; per place after the end of the lease.
const POLL_PER_PLACE: u64 = 1_000;
const POLL_PER_PLACE_UNSUBSCRIBED: u64 = 250;
const POLL_MAX: u64 = 15_000;
const POLL_STAGGER: u64 = 10;

/// The wait of the first behind a foreign holder, and of those that have no more before them than one step passes over: with
/// the tenth that clients add, it is less than 100 ms. Further back, it grows by the first's for each place.
const POLL_FOREIGN: u64 = 50;
const POLL_FOREIGN_NEAR: u64 = 90;

/// When a waiter with `ahead` others before it should ask again if it hears nothing: a second times its place (250 ms if
/// it is not `listening` for a wake), at most 15 s, but when the lease ends if that is sooner, 10 ms later for each of those
/// before it.
///
/// A `foreign` holder wakes nobody when it ends, and those before a waiter may have died by then. So the first asks every
/// 50 ms, and who has at most [`PASSED_OVER`] before it every 90 ms: the first of these that lives has the lock within 100 ms.
/// Further back it is 50 ms for each of those before it, less 30 of them; at most 15 s.
///
/// All count on the end of the lease, not just the first: a waiter hears nothing while it moves up, so who is first when
/// a lease lapses may have asked last when it was far behind. They ask one after the other, and the first of them ends the
/// wait of all. If the last that it heard of was a holder in its [`CLAIM_WINDOW`], as in any line that moves fast, then a
/// grant that nobody claims costs that window and 10 ms for each waiter that was before it, besides the tenth that clients
/// add to spread their polls. If it was a holder of a longer lease, its place decides, and it may take the 15 s.
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
