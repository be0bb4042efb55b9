//! Impossible histories and arbitrary texts: each is refused or judged, without a panic.

use std::collections::BTreeMap;

use fastrand::Rng;
use leasehold_lab::history::{judge, parse};
use proptest::prelude::*;

use crate::simulator::simulate;
use crate::text::campaign;

/// Numbers and words that have broken parsers before.
const ODD: [&str; 12] = [
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "0",
    "1e9",
    "null",
    "\"m1\"",
    "true",
    "{}",
    "4294967296",
    "9223372036854775808",
    "18446744073709551614",
];

/// Fields that may have any number.
const FREE: [&str; 9] = [
    "fence",
    "valid_until_ns",
    "value",
    "base",
    "highest",
    "until_ns",
    "ttl_ms",
    "orphan_ms",
    "scheduling_ms",
];

/// Changes the value of one field; or removes, doubles or moves a line; or changes a few bytes.
fn mutated(files: &mut BTreeMap<String, String>, rng: &mut Rng) {
    let names: Vec<String> = files.keys().cloned().collect();
    let text = files.get_mut(rng.choice(&names).unwrap()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return;
    }
    let at = rng.usize(..lines.len());
    match rng.u64(..20) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => {
            let line = lines.remove(at);
            let to = rng.usize(..=lines.len());
            lines.insert(to, line);
        }
        3 => lines[at] = String::from_utf8_lossy(&garbled(lines[at].as_bytes(), rng)).into_owned(),
        drawn => {
            let mut fields: Vec<String> = lines[at].split(',').map(str::to_owned).collect();
            let is_free = |field: &String| {
                FREE.iter()
                    .any(|free| field.contains(&format!("\"{free}\":")))
            };
            if drawn > 5 {
                fields.retain(is_free);
            }
            let Some(field) = rng.choice(&fields) else {
                return mutated(files, rng);
            };
            if let Some((key, _)) = field.rsplit_once(':') {
                let odd = rng.choice(&ODD).unwrap();
                let end = if field.ends_with('}') { "}" } else { "" };
                lines[at] = lines[at].replacen(field.as_str(), &format!("{key}:{odd}{end}"), 1);
            }
        }
    }
    *text = lines.join("\n");
    if rng.u64(..100) < 90 {
        text.push('\n');
    }
}

fn garbled(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.u64(..4) {
        let at = rng.usize(..bytes.len().max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = rng.u8(..);
        }
    }
    bytes
}

/// `HOSTILE=100000 cargo test -p leasehold-lab --test history --release` for longer.
#[test]
fn mutated_histories_are_refused_or_judged() {
    let more = std::env::var("HOSTILE").ok().and_then(|n| n.parse().ok());
    let seeds: u64 = more.unwrap_or(150);
    let sound: Vec<_> = (0..4).map(|seed| simulate(seed).files()).collect();
    let mut judged = 0;
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let mut files = rng.choice(&sound).unwrap().clone();
        for _ in 0..=rng.u64(..2) {
            mutated(&mut files, &mut rng);
        }
        if let Ok(history) = parse(&files) {
            let verdict = judge(&history);
            assert!(!verdict.to_string().is_empty());
            judged += 1;
        }
    }
    assert!(
        (seeds / 15..seeds).contains(&judged),
        "{judged} of {seeds} could be judged"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_is_refused(name in "(worker-1|resource|nemesis|store)", bytes: Vec<u8>) {
        let mut files = BTreeMap::from([("campaign.json".to_owned(), campaign(100).to_string())]);
        let noise = format!("{{{}\n", String::from_utf8_lossy(&bytes));
        files.insert(format!("{name}.jsonl"), noise);
        let refused = parse(&files).unwrap_err();
        prop_assert_eq!(refused.file, format!("{name}.jsonl"));
        prop_assert_eq!(refused.line, 1);
    }
}
