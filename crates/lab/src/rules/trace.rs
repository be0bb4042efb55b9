//! A path to a state, in readable lines.

use leasehold_core::{LockState, Mode, Reply};

use super::model::{LockTurn, TICK};
use super::state::{Message, Parcel, State};
use super::turn::Action;
use crate::frame::{CallId, NOW, letter};

/// The action, the store's reply, and the state after it.
pub(super) fn cells(before: &State, action: Action, after: &LockTurn<'_>) -> Vec<String> {
    let lock = after.state.lock();
    vec![
        what(before, action),
        after.said.as_ref().map(reply).unwrap_or_default(),
        holder(lock),
        queue(lock),
        believers(&after.state),
    ]
}

fn what(state: &State, action: Action) -> String {
    let message = |at: usize| message(&state.flight[at]);
    match action {
        Action::Ask { client, verb, lost } => {
            let lost = if lost { ", answer lost" } else { "" };
            let mode = mode(state, client);
            format!("{} {verb:?}{mode}{lost}", letter(client))
        }
        Action::Send { client, verb } => {
            format!("{} sends {verb:?}{}", letter(client), mode(state, client))
        }
        Action::Arrive { at, again } => {
            let still = if again { ", not for the last time" } else { "" };
            format!("{} arrives{still}", message(at))
        }
        Action::Hear { at } => format!("{} is heard", message(at)),
        Action::Lose { at } => format!("{} is lost", message(at)),
        Action::Client(client, event) => format!("{} {}", letter(client), event.words()),
        Action::Store(event) => event.words().to_owned(),
        Action::Tick => format!("-- {} s pass --", TICK.as_secs()),
    }
}

/// The mode in which a client asks, unless it asks for the lock alone.
fn mode(state: &State, client: u8) -> String {
    match state.client(client).mode {
        Mode::Exclusive => String::new(),
        mode => format!(" {mode}"),
    }
}

fn message(Message { id, what, .. }: &Message) -> String {
    match what {
        Parcel::Request { verb, .. } => format!("{verb:?} of {id}"),
        Parcel::Reply { verb, got, .. } => format!("{got:?} to {verb:?} of {id}"),
        Parcel::Wake(_) => format!("wake of {id}"),
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Held(held) => {
            let fence = held.fence.map(|fence| fence.to_string());
            format!("held, fence {}", fence.as_deref().unwrap_or("none"))
        }
        Reply::Busy(busy) => format!("busy, {} ahead", busy.ahead),
        Reply::NoVote(_) => "no vote".to_owned(),
        Reply::Released => "released".to_owned(),
        Reply::NotHeld(_) => "not held".to_owned(),
        Reply::Seen(_) => "seen".to_owned(),
    }
}

fn holder(lock: Option<&LockState>) -> String {
    if lock.is_some_and(|lock| lock.foreign.is_some()) {
        return "foreign".to_owned();
    }
    let holders = lock.into_iter().flat_map(|lock| &lock.holders);
    let all = holders.map(|holder| {
        let left = holder.expires_at_ms.saturating_sub(NOW.millis()) / 1_000;
        format!("{} {left} s", CallId::of(&holder.owner))
    });
    or_none(all.collect::<Vec<_>>().join(" + "))
}

fn queue(lock: Option<&LockState>) -> String {
    let queue = lock.into_iter().flat_map(|lock| &lock.queue);
    let names = queue.map(|waiter| CallId::of(&waiter.owner).to_string());
    or_none(names.collect::<Vec<_>>().join(" "))
}

fn or_none(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn believers(state: &State) -> String {
    let believers = state.believers().map(|it| {
        let left = u64::from(it.left) * TICK.as_secs();
        format!("{} {left} s", it.id)
    });
    believers.collect::<Vec<_>>().join(", ")
}
