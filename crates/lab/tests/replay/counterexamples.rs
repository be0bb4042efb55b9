//! Each shortest counterexample of the models also happens on a real server.

use std::thread;
use std::time::Duration;

use leasehold_lab::ladder::place::Place;
use leasehold_lab::ladder::replay::{ReplayVerdict, replay};
use leasehold_lab::ladder::rungs::{Rung, all};
use leasehold_lab::ladder::shortest::shortest;

const TICK: Duration = Duration::from_millis(60);

/// Replays mostly wait for the next tick, so some run in parallel.
const SIDE_BY_SIDE: usize = 4;

#[test]
fn every_counterexample_is_reproduced() {
    let broken: Vec<&'static Rung> = all()
        .iter()
        .filter(|rung| rung.breaks.is_some())
        .copied()
        .collect();
    assert!(
        broken.len() >= 14,
        "the ladder has lost some of its rungs: {}",
        broken.len()
    );
    let part = broken.len().div_ceil(SIDE_BY_SIDE);
    thread::scope(|scope| {
        for rungs in broken.chunks(part) {
            scope.spawn(|| rungs.iter().for_each(|rung| is_reproduced(rung)));
        }
    });
}

fn is_reproduced(rung: &'static Rung) {
    let story = shortest(rung, rung.bounds, rung.breaks.unwrap()).unwrap();
    let played = replay(&story, &Place::Own, TICK).unwrap();
    assert_eq!(played.verdict, ReplayVerdict::Reproduced, "{played}");
    // The last line is the violation.
    assert!(played.steps.last().unwrap().wrong.is_some(), "{played}");
}
