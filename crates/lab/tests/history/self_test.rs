//! Shows that the judge rejects broken histories: a sound history, and a table of edits by hand. No code of the judge builds them.

use leasehold_lab::history::{Invariant, Status};
use serde_json::{Value, json};

use crate::text::{Text, complete, invoke};

/// A sound history, in milliseconds. On `m1`, worker 1 is followed by worker 2, which is stopped until worker 3 has taken over; the
/// resource then refuses worker 2. Worker 4 is killed as holder; worker 1 goes on. On `m2` an acquire has no outcome, and a holder
/// is told of its loss.
///
/// A line of a worker has an operation, and its outcome behind the bar. The others are of the resource, the nemesis and the store.
const SOUND: &str = "\
w1 10 acquire m1 a1 | 12 ok fence 64 until 157
w1 14 read m1 a1 | 16 ok
w1 18 write m1 a1 | 20 ok
w1 40 extend m1 a1 | 42 ok until 187
w1 60 release m1 a1 | 62 ok
w1 320 acquire m1 a2 | 322 refused
w1 340 acquire m2 a3 | 400 unknown
w1 460 acquire m1 a4 | 462 ok fence 320 until 607
w1 464 read m1 a4 | 466 ok
w1 468 write m1 a4 | 470 ok
w1 480 release m1 a4 | 482 ok
w1 710 acquire m1 a5 | 712 ok fence 384 until 857
w1 730 release m1 a5 | 732 ok
w1 740 acquire m2 a6 | 745 ok fence 192 until 887
w1 750 release m2 a6 | 752 ok
w2 11 acquire m1 b1 | 64 ok fence 128 until 209
w2 70 read m1 b1 | 72 ok
w2 262 told-lost m1 b1
w2 263 write m1 b1 | 265 refused
w2 266 release m1 b1 | 268 lost
w2 711 acquire m1 b2 | 735 ok fence 448 until 880
w2 740 release m1 b2 | 742 ok
w3 90 acquire m1 c1 | 92 refused
w3 100 acquire m1 c2 | 215 ok fence 192 until 360
w3 220 read m1 c2 | 222 ok
w3 225 write m1 c2 | 227 ok
w3 240 release m1 c2 | 242 ok
w3 410 acquire m2 c3 | 412 refused
w3 560 acquire m2 c4 | 565 ok fence 64 until 707
w3 570 release m2 c4 | 572 ok
w3 580 acquire m2 c5 | 582 ok fence 128 until 727
w3 728 told-lost m2 c5
w4 300 acquire m1 d1 | 302 ok fence 256 until 447
r 15 read m1 1 fence 64 value 0 accepted true highest 64
r 19 write m1 1 fence 64 base 0 value 1 accepted true highest 64
r 71 read m1 2 fence 128 value 1 accepted true highest 128
r 221 read m1 3 fence 192 value 1 accepted true highest 192
r 226 write m1 3 fence 192 base 1 value 2 accepted true highest 192
r 264 write m1 2 fence 128 base 1 value 2 accepted false highest 192
r 465 read m1 1 fence 320 value 2 accepted true highest 320
r 469 write m1 1 fence 320 base 2 value 3 accepted true highest 320
n 80 stop-worker worker-2 until 260
n 310 kill-worker worker-4
n 500 script-flush server
n 700 calm
s 61 removed m1 by a1 whose a1
s 241 removed m1 by c2 whose c2
s 267 removed m1 by b1 whose none
";

/// Edits of the sound history, each with the status and the invariants that the judge must find, and no others. An edit replaces a text
/// that occurs once, adds a line, removes one, or takes the edits of another case.
const CASES: &str = "\
clean: the sound history
violated I1: a fence twice
  ok fence 448 => ok fence 384
violated I1: a lease without a fence
  ok fence 192 until 887 => ok until 887
violated I2: a fence that falls
  ok fence 128 until 727 => ok fence 63 until 727
violated I2: fences in the wrong order although both acquires were under way
  735 ok fence 448 => 735 ok fence 384
  712 ok fence 384 => 712 ok fence 448
violated I2: a fence that falls when the store has lost its data
  ok fence 128 until 727 => ok fence 64 until 727
  + n 575 server-start epoch 1
violated I3: two holders
  b2 | 735 => b2 | 725
violated I3: two holders, by the deadline that an extend gave
  42 ok until 187 => 42 ok until 287
  w1 60 release m1 a1 | 62 => w1 69 release m1 a1 | 69
violated I4: a stale write accepted
  fence 128 base 1 value 2 accepted false => fence 128 base 2 value 3 accepted true
  fence 320 value 2 => fence 320 value 3
  fence 320 base 2 value 3 => fence 320 base 3 value 4
  w2 263 write m1 b1 | 265 refused => w2 263 write m1 b1 | 265 ok
violated I4: a resource that forgets what it has seen
  accepted false highest 192 => accepted false highest 128
violated I5: a write on an old version
  base 2 value 3 => base 1 value 3
violated I5: a version left out
  base 2 value 3 => base 2 value 4
violated I5: a read of an old version
  fence 320 value 2 => fence 320 value 1
violated I6: another's lock removed
  whose none => whose c2
violated I7: an extend after the deadline that it names
  42 ok until 187 => 42 ok until 36
violated I7: a release that is ok after the loss
  268 lost => 268 ok
violated I8: an orphan that stays
  w3 560 acquire m2 c4 | 565 ok fence 64 until 707 => w3 601 acquire m2 c4 | 602 refused
  - w3 570 release m2 c4 | 572 ok
  w3 580 acquire m2 c5 | 582 => w3 620 acquire m2 c5 | 622
violated I8: an orphan that stays for longer than the clock was set back
  as an orphan that stays
  + n 450 clock-back server step 0.9
violated I8: an orphan that was gone when the clock was set back
  as an orphan that stays
  + n 600.5 clock-back server step 9
violated I3: two holders although the clock was only set back
  as two holders
  + n 690 clock-back server step 9
violated I3: two holders after the clock was set forward
  as two holders
  + n 690 clock-forward server step 5000
violated I3: two holders although another lock was lost between
  as two holders
  + n 720 server-start epoch 1 locks m2
violated I3: two holders while two servers had another lock
  as two holders
  + n 740 server-start epoch 1 since 700 locks m2
violated I3: two holders before two servers had the lock
  as two holders
  + n 740 server-start epoch 1 since 726 locks m1
violated I3: two holders after two servers had the lock
  as two holders
  + n 705 server-start epoch 1 since 600 locks m1
violated I2: a fence that falls while two servers have the lock
  as a fence that falls
  + n 590 server-start epoch 1 since 550 locks m2
violated I1: a fence twice although the clock was set forward between
  as a fence twice
  + n 714 clock-forward server until 715 step 5000
  n 700 calm => n 720 calm
violated I2: a fence that falls when the clock is set back
  as a fence that falls
  + n 575 clock-back server step 5000
violated I8: a refusal because of an orphan of long ago
  w1 340 acquire m2 a3 | 400 unknown => w1 120 acquire m2 a3 | 130 unknown
violated I8: a refusal because of a release that no failover took back
  + w3 520 acquire m1 c9 | 522 refused
  + n 490 failover server until 515
  + n 515 server-start epoch 1
violated I9: a holder told late
  w3 728 told-lost => w3 733 told-lost
violated I9: a stopped holder told late, but it was not stopped
  stop-worker worker-2 => stop-worker worker-4
violated I10: an acquire that takes too long
  b2 | 735 => b2 | 772
  w2 740 release m1 b2 | 742 => w2 773 release m1 b2 | 774
invalid I11: a fault that never happened
  - n 500 script-flush server
invalid I11: a fault after the calm
  n 500 script-flush => n 750 script-flush
invalid I11: a worker that did nothing
  workers 5
violated I12: a write that the resource does not know
  w2 263 write m1 b1 | 265 refused => w2 263 write m1 b1 | 265 ok
violated I12: a decision before it was asked for
  r 469 => r 467
violated I12: a decision after it was answered
  r 469 => r 471
violated I12: a read under a lease of nobody
  w2 70 read m1 b1 => w2 70 read m1 b9
violated I7: an extend that gets a lock back after its release
  w1 40 extend m1 a1 | 42 ok until 187 => w1 40 release m1 a1 | 42 ok
  w1 60 release m1 a1 => w1 60 extend m1 a1
violated I9: a holder that goes on after its deadline and is not told
  w1 468 write m1 a4 | => w1 468 write m1 a4 until 462.5 |
invalid I11: a worker that writes while it is stopped
  n 80 stop-worker => n 60 stop-worker
invalid I11: a worker that writes after it was killed
  n 310 kill-worker => n 301 kill-worker
violated I12: an extend with another fence
  42 ok until 187 => 42 ok fence 65 until 187
violated I12: a release of what was refused
  + w3 729 release m2 c3 | 730 ok
violated I13: a healthy holder loses a lease of a quorum
  nodes 3
  582 ok fence 128 until 727 => 582 ok fence 128 until 727 renews true
violated I13: a healthy holder loses a lease, and one of three nodes was unwell
  as a healthy holder loses a lease of a quorum
  + n 600 unwell node-1 until 650
  + n 610 unwell node-1 until 660
  + n 670 unwell node-2 until 680
violated I13: a lease that does not renew is lost before its deadline
  nodes 3
  w3 728 told-lost => w3 720 told-lost
violated I13: a release finds a lease lost before its deadline
  nodes 3
  572 ok => 572 lost
violated I13: an extend finds a lease lost before its deadline
  as a release finds a lease lost before its deadline
  + w3 568 extend m2 c4 | 569 lost
violated I13: no answer from a quorum
  nodes 3
  400 unknown => 400 unknown no_answer true
violated I13: a waiter does not get a free lock
  nodes 3
  w3 560 acquire m2 c4 => w3 420 acquire m2 c4
violated I13: a waiter waits beside another one for a free lock
  nodes 3
  + w1 420 acquire m2 a9 | 440 refused
  w3 560 acquire m2 c4 => w3 421 acquire m2 c4
violated I13: a waiter does not get a free lock, and was stopped long before, in the tolerance
  as a waiter does not get a free lock
  tolerance 200
  + n 300 stop-worker worker-3 until 305
clean: a waiter does not get a free lock, and was stopped just before
  as a waiter does not get a free lock, and was stopped long before, in the tolerance
  + n 390 stop-worker worker-3 until 395
clean: a healthy holder loses a lease while two of three nodes are unwell
  as a healthy holder loses a lease of a quorum
  + n 600 unwell node-1 until 650
  + n 640 unwell node-2 until 660
clean: a release finds a lease lost while two of three nodes are unwell
  as a release finds a lease lost before its deadline
  + n 560 unwell node-1 until 575
  + n 565 unwell node-2 until 570
clean: the second of two nodes is unwell while the first may be out of reach
  as a healthy holder loses a lease of a quorum
  + n 600 unwell node-1 until 650
  + n 655 unwell node-2 until 660
clean: a lease of a quorum that ends at its deadline
  nodes 3
clean: no answer from a quorum without a majority
  as no answer from a quorum
  + n 300 unwell node-1 until 350
  + n 310 unwell node-3 until 332
clean: a waiter does not get a free lock of a quorum without a majority
  as a waiter does not get a free lock
  + n 430 unwell node-1 until 500
  + n 425 unwell node-2 until 520
clean: two holders because the store lost its data
  w2 711 acquire m1 b2 | 735 => w2 724 acquire m1 b2 | 725
  + n 720 server-start epoch 1
clean: two holders while two servers had the lock
  as two holders
  + n 740 server-start epoch 1 since 700 locks m1
clean: told late, but in time for the deadline that the library had moved
  w3 728 told-lost m2 c5 => w3 738 told-lost m2 c5 until 737
clean: a deadline written down by who was stopped until long after it
  w2 263 write m1 b1 | => w2 263 write m1 b1 until 210 |
clean: a write without an outcome that the resource refused
  w2 263 write m1 b1 | 265 refused => w2 263 write m1 b1 | 263.5 unknown
clean: a refusal in the last moment of an orphan
  c3 | 412 => c3 | 559
clean: an orphan of long ago, kept by a server that was stopped
  as a refusal because of an orphan of long ago
  + n 125 stop-server server until 230
clean: a refusal because of a release that a failover took back
  + w3 520 acquire m1 c9 | 522 refused
  + n 481 failover server until 515
  + n 515 server-start epoch 1
clean: two holders because the clock was set forward
  as two holders
  + n 714 clock-forward server until 715 step 5000
  n 700 calm => n 720 calm
clean: two holders, one by a deadline of before the clock was set forward that was handed on in its process
  as two holders
  ok fence 384 until 857 => ok fence 384 until 839
  + n 690 clock-forward server step 5000
clean: an orphan that stays for as long as the clock was set back
  as an orphan that stays
  + n 450 clock-back server step 1
clean: a lease that its holder took for lost, kept by a clock that was set back
  + w3 270 acquire m1 c9 | 272 refused
  + n 150 clock-back server step 9
invalid: a control that shows nothing
  control true
clean I5: a control that shows a lost update
  as a write on an old version
  control true
clean I3: a control of a rung that shows two holders
  as two holders
  control true
  system P4
violated I3: a control in which a lock that is to be trusted has two holders
  as two holders
  control true
invalid I2: a control of a rung whose fences fall, which is not what it was to show
  as a fence that falls
  control true
  system P4
";

/// A worker's last line, torn when it was killed.
const TORN: &str = r#"{"ev":"invoke","proc":4,"pid":104,"op":2,"what":"re"#;

fn plan() -> Value {
    json!({"format": 1, "run": "self-test", "seed": 1, "ttl_ms": 150, "workers": 4, "locks": 2, "resource": "fenced",
        "control": false, "system": "leasehold", "planned": {"stop-worker": 1, "kill-worker": 1, "script-flush": 1},
        "bounds": {"acquire_after_calm_ms": 30, "orphan_ms": 50, "scheduling_ms": 5, "recovery_ms": 10, "idle_ms": 80}})
}

/// The cases: what must be found, the name, and the edits.
fn cases() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut cases = Vec::new();
    for line in CASES.lines() {
        if let Some(edit) = line.strip_prefix("  ") {
            let (_, _, edits): &mut (_, _, Vec<_>) = cases.last_mut().unwrap();
            edits.push(edit);
        } else {
            let (found, name) = line.split_once(": ").unwrap();
            cases.push((found, name, Vec::new()));
        }
    }
    cases
}

/// Makes an edit of the plan and of the lines.
fn edit(plan: &mut Value, lines: &mut String, edit: &str) {
    if let Some(other) = edit.strip_prefix("as ") {
        let cases = cases();
        let (_, _, edits) = cases.iter().find(|(_, name, _)| *name == other).unwrap();
        for each in edits {
            self::edit(plan, lines, each);
        }
    } else if let Some(line) = edit.strip_prefix("+ ") {
        lines.extend([line, "\n"]);
    } else if let Some(line) = edit.strip_prefix("- ") {
        replace(lines, &format!("{line}\n"), "");
    } else if let Some((from, to)) = edit.split_once(" => ") {
        replace(lines, from, to);
    } else {
        set(plan, &edit.split(' ').collect::<Vec<_>>(), "");
    }
}

fn replace(lines: &mut String, from: &str, to: &str) {
    assert_eq!(lines.matches(from).count(), 1, "{from:?}");
    *lines = lines.replacen(from, to, 1);
}

/// Sets a field for each pair of words.
fn set(line: &mut Value, pairs: &[&str], until: &str) {
    for pair in pairs.chunks_exact(2) {
        let (key, value) = (pair[0], pair[1]);
        match key {
            "until" => line[until] = ns(value).into(),
            "locks" => line[key] = json!([value]),
            "since" => line["since_ns"] = ns(value).into(),
            "step" => line["by_ns"] = ns(value).into(),
            "tolerance" => line["bounds"]["scheduling_ms"] = value.parse::<u64>().unwrap().into(),
            _ => line[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        }
    }
}

/// Milliseconds in nanoseconds.
fn ns(ms: &str) -> u64 {
    let (whole, part) = ms.split_once('.').unwrap_or((ms, ""));
    format!("{whole}{part:0<6}").parse().unwrap()
}

/// The files of a history in which each author's lines are in order of time.
fn history(plan: Value, lines: &str) -> Text {
    let mut lines: Vec<Vec<&str>> = lines.lines().map(|it| it.split(' ').collect()).collect();
    lines.sort_by_key(|words| ns(words[1]));
    let mut text = Text::new(plan);
    for (words, seq) in lines.iter().zip(1..) {
        let (at, what, rest) = (ns(words[1]), words[2], &words[3..]);
        match words[0] {
            "n" => {
                let mut line = match what {
                    "calm" | "server-start" => json!({"ev": what, "at_ns": at}),
                    "unwell" => json!({"ev": what, "target": rest[0], "at_ns": at}),
                    kind => json!({"ev": "fault", "kind": kind, "target": rest[0], "at_ns": at}),
                };
                set(&mut line, &rest[rest.len() % 2..], "until_ns");
                text.add("nemesis.jsonl", line);
            }
            "r" => {
                let proc: u64 = rest[1].parse().unwrap();
                let mut line = json!({"ev": "decision", "seq": seq, "lock": rest[0], "proc": proc, "what": what, "at_ns": at});
                set(&mut line, &rest[2..], "");
                text.add("resource.jsonl", line);
            }
            "s" => {
                let mut line = json!({"ev": what, "lock": rest[0], "at_ns": at});
                set(&mut line, &rest[1..], "");
                text.add("store.jsonl", line);
            }
            worker => worker_lines(&mut text, worker[1..].parse().unwrap(), at, what, rest),
        }
    }
    text
}

/// The lines of an operation and its end, or of a loss report.
fn worker_lines(text: &mut Text, proc: u64, at: u64, what: &str, rest: &[&str]) {
    let (lock, owner) = (rest[0], rest[1]);
    let mut parts = rest[2..].split(|word| *word == "|");
    let op = text.0.values().map(Vec::len).sum::<usize>() as u64;
    let mut begin = invoke(proc, op, what, lock, owner, at);
    if what == "told-lost" {
        begin["ev"] = what.into();
    }
    set(&mut begin, parts.next().unwrap(), "valid_until_ns");
    text.worker(proc, begin);
    if let Some(end) = parts.next() {
        let mut end_line = complete(proc, op, end[1], ns(end[0]));
        set(&mut end_line, &end[2..], "valid_until_ns");
        text.worker(proc, end_line);
    }
}

#[test]
fn broken_histories_are_rejected_for_the_right_reason() {
    let mut failures = Vec::new();
    for (expected, name, edits) in cases() {
        let (mut plan, mut lines) = (plan(), SOUND.to_owned());
        for each in edits {
            edit(&mut plan, &mut lines, each);
        }
        let mut files = history(plan, &lines).files();
        files.get_mut("worker-4.jsonl").unwrap().push_str(TORN);
        let verdict = crate::text::judged(&files).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut found = vec![match verdict.status {
            Status::Clean => "clean",
            Status::Violated => "violated",
            Status::Invalid(_) => "invalid",
        }];
        found.extend(verdict.found.keys().map(|invariant| invariant.id()));
        if found.join(" ") != expected {
            failures.push(format!("{name}: expected {expected}, and got:\n{verdict}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for invariant in Invariant::ALL {
        let broken = ["violated", "invalid"].map(|status| format!("{status} {}", invariant.id()));
        let is_broken = |(found, ..): &(&str, &str, Vec<&str>)| broken.iter().any(|it| it == found);
        assert!(cases().iter().any(is_broken), "nothing breaks {invariant}");
    }
}
