//! The shortest trace to a violation. The search is breadth-first, by one thread, for one property, and ends with the first
//! violating state.

use stateright::{Checker, Model};

use super::model::{Ladder, LadderAction};
use super::offence::JudgedStep;
use super::property::LadderProperty;
use super::rungs::{Rung, RungBounds};
use super::state::LadderState;
use super::trace::{Line, Trace};

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
    let ladder = Ladder {
        rung,
        bounds,
        properties: vec![property],
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
    let path = checker
        .spawn_bfs()
        .join()
        .discoveries()
        .into_values()
        .next()?;
    Some(path.into_actions())
}

/// Executes the actions again, and records the events.
fn story(ladder: &Ladder, actions: &[LadderAction], property: LadderProperty) -> Trace {
    let mut lines = Vec::new();
    let mut state = LadderState::new(ladder.bounds.clients, ladder.rung.servers);
    for &action in actions {
        let Some(step) = ladder.step(&state, action) else {
            break;
        };
        let judged = JudgedStep {
            rung: ladder.rung,
            before: &state,
            event: &step.event,
            after: &step.state,
        };
        let wrong = judged.offence(property);
        state = step.state;
        let keys = |server: u8| state.servers[server as usize].keys(state.server_clock(server));
        lines.push(Line {
            time: state.time,
            event: step.event,
            note: step.note.to_owned(),
            keys: (0..ladder.rung.servers).map(keys).collect(),
            holders: state.holders(ladder.rung).collect(),
            wrong,
        });
    }
    Trace {
        rung: ladder.rung.name,
        clients: ladder.bounds.clients,
        servers: ladder.rung.servers,
        lock_servers: ladder.rung.lock_servers(),
        lines,
    }
}
