//! Shows that the judge rejects broken histories. All cases are text, edited by hand; no code of the judge builds them.

mod broken;
mod case;
mod edits;
mod harmless;
mod sound;

use std::collections::BTreeMap;

use leasehold_lab::history::{Invariant, Status, judge, parse};

use self::case::{Broken, Edit, Expected};

/// Judges a sound history, and many broken ones. Each must be rejected for the reason for which it was broken, and for no
/// other.
#[test]
fn broken_histories_are_rejected_for_the_right_reason() {
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
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
