//! `leasehold-history DIR [--json]` judges a stored history; `--self-test` shows that the judge rejects broken ones. The
//! command only writes its report.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use leasehold_history::{Status, judge, read, self_test};

const USAGE: &str = "usage: leasehold-history DIR [--json]
       leasehold-history --self-test

Judges the history in DIR. Exit status: 0 clean, 1 violated, 2 invalid, unreadable or misused.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        ["--self-test"] => tested(),
        [dir, "--json"] | ["--json", dir] => judged(dir, true),
        [dir] if !dir.starts_with('-') => judged(dir, false),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tested() -> ExitCode {
    match self_test() {
        Ok(()) => {
            println!(
                "each broken history was rejected for the right reason, the sound one accepted"
            );
            ExitCode::SUCCESS
        }
        Err(failures) => {
            for failure in failures {
                println!("{failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn judged(dir: &str, json: bool) -> ExitCode {
    let history = match read(Path::new(dir)) {
        Ok(history) => history,
        Err(unreadable) => {
            eprintln!("{unreadable}");
            return ExitCode::from(2);
        }
    };
    let verdict = judge(&history);
    if json {
        match serde_json::to_string_pretty(&verdict) {
            Ok(text) => println!("{text}"),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        }
    } else {
        print!("{verdict}");
    }
    match verdict.status {
        Status::Clean => ExitCode::SUCCESS,
        Status::Violated => ExitCode::FAILURE,
        Status::Invalid(_) => ExitCode::from(2),
    }
}
