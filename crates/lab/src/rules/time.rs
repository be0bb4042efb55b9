//! The passing of time. Must never make a difference that a rule could see.
//!
//! It is always the same moment: when a tick passes, all that lies in the past or future moves by a tick instead. The rules
//! know times only by their distance to now, so equal situations at different times are one state, and no horizon is needed.
//! What is far enough away is moved to one place, where that cannot be told apart:
//!
//! - A fence below the wall clock of now is followed by the clock, whatever it is. So of old fences only the order counts; of
//!   those issued in this tick also only the order, since all are whole blocks apart.
//! - A silent waiter is silent, however long. Parts of a tick at the end of which a waiter counts as alive are cut off: all
//!   steps are taken at whole ticks.
//! - A fence is forgotten after a day, which does not pass here: to lose it is a fault of its own.

use leasehold_core::{FENCE_MEMORY, Fence, LockName, LockState, Now};

use super::setup::TICK;
use super::state::{Message, Phase, State, Told};

/// The moment it always is.
pub(super) const NOW: Now = Now::at_micros(3_000_000_000_000);

pub(super) const TICK_MS: u64 = TICK.as_secs() * 1_000;

// So that a time is rounded to a tick by its remainder.
const _: () = assert!(NOW.millis().is_multiple_of(TICK_MS));

/// The same moment, so many milliseconds later.
pub(super) const fn later(ms: u64) -> Now {
    Now::at_micros(NOW.clock_us + ms * 1_000)
}

/// Lets a tick pass. Ages grow up to a lease's or a claim window's length, from where on they make no difference.
pub(super) fn tick(state: &mut State, name: &LockName, (ttl, window): (u8, u8)) {
    let older = |age: u8, limit: u8| (age + 1).min(limit);
    for client in &mut state.clients {
        match &mut client.phase {
            Phase::Asking(Some(Told { age, .. })) => *age = older(*age, window),
            Phase::Holding { left: 1, .. } => client.phase = Phase::Leaving,
            Phase::Holding { left, .. } => *left -= 1,
            _ => {}
        }
    }
    for message in &mut state.flight {
        match message {
            Message::Wake { age, .. } => *age = older(*age, window),
            Message::Request { age, .. } | Message::Reply { age, .. } => *age = older(*age, ttl),
        }
    }
    state.unclaimed = state.unclaimed.map(|age| older(age, window));
    let us = TICK_MS * 1_000;
    each_fence(state, name, |fence| *fence = fence.saturating_sub(us));
    if state.lock().is_none() {
        return;
    }
    let lock = state.world.entry(name);
    for holder in &mut lock.holders {
        holder.expires_at_ms -= TICK_MS;
    }
    if let Some(at) = lock
        .foreign
        .as_mut()
        .and_then(|foreign| foreign.expires_at_ms.as_mut())
    {
        *at -= TICK_MS;
    }
    for waiter in &mut lock.queue {
        waiter.seen_until_ms -= TICK_MS;
    }
    lock.expire(NOW);
    if lock.holders.is_empty() {
        state.unclaimed = None;
    }
}

/// Moves to one place what cannot be told apart.
pub(super) fn settle(state: &mut State, name: &LockName) {
    let mut all = Vec::new();
    each_fence(state, name, |fence| all.push(*fence));
    all.retain(|fence| *fence > 0);
    all.sort_unstable();
    all.dedup();
    let old = all.partition_point(|fence| *fence < NOW.wall_us);
    let new_place = |fence: u64| {
        let at = all.binary_search(&fence).unwrap_or_default();
        let (from, at) = if at < old {
            (NOW.wall_us - TICK_MS * 1_000, at)
        } else {
            (NOW.wall_us, at - old)
        };
        from + Fence::BLOCK * at as u64
    };
    each_fence(state, name, |fence| {
        *fence = if *fence == 0 { 0 } else { new_place(*fence) }
    });
    if state.lock().is_none() {
        return;
    }
    let lock = state.world.entry(name);
    for waiter in &mut lock.queue {
        let whole = waiter.seen_until_ms - waiter.seen_until_ms % TICK_MS;
        waiter.seen_until_ms = whole.max(NOW.millis() - TICK_MS);
    }
    if let Some(last) = &mut lock.fence {
        last.forget_at_ms =
            NOW.millis() + u64::try_from(FENCE_MEMORY.as_millis()).unwrap_or(u64::MAX);
    }
    if lock.is_empty() {
        // As the rules do it: nothing is kept for a name that is not used.
        state.world.sweep(NOW);
    }
}

/// Every fence that anyone knows.
fn each_fence(state: &mut State, name: &LockName, mut with: impl FnMut(&mut u64)) {
    with(&mut state.issued);
    if let Some(seen) = &mut state.seen {
        with(seen);
    }
    for client in &mut state.clients {
        if let Phase::Holding { fence, .. } = &mut client.phase {
            with(fence);
        }
    }
    for message in &mut state.flight {
        if let Some(fence) = message.fence_mut() {
            with(fence);
        }
    }
    if state.world.get(name).is_some()
        && let LockState {
            fence: Some(last), ..
        } = state.world.entry(name)
    {
        for fence in [&mut last.fence, &mut last.granted] {
            let mut value = fence.get();
            with(&mut value);
            *fence = Fence::new(value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use leasehold_core::{Nobody, Reply, World};

    use super::{TICK_MS, later};
    use crate::rules::Bounds;
    use crate::rules::act::Action;
    use crate::rules::configs::all;
    use crate::rules::model::Rules;
    use crate::rules::state::{Id, Verb};

    /// The same steps at moments that pass, and where time is moved instead, are answered the same.
    #[test]
    fn to_move_the_times_is_the_same_as_to_let_time_pass() {
        let setup = all(Bounds::Ci)
            .into_iter()
            .find(|setup| setup.name == "queue")
            .unwrap();
        let rules = Rules::new(setup, World::apply).unwrap();
        let ask = |client, verb| Action::Ask {
            client,
            verb,
            lost: false,
        };
        let script = |seed: usize| {
            let any = [
                ask(0, Verb::Wait),
                ask(1, Verb::Wait),
                Action::Tick,
                ask(2, Verb::Wait),
                ask(1, Verb::Extend),
                ask(0, Verb::Release),
                Action::Tick,
                ask(1, Verb::Release),
            ];
            (1..60).map(move |step| any[(seed * step * step + step * 5 + seed / 3) % any.len()])
        };
        let mut answers = 0;
        for seed in 0..200 {
            let mut state = stateright::Model::init_states(&rules).remove(0);
            let (mut world, mut ms) = (World::default(), 0);
            for action in script(seed) {
                let Action::Ask { client, verb, .. } = action else {
                    ms += TICK_MS;
                    state = rules.step(&state, action).unwrap().0;
                    continue;
                };
                let step = rules.asks(rules.owner(Id { client, nth: 0 }).unwrap(), verb, 0);
                let mut moved = state.world.clone();
                let here = World::apply(&mut moved, later(0), &rules.name, &step, &Nobody);
                let there = World::apply(&mut world, later(ms), &rules.name, &step, &Nobody);
                assert_eq!(
                    kind(&here.reply),
                    kind(&there.reply),
                    "seed {seed}, {action:?} at {ms} ms"
                );
                assert_eq!(
                    here.wakes.len(),
                    there.wakes.len(),
                    "seed {seed}, {action:?} at {ms} ms"
                );
                state.world = moved;
                super::settle(&mut state, &rules.name);
                answers += 1;
            }
        }
        assert!(answers > 5_000);
    }

    /// A reply without the times and fences in it, which are relative to a moment.
    fn kind(reply: &Reply) -> String {
        match reply {
            Reply::Held(held) => format!("held, {} wait", held.queued),
            Reply::Busy(busy) => {
                format!("{:?} {} {:?}", busy.holder.who, busy.ahead, busy.poll_after)
            }
            Reply::NotHeld(view) => {
                format!(
                    "not held {:?}",
                    view.as_ref().map(|view| (&view.who, view.expires_in))
                )
            }
            other => format!("{other:?}"),
        }
    }
}
