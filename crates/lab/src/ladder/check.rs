//! Explores rungs to the end of their bounds, and finds the shortest trace to a violation.

use std::time::Instant;

use stateright::{Checker, Model};

use super::model::{Ladder, LadderAction};
use super::property::LadderProperty;
use super::rungs::{Rung, RungBounds, TTL};
use super::state::LadderState;
use super::trace::{Line, Trace};
use crate::report::{Checked, Judged, Verdict};

/// The result for a rung.
#[derive(Debug, Clone)]
pub enum RungResult {
    /// It violates its stated property; this is the shortest trace.
    Broken(Trace),
    /// Everything within the bounds was explored, with the verdict on each property.
    Explored(Checked),
}

/// Explores a rung within its bounds as fast as possible: if it has a stated violation, the search ends there.
pub fn find_out(rung: &'static Rung) -> RungResult {
    let breaks = rung.breaks;
    let trace = breaks.and_then(|property| shortest(rung, rung.bounds, property));
    trace.map_or_else(
        || RungResult::Explored(check_rung(rung, rung.bounds)),
        RungResult::Broken,
    )
}

/// One rung, explored to the end of these bounds, with the shortest trace to each violation. The time is that of the
/// exploration.
#[expect(
    clippy::disallowed_methods,
    reason = "it says how long this machine took, and no lock depends on it"
)]
pub fn check_rung(rung: &'static Rung, bounds: RungBounds) -> Checked {
    let began = Instant::now();
    let ladder = Ladder {
        rung,
        bounds,
        properties: rung.asks.to_vec(),
    };
    let checker = ladder.checker().threads(1).spawn_bfs().join();
    let took = began.elapsed();
    let broken = checker.discoveries();
    let judge = |&property: &LadderProperty| Judged {
        name: property.name(),
        says: property.says(),
        verdict: if broken.contains_key(property.name()) {
            shortest(rung, bounds, property).map_or(Verdict::Cut, violated)
        } else {
            Verdict::Exhausted
        },
    };
    Checked {
        model: rung.name.to_owned(),
        bounds: format!("{bounds}; a TTL is {TTL} ticks"),
        states: checker.unique_state_count(),
        depth: checker.max_depth().saturating_sub(1),
        took,
        properties: rung.asks.iter().map(judge).collect(),
    }
}

/// Only the last step of a trace; `show` has all steps.
fn violated(story: Trace) -> Verdict {
    let steps = story.lines.len();
    let trace = story.lines.into_iter().filter_map(|line| line.wrong);
    Verdict::Violated {
        steps,
        trace: trace.collect(),
    }
}

/// The shortest trace in which a rung violates a property; `None` if there is none within these bounds.
pub fn shortest(
    rung: &'static Rung,
    bounds: RungBounds,
    property: LadderProperty,
) -> Option<Trace> {
    let ladder = Ladder {
        rung,
        bounds,
        properties: vec![property],
    };
    let actions = search(&ladder, None)?;
    Some(story(&ladder, &actions, property))
}

/// Whether no trace of at most so many steps violates the property: all of them were explored.
pub fn is_none_within(
    rung: &'static Rung,
    bounds: RungBounds,
    property: LadderProperty,
    steps: usize,
) -> bool {
    let properties = vec![property];
    let ladder = Ladder {
        rung,
        bounds,
        properties,
    };
    search(&ladder, Some(steps)).is_none()
}

/// With one thread and one property, stateright's search ends with the first violation, and a breadth-first search finds the
/// shortest first. With more of either it would go on and overwrite it with later ones.
fn search(ladder: &Ladder, steps: Option<usize>) -> Option<Vec<LadderAction>> {
    let mut checker = ladder.clone().checker().threads(1);
    if let Some(steps) = steps {
        // It counts the states of a path, one more than its steps, and does not check those of the last depth.
        checker = checker.target_max_depth(steps + 2);
    }
    let found = checker.spawn_bfs().join().discoveries();
    Some(found.into_values().next()?.into_actions())
}

/// Executes the actions again, and records the events.
fn story(ladder: &Ladder, actions: &[LadderAction], property: LadderProperty) -> Trace {
    let mut state = LadderState::new();
    let lines = actions.iter().map_while(|&action| {
        let step = ladder.step(&state, action)?;
        let wrong = ladder.judged(&state, &step).offence(property);
        state = step.state;
        let keys = |server: u8| state.servers[server as usize].keys(state.server_clock(server));
        Some(Line {
            time: state.time,
            event: step.event,
            note: step.note.to_owned(),
            keys: (0..ladder.rung.servers).map(keys).collect(),
            holders: state.holders(ladder.rung).collect(),
            wrong,
        })
    });
    Trace {
        lines: lines.collect(),
        rung: ladder.rung,
        clients: ladder.bounds.clients,
    }
}
