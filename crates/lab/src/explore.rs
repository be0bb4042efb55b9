//! Explores a model, and finds the shortest trace to each violation. An exploration that was cut short is never reported as
//! exhausted.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::report::{Checked, Judged, Verdict};

/// How long one model may take before it is cut.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The situations that an exploration reached, by their numbers below 64; shared by all copies of a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reached(Arc<AtomicU64>);

impl Reached {
    pub(crate) fn note(&self, situation: u64) {
        // Mostly it is known already, and a write would delay the other threads.
        if !self.has(situation) {
            self.0.fetch_or(1 << situation, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, situation: u64) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << situation) != 0
    }
}

/// Explores everything within the bounds. The name of a property is a word, then a space and its meaning. `lines` formats a
/// path to a state for people.
#[expect(
    clippy::disallowed_methods,
    reason = "how long an exploration takes is no lease"
)]
pub(crate) fn explore<M>(
    model: &M,
    name: &str,
    bounds: String,
    lines: impl Fn(&M, &[M::Action]) -> Vec<String>,
) -> Checked
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let begun = Instant::now();
    let seen = model
        .clone()
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(LIMIT)
        .spawn_bfs()
        .join();
    let took = begun.elapsed();
    let found = seen.discoveries();
    let cut = !found.is_empty() || took >= LIMIT;
    let verdict = |name| match found.get(name) {
        Some(path) => {
            let actions = shortest(model, name, path.clone().into_actions());
            Verdict::Violated {
                steps: actions.len(),
                trace: lines(model, &actions),
            }
        }
        None if cut => Verdict::Cut,
        None => Verdict::Exhausted,
    };
    let properties = model.properties().into_iter().map(|property| {
        let (name, says) = named(property.name);
        Judged {
            name,
            says,
            verdict: verdict(property.name),
        }
    });
    Checked {
        model: name.to_owned(),
        bounds,
        states: seen.unique_state_count(),
        // It counts the states of a path, one more than its steps.
        depth: seen.max_depth().saturating_sub(1),
        properties: properties.collect(),
        took,
    }
}

/// Finds the shortest counterexample. The checker keeps the last one that it saw. With one thread it searches breadth first, so
/// a counterexample is the shortest if nothing deeper is allowed.
fn shortest<M>(model: &M, name: &'static str, mut actions: Vec<M::Action>) -> Vec<M::Action>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    loop {
        let checker = model
            .clone()
            .checker()
            .threads(1)
            // The checker counts states, and does not check those at the limit.
            .target_max_depth(actions.len() + 1)
            .finish_when(HasDiscoveries::AnyOf([name].into()))
            .spawn_bfs()
            .join();
        match checker.discovery(name) {
            Some(path) => actions = path.into_actions(),
            None => return actions,
        }
    }
}

/// Splits a property into its number and its meaning: `R6 first come, first served`.
fn named(name: &'static str) -> (&'static str, &'static str) {
    name.split_once(' ').unwrap_or((name, ""))
}
