//! A path to a state, in readable lines.

use leasehold_core::Reply;
use leasehold_core::quorum::NoVote;

use super::actions::QuorumAction;
use super::input::QuorumModel;
use super::numbers::{NOW_US, OLD_US};
use super::setup::{TICK_MS, TICK_US};
use super::state::{NodeState, OwnerId, QuorumClient, QuorumPhase, QuorumState, Remembers};
use super::turn::QuorumStep;

/// A heading, and a line for each step: the action, the node's reply, and the state after it.
pub(super) fn lines(model: &QuorumModel, actions: &[QuorumAction]) -> Vec<String> {
    let heading = format!(
        "{:>3}  {:>6}  {:<38} {:<14} {:<12} {:<12} {:<12} {}",
        "#", "time", "what", "reply", "n1", "n2", "n3", "clients"
    );
    let mut lines = vec![heading];
    let mut state = stateright::Model::init_states(model).remove(0);
    let mut ms = 0;
    for (step, action) in actions.iter().enumerate() {
        let Some(QuorumStep {
            state: next, said, ..
        }) = model.step(&state, *action)
        else {
            break;
        };
        if *action == QuorumAction::Tick {
            ms += TICK_MS;
        }
        let [first, second, third] = next.nodes.map(|node| in_short(&node));
        let clients = (0u8..).zip(&next.clients);
        let clients: Vec<String> = clients.map(|(at, it)| client(at, it)).collect();
        lines.push(format!(
            "{:>3}  {:>4} s  {:<38} {:<14} {first:<12} {second:<12} {third:<12} {}",
            step + 1,
            ms / 1_000,
            what(&state, *action),
            said.as_ref().map(reply).unwrap_or_default(),
            clients.join("; "),
        ));
        state = next;
    }
    lines
}

fn what(state: &QuorumState, action: QuorumAction) -> String {
    let at = |client: u8, node: u8| (letter(client), node + 1);
    let fence = |client: u8, node: u8| {
        let open = state.client(client).open[usize::from(node)][0];
        number(open)
    };
    let late = |client: u8, node: u8| {
        let late = state.late[usize::from(client)][usize::from(node)];
        late.map(|late| {
            let nth = late.nth;
            (owner(state, OwnerId { client, nth }), number(late.fence))
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
            let (client_name, node_name) = at(client, node);
            format!(
                "{client_name} proposes {} to n{node_name}{lost}",
                fence(client, node)
            )
        }
        QuorumAction::Fail {
            client,
            node,
            is_late,
        } => {
            let how = if is_late { "is late" } else { "is lost" };
            let (name, node_name) = at(client, node);
            format!(
                "{name}'s proposal of {} to n{node_name} {how}",
                fence(client, node)
            )
        }
        QuorumAction::ArriveLate {
            client,
            node,
            again,
        } => {
            let still = if again { ", not for the last time" } else { "" };
            let (name, fence) = late(client, node);
            format!("{name}'s late {fence} comes to n{}{still}", node + 1)
        }
        QuorumAction::DropLate { client, node } => {
            format!("{}'s late request to n{} is lost", letter(client), node + 1)
        }
        QuorumAction::GiveBack { client, node } => {
            let back = state.client(client).back[usize::from(node)][0];
            format!(
                "{} gives {} back to n{}",
                letter(client),
                number(back),
                node + 1
            )
        }
        QuorumAction::Settle { client, node } => {
            format!("{} releases at n{}", letter(client), node + 1)
        }
        QuorumAction::Release { client } => format!("{} gives up", letter(client)),
        QuorumAction::Renew { client } => format!("{} renews", letter(client)),
        QuorumAction::Extend { client, node } => {
            format!("{}'s renewal comes to n{}", letter(client), node + 1)
        }
        QuorumAction::Crash { client } => format!("{} crashes", letter(client)),
        QuorumAction::LoseMemory { node } => format!("n{} loses its memory", node + 1),
        QuorumAction::Break { node } => format!("an operator breaks the vote of n{}", node + 1),
        QuorumAction::Jump { node } => format!("the clock of n{} jumps ahead", node + 1),
        QuorumAction::Stick { node } => format!("n{} counts it as taken for ever", node + 1),
        QuorumAction::Hear { client } => format!("{} hears that others wait", letter(client)),
        QuorumAction::Tick => format!("-- {} s pass --", TICK_MS / 1_000),
    }
}

fn letter(client: u8) -> char {
    char::from(b'A' + client)
}

/// An owner: the client's letter, in small if it is over.
fn owner(state: &QuorumState, by: OwnerId) -> String {
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
            let fence = held.fence.map_or(0, leasehold_core::Fence::get);
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
