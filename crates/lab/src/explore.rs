//! Explores a model, and finds the shortest trace to each violation. An exploration that was cut short is never reported as
//! exhausted.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use leasehold_core::Invalid;

use crate::report::{Checked, Judged, Verdict};

/// How long one model may take before it is cut.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The situations that an exploration reached, by their numbers below 64; shared by all copies of a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reached(Arc<AtomicU64>);

impl Reached {
    pub(crate) fn note(&self, situation: u64) {
        self.note_all(1 << situation);
    }

    /// Notes situations, a bit each.
    pub(crate) fn note_all(&self, situations: u64) {
        // Mostly they are known already, and a write would delay the other threads.
        if situations & !self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_or(situations, Ordering::Relaxed);
        }
    }

    fn has(&self, situation: u64) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << situation) != 0
    }

    /// Those of `all` that were not reached.
    pub(crate) fn missed<S: Copy>(&self, all: &[S], number: impl Fn(S) -> u64) -> Vec<S> {
        let missed = all
            .iter()
            .filter(|situation| !self.has(number(**situation)));
        missed.copied().collect()
    }
}

/// The setup of this name.
///
/// # Errors
/// [`Invalid`] if there is none.
pub(crate) fn named_setup<S>(
    all: Vec<S>,
    name_of: impl Fn(&S) -> &'static str,
    name: &str,
) -> Result<S, Invalid> {
    let names: Vec<_> = all.iter().map(&name_of).collect();
    let mut all = all.into_iter();
    all.find(|setup| name_of(setup) == name)
        .ok_or_else(|| Invalid::new("model", name, format!("must be one of {names:?}")))
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
