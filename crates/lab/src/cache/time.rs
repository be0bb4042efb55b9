//! The passing of time. Must never make a difference that a rule could see.
//!
//! As in the models of the locks, it is always the same moment: when a tick passes, all that lies in the past or future moves by
//! a tick instead. What is far enough away is moved to one place, where that cannot be told apart:
//!
//! - A number below the wall clock of now is followed by the clock, whatever it is. So of old numbers only the order counts; of
//!   those given out in this tick also only the order, since the next one is above them all.
//! - A number from before the clock was set back is ahead of it for as long as anyone knows the number. Of those, too, only the order
//!   counts, but that they are far apart.
//! - A value that is stale is stale, however long; when it was stored, and how long its load took, decides nothing.
//! - A memory lasts for a quarter of an hour, which does not pass here: to lose it is a fault of its own. How many loads have
//!   failed is told and decides nothing.

use leasehold_core::Now;
use leasehold_core::cache::{MEMORY, Version};

use super::setup::TICK;
use super::state::{CachePhase, CacheState, Request};

/// The moment it always is.
pub(super) const NOW: Now = Now::at_micros(3_000_000_000_000);

/// In milliseconds.
pub(super) const TICK_MS: u64 = TICK.as_secs() * 1_000 + TICK.subsec_millis() as u64;

/// Numbers from here on are ahead of the clock, which was set back.
pub(super) const AHEAD_US: u64 = NOW.wall_us + 1_000_000_000_000;

/// So far apart are numbers that are ahead of the clock. They are counted one by one, and never reach the next one that is known.
const APART_US: u64 = 1_000;

/// The same moment, so many milliseconds later.
pub(super) const fn later(ms: u64) -> Now {
    Now::at_micros(NOW.clock_us + ms * 1_000)
}

/// Sets the wall clock back: all numbers are ahead of it, in their order.
pub(super) fn set_back(state: &mut CacheState) {
    each_number(state, |number| {
        *number += if *number == 0 { 0 } else { AHEAD_US };
    });
}

/// Lets a tick pass.
pub(super) fn tick(state: &mut CacheState) {
    // At its last millisecond a lease counts, and so does a back-off.
    let older = |left: u8| left.checked_sub(1);
    let books = &mut state.books;
    books.lease = books.lease.and_then(|(id, left)| Some((id, older(left)?)));
    books.rests = books.rests.and_then(older);
    let us = TICK_MS * 1_000;
    each_number(state, |number| {
        let passed = if *number < AHEAD_US { us } else { 0 };
        *number = number.saturating_sub(passed);
    });
    if let Some((value, until_ms)) = &mut state.entry.value {
        value.header.soft_ms -= TICK_MS;
        *until_ms -= TICK_MS;
    }
    if let Some(control) = &mut state.entry.control {
        if let Some(loader) = &mut control.loader {
            loader.until_ms -= TICK_MS;
        }
        if let Some(failed) = &mut control.back_off {
            failed.until_ms -= TICK_MS;
        }
    }
    state.entry.expire(NOW);
}

/// Moves to one place what cannot be told apart.
pub(super) fn settle(state: &mut CacheState) {
    if state.entry.control.is_none() && state.books.issued >= AHEAD_US {
        // Only what is stored tells how far the numbers have come (K2).
        let stored = state.entry.value.as_ref();
        state.books.issued = stored.map_or(0, |(value, _)| value.header.version.get());
    }
    let mut all = Vec::new();
    each_number(state, |number| all.push(*number));
    all.retain(|number| *number > 0);
    all.sort_unstable();
    all.dedup();
    let below = |limit: u64| all.partition_point(|number| *number < limit);
    let (old, not_ahead) = (below(NOW.wall_us), below(AHEAD_US));
    let new_place = |number: u64| {
        let at = all.binary_search(&number).unwrap_or_default();
        if at < old {
            NOW.wall_us - TICK_MS * 1_000 + at as u64
        } else if at < not_ahead {
            NOW.wall_us + (at - old) as u64
        } else {
            AHEAD_US + (at - not_ahead) as u64 * APART_US
        }
    };
    each_number(state, |number| {
        *number = if *number == 0 { 0 } else { new_place(*number) };
    });
    if let Some((value, _)) = &mut state.entry.value {
        let header = &mut value.header;
        header.stored_ms = NOW.millis();
        header.soft_ms = if header.invalidated {
            NOW.millis()
        } else {
            header.soft_ms.max(NOW.millis())
        };
    } else {
        state.books.value_old = false;
    }
    if let Some(control) = &mut state.entry.control {
        control.failures = 0;
        control.forget_at_ms =
            later(u64::try_from(MEMORY.as_millis()).unwrap_or(u64::MAX)).millis();
    }
}

/// Every number that anyone knows.
fn each_number(state: &mut CacheState, mut with: impl FnMut(&mut u64)) {
    with(&mut state.books.issued);
    for client in &mut state.clients {
        match &mut client.phase {
            CachePhase::Loading(load) => with(&mut load.version),
            CachePhase::Asking(Some(seen)) => with(seen),
            _ => {}
        }
    }
    for message in &mut state.flight {
        match &mut message.request {
            Request::Commit(load) => with(&mut load.version),
            Request::Begin(Some(seen)) => with(seen),
            _ => {}
        }
    }
    let mut version = |version: &mut Version| {
        let mut number = version.get();
        with(&mut number);
        *version = Version::new(number);
    };
    if let Some((value, _)) = &mut state.entry.value {
        version(&mut value.header.version);
    }
    if let Some(control) = &mut state.entry.control {
        version(&mut control.last);
        version(&mut control.epoch);
        if let Some(loader) = &mut control.loader {
            version(&mut loader.version);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use leasehold_core::cache::{CommitOutcome, EntryState, Reply, Step, Version};

    use super::{NOW, TICK_MS, later};
    use crate::cache::act::CacheAction;
    use crate::cache::configs::all;
    use crate::cache::given::CacheModel;
    use crate::cache::state::{CachePhase, CallId};
    use crate::rules::Bounds;

    /// The same steps at moments that pass, and where time is moved instead, are answered the same.
    #[test]
    fn to_move_the_times_is_the_same_as_to_let_time_pass() {
        let mut setups = all(Bounds::Ci).into_iter();
        let setup = setups.find(|setup| setup.name == "cache eviction").unwrap();
        let rules = CacheModel::new(setup, EntryState::apply).unwrap();
        let mut answers = 0;
        for seed in 0..400_usize {
            let mut state = stateright::Model::init_states(&rules).remove(0);
            let (mut entry, mut ms) = (EntryState::default(), 0);
            // What each client was granted where time passes.
            let mut versions = [0; 3];
            for nth in 1..80_usize {
                let mut actions = Vec::new();
                rules.possible(&state, &mut actions);
                let action = actions[(seed * nth * nth + nth * 5 + seed / 3) % actions.len()];
                let Some((next, said)) = rules.step(&state, action) else {
                    continue;
                };
                let by = |client: u8| CallId {
                    client,
                    nth: state.client(client).nth,
                };
                let step = match action {
                    CacheAction::Tick => {
                        ms += TICK_MS;
                        None
                    }
                    CacheAction::LoseControl => {
                        entry.control = None;
                        None
                    }
                    CacheAction::LoseValue => {
                        entry.value = None;
                        None
                    }
                    CacheAction::Invalidate { remove } => Some((Step::Invalidate { remove }, 0)),
                    CacheAction::Ask {
                        client, request, ..
                    } => {
                        // A fresh number, where it begins.
                        let id = match state.client(client).phase {
                            CachePhase::Idle => CallId {
                                client,
                                nth: next.client(client).nth,
                            },
                            _ => by(client),
                        };
                        let mut step = rules.asks(id, request);
                        if let Step::Commit(commit) = &mut step {
                            commit.version = Version::new(versions[usize::from(client)]);
                        }
                        Some((step, client))
                    }
                    _ => None,
                };
                if let Some((step, client)) = step {
                    let there = entry.apply(later(ms), &step).reply;
                    if let Reply::Load { version, .. } = &there {
                        versions[usize::from(client)] = version.get();
                    }
                    let here = said.unwrap();
                    assert_eq!(kind(&here, 0), kind(&there, ms), "seed {seed}, {action:?}");
                    answers += 1;
                }
                state = next;
            }
        }
        assert!(answers > 5_000, "{answers}");
    }

    /// A reply without the times and numbers in it, which are relative to a moment.
    fn kind(reply: &Reply, ms: u64) -> String {
        match reply {
            Reply::Fresh(_) => "fresh".to_owned(),
            Reply::Load { stale, .. } => format!("load {}", stale.is_some()),
            Reply::Busy { poll_after, stale } => format!("busy {poll_after:?} {}", stale.is_some()),
            Reply::BackOff { left, stale, .. } => format!("back-off {left:?} {}", stale.is_some()),
            // A soft expiry that has passed is kept as one that passes now.
            Reply::Committed(CommitOutcome::Fresh(soft_ms)) => {
                format!("fresh for {}", soft_ms.saturating_sub(NOW.millis() + ms))
            }
            other => format!("{other:?}"),
        }
    }
}
