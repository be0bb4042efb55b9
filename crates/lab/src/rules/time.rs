//! The passing of time in the lock model, without a difference that a rule could see.
//!
//! Times that are far enough away move to one place, where the rules cannot tell them apart:
//!
//! - A fence below the current wall clock is followed by the clock, whatever its value. So only the order of old fences counts; of
//!   those drawn in this tick also only the order, since the next one follows the last. Fences of one hold stay consecutive.
//! - A silent waiter stays silent. The time until which a waiter counts as alive is rounded down to a tick: all steps are taken
//!   at whole ticks.

use leasehold_core::{Counter, Fence, LockName, World};

use super::model::TICK_MS;
use super::state::{BusyReply, Parcel, Phase, ReplyKind, Span, State};
use crate::frame::{NOW, move_numbers};

// A multiple of the tick, so that times can be rounded by their remainder.
const _: () = assert!(NOW.millis().is_multiple_of(TICK_MS));

/// Lets a tick pass. Ages grow up to a lease's or a claim window's length, from where on they make no difference.
pub(super) fn tick(state: &mut State, name: &LockName, (ttl, window): (u8, u8)) {
    let older = |age: u8, limit: u8| (age + 1).min(limit);
    for client in &mut state.clients {
        match &mut client.phase {
            Phase::Asking(Some(BusyReply { age, .. })) => *age = older(*age, window),
            Phase::Holding { left: 1, .. } => client.phase = Phase::Leaving,
            Phase::Holding { left, .. } => *left -= 1,
            _ => {}
        }
    }
    for message in &mut state.flight {
        let limit = match message.what {
            Parcel::Wake(_) => window,
            Parcel::Request { .. } | Parcel::Reply { .. } => ttl,
        };
        message.age = older(message.age, limit);
    }
    state.unclaimed = state.unclaimed.map(|age| older(age, window));
    let us = TICK_MS * 1_000;
    each_fence(state, name, &mut |fence| *fence = fence.saturating_sub(us));
    for world in std::iter::once(&mut state.world).chain(&mut state.replica) {
        tick_lock(world, name);
    }
    if !state.is_held() {
        state.unclaimed = None;
    }
}

fn tick_lock(world: &mut World, name: &LockName) {
    if world.get(name).is_none() {
        return;
    }
    let lock = world.entry(name);
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
}

/// Moves to one place all times that the rules cannot tell apart.
pub(super) fn settle(state: &mut State, name: &LockName) {
    let mut spans = Vec::new();
    each_span(state, name, &mut |span| spans.push(*span));
    move_numbers(
        state,
        |state, with| each_fence(state, name, with),
        |ends| places(&spans, ends),
    );
    for world in std::iter::once(&mut state.world).chain(&mut state.replica) {
        settle_lock(world, name);
    }
}

/// A place for each end of these spans: old ones go to a tick ago and later, current ones to now and later. The ends within one span keep
/// their distances, and the others follow each other.
fn places(spans: &[Span], ends: &[u64]) -> Vec<u64> {
    let is_old = |fence: u64| fence < NOW.wall_us;
    let mut places = Vec::with_capacity(ends.len());
    let mut last: Option<(u64, u64)> = None;
    for &end in ends {
        let place = match last {
            Some((before, place)) if is_old(before) == is_old(end) => {
                let in_one = |span: &Span| span.first <= before && end <= span.last;
                let is_in_one = spans.iter().any(in_one);
                place + if is_in_one { end - before } else { 1 }
            }
            _ if is_old(end) => NOW.wall_us - TICK_MS * 1_000,
            _ => NOW.wall_us,
        };
        last = Some((end, place));
        places.push(place);
    }
    places
}

fn settle_lock(world: &mut World, name: &LockName) {
    if world.get(name).is_none() {
        return;
    }
    let lock = world.entry(name);
    for waiter in &mut lock.queue {
        let whole = waiter.seen_until_ms - waiter.seen_until_ms % TICK_MS;
        waiter.seen_until_ms = whole.max(NOW.millis() - TICK_MS);
    }
    if lock.is_empty() {
        // Like the rules, which keep nothing for an unused name.
        world.sweep(NOW);
    }
}

/// All known fences, as consecutive spans.
fn each_span(state: &mut State, name: &LockName, with: &mut dyn FnMut(&mut Span)) {
    with_one(&mut state.issued, with);
    if let Some(seen) = &mut state.seen {
        with_one(seen, with);
    }
    for client in &mut state.clients {
        if let Phase::Holding { fences, .. } = &mut client.phase {
            with(fences);
        }
    }
    for message in &mut state.flight {
        match &mut message.what {
            Parcel::Reply {
                got: ReplyKind::Held(fences),
                ..
            }
            | Parcel::Wake(fences) => with(fences),
            Parcel::Request { fence, .. } => with_one(fence, with),
            Parcel::Reply { .. } => {}
        }
    }
    for world in std::iter::once(&mut state.world).chain(&mut state.replica) {
        if let Counter(Some(last)) = &mut world.counter {
            let mut fence = last.get();
            with_one(&mut fence, with);
            *last = Fence::new(fence);
        }
        if world.get(name).is_some() {
            for holder in &mut world.entry(name).holders {
                let mut span = Span::of(holder.fences);
                with(&mut span);
                holder.fences.first = Fence::new(span.first);
            }
        }
    }
}

/// A fence as a span of one; 0 stands for none, and stays.
fn with_one(fence: &mut u64, with: &mut dyn FnMut(&mut Span)) {
    if *fence > 0 {
        let mut span = Span::one(*fence);
        with(&mut span);
        *fence = span.first;
    }
}

/// The first and the last fence of each span.
fn each_fence(state: &mut State, name: &LockName, with: &mut dyn FnMut(&mut u64)) {
    each_span(state, name, &mut |span| {
        with(&mut span.first);
        with(&mut span.last);
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use leasehold_core::{Reply, UnknownPresence, World};

    use super::{TICK_MS, places};
    use crate::frame::{Bounds, CallId, NOW, later, setups};
    use crate::rules::state::{RequestKind, Span};
    use crate::rules::turn::Action;
    use crate::rules::{Lock, LockModel};

    /// A shift of the state equals the passing of real time: all steps get equal replies.
    #[test]
    fn to_move_the_times_is_the_same_as_to_let_time_pass() {
        let mut all = setups::<Lock>(Bounds::Ci).into_iter();
        let setup = all.find(|setup| setup.name == "queue").unwrap();
        let rules = LockModel::of(setup, Lock::new(&setup, World::apply).unwrap());
        let ask = |client, verb| Action::Ask {
            client,
            verb,
            lost: false,
        };
        let script = |seed: usize| {
            let any = [
                ask(0, RequestKind::Wait),
                ask(1, RequestKind::WaitMany),
                Action::Tick,
                ask(2, RequestKind::Wait),
                ask(1, RequestKind::Extend),
                ask(0, RequestKind::Release),
                Action::Tick,
                ask(1, RequestKind::Release),
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
                    state = rules.step(&state, action).unwrap().state;
                    continue;
                };
                let step = rules.asks(CallId { client, nth: 0 }, verb, 0);
                let lock = &rules.subject;
                let mut moved = state.world.clone();
                let here = lock.execute(&mut moved, NOW, &step, &UnknownPresence);
                let there = lock.execute(&mut world, later(ms), &step, &UnknownPresence);
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
                super::settle(&mut state, &lock.name);
                answers += 1;
            }
        }
        assert!(answers > 5_000);
    }

    #[test]
    fn fences_stay_in_their_order_and_those_of_one_span_in_a_row() {
        let (now, old) = (NOW.wall_us, NOW.wall_us - TICK_MS * 1_000);
        let span = |first, last| Span { first, last };
        let spans = [
            span(now + 7, now + 9),
            Span::one(now + 8),
            Span::one(now + 20),
            span(7, 9),
            Span::one(old - 5),
            Span::one(now - 1),
        ];
        let mut ends: Vec<_> = spans.iter().flat_map(|it| [it.first, it.last]).collect();
        ends.sort_unstable();
        ends.dedup();
        let moved = places(&spans, &ends);
        let expected = [0, 2, 3, 4].map(|by| old + by);
        assert_eq!(moved[..4], expected);
        assert_eq!(moved[4..], [0, 1, 2, 3].map(|by| now + by));
    }

    /// A reply without its times and fences, which are relative.
    fn kind(reply: &Reply) -> String {
        match reply {
            Reply::Held(held) => format!("held, {} fences, {} wait", held.block.get(), held.queued),
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
