//! Shows that the judge can say no. Must never build a history with the code that judges it: all are text, broken by hand.

mod broken;
mod edits;
mod harmless;
mod sound;

use std::collections::BTreeMap;

use crate::{Invariant, Status, judge, parse};

/// A sound history, broken in one way.
struct Broken {
    name: &'static str,
    /// What it must be rejected for.
    by: Invariant,
    edits: &'static [Edit],
}

/// A sound history, changed in a way that must not have it rejected, or only as a control.
struct Harmless {
    name: &'static str,
    expected: Expected,
    edits: &'static [Edit],
}

/// In a file, a text that occurs once in it becomes another. An empty one stands for the end of the file.
#[derive(Clone, Copy)]
struct Edit(&'static str, &'static str, &'static str);

/// What must be said of a history.
#[derive(Clone, Copy)]
enum Expected {
    /// Clean.
    Sound,
    /// Violated, by this and nothing else; or invalid, if it is that which makes it so.
    Rejected(Invariant),
    /// A control, clean because it shows this and nothing else.
    Shows(Invariant),
    /// A control, invalid because it shows only this, which it was not to show.
    Forgiven(Invariant),
    /// A control, invalid because it shows nothing.
    Hollow,
}

/// Judges a sound history, and a number of broken ones: each must be rejected for the reason that it was broken, and for no
/// other. Says what went wrong.
pub fn self_test() -> Result<(), Vec<String>> {
    let mut failures = Vec::new();
    let mut run = |name: &str, expected: Expected, edits: &[Edit]| {
        if let Err(why) = check(expected, edits) {
            failures.push(format!("{name}: {why}"));
        }
    };
    run("the sound history", Expected::Sound, &[]);
    for Broken { name, by, edits } in broken::ALL {
        run(name, Expected::Rejected(*by), edits);
    }
    for case in harmless::ALL {
        run(case.name, case.expected, case.edits);
    }
    for invariant in Invariant::ALL {
        if !broken::ALL.iter().any(|broken| broken.by == invariant) {
            failures.push(format!("nothing is broken for {invariant}"));
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures)
    }
}

fn check(expected: Expected, edits: &[Edit]) -> Result<(), String> {
    let mut files: BTreeMap<String, String> = sound::FILES
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    for Edit(file, from, to) in edits {
        let text = files
            .get_mut(*file)
            .ok_or_else(|| format!("no file {file}"))?;
        if from.is_empty() {
            text.push_str(to);
        } else if text.matches(from).count() == 1 {
            *text = text.replacen(from, to, 1);
        } else {
            return Err(format!("{from:?} is not once in {file}"));
        }
    }
    let history = parse(&files).map_err(|unreadable| unreadable.to_string())?;
    let verdict = judge(&history);
    let clean = verdict.status == Status::Clean;
    let invalid = matches!(verdict.status, Status::Invalid(_));
    let (found, right) = match expected {
        Expected::Sound => (None, clean),
        Expected::Hollow => (None, invalid),
        Expected::Shows(it) => (Some(it), clean && verdict.shown > 0),
        Expected::Forgiven(it) => (Some(it), invalid && verdict.shown == 0),
        Expected::Rejected(it) if it == Invariant::RealCampaign => (Some(it), invalid),
        Expected::Rejected(it) => (Some(it), verdict.status == Status::Violated),
    };
    if right && verdict.found.keys().copied().eq(found) {
        Ok(())
    } else {
        Err(format!("expected {found:?} alone, and got:\n{verdict}"))
    }
}
