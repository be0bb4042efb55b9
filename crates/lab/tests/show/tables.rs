//! A trace as a table and as JSON, and the lists of rungs and of checks.

use std::time::Duration;

use leasehold_lab::check_table;
use leasehold_lab::ladder::check::RungResult;
use leasehold_lab::ladder::rungs;
use leasehold_lab::ladder::show::{ModelOutcome, RungSummary, json, list, list_json, svg, table};
use leasehold_lab::report::{Checked, Judged, Verdict};
use serde_json::Value;

use crate::tale::{all, crash, fenced, overdue, quorum, refreshed, summary};

pub(crate) fn is_a_page(name: &str, page: &str) {
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "{name}: {line:?}");
        assert_eq!(line, line.trim_end(), "{name}");
    }
}

fn checked() -> Checked {
    Checked {
        model: "set-px-lua".into(),
        bounds: "3 clients, each with 2 acquisitions, horizon 7, 1 crash".into(),
        states: 14_110,
        depth: 23,
        took: Duration::from_millis(31),
        properties: vec![
            Judged {
                name: "exclusion",
                says: "one at a time",
                verdict: Verdict::Exhausted,
            },
            Judged {
                name: "recovery",
                says: "a dead client's lock ends",
                verdict: Verdict::Cut,
            },
        ],
    }
}

fn safe(checked: &Checked) -> RungSummary<'_> {
    RungSummary {
        name: "set-px-lua",
        step: "P8",
        recipe: "SET lock random NX PX ttl; work; EVAL compare-and-delete",
        why: "Only the owner deletes, in one step.",
        next: "The resource checks a fence.",
        ahead: &[0, 0, 0],
        outcome: ModelOutcome::Exhausted(checked),
    }
}

#[test]
fn a_story_reads_like_a_transcript() {
    let page = table(&summary(&overdue()), false);
    assert_eq!(
        page,
        "\
P4  by-hand: SET lock random NX EX ttl; work; DEL lock

  #  TIME  WHO  COMMAND                REPLY        lock       HOLDS
  1   0 s  C1   SET lock c1-1 NX EX 2  OK           c1-1, 2 s  C1     acquired
2-3   2 s       (time passes)                       -          -      key expires, C1's time is up
  4   2 s  C2   SET lock c2-1 NX EX 2  OK           c2-1, 2 s  C2     acquired
  5   2 s  C1   DEL lock               (integer) 1  -          C2     released
  6   2 s  C3   SET lock c3-1 NX EX 2  OK           c3-1, 2 s  C2 C3  <-- acquired

Step 6 is wrong: C2 & C3 both hold the lock; <DEL> took \"c2-1\" away, and that isn't C1's.

HOLDS: who believes to hold the lock, by its own clock. A key is shown with what is left of its TTL;
without that it stays.

Why: The work outlasts the TTL, and DEL removes whatever stands there.

Next: The value says whose lock it is.
"
    );
}

#[test]
fn pages_are_at_most_a_hundred_columns_wide() {
    for (name, story) in all() {
        is_a_page(name, &table(&summary(&story), false));
    }
    is_a_page("safe", &table(&safe(&checked()), false));
}

#[test]
fn colour_adds_nothing_but_colour() {
    let story = overdue();
    let (plain, coloured) = (
        table(&summary(&story), false),
        table(&summary(&story), true),
    );
    assert!(!plain.contains('\u{1b}'));
    let wrong = coloured.lines().find(|line| line.contains("<-- ")).unwrap();
    assert!(
        wrong.starts_with('\u{1b}') && wrong.ends_with("\u{1b}[0m"),
        "{wrong:?}"
    );
    let mut bare = String::new();
    for (at, part) in coloured.split('\u{1b}').enumerate() {
        bare += if at == 0 {
            part
        } else {
            part.split_once('m').unwrap().1
        };
    }
    assert_eq!(bare, plain);
}

/// Time in which another event happens has a separate line.
#[test]
fn only_quiet_time_is_folded() {
    let numbers = |page: &str| -> Vec<String> {
        let rows = page.lines().skip(3).take_while(|line| !line.is_empty());
        rows.filter_map(|line| line.split_whitespace().next().map(str::to_owned))
            .collect()
    };
    assert_eq!(
        numbers(&table(&summary(&crash()), false)),
        ["1", "2", "3-4", "5"]
    );
    let mut story = crash();
    story.lines[2].note = "something".into();
    assert_eq!(
        numbers(&table(&summary(&story), false)),
        ["1", "2", "3", "4", "5"]
    );
}

#[test]
fn a_clock_that_is_ahead_is_told() {
    let story = crash();
    let summary = RungSummary {
        ahead: &[0, 2, 0],
        ..summary(&story)
    };
    let page = table(&summary, false);
    assert!(
        page.contains("\nThe clock of C2 is 2 s ahead.\n") && !page.contains("clock of C1"),
        "{page}"
    );
    assert!(svg(&summary).unwrap().contains(">client C2, clock +2 s<"));
}

#[test]
fn servers_scripts_and_transactions_are_told_apart() {
    let page = table(&summary(&quorum()), false);
    for text in [
        "S1 lock",
        "S3 lock",
        "S2> SET lock c2-1 NX EX 3",
        "S2   (restarts empty)",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = table(&summary(&fenced()), false);
    for script in [
        "\n<take> is the script\n    if redis.call('SET'",
        "\n<write> is the script\n",
    ] {
        assert_eq!(page.matches(script).count(), 1, "{page}");
    }
    let page = table(&summary(&refreshed()), false);
    assert!(
        page.contains("MULTI; SETNX lock c2-1;  1) (integer) 0"),
        "{page}"
    );
    assert!(
        page.contains("EXPIRE lock 2; EXEC      2) (integer) 1"),
        "{page}"
    );
}

#[test]
fn protocol_without_violation_is_shown_with_its_bounds() {
    let checked = checked();
    let summary = safe(&checked);
    let page = table(&summary, false);
    for text in [
        "Exhausted within these bounds: ",
        "14,110 states",
        "Bounds: 3 clients",
    ] {
        assert!(page.contains(text), "{page}");
    }
    assert!(!page.contains("HOLDS") && svg(&summary).is_none());
    let document: Value = serde_json::from_str(&json(&summary)).unwrap();
    assert_eq!(
        (&document["verdict"], &document["states"]),
        (&"exhausted".into(), &14_110.into())
    );
    assert!(document["story"].is_null() && document["steps"].is_null());
}

#[test]
fn a_model_that_was_cut_short_is_not_exhausted() {
    let rung = rungs::find("set-px-lua").unwrap();
    let mut found = RungResult::Explored(checked());
    let summary = |found: &RungResult| list(&[RungSummary::of(rung, found)], false);
    assert!(summary(&found).contains("not settled") && !summary(&found).contains("exhausted"));
    if let RungResult::Explored(checked) = &mut found {
        checked.properties.pop();
    }
    assert!(summary(&found).contains("  exhausted  "));
}

#[test]
fn programs_get_every_step_unfolded() {
    let text = json(&summary(&overdue()));
    assert_eq!(text.lines().count(), 1);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "leasehold.lab-show/1");
    assert_eq!(
        (&document["verdict"], &document["steps"]),
        (&"broken".into(), &6.into())
    );
    let lines = document["story"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 6);
    assert_eq!(
        (&lines[1]["event"], &lines[1]["client"]),
        (&"tick".into(), &Value::Null)
    );
    let last = &lines[5];
    assert_eq!(last["command"], "SET lock c3-1 NX EX 2");
    assert_eq!(last["holders"], serde_json::json!(["C2", "C3"]));
    assert_eq!(
        last["keys"][0],
        serde_json::json!({"server": "S1", "key": "lock", "value": "c3-1", "left_s": 2})
    );
    assert!(last["wrong"].as_str().unwrap().contains("isn't"));
    let document: Value = serde_json::from_str(&json(&summary(&fenced()))).unwrap();
    assert!(document["story"]["scripts"]["<take>"].is_string());
}

#[test]
fn a_list_has_all_rungs_with_their_verdicts() {
    let (one, two, checked) = (crash(), overdue(), checked());
    let rungs = [
        RungSummary {
            name: "first",
            step: "P1",
            ..summary(&one)
        },
        summary(&two),
        safe(&checked),
    ];
    let page = list(&rungs, false);
    assert_eq!(
        page,
        "\
P1  SET lock random NX EX ttl; work; DEL lock
    first       wrong in 5 steps  The work outlasts the TTL, and DEL removes whatever stands there.

P4  SET lock random NX EX ttl; work; DEL lock
    by-hand     wrong in 6 steps  The work outlasts the TTL, and DEL removes whatever stands there.

P8  SET lock random NX PX ttl; work; EVAL compare-and-delete
    set-px-lua  exhausted         within these bounds: 14,110 states (3 clients, each with 2
                                  acquisitions, horizon 7, 1 crash)
                                  Only the owner deletes, in one step.

Next, type
    leasehold-lab show first    its story, command by command
    leasehold-lab replay first  the same on a real redis-server
    leasehold-lab check         all models, all properties
"
    );
    let document: Value = serde_json::from_str(&list_json(&rungs)).unwrap();
    assert_eq!(document["schema"], "leasehold.lab/1");
    assert_eq!(document["rungs"][2]["verdict"], "exhausted");
}

#[test]
fn checks_are_told_with_their_bounds() {
    let violated = Verdict::Violated {
        steps: 2,
        trace: vec!["C1 acquires".into(), "C2 acquires".into()],
    };
    let broken = Checked {
        model: "broken".into(),
        properties: vec![Judged {
            name: "R1",
            says: "at most one holder",
            verdict: violated,
        }],
        ..checked()
    };
    let all = [checked(), broken];
    let page = check_table::table(&all, true, false);
    assert_eq!(
        page,
        "\
set-px-lua  14,110 states, 23 steps deep, 0.03 s
    3 clients, each with 2 acquisitions, horizon 7, 1 crash
    cut short: not all was seen    recovery
    exhausted within these bounds  exclusion

broken  14,110 states, 23 steps deep, 0.03 s
    3 clients, each with 2 acquisitions, horizon 7, 1 crash
    wrong in 2 steps               R1
    how R1 goes wrong:
      C1 acquires
      C2 acquires

exclusion  one at a time
recovery   a dead client's lock ends
R1         at most one holder

2 models, 28,220 states in 0.06 s: 1 property exhausted within these bounds, 1 wrong, 1 cut short
"
    );
    assert!(!check_table::table(&all, false, false).contains("how R1"));
    let document: Value = serde_json::from_str(&check_table::json(&all)).unwrap();
    assert_eq!(
        document["models"][1]["properties"][0]["trace"][1],
        "C2 acquires"
    );
    assert_eq!(
        document["models"][0]["properties"][0]["verdict"],
        "exhausted"
    );
}
