//! A path to a state, in readable lines.

use leasehold_core::{LockState, Reply};

use super::actions::Action;
use super::model::LockTurn;
use super::setup::TICK;
use super::state::{Message, State};
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
            format!("{} {verb:?}{lost}", letter(client))
        }
        Action::Send { client, verb } => format!("{} sends {verb:?}", letter(client)),
        Action::Cut { client } => format!("{} is cut off", letter(client)),
        Action::Connect { client } => format!("{} connects anew", letter(client)),
        Action::GiveUp { client } => format!("{} gives up", letter(client)),
        Action::Crash { client } => format!("{} crashes", letter(client)),
        Action::Restart { client } => format!("{} begins anew", letter(client)),
        Action::Arrive { at, again } => {
            let still = if again { ", not for the last time" } else { "" };
            format!("{} arrives{still}", message(at))
        }
        Action::Hear { at } => format!("{} is heard", message(at)),
        Action::Lose { at } => format!("{} is lost", message(at)),
        Action::Look => "operator looks".to_owned(),
        Action::Break => "operator breaks what it saw".to_owned(),
        Action::ForeignTakes { forever } => {
            let how = if forever { " for ever" } else { "" };
            format!("foreign program takes it{how}")
        }
        Action::ForeignEnds => "foreign program gives it back".to_owned(),
        Action::HandOn { client } => format!("{} hands it on in its process", letter(client)),
        Action::LoseCounter => "the counter of fences is lost".to_owned(),
        Action::Flush => "everything stored is lost".to_owned(),
        Action::Part => "the replica stops following".to_owned(),
        Action::FailOver => "the replica takes over".to_owned(),
        Action::Tick => format!("-- {} s pass --", TICK.as_secs()),
    }
}

fn message(message: &Message) -> String {
    let id = message.id();
    match message {
        Message::Request { verb, .. } => format!("{verb:?} of {id}"),
        Message::Reply { verb, got, .. } => format!("{got:?} to {verb:?} of {id}"),
        Message::Wake { .. } => format!("wake of {id}"),
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
