//! The checks of a sound model, for all kinds of models.

use std::fmt::Debug;

use leasehold_lab::report::{Finding, Verdict};

/// Each of so many properties holds in every state of a model, which reaches its situations and has more than so many states
/// and steps.
#[track_caller]
pub(crate) fn holds<S: Debug>(
    found: Finding<S>,
    properties: usize,
    (states, depth): (usize, usize),
) {
    let Finding { checked, missed } = found;
    let model = &checked.model;
    println!(
        "{model}: {} states, depth {}, {:?}",
        checked.states, checked.depth, checked.took
    );
    for judged in &checked.properties {
        if let Verdict::Violated { trace, .. } = &judged.verdict {
            panic!("{model}: {}\n{}", judged.name, trace.join("\n"));
        }
    }
    assert!(checked.is_exhausted(), "{model} was cut");
    assert!(missed.is_empty(), "{model} never reached {missed:?}");
    assert!(
        checked.states > states && checked.depth > depth,
        "{model}: {} states",
        checked.states
    );
    assert_eq!(checked.properties.len(), properties, "{model}");
}

/// The property that a model with broken rules violates, and the shortest history in which it does so.
#[track_caller]
pub(crate) fn finds<S>(found: Finding<S>, property: &str) -> Vec<String> {
    let mut others = Vec::new();
    for judged in found.checked.properties {
        let Verdict::Violated { steps, trace } = judged.verdict else {
            continue;
        };
        assert_eq!(trace.len(), steps + 1, "a heading and a line each");
        if judged.name == property {
            println!("{property} in {steps} steps\n{}", trace.join("\n"));
            return trace;
        }
        others.push((judged.name, trace));
    }
    panic!("{property} is not among {others:#?}");
}

/// One test for each model, so that a broken rule can be tried on the most suitable model. `scripts/soak` runs the slow ones.
macro_rules! models {
    ($group:ident $holds_in:ident { $($test:ident $model:literal)* } $(in_soak { $($slow:ident $slow_model:literal)* })?) => {
        const TESTED: &[&str] = &[$($model,)* $($($slow_model),*)?];

        mod $group {
            $(#[test]
            fn $test() {
                super::$holds_in($model);
            })*

            $(mod in_soak {
                $(#[test]
                fn $slow() {
                    super::super::$holds_in($slow_model);
                })*
            })?
        }
    };
}
