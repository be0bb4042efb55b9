//! The checker accepts random sound histories. It refuses the same histories with one change.

use fastrand::Rng;
use leasehold_lab::history::Status;
use proptest::prelude::*;
use serde_json::Value;

use crate::simulator::simulate;
use crate::text::Text;

/// The possible changes.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Two leases of a lock, the second requested when the first was held, exchange fences.
    SwapFences,
    /// A lease gets the fence of another.
    SameFence,
    /// A lease loses its end, and lasts beyond the beginning of the next lease.
    LongLease,
    /// A decision is inverted.
    TurnDecision,
    /// A decision is removed.
    DropDecision,
    /// A write was based on another version.
    OtherBase,
    /// A release removes the lock of another owner.
    RemoveOther,
    /// A holder is told a second late.
    TellLate,
    /// A fault did not happen.
    DropFault,
    /// A line is torn.
    Tear,
}

const CHANGES: [Change; 10] = [
    Change::SwapFences,
    Change::SameFence,
    Change::LongLease,
    Change::TurnDecision,
    Change::DropDecision,
    Change::OtherBase,
    Change::RemoveOther,
    Change::TellLate,
    Change::DropFault,
    Change::Tear,
];

/// The place of a line.
type At = (String, usize);

/// The ok acquires of one lock, by fence: the places of invocation and completion.
fn leases(text: &Text, lock: &str) -> Vec<(At, At)> {
    let mut leases = Vec::new();
    for (file, lines) in text
        .0
        .iter()
        .filter(|(file, _)| file.starts_with("worker-"))
    {
        for (at, line) in lines.iter().enumerate() {
            let begun = lines
                .iter()
                .position(|it| it["ev"] == "invoke" && it["op"] == line["op"]);
            let acquired = begun.filter(|begun| {
                let of = &lines[*begun];
                line["outcome"] == "ok" && of["what"] == "acquire" && of["lock"] == lock
            });
            if let Some(begun) = acquired {
                let fence = line["fence"].as_u64().unwrap();
                leases.push((fence, (file.clone(), begun), (file.clone(), at)));
            }
        }
    }
    leases.sort();
    leases
        .into_iter()
        .map(|(_, begun, at)| (begun, at))
        .collect()
}

fn line<'a>(text: &'a mut Text, at: &At) -> &'a mut Value {
    &mut text.0.get_mut(&at.0).unwrap()[at.1]
}

fn ns(text: &Text, at: &At) -> u64 {
    text.0[&at.0][at.1]["at_ns"].as_u64().unwrap()
}

fn hit(text: &Text, proc: &Value) -> bool {
    let target = format!("worker-{proc}");
    text.0
        .get("nemesis.jsonl")
        .is_some_and(|faults| faults.iter().any(|it| it["target"] == target.as_str()))
}

/// The indices of the suitable lines of a file.
fn places(text: &Text, file: &str, will_do: impl Fn(&Value) -> bool) -> Vec<usize> {
    let lines = text.0.get(file).map(Vec::as_slice).unwrap_or_default();
    (0..lines.len()).filter(|at| will_do(&lines[*at])).collect()
}

/// Makes one change, if the history allows it.
fn change(text: &mut Text, change: Change, rng: &mut Rng) -> Option<()> {
    let original = text.clone();
    let leases = leases(text, if rng.u64(..100) < 50 { "m0" } else { "m1" });
    let pairs = leases.windows(2);
    // A decision for a killed worker may be either.
    let certain = |it: &Value| !hit(&original, &it["proc"]);
    match change {
        Change::SwapFences | Change::SameFence => {
            let swap = matches!(change, Change::SwapFences);
            let pairs =
                pairs.filter(|pair| !swap || ns(&original, &pair[0].1) < ns(&original, &pair[1].0));
            let pair = *rng.choice(&pairs.collect::<Vec<_>>())?;
            let fences = [&pair[0].1, &pair[1].1].map(|at| line(text, at)["fence"].clone());
            line(text, &pair[1].1)["fence"] = fences[0].clone();
            if swap {
                line(text, &pair[0].1)["fence"] = fences[1].clone();
            }
        }
        Change::LongLease => {
            let pairs = pairs.filter(|pair| {
                let (known, next) = (ns(&original, &pair[0].1), ns(&original, &pair[1].1));
                let until = &original.0[&pair[1].1.0][pair[1].1.1]["valid_until_ns"];
                known < next && until.as_u64() > Some(next)
            });
            let pair = *rng.choice(&pairs.collect::<Vec<_>>())?;
            let next = ns(text, &pair[1].1);
            let owner = line(text, &pair[0].0)["owner"].clone();
            line(text, &pair[0].1)["valid_until_ns"] = (next + 1).into();
            // Removes the owner's operations except acquires, and the file's loss reports, so that no line ends the lease.
            let lines = text.0.get_mut(&pair[0].1.0)?;
            let ops: Vec<Value> = lines
                .iter()
                .filter(|it| it["owner"] == owner && it["what"] != "acquire")
                .map(|it| it["op"].clone())
                .collect();
            lines.retain(|it| it["ev"] != "told-lost" && !ops.contains(&it["op"]));
        }
        Change::TurnDecision | Change::DropDecision => {
            let at = *rng.choice(&places(text, "resource.jsonl", certain))?;
            let decisions = text.0.get_mut("resource.jsonl")?;
            if matches!(change, Change::DropDecision) {
                decisions.remove(at);
            } else {
                let turned = decisions[at]["accepted"] == false;
                decisions[at]["accepted"] = turned.into();
            }
        }
        Change::OtherBase => {
            let writes = places(text, "resource.jsonl", |it| {
                it["what"] == "write" && it["accepted"] == true
            });
            let at = *rng.choice(&writes)?;
            let base = &mut text.0.get_mut("resource.jsonl")?[at]["base"];
            *base = (base.as_u64()? + 1 + rng.u64(..3)).into();
        }
        Change::RemoveOther => {
            let at = *rng.choice(&places(text, "store.jsonl", |_| true))?;
            text.0.get_mut("store.jsonl")?[at]["whose"] = "another".into();
        }
        Change::TellLate => {
            let files: Vec<String> = text.0.keys().cloned().collect();
            let told = |it: &Value| it["ev"] == "told-lost" && certain(it);
            let mut all = Vec::new();
            for file in &files {
                all.extend(
                    places(text, file, told)
                        .into_iter()
                        .map(|at| (file.clone(), at)),
                );
            }
            let told = line(text, rng.choice(&all)?);
            told["at_ns"] = (told["at_ns"].as_u64()? + 1_000_000_000).into();
        }
        Change::DropFault => {
            let at = *rng.choice(&places(text, "nemesis.jsonl", |it| it["ev"] == "fault"))?;
            text.0.get_mut("nemesis.jsonl")?.remove(at);
        }
        Change::Tear => {
            let at = *rng.choice(&places(text, "resource.jsonl", |_| true))?;
            text.0.get_mut("resource.jsonl")?[at] = "torn".into();
        }
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_perfect_lock_is_clean(seed: u64) {
        let verdict = simulate(seed).judge().unwrap();
        prop_assert_eq!(&verdict.status, &Status::Clean, "{}", verdict);
    }

    #[test]
    fn one_change_is_enough(seed: u64, which in 0..CHANGES.len()) {
        let mut text = simulate(seed);
        let changed = change(&mut text, CHANGES[which], &mut Rng::with_seed(seed));
        prop_assume!(changed.is_some());
        if let Ok(verdict) = text.judge() {
            prop_assert!(verdict.status != Status::Clean, "{:?}\n{}", CHANGES[which], verdict);
        }
    }
}

/// The simulator must produce each of these cases. Otherwise its soundness would mean nothing.
#[test]
fn the_simulator_has_it_all() {
    let mut seen = [0; 6];
    for seed in 0..40 {
        let counts = simulate(seed).judge().unwrap().counts;
        let these = [
            counts.acquisitions,
            counts.refused,
            counts.unknown,
            counts.refused_decisions,
            counts.told_lost,
            counts.faults.values().sum(),
        ];
        seen = std::array::from_fn(|at| seen[at] + these[at]);
    }
    assert!(seen.iter().all(|seen| *seen >= 20), "{seen:?}");
}
