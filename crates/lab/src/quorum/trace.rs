//! A path to a state, in readable lines.

use leasehold_core::quorum::NoVote;
use leasehold_core::{Fence, Reply};

use super::actions::QuorumAction;
use super::model::QuorumTurn;
use super::numbers::{NOW_US, OLD_US};
use super::setup::{TICK_MS, TICK_US};
use super::state::{NodeState, QuorumClient, QuorumPhase, QuorumState, Remembers};
use crate::frame::{CallId, letter};

/// The action, the node's reply, and the state after it.
pub(super) fn cells(
    before: &QuorumState,
    action: QuorumAction,
    after: &QuorumTurn<'_>,
) -> Vec<String> {
    let said = after.said.as_ref().map(reply).unwrap_or_default();
    let mut cells = vec![what(before, action), said];
    cells.extend(after.state.nodes.iter().map(in_short));
    let clients = (0u8..).zip(&after.state.clients);
    let clients: Vec<String> = clients.map(|(at, it)| client(at, it)).collect();
    cells.push(clients.join("; "));
    cells
}

fn what(state: &QuorumState, action: QuorumAction) -> String {
    let name = |node: u8| format!("n{}", node + 1);
    let fence = |client: u8, node: u8| {
        let open = state.client(client).open[usize::from(node)][0];
        number(open)
    };
    let late = |client: u8, node: u8| {
        let late = state.late[usize::from(client)][usize::from(node)];
        late.map(|late| {
            let nth = late.nth;
            (owner(state, CallId { client, nth }), number(late.fence))
        })
        .unwrap_or_default()
    };
    match action {
        QuorumAction::Begin { client } => format!("{} begins", letter(client)),
        QuorumAction::Retry { client } => format!("{} asks again", letter(client)),
        QuorumAction::Claim { client, .. } => format!("{} is woken, and claims", letter(client)),
        QuorumAction::Arrive {
            client,
            node,
            is_heard,
        } => {
            let lost = if is_heard { "" } else { ", answer lost" };
            format!(
                "{} proposes {} to {}{lost}",
                letter(client),
                fence(client, node),
                name(node)
            )
        }
        QuorumAction::Fail {
            client,
            node,
            is_late,
        } => {
            let how = if is_late { "is late" } else { "is lost" };
            format!(
                "{}'s proposal of {} to {} {how}",
                letter(client),
                fence(client, node),
                name(node)
            )
        }
        QuorumAction::ArriveLate {
            client,
            node,
            again,
        } => {
            let still = if again { ", not for the last time" } else { "" };
            let (owner, fence) = late(client, node);
            format!("{owner}'s late {fence} comes to {}{still}", name(node))
        }
        QuorumAction::DropLate { client, node } => {
            format!(
                "{}'s late request to {} is lost",
                letter(client),
                name(node)
            )
        }
        QuorumAction::GiveBack { client, node } => {
            let back = state.client(client).back[usize::from(node)][0];
            format!(
                "{} gives {} back to {}",
                letter(client),
                number(back),
                name(node)
            )
        }
        QuorumAction::Settle { client, node } => {
            format!("{} releases at {}", letter(client), name(node))
        }
        QuorumAction::Release { client } => format!("{} gives up", letter(client)),
        QuorumAction::Renew { client } => format!("{} renews", letter(client)),
        QuorumAction::Extend { client, node } => {
            format!("{}'s renewal comes to {}", letter(client), name(node))
        }
        QuorumAction::Crash { client } => format!("{} crashes", letter(client)),
        QuorumAction::LoseMemory { node } => format!("{} loses its memory", name(node)),
        QuorumAction::Break { node } => format!("an operator breaks the vote of {}", name(node)),
        QuorumAction::Jump { node } => format!("the clock of {} jumps ahead", name(node)),
        QuorumAction::Stick { node } => format!("{} counts it as taken for ever", name(node)),
        QuorumAction::Hear { client } => format!("{} hears that others wait", letter(client)),
        QuorumAction::Tick => format!("-- {} s pass --", TICK_MS / 1_000),
    }
}

/// An owner: the client's letter, in small if it is over.
fn owner(state: &QuorumState, by: CallId) -> String {
    let name = letter(by.client);
    if state.is_current(by) {
        name.to_string()
    } else {
        name.to_ascii_lowercase().to_string()
    }
}

/// A number as its distance to the time of the model: ticks, then a count.
fn number(number: u64) -> String {
    if number == 0 {
        return "-".to_owned();
    }
    if number < NOW_US - 3 * TICK_US {
        return format!("old+{}", number - OLD_US.min(number));
    }
    let from = NOW_US - 3 * TICK_US;
    let ticks = (number - from) / TICK_US;
    let count = (number - from) % TICK_US;
    let seconds = (i128::from(ticks) - 3) * i128::from(TICK_MS / 1_000);
    if count == 0 {
        format!("{seconds:+}s")
    } else {
        format!("{seconds:+}s+{count}")
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Held(held) => {
            let fence = held.fence.map_or(0, Fence::get);
            format!("held {}", number(fence))
        }
        Reply::Busy(_) => "busy".to_owned(),
        Reply::NoVote(NoVote::Behind(bounds) | NoVote::NotRaised(bounds)) => {
            format!("at least {}", number(bounds.least.get()))
        }
        Reply::NoVote(NoVote::Quarantined(_)) => "quarantined".to_owned(),
        Reply::NoVote(_) => "no vote".to_owned(),
        Reply::Released => "released".to_owned(),
        Reply::NotHeld(_) => "not held".to_owned(),
        Reply::Seen(_) => String::new(),
    }
}

fn in_short(node: &NodeState) -> String {
    let vote = node.vote.map(|vote| {
        let name = letter(vote.by.client);
        format!("{name} {}", number(vote.fence))
    });
    let queue: String = node
        .queue
        .iter()
        .flatten()
        .map(|place| letter(place.by.client))
        .collect();
    let queue = if queue.is_empty() {
        queue
    } else {
        format!(" <{queue}")
    };
    let forgot = match (node.remembers, node.taken) {
        (_, Some(_)) => "taken",
        (Remembers::All, _) => "",
        _ => "?",
    };
    format!("{}{queue}{forgot}", vote.unwrap_or_else(|| "-".to_owned()))
}

fn client(at: u8, it: &QuorumClient) -> String {
    let name = letter(at);
    let robbed = if it.is_robbed { ", robbed" } else { "" };
    match it.phase {
        QuorumPhase::Idle => format!("{name} idle"),
        QuorumPhase::Acquiring => {
            let fence = it.attempt.map_or(0, |attempt| attempt.fence);
            format!("{name} wants {}{robbed}", number(fence))
        }
        QuorumPhase::Waiting => format!("{name} waits"),
        QuorumPhase::Holding(left) => {
            let seconds = u64::from(left) * TICK_MS / 1_000;
            format!(
                "{name} has {} for {seconds} s{robbed}",
                number(it.certified)
            )
        }
        QuorumPhase::Leaving => format!("{name} settles"),
    }
}
