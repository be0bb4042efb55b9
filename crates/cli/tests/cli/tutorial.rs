//! The console blocks of `docs/tutorial.md` and of the page at the registry, each page in one shell. Their output must be that of the page.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test and its helpers")]

use crate::common::Store;
use crate::dev::nothing_is_left;

const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");

const REGISTRY_PAGE: &str = include_str!("../../README.md");

/// Separates the outputs of two commands.
const MARK: &str = "-- next command --";

/// Waits until a command in the background has written its fence.
const UNTIL_HELD: &str = "until [ -s fence ]; do sleep 0.05; done";

/// The commands of a page in order, each with the output below it.
fn commands(page: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = page.split("```console\n").skip(1);
    let lines = blocks.flat_map(|rest| rest.split("```").next().unwrap_or_default().lines());
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command, Vec::new())),
            None => commands.last_mut().expect("a command").1.push(line),
        }
    }
    commands
}

/// The line with `HOST (pid N` for each process, and with `N` for fences and times. Short whole numbers, such as statuses, stay.
fn general(line: &str) -> String {
    let mut general = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|first: char| first.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let end = number.find(|next: char| !next.is_ascii_digit() && next != '.');
        let (number, after) = number.split_at(end.unwrap_or(number.len()));
        general += before;
        if let Some(start) = general.strip_suffix(" (pid ") {
            let host = start.rfind(' ').map_or(0, |space| space + 1);
            general.replace_range(host.., "HOST (pid N");
        } else {
            let is_short = number.len() < 4 && !number.contains('.');
            general += if is_short { number } else { "N" };
        }
        rest = after;
    }
    general + rest
}

#[test]
fn tutorial_prints_what_its_page_shows() {
    assert!(commands(TUTORIAL).len() > 8, "the page has commands");
    prints_what_it_shows(TUTORIAL);
}

#[test]
fn registry_page_prints_what_it_shows() {
    assert_eq!(commands(REGISTRY_PAGE).len(), 1);
    prints_what_it_shows(REGISTRY_PAGE);
}

#[track_caller]
fn prints_what_it_shows(page: &str) {
    let commands = commands(page);
    let lines = commands.iter().map(|(command, _)| {
        let then = if command.ends_with('&') {
            UNTIL_HELD
        } else {
            ":"
        };
        // The next command may ask for the status of this one.
        format!("{command}\nstatus=$?\n{then}\necho '{MARK}'\n(exit $status)\n")
    });
    let script = format!("exec 2>&1\n{}", lines.collect::<String>());
    // Only the directory of this store is used, since the page starts a server.
    let store = Store::local();
    let printed = store.program(&["sh", "-c", &script]).raw().stdout;
    let printed = String::from_utf8_lossy(&printed);
    let outputs: Vec<&str> = printed.split_terminator(&format!("{MARK}\n")).collect();
    assert_eq!(outputs.len(), commands.len(), "{printed}");
    for ((command, shown), printed) in commands.iter().zip(outputs) {
        let shown: Vec<String> = shown.iter().map(|line| general(line)).collect();
        let printed: Vec<String> = printed.lines().map(general).collect();
        assert_eq!(printed, shown, "{command}");
    }
    nothing_is_left(&store);
}

#[test]
fn general_keeps_words_and_statuses() {
    let line = "    holder  ana@web-1 (pid 16850: sh), held 0.5s, 1st in line (exit 75)";
    let kept = "    holder  HOST (pid N: sh), held Ns, 1st in line (exit 75)";
    assert_eq!(general(line), kept);
}
