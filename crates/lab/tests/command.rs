//! The command: which verbs need a server, and the message when it is missing.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::process::{Command, Output};

use leasehold_lab::ladder::rungs;

const LAB: &str = env!("CARGO_BIN_EXE_leasehold-lab");

/// A URL without a server, with a password that must not be shown.
const NOWHERE: &str = "redis://user:S3CR3T@127.0.0.1:1/";

/// `leasehold-lab words...`, on a host without a server.
fn without_server(words: &[&str]) -> Output {
    Command::new(LAB)
        .args(words)
        .env("PATH", "/nonexistent")
        .env_remove("REDIS_SERVER_BIN")
        .output()
        .unwrap()
}

fn lab(words: &[&str]) -> Output {
    Command::new(LAB).args(words).output().unwrap()
}

/// The output, after checking the exit code. Progress is shown on terminals only.
#[track_caller]
fn printed(done: &Output) -> String {
    assert_eq!(
        (done.status.code(), done.stderr.len()),
        (Some(0), 0),
        "{done:?}"
    );
    String::from_utf8(done.stdout.clone()).unwrap()
}

/// Its stderr, after checking the exit code and the empty stdout.
#[track_caller]
fn refused(done: &Output, code: i32) -> String {
    assert_eq!(
        (done.status.code(), done.stdout.len()),
        (Some(code), 0),
        "{done:?}"
    );
    let said = String::from_utf8(done.stderr.clone()).unwrap();
    assert!(said.contains(&format!("(exit {code})")), "{said}");
    assert!(!said.contains("S3CR3T"), "{said}");
    said
}

#[track_caller]
fn is_a_page(text: &str) {
    let is_narrow = |line: &str| line.chars().count() <= 100;
    assert!(text.lines().all(is_narrow), "{text}");
}

#[test]
fn the_list_has_each_rung_with_a_verdict_and_needs_no_server() {
    let page = printed(&without_server(&[]));
    let verdicts = page.lines().filter_map(|line| {
        let holds = line.contains("exhausted  ");
        let name = line.split_whitespace().next()?;
        (holds || line.contains(" wrong in ")).then_some((name, holds))
    });
    let rungs = rungs::all().iter();
    let expected: Vec<_> = rungs
        .map(|rung| (rung.name, rung.breaks.is_none()))
        .collect();
    assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    is_a_page(&page);
    // One group for each place on the ladder, in their order.
    let groups = page
        .lines()
        .filter_map(|line| line.strip_prefix('P')?.split_once(' '));
    let groups: Vec<u8> = groups.map(|(number, _)| number.parse().unwrap()).collect();
    assert!(groups.is_sorted() && groups.last() == Some(&10), "{page}");
}

#[test]
fn a_story_is_shown_and_drawn_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("story.svg");
    let page = printed(&without_server(&[
        "show",
        "set-ex-del",
        "--svg",
        picture.to_str().unwrap(),
    ]));
    assert!(
        page.lines()
            .any(|line| line.starts_with("  6 ") && line.contains("<-- ")),
        "{page}"
    );
    assert!(
        page.contains("Step 6 is wrong: C2 and C3 both hold the lock"),
        "{page}"
    );
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"),
        "{drawn}"
    );

    let page = printed(&without_server(&["show", "redlock"]));
    assert!(
        page.contains("Exhausted within these bounds") && !page.contains("<--"),
        "{page}"
    );
    let page = printed(&without_server(&["show", "quorum-no-certificate"]));
    assert!(
        page.contains("<take>") && page.contains("<-- acquired"),
        "{page}"
    );
    let said = refused(&without_server(&["show", "redlock", "--svg", "no.svg"]), 64);
    assert!(said.contains("no story to draw"), "{said}");
}

#[test]
fn a_check_fits_on_a_page_and_says_what_its_names_mean() {
    let page = printed(&without_server(&["check", "set-ex-del", "break"]));
    is_a_page(&page);
    for line in [
        "    wrong in 6 steps               exclusion",
        "    exhausted within these bounds  R1, R1b, R1c, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12",
        "R6         first come, first served (C4)",
    ] {
        assert!(page.lines().any(|is| is == line), "{line}\n{page}");
    }
    let said = refused(&without_server(&["check", "nope"]), 64);
    assert!(said.contains("leasehold-lab check"), "{said}");
}

#[test]
fn programs_get_one_line_that_says_first_what_it_is() {
    for (words, schema) in [
        (["--json"].as_slice(), "lab/1"),
        (&["show", "setnx-del", "--json"], "lab-show/1"),
        (&["--json", "show", "setnx-del"], "lab-show/1"),
        (&["check", "setnx-del", "--json"], "lab-check/1"),
        (&["replay", "getset-skew", "--json"], "lab-replay/1"),
    ] {
        let line = printed(&lab(words));
        assert!(
            line.starts_with(&format!("{{\"schema\":\"leasehold.{schema}\",")),
            "{line}"
        );
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
    }
}

#[test]
fn a_replay_reproduces_the_story_on_a_server_of_its_own() {
    let page = printed(&lab(&["replay", "set-ex-del"]));
    assert!(page.contains("\nreproduced: "), "{page}");
    assert!(
        page.lines().any(|line| line.starts_with(">>  6 ")),
        "{page}"
    );
    is_a_page(&page);
}

#[test]
fn what_is_missing_is_named() {
    for verb in ["show", "replay"] {
        let said = refused(&without_server(&[verb, "nope"]), 64);
        assert!(
            said.contains("no rung \"nope\"") && said.trim_end().ends_with("next    leasehold-lab"),
            "{said}"
        );
    }
    let said = refused(&without_server(&["replay", "set-ex-del"]), 69);
    assert!(said.contains("apt install redis-server"), "{said}");
    let said = refused(&lab(&["replay", "setnx-del", "--url", NOWHERE]), 69);
    assert!(said.contains("cannot connect to 127.0.0.1:1"), "{said}");
    let said = refused(&without_server(&["replay", "redlock"]), 64);
    assert!(
        said.contains("no story to replay") && said.contains("leasehold-lab show redlock"),
        "{said}"
    );
    // A URL in the wrong place.
    refused(&without_server(&["show", NOWHERE]), 64);
    refused(&without_server(&[NOWHERE]), 64);

    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    let said = refused(&without_server(&["judge", path]), 64);
    assert!(
        said.contains(&format!("no history in {path}")) && said.contains("--keep"),
        "{said}"
    );
}

#[test]
fn who_stops_reading_is_no_error() {
    let script = format!("{LAB} show setnx-del | true; exit ${{PIPESTATUS[0]}}");
    printed(&Command::new("bash").args(["-c", &script]).output().unwrap());
}
