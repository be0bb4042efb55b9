//! The passing of time in the cache model, without a difference that a rule could see.
//!
//! Times that are far enough away move to one place, where the rules cannot tell them apart:
//!
//! - A number below the current wall clock is followed by the clock, whatever its value. So only the order of old numbers counts;
//!   of those given out in this tick also only the order, since the next number is above them all.
//! - A number from before a step back of the clock stays ahead of it for as long as it is known. Of those, too, only the order
//!   counts, and that they are far apart.
//! - A stale value stays stale; the time of its storing and the duration of its load decide nothing.
//! - A control lasts for a quarter of an hour, which does not pass here: its loss is a separate fault. The number of failed
//!   loads is reported and decides nothing.

use leasehold_core::cache::{MEMORY, Version};

use super::model::TICK_MS;
use super::state::{Load, Phase, Request, State};
use crate::frame::{NOW, later, millis, move_numbers};

/// Numbers from here on are ahead of the clock, which was set back.
pub(super) const AHEAD_US: u64 = NOW.wall_us + 1_000_000_000_000;

/// The distance of numbers that are ahead of the clock. They are counted one by one, and never reach the next known one.
const APART_US: u64 = 1_000;

/// Sets the wall clock back: all numbers are ahead of it, in their order.
pub(super) fn set_back(state: &mut State) {
    each_number(state, &mut |number| *number += AHEAD_US);
}

/// Lets a tick pass.
pub(super) fn tick(state: &mut State) {
    // A lease and a back-off still count at their last millisecond.
    let older = |left: u8| left.checked_sub(1);
    let books = &mut state.books;
    books.lease = books.lease.and_then(|(id, left)| Some((id, older(left)?)));
    books.rests = books.rests.and_then(older);
    let us = TICK_MS * 1_000;
    each_number(state, &mut |number| {
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

/// Moves to one place all times that the rules cannot tell apart.
pub(super) fn settle(state: &mut State) {
    if state.entry.control.is_none() && state.books.issued >= AHEAD_US {
        // Only the stored state tells how far the numbers have come (K2).
        let stored = state.entry.value.as_ref();
        state.books.issued = stored.map_or(0, |(value, _)| value.header.version.get());
    }
    move_numbers(state, each_number, |all| {
        let below = |limit: u64| all.partition_point(|number| *number < limit);
        let (old, not_ahead) = (below(NOW.wall_us), below(AHEAD_US));
        let place = |at: usize| {
            if at < old {
                NOW.wall_us - TICK_MS * 1_000 + at as u64
            } else if at < not_ahead {
                NOW.wall_us + (at - old) as u64
            } else {
                AHEAD_US + (at - not_ahead) as u64 * APART_US
            }
        };
        (0..all.len()).map(place).collect()
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
        control.forget_at_ms = later(millis(MEMORY)).millis();
    }
}

/// Every number that the store or a message knows, but 0, which stands for none.
fn each_number(state: &mut State, with: &mut dyn FnMut(&mut u64)) {
    let mut with = |number: &mut u64| {
        if *number > 0 {
            with(number);
        }
    };
    with(&mut state.books.issued);
    for client in &mut state.clients {
        match &mut client.phase {
            Phase::Loading(Load { version: it, .. }) | Phase::Asking(Some(it)) => with(it),
            _ => {}
        }
    }
    for message in &mut state.flight {
        match &mut message.request {
            Request::Commit(Load { version: it, .. }) | Request::Begin(Some(it)) => with(it),
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

    use super::TICK_MS;
    use crate::cache::state::Phase;
    use crate::cache::turn::{Action, EntryEvent};
    use crate::cache::{CacheModel, GuardedEntry};
    use crate::frame::{Bounds, NOW, later, setups};

    /// A shift of the state equals the passing of real time: all steps get equal replies.
    #[test]
    fn to_move_the_times_is_the_same_as_to_let_time_pass() {
        let mut all = setups::<GuardedEntry>(Bounds::Ci).into_iter();
        let setup = all.find(|setup| setup.name == "cache eviction").unwrap();
        let rules = CacheModel::of(setup, GuardedEntry::new(EntryState::apply).unwrap());
        let mut answers = 0;
        for seed in 0..400_usize {
            let mut state = stateright::Model::init_states(&rules).remove(0);
            let (mut entry, mut ms) = (EntryState::default(), 0);
            // The grants of each client where time passes.
            let mut versions = [0; 3];
            for nth in 1..80_usize {
                let mut actions = Vec::new();
                rules.possible(&state, &mut actions);
                let action = actions[(seed * nth * nth + nth * 5 + seed / 3) % actions.len()];
                let Some(turn) = rules.step(&state, action) else {
                    continue;
                };
                let (next, said) = (turn.state, turn.said);
                let step = match action {
                    Action::Tick => {
                        ms += TICK_MS;
                        None
                    }
                    Action::Entry(EntryEvent::LoseControl) => {
                        entry.control = None;
                        None
                    }
                    Action::Entry(EntryEvent::LoseValue) => {
                        entry.value = None;
                        None
                    }
                    Action::Entry(EntryEvent::Invalidate) => {
                        Some((Step::Invalidate { remove: false }, 0))
                    }
                    Action::Entry(EntryEvent::Remove) => {
                        Some((Step::Invalidate { remove: true }, 0))
                    }
                    Action::Ask { client, verb, .. } => {
                        // A fresh number, where the order begins.
                        let id = match state.client(client).phase {
                            Phase::Idle => next.id(client),
                            _ => state.id(client),
                        };
                        let mut step = rules.asks(id, verb);
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

    /// A reply without its times and numbers, which are relative.
    fn kind(reply: &Reply, ms: u64) -> String {
        match reply {
            Reply::Fresh(_) => "fresh".to_owned(),
            Reply::Load { stale, .. } => format!("load {}", stale.is_some()),
            Reply::Busy { poll_after, stale } => format!("busy {poll_after:?} {}", stale.is_some()),
            Reply::BackOff { left, stale, .. } => format!("back-off {left:?} {}", stale.is_some()),
            // A soft expiry in the past is stored as one that passes now.
            Reply::Committed(CommitOutcome::Fresh(soft_ms)) => {
                format!("fresh for {}", soft_ms.saturating_sub(NOW.millis() + ms))
            }
            other => format!("{other:?}"),
        }
    }
}
