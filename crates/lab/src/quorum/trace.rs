//! A path to a state, in readable lines.

use leasehold_core::quorum::NoVote;
use leasehold_core::{Fence, Reply};

use super::model::{QuorumTurn, TICK_MS, TICK_US};
use super::numbers::{NOW_US, OLD_US};
use super::state::{Client, NodeState, Phase, Remembers, State};
use super::turn::{Action, Exchange, NodeEvent};
use crate::frame::{CallId, letter};

/// The action, the node's reply, and the state after it.
pub(super) fn cells(before: &State, action: Action, after: &QuorumTurn<'_>) -> Vec<String> {
    let said = after.said.as_ref().map(reply).unwrap_or_default();
    let mut cells = vec![what(before, action), said];
    cells.extend(after.state.nodes.iter().map(in_short));
    let clients = (0u8..).zip(&after.state.clients);
    let clients: Vec<String> = clients.map(|(at, it)| client(at, it)).collect();
    cells.push(clients.join("; "));
    cells
}

fn what(state: &State, action: Action) -> String {
    match action {
        Action::Client(client, step) => format!("{} {}", letter(client), step.words()),
        Action::Exchange { client, node, what } => exchange(state, client, node, what),
        Action::Node(node, event) => {
            let node = name(node);
            match event {
                NodeEvent::LoseMemory => format!("{node} loses its memory"),
                NodeEvent::Break => format!("an operator breaks the vote of {node}"),
                NodeEvent::Jump => format!("the clock of {node} jumps ahead"),
                NodeEvent::Stick => format!("{node} counts it as taken for ever"),
            }
        }
        Action::Tick => format!("-- {} s pass --", TICK_MS / 1_000),
    }
}

fn exchange(state: &State, client: u8, node: usize, what: Exchange) -> String {
    let at = &state.client(client).at[node];
    let late = state.late[usize::from(client)][node].map(|late| {
        let nth = late.nth;
        (owner(state, CallId { client, nth }), number(late.fence))
    });
    let (open, back) = (number(at.open[0]), number(at.back[0]));
    let (client, to) = (letter(client), name(node));
    match what {
        Exchange::Claim => format!("{client} is woken, and claims"),
        Exchange::Arrive { is_heard } => {
            let lost = if is_heard { "" } else { ", answer lost" };
            format!("{client} proposes {open} to {to}{lost}")
        }
        Exchange::Fail { is_late } => {
            let how = if is_late { "is late" } else { "is lost" };
            format!("{client}'s proposal of {open} to {to} {how}")
        }
        Exchange::ArriveLate { again } => {
            let still = if again { ", not for the last time" } else { "" };
            let (owner, fence) = late.unwrap_or_default();
            format!("{owner}'s late {fence} comes to {to}{still}")
        }
        Exchange::DropLate => format!("{client}'s late request to {to} is lost"),
        Exchange::GiveBack => format!("{client} gives {back} back to {to}"),
        Exchange::Settle => format!("{client} releases at {to}"),
        Exchange::Extend => format!("{client}'s renewal comes to {to}"),
    }
}

fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// An owner: the client's letter, in small if it is over.
fn owner(state: &State, by: CallId) -> String {
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
    let votes = node.votes.iter().flatten().map(|vote| {
        let name = letter(vote.by.client);
        let reads = if vote.phase > 0 { " reads" } else { "" };
        format!("{name}{reads} {}", number(vote.fence))
    });
    let votes: Vec<String> = votes.collect();
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
    let votes = if votes.is_empty() {
        "-".to_owned()
    } else {
        votes.join("+")
    };
    format!("{votes}{queue}{forgot}")
}

fn client(at: u8, it: &Client) -> String {
    let name = letter(at);
    let robbed = if it.is_robbed { ", robbed" } else { "" };
    match it.phase {
        Phase::Idle => format!("{name} idle"),
        Phase::Acquiring => {
            let fence = it.attempt.map_or(0, |attempt| attempt.fence);
            format!("{name} wants {}{robbed}", number(fence))
        }
        Phase::Waiting => format!("{name} waits"),
        Phase::Holding(left) => {
            let seconds = u64::from(left) * TICK_MS / 1_000;
            format!(
                "{name} has {} for {seconds} s{robbed}",
                number(it.certified)
            )
        }
        Phase::Leaving => format!("{name} settles"),
    }
}
