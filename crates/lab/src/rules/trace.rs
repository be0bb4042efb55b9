//! A path to a state, in readable lines.

use leasehold_core::{LockState, Owner, Reply};

use super::actions::Action;
use super::input::LockModel;
use super::setup::TICK;
use super::state::{AcquisitionId, Message, Phase, State};

/// A heading, and a line for each step: the action, the store's reply, and the state after it.
pub(super) fn lines(rules: &LockModel, actions: &[Action]) -> Vec<String> {
    let heading = format!(
        "{:>3}  {:>5}  {:<34} {:<24} {:<16} {:<12} {}",
        "#", "time", "what", "reply", "holder", "queue", "believe to hold"
    );
    let mut lines = vec![heading];
    let mut state = stateright::Model::init_states(rules).remove(0);
    let mut seconds = 0;
    for (step, action) in actions.iter().enumerate() {
        let Some((next, said)) = rules.step(&state, *action) else {
            break;
        };
        if *action == Action::Tick {
            seconds += TICK.as_secs();
        }
        let time = format!("{seconds} s");
        lines.push(format!(
            "{:>3}  {time:>5}  {:<34} {:<24} {:<16} {:<12} {}",
            step + 1,
            what(&state, *action),
            said.as_ref().map(reply).unwrap_or_default(),
            holder(next.lock()),
            queue(next.lock()),
            believers(&next),
        ));
        state = next;
    }
    lines
}

fn what(state: &State, action: Action) -> String {
    let client = |index: u8| char::from(b'A' + index);
    match action {
        Action::Ask {
            client: by,
            verb,
            lost: false,
        } => format!("{} {verb:?}", client(by)),
        Action::Ask {
            client: by,
            verb,
            lost: true,
        } => format!("{} {verb:?}, answer lost", client(by)),
        Action::Send { client: by, verb } => format!("{} sends {verb:?}", client(by)),
        Action::Cut { client: by } => format!("{} is cut off", client(by)),
        Action::Connect { client: by } => format!("{} connects anew", client(by)),
        Action::GiveUp { client: by } => format!("{} gives up", client(by)),
        Action::Crash { client: by } => format!("{} crashes", client(by)),
        Action::Restart { client: by } => format!("{} begins anew", client(by)),
        Action::Arrive { at, again } => {
            let still = if again { ", not for the last time" } else { "" };
            format!("{} arrives{still}", message(&state.flight[at]))
        }
        Action::Hear { at } => format!("{} is heard", message(&state.flight[at])),
        Action::Lose { at } => format!("{} is lost", message(&state.flight[at])),
        Action::Look => "operator looks".to_owned(),
        Action::Break => "operator breaks what it saw".to_owned(),
        Action::ForeignTakes { forever } => {
            format!(
                "foreign program takes it{}",
                if forever { " for ever" } else { "" }
            )
        }
        Action::ForeignEnds => "foreign program gives it back".to_owned(),
        Action::HandOn { client: by } => format!("{} hands it on in its process", client(by)),
        Action::LoseCounter => "the counter of fences is lost".to_owned(),
        Action::Flush => "everything stored is lost".to_owned(),
        Action::Part => "the replica stops following".to_owned(),
        Action::FailOver => "the replica takes over".to_owned(),
        Action::Tick => format!("-- {} s pass --", TICK.as_secs()),
    }
}

fn message(message: &Message) -> String {
    match message {
        Message::Request { from, verb, .. } => format!("{verb:?} of {}", name(*from)),
        Message::Reply { to, verb, got, .. } => format!("{got:?} to {verb:?} of {}", name(*to)),
        Message::Wake { to, .. } => format!("wake of {}", name(*to)),
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Held(held) => format!(
            "held, fence {}",
            held.fence
                .map_or_else(|| "none".into(), |fence| fence.to_string())
        ),
        Reply::Busy(busy) => format!("busy, {} ahead", busy.ahead),
        Reply::NoVote(_) => "no vote".to_owned(),
        Reply::Released => "released".to_owned(),
        Reply::NotHeld(_) => "not held".to_owned(),
        Reply::Seen(_) => "seen".to_owned(),
    }
}

/// A letter for the client and a number for the acquisition.
fn name(AcquisitionId { client, nth }: AcquisitionId) -> String {
    format!("{}{}", char::from(b'A' + client), nth + 1)
}

fn owner(owner: &Owner) -> String {
    name(AcquisitionId::of(owner))
}

fn holder(lock: Option<&LockState>) -> String {
    let Some(lock) = lock else {
        return "-".to_owned();
    };
    if lock.foreign.is_some() {
        return "foreign".to_owned();
    }
    let left = |at: u64| at.saturating_sub(super::time::NOW.millis()) / 1_000;
    let holders = lock
        .holders
        .iter()
        .map(|holder| format!("{} {} s", owner(&holder.owner), left(holder.expires_at_ms)));
    let all: Vec<_> = holders.collect();
    if all.is_empty() {
        "-".to_owned()
    } else {
        all.join(" + ")
    }
}

fn queue(lock: Option<&LockState>) -> String {
    let names: Vec<_> = lock
        .into_iter()
        .flat_map(|lock| &lock.queue)
        .map(|waiter| owner(&waiter.owner))
        .collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(" ")
    }
}

fn believers(state: &State) -> String {
    let believes = (0u8..)
        .zip(&state.clients)
        .filter_map(|(client, at)| match at.phase {
            Phase::Holding { left, .. } => Some(format!(
                "{} {} s",
                name(AcquisitionId {
                    client,
                    nth: at.nth
                }),
                u64::from(left) * TICK.as_secs()
            )),
            _ => None,
        });
    believes.collect::<Vec<_>>().join(", ")
}
