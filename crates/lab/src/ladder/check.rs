//! Explores all rungs to the end of their bounds.

use std::time::Instant;

use stateright::{Checker, Model};

use super::model::Ladder;
use super::property::LadderProperty;
use super::rungs::{Rung, RungBounds};
use super::shortest::shortest;
use super::trace::Trace;
use crate::report::{Checked, Judged, Verdict};

/// The result for a rung.
#[derive(Debug, Clone)]
pub enum RungResult {
    /// It violates its stated property; this is the shortest trace.
    Broken(LadderProperty, Trace),
    /// Everything within the bounds was explored, with the verdict on each property.
    Explored(Checked),
}

/// Explores a rung within its bounds as fast as possible: if it has a stated violation, the search ends there.
pub fn find_out(rung: &'static Rung) -> RungResult {
    let story = rung
        .breaks
        .and_then(|property| Some((property, shortest(rung, rung.bounds, property)?)));
    match story {
        Some((property, trace)) => RungResult::Broken(property, trace),
        None => RungResult::Explored(check_rung(rung, rung.bounds)),
    }
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
        bounds: format!("{bounds}; a TTL is {} ticks", rung.ttl),
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
