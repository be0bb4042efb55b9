//! The passing of time in the quorum model, without a difference that a rule could see.
//!
//! Numbers that are far enough away move to one place:
//!
//! - A number below all that can still be proposed only counts by its order.
//! - Above that, numbers count by their order, by their distance to clocks, and by whether one follows another. Longer distances than
//!   the model's bound become equal to it.

use leasehold_core::quorum::{AHEAD, Mark, QuorumTerms};

use super::model::{Setup, TICK_MS, TICK_US};
use super::state::{CLIENTS, NODES, NodeState, Remembers, Said, State};
use crate::frame::{NOW, move_numbers};

/// The constant time.
pub(super) const NOW_US: u64 = NOW.wall_us;

/// Numbers that only count by their order begin here.
pub(super) const OLD_US: u64 = 1_000_000_000_000;

/// The clock of a node or a client that is so many ticks ahead.
pub(super) const fn clock(ahead: i8) -> u64 {
    let by = TICK_US * ahead.unsigned_abs() as u64;
    if ahead < 0 { NOW_US - by } else { NOW_US + by }
}

const AHEAD_US: u64 = 1_000_000 * AHEAD.as_secs();

/// Lets a tick pass, except for the phases of clients.
pub(super) fn tick(state: &mut State, ttl: u8) {
    let older = |age: u8| (age + 1).min(ttl);
    for client in &mut state.clients {
        if let Some(attempt) = &mut client.attempt {
            attempt.age = older(attempt.age);
        }
        if let Some(renewal) = &mut client.renewal {
            renewal.age = older(renewal.age);
        }
        if let Some((_, is_old)) = &mut client.stuck {
            *is_old = true;
        }
    }
    let aims = state.clients.map(|client| client.aim);
    each_number(state, &mut |number| {
        *number = number.saturating_sub(TICK_US);
    });
    // What a client aims at goes with its clock.
    for (client, aim) in state.clients.iter_mut().zip(aims) {
        client.aim = aim;
    }
    for node in &mut state.nodes {
        pass(node, 1);
    }
}

/// Lets time pass on the clock of a node.
pub(super) fn pass(node: &mut NodeState, ticks: u64) {
    let left = |left_ms: u64| left_ms.checked_sub(ticks * TICK_MS);
    for vote in &mut node.votes {
        *vote = vote.and_then(|mut vote| {
            vote.left_ms = left(vote.left_ms)?;
            Some(vote)
        });
    }
    node.votes.sort_by_key(Option::is_none);
    for place in &mut node.queue {
        // A silent waiter keeps its place until the next step. It then loses it, as one without a place.
        *place = place.and_then(|mut place| {
            place.left_ms = left(place.left_ms)?;
            Some(place)
        });
    }
    node.queue.sort_by_key(Option::is_none);
    if let Remembers::Since(ago_ms) = &mut node.remembers {
        *ago_ms += ticks * TICK_MS;
    }
}

/// The lowest number that a node without a counter accepts after a loss of its memory.
fn floor(state: &State, node: usize, quorum: QuorumTerms) -> u64 {
    let it = &state.nodes[node];
    let Remembers::Since(ago_ms) = it.remembers else {
        return 0;
    };
    let made_at_ms = clock(it.ahead) / 1_000 - ago_ms;
    let mark = Mark {
        terms: quorum,
        made_at_ms,
    };
    mark.floor_us()
}

/// Moves to one place all numbers that the rules cannot tell apart.
pub(super) fn settle(state: &mut State, terms: QuorumTerms, setup: &Setup) {
    let least = least(state, setup.clients);
    for node in 0..NODES {
        let floor = floor(state, node, terms);
        let it = &mut state.nodes[node];
        let is_over = floor < least && floor <= clock(it.ahead);
        // Its quarantine is over, and excludes no number; or its counter has passed that.
        if floor > 0 && (is_over || it.counter.is_some()) {
            it.remembers = Remembers::All;
        }
    }
    forget(state, least);
    // Clocks are fixed points.
    let mut fixed: Vec<u64> = (-3..=6).map(clock).collect();
    let floors = (0..NODES).map(|node| floor(state, node, terms));
    fixed.extend(floors.filter(|floor| *floor >= least));
    fixed.sort_unstable();
    move_numbers(state, each_number, |all| {
        let old = all.partition_point(|number| *number < least);
        let mut places: Vec<u64> = (0..old).map(|at| OLD_US + at as u64).collect();
        for at in old..all.len() {
            let number = all[at];
            let below = fixed.partition_point(|fixed| *fixed <= number);
            let base = if below == 0 { least } else { fixed[below - 1] };
            let place = match at.checked_sub(1).filter(|before| *before >= old) {
                Some(before) if all[before] >= base => {
                    places[before] + (number - all[before]).min(setup.apart)
                }
                _ => base + (number - base).min(setup.apart),
            };
            places.push(place);
        }
        places
    });
}

/// No proposal will be below this, unless it was made already.
fn least(state: &State, clocks: [i8; CLIENTS]) -> u64 {
    let mut least = u64::MAX;
    for (client, ahead) in state.clients.iter().zip(clocks) {
        least = least.min(client.aim).min(clock(ahead));
        for said in client.attempt.iter().flat_map(|attempt| &attempt.said) {
            if let Said::Behind(_, most) = said {
                least = least.min(*most);
            }
        }
        for (_, most) in client.at.iter().filter_map(|at| at.beyond) {
            least = least.min(most);
        }
    }
    let nodes = state.nodes.iter();
    nodes.fold(least, |least, node| least.min(clock(node.ahead) + AHEAD_US))
}

/// Forgets numbers that nothing will be compared with, and those that only bound others.
fn forget(state: &mut State, least: u64) {
    let books = &mut state.books;
    // A fence below it that may still be certified was proposed before.
    let mut live = Vec::with_capacity(16);
    for client in &state.clients {
        live.extend(client.attempt.map(|attempt| attempt.fence));
        for at in &client.at {
            live.extend(at.open.iter().chain(&at.back).chain(&at.votes));
        }
        live.extend([client.certified, client.granted]);
        live.extend(client.ghost.map(|(fence, _)| fence));
    }
    for node in &state.nodes {
        live.extend(node.votes.iter().flatten().map(|vote| vote.fence));
    }
    live.extend(state.late.iter().flatten().flatten().map(|late| late.fence));
    let bound = |number: &mut u64| {
        if *number < least {
            let below = live.iter().filter(|live| **live <= *number);
            *number = below.copied().max().unwrap_or_default();
        }
    };
    books.highest.iter_mut().for_each(bound);
    books.ended.iter_mut().for_each(bound);
    for given in &mut books.given {
        if *given < least && !live.contains(given) {
            *given = 0;
        }
    }
    books.given.sort_unstable();
    for client in &mut state.clients {
        if client.next < least {
            client.next = 0;
        }
        if let Some(attempt) = &mut client.attempt {
            bound(&mut attempt.above);
            for said in &mut attempt.said {
                match said {
                    Said::Behind(at_least, _) if *at_least < least => *at_least = least,
                    _ => {}
                }
            }
        }
    }
    let at_most = |number: u64| {
        let below = live.iter().filter(|live| **live <= number);
        below.copied().max().unwrap_or(OLD_US)
    };
    for node in &mut state.nodes {
        if let Some(counter) = &mut node.counter
            && *counter < least
        {
            *counter = at_most(*counter);
        }
        for vote in node.votes.iter_mut().flatten() {
            // Readers join at this number and above. `live` has 0, so it rises above no live number.
            if (1..least).contains(&vote.phase) {
                vote.phase = at_most(vote.phase - 1) + 1;
            }
        }
    }
}

/// Every number of the state, but 0.
fn each_number(state: &mut State, with: &mut dyn FnMut(&mut u64)) {
    let mut with = |number: &mut u64| {
        if *number > 0 {
            with(number);
        }
    };
    for node in &mut state.nodes {
        for vote in node.votes.iter_mut().flatten() {
            with(&mut vote.fence);
            with(&mut vote.phase);
        }
        if let Some(counter) = &mut node.counter {
            with(counter);
        }
    }
    for client in &mut state.clients {
        if let Some(attempt) = &mut client.attempt {
            with(&mut attempt.fence);
            with(&mut attempt.above);
            for said in &mut attempt.said {
                match said {
                    Said::Higher(fence) => with(fence),
                    Said::Behind(least, most) => {
                        with(least);
                        with(most);
                    }
                    _ => {}
                }
            }
        }
        for at in &mut client.at {
            if let Some((least, most)) = &mut at.beyond {
                with(least);
                with(most);
            }
            let lists = [&mut at.votes, &mut at.open, &mut at.back];
            lists.into_iter().flatten().for_each(&mut with);
        }
        for number in [
            &mut client.certified,
            &mut client.granted,
            &mut client.next,
            &mut client.aim,
        ] {
            with(number);
        }
        if let Some((fence, _)) = &mut client.ghost {
            with(fence);
        }
    }
    for late in state.late.iter_mut().flatten().flatten() {
        with(&mut late.fence);
    }
    let books = &mut state.books;
    let lists = [&mut books.highest[..], &mut books.ended, &mut books.given];
    lists.into_iter().flatten().for_each(with);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use stateright::Model;

    use super::settle;
    use crate::frame::{Bounds, setups};
    use crate::quorum::state::State;
    use crate::quorum::{Quorum, QuorumModel, QuorumRules, QuorumTurn};

    /// A state with its numbers, and that with moved ones, get equal replies and lead to equal states.
    #[test]
    fn moved_numbers_make_no_difference() {
        let mut moved = 0;
        for setup in setups::<Quorum>(Bounds::Ci) {
            let quorum = Quorum::new(&setup, QuorumRules::SOUND).unwrap();
            let model = QuorumModel::of(setup, quorum);
            for seed in 0..60_usize {
                let mut here = model.init_states().remove(0);
                let mut there = here;
                for nth in 1..70_usize {
                    let mut actions = Vec::new();
                    model.possible(&here, &mut actions);
                    let action = actions[(seed * nth * nth + nth * 5 + seed / 3) % actions.len()];
                    let Some(step) = model.step(&here, action) else {
                        continue;
                    };
                    let (next, said) = (step.state, step.said);
                    let mut turn = QuorumTurn::new(&model, &there);
                    turn.act(action).unwrap();
                    turn.end_owners();
                    let kind = std::mem::discriminant;
                    assert_eq!(
                        said.as_ref().map(kind),
                        turn.said.as_ref().map(kind),
                        "{}, seed {seed}: {action:?}",
                        setup.name
                    );
                    (here, there) = (next, turn.state);
                    let settled = |state: &State| {
                        let mut state = *state;
                        settle(&mut state, model.subject.terms, &model.setup);
                        state
                    };
                    assert_eq!(settled(&there), here, "{}, seed {seed}", setup.name);
                    moved += usize::from(there != here);
                }
            }
        }
        assert!(moved > 10_000, "{moved}");
    }
}
