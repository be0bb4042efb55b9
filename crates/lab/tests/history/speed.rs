//! How the time of the judge grows with the history. On a busy machine even processor time is noisy, so `scripts/soak` measures it.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use leasehold_lab::history::{History, Status, judge, parse};
use serde_json::{Value, json};

use crate::text::{campaign, complete, held, invoke};

/// Stored as text, since so many parsed lines take more memory.
#[derive(Default)]
struct Text(BTreeMap<String, String>);

impl Text {
    fn add(&mut self, file: &str, line: &Value) {
        writeln!(self.0.entry(file.to_owned()).or_default(), "{line}").unwrap();
    }

    fn worker(&mut self, proc: u64, line: &Value) {
        self.add(&format!("worker-{proc}.jsonl"), line);
    }
}

/// This many acquisitions on four locks by eight workers, each with a read, a write and a release. Every tenth acquire is
/// refused once before.
fn sound(acquisitions: u64) -> BTreeMap<String, String> {
    let mut settings = campaign(100);
    settings["workers"] = 8.into();
    settings["bounds"]["acquire_after_calm_ms"] = 1_000.into();
    let mut text = Text::default();
    text.add("campaign.json", &settings);
    text.add("nemesis.jsonl", &json!({"ev": "calm", "at_ns": 1}));
    for n in 0..acquisitions {
        let (proc, lock) = (n % 8 + 1, format!("m{}", n % 4));
        let owner = format!("o{n}");
        let (start, fence, version) = (n * 1_000_000, (n + 1) * 64, n / 4);
        let op = n * 5;
        if n % 10 == 9 {
            let before = (start / 1_000_000 - 4) * 1_000_000;
            let proc = (n + 1) % 8 + 1;
            text.worker(
                proc,
                &invoke(
                    proc,
                    op + 4,
                    "acquire",
                    &lock,
                    &format!("r{n}"),
                    before + 10,
                ),
            );
            text.worker(proc, &complete(proc, op + 4, "refused", before + 20));
        }
        text.worker(proc, &invoke(proc, op, "acquire", &lock, &owner, start));
        text.worker(
            proc,
            &held(proc, op, fence, start + 99_000_000, start + 100),
        );
        for (write, at) in [(false, 200), (true, 300)] {
            let what = if write { "write" } else { "read" };
            let op = op + 1 + u64::from(write);
            text.worker(proc, &invoke(proc, op, what, &lock, &owner, start + at));
            text.worker(proc, &complete(proc, op, "ok", start + at + 50));
            text.add("resource.jsonl", &json!({"ev": "decision", "seq": n * 2 + u64::from(write), "lock": lock,
                "proc": proc, "what": what, "fence": fence, "base": write.then_some(version),
                "value": version + u64::from(write), "accepted": true, "highest": fence, "at_ns": start + at + 10}));
        }
        text.worker(
            proc,
            &invoke(proc, op + 3, "release", &lock, &owner, start + 500),
        );
        text.worker(proc, &complete(proc, op + 3, "ok", start + 600));
    }
    text.0
}

/// The processor time of the judge; other work on this computer does not count.
fn time(history: &History) -> u64 {
    let start = spent_ns();
    let verdict = judge(history);
    let took = spent_ns() - start;
    assert_eq!(verdict.status, Status::Clean, "{verdict}");
    took
}

/// The processor time of this thread.
fn spent_ns() -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    all.split(' ').next().unwrap().parse().unwrap()
}

mod in_soak {
    use super::*;

    #[test]
    fn four_times_the_history_takes_at_most_eight_times_as_long() {
        let histories = [3_000, 12_000].map(|acquisitions| {
            let history = parse(&sound(acquisitions)).unwrap();
            assert_eq!(judge(&history).counts.acquisitions, acquisitions);
            history
        });
        // The minimum of several alternating runs: a shared processor is sometimes slower, and never faster.
        let mut least = [u64::MAX; 2];
        for _ in 0..5 {
            for (least, history) in least.iter_mut().zip(&histories) {
                *least = time(history).min(*least);
            }
        }
        let [one, four] = least;
        assert!(four < one * 8, "{one} ns, then {four} ns");
    }
}
