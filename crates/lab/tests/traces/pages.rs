//! A trace as a table and as JSON, and the lists of rungs and of checks.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold_lab::check_table;
use leasehold_lab::ladder::check::RungResult;
use leasehold_lab::ladder::redis::RedisCommand;
use leasehold_lab::ladder::rungs::Rung;
use leasehold_lab::ladder::show::{json, list, list_json, svg, table};
use leasehold_lab::ladder::trace::Trace;
use leasehold_lab::report::{Checked, Judged, Verdict};
use serde_json::Value;

use crate::BROKEN;
use crate::tale::{Tale, all, all_that_can_happen, by_hand, crash, overdue, owner};

fn is_a_page(name: &str, page: &str) {
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "{name}: {line:?}");
        assert_eq!(line, line.trim_end(), "{name}");
    }
}

/// The page of a hand-made trace.
fn page(trace: Trace) -> String {
    table(trace.rung, &RungResult::Broken(trace), false)
}

fn parsed(rung: &Rung, found: &RungResult) -> Value {
    let text = json(rung, found);
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).unwrap()
}

fn checked() -> Checked {
    let judged = |name, says, verdict| Judged {
        name,
        says,
        verdict,
    };
    Checked {
        model: "set-px-lua".into(),
        bounds: "3 clients, each with 2 acquisitions, horizon 7, 1 crash".into(),
        states: 14_110,
        depth: 23,
        took: Duration::from_millis(31),
        properties: vec![
            judged("exclusion", "one at a time", Verdict::Exhausted),
            judged("recovery", "a dead client's lock ends", Verdict::Cut),
        ],
    }
}

/// A rung without a violation.
fn safe() -> (Rung, RungResult) {
    let mut checked = checked();
    checked.properties.pop();
    let rung = Rung {
        number: "P8",
        recipe: "SET lock random NX PX ttl; work; EVAL compare-and-delete",
        why: "Only the owner deletes, in one step.",
        ..by_hand("set-px-lua", 1)
    };
    (rung, RungResult::Explored(checked))
}

#[test]
fn a_story_reads_like_a_transcript() {
    assert_eq!(
        page(overdue()),
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
        is_a_page(name, &page(story));
    }
    let (rung, found) = safe();
    is_a_page("safe", &table(&rung, &found, false));
    is_a_page("list", &list(&BROKEN, false));
}

#[test]
fn colour_adds_nothing_but_colour() {
    let trace = overdue();
    let (rung, found) = (trace.rung, RungResult::Broken(trace));
    let [plain, coloured] = [false, true].map(|colour| table(rung, &found, colour));
    assert!(!plain.contains('\u{1b}'));
    let wrong = coloured.lines().find(|line| line.contains("<-- ")).unwrap();
    assert!(
        wrong.starts_with('\u{1b}') && wrong.ends_with("\u{1b}[0m"),
        "{wrong:?}"
    );
    let behind = coloured.split('\u{1b}').skip(1);
    let behind = behind.map(|part| part.split_once('m').unwrap().1);
    let bare: String = coloured.split('\u{1b}').take(1).chain(behind).collect();
    assert_eq!(bare, plain);
}

/// Time in which another event happens has a separate line.
#[test]
fn only_quiet_time_is_folded() {
    let numbers = |trace| -> Vec<String> {
        let page = page(trace);
        let rows = page.lines().skip(3).take_while(|line| !line.is_empty());
        rows.filter_map(|line| line.split_whitespace().next().map(str::to_owned))
            .collect()
    };
    assert_eq!(numbers(crash()), ["1", "2", "3-4", "5"]);
    let mut story = crash();
    story.lines[2].note = "something".into();
    assert_eq!(numbers(story), ["1", "2", "3", "4", "5"]);
}

#[test]
fn a_clock_that_is_ahead_is_told() {
    let skewed = Rung {
        skew: [0, 2, 0],
        ..by_hand("skewed", 1)
    };
    let trace = Trace {
        rung: Box::leak(Box::new(skewed)),
        ..crash()
    };
    assert!(svg(&trace).contains(">client C2, clock +2 s<"));
    let page = page(trace);
    assert!(page.contains("\nThe clock of C2 is 2 s ahead.\n"), "{page}");
    assert!(!page.contains("clock of C1"), "{page}");
}

#[test]
fn servers_scripts_and_transactions_are_told_apart() {
    let take = |client| RedisCommand::SetNxAndExpire(owner(client, 0), 2);
    let refreshed = Tale::new(2, 1).asks(0, 0, take(0)).asks(1, 0, take(1));
    let refreshed = page(refreshed.wrong("The lock lives on past its TTL."));
    for text in [
        "MULTI; SETNX lock c2-1;  1) (integer) 0",
        "EXPIRE lock 2; EXEC      2) (integer) 1",
    ] {
        assert!(refreshed.contains(text), "{text}: {refreshed}");
    }
    let page = page(all_that_can_happen());
    for [command, reply] in [
        ["S1 lock", "S2 lock"],
        ["C1   S1> SET lock c1-1 NX", "OK (lost)"],
        ["C1   S1> EVAL <delete-if>", "(on its way)"],
        ["C1   (arrives) S1> EVAL", "(unheard)"],
        ["S2   (restarts empty)", "-"],
    ] {
        let is_there = |line: &str| line.contains(command) && line.contains(reply);
        assert!(page.lines().any(is_there), "{command}: {page}");
    }
    for script in [
        "\n<take> is the script\n    if redis.call('SET'",
        "\n<propose> is the script\n",
    ] {
        assert_eq!(page.matches(script).count(), 1, "{page}");
    }
}

#[test]
fn protocol_without_violation_is_shown_with_its_bounds() {
    let (rung, found) = safe();
    let page = table(&rung, &found, false);
    for text in [
        "Exhausted within these bounds: ",
        "14,110 states",
        "Bounds: 3 clients",
    ] {
        assert!(page.contains(text), "{page}");
    }
    assert!(!page.contains("HOLDS"));
    let document = parsed(&rung, &found);
    assert_eq!(document["verdict"], "exhausted");
    assert_eq!(document["states"], 14_110);
    assert!(document["story"].is_null() && document["steps"].is_null());
}

#[test]
fn a_model_that_was_cut_short_is_not_exhausted() {
    let (rung, found) = safe();
    assert!(list(&[(&rung, found)], false).contains("  exhausted  "));
    let cut = RungResult::Explored(checked());
    assert_eq!(parsed(&rung, &cut)["verdict"], "unsettled");
    assert!(table(&rung, &cut, false).contains("\nNot settled: "));
    let page = list(&[(&rung, cut)], false);
    assert!(page.contains("not settled") && !page.contains("exhausted"));
}

#[test]
fn programs_get_every_step_unfolded() {
    let trace = overdue();
    let document = parsed(trace.rung, &RungResult::Broken(trace));
    assert_eq!(document["schema"], "leasehold.lab-show/1");
    assert_eq!(document["verdict"], "broken");
    assert_eq!(document["steps"], 6);
    let lines = document["story"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[1]["event"], "tick");
    assert!(lines[1]["client"].is_null());
    let last = &lines[5];
    assert_eq!(last["command"], "SET lock c3-1 NX EX 2");
    assert_eq!(last["holders"], serde_json::json!(["C2", "C3"]));
    assert_eq!(
        last["keys"][0],
        serde_json::json!({"server": "S1", "key": "lock", "value": "c3-1", "left_s": 2})
    );
    assert!(last["wrong"].as_str().unwrap().contains("isn't"));
    let trace = all_that_can_happen();
    let document = parsed(trace.rung, &RungResult::Broken(trace));
    assert!(document["story"]["scripts"]["<take>"].is_string());
}

#[test]
fn each_rung_that_goes_wrong_is_told_in_all_forms() {
    for (rung, found) in BROKEN.iter() {
        let page = table(rung, found, false);
        is_a_page(rung.name, &page);
        assert_eq!(page.matches("<-- ").count(), 1, "{page}");
        let document = parsed(rung, found);
        let lines = document["story"]["lines"].as_array().unwrap();
        let why = lines.last().unwrap()["wrong"].as_str().unwrap();
        // It is wrapped there.
        assert!(page.contains(&why[..20]), "{why}\n{page}");
    }
}

/// The trace in the docs is the one that the command prints.
#[test]
fn the_docs_quote_a_story_as_it_is_printed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab.md");
    let docs = fs::read_to_string(docs).unwrap();
    let mut rungs = BROKEN.iter();
    let (rung, found) = rungs.find(|(rung, _)| rung.name == "set-ex-del").unwrap();
    let page = table(rung, found, false);
    assert!(docs.contains(&page), "{page}");
}

#[test]
fn a_list_has_all_rungs_with_their_verdicts() {
    let first = Rung {
        number: "P1",
        ..by_hand("first", 1)
    };
    let (second, (third, exhausted)) = (by_hand("by-hand", 1), safe());
    let rungs = [
        (&first, RungResult::Broken(crash())),
        (&second, RungResult::Broken(overdue())),
        (&third, exhausted),
    ];
    assert_eq!(
        list(&rungs, false),
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
