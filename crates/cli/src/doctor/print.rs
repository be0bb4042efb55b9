//! Prints a report for people and for programs, without control characters.

use std::time::Duration;

use std::fmt::Write;

use serde::Serialize;

use super::args::{Doctor, For};
use crate::diagnosis::{Finding, Purpose, Report, State};
use crate::messages::{is_direction, span};
use crate::output;

/// Where the texts begin, after state and id.
const COLUMN: usize = 19;

/// The report, for people: the worst first.
pub(super) fn text(report: &Report, args: &Doctor, ttl: Duration, code: u8) -> String {
    let purpose = args.purpose.into();
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    // Stable: those that are equally bad stay in the order of the documentation.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.state(purpose)));
    let mut text = header(report, ttl);
    let least = if args.all { State::Ok } else { State::Unknown };
    for finding in &findings {
        if finding.state(purpose) >= least {
            text += &shown(finding, purpose);
        }
    }
    text + &summary(&findings, args, code)
}

fn header(report: &Report, ttl: Duration) -> String {
    let server = &report.server;
    let mut text = clean(&report.store);
    let words = [&server.engine, &server.version, &server.mode, &server.role];
    let about: Vec<String> = words
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(|word| clean(word))
        .collect();
    if !about.is_empty() {
        text += "  ";
        text += &about.join(" ");
    }
    let uptime = server.uptime.map(|uptime| format!(", up {}", span(uptime)));
    format!(
        "{text}{}    lease {}, renew {}\n",
        uptime.unwrap_or_default(),
        span(ttl),
        span(ttl / 3)
    )
}

fn mark(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Info => "info",
        State::Unknown => " ?",
        State::Warn => "WARN",
        State::Fail => "FAIL",
    }
}

fn shown(finding: &Finding, purpose: Purpose) -> String {
    let what = format!(
        "{:<5}{:<14}{}\n",
        mark(finding.state(purpose)),
        finding.id,
        clean(&finding.text)
    );
    let fixes = finding.remedy.lines().enumerate().map(|(at, line)| {
        let fix = if at == 0 { "fix: " } else { "     " };
        format!("{:COLUMN$}{fix}{}\n", "", clean(line))
    });
    what + &fixes.collect::<String>()
}

fn summary(findings: &[&Finding], args: &Doctor, code: u8) -> String {
    let count = |state| count(findings, args.purpose.into(), state);
    let mut bad = Vec::new();
    for state in [State::Fail, State::Warn, State::Unknown, State::Info] {
        if count(state) > 0 {
            bad.push(format!("{} {}", count(state), state.as_str()));
        }
    }
    let again = format!("leasehold doctor {}", args.store.again());
    let more = if args.all {
        String::new()
    } else {
        format!("  ({again}--all)")
    };
    let bad = bad.join(" ");
    let mut text = format!(
        "ok   {} checks{more}  {bad} -> exit {code}\n",
        count(State::Ok)
    );
    // Efficiency is the weaker purpose; the summary says so.
    let hidden = findings
        .iter()
        .filter(|finding| finding.correctness == State::Fail && finding.efficiency != State::Fail)
        .count();
    if args.purpose == For::Efficiency && hidden > 0 {
        let _written: std::fmt::Result = writeln!(
            text,
            "{:5}for locks that prevent damage, {hidden} more would fail: {again}--for correctness",
            ""
        );
    }
    text
}

fn count(findings: &[&Finding], purpose: Purpose, state: State) -> usize {
    let is = |finding: &&&Finding| finding.state(purpose) == state;
    findings.iter().filter(is).count()
}

/// Text of a server may contain any character.
fn clean(text: &str) -> String {
    let visible = |c: char| {
        if c.is_control() || is_direction(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(visible).collect()
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    store: &'a str,
    server: ServerJson<'a>,
    #[serde(rename = "for")]
    purpose: &'static str,
    ttl_ms: u128,
    quick: bool,
    findings: Vec<Item<'a>>,
    counts: Counts,
    acl: Option<&'a str>,
    exit_code: u8,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    engine: Option<&'a str>,
    version: Option<&'a str>,
    mode: Option<&'a str>,
    role: Option<&'a str>,
    uptime_ms: Option<u128>,
}

#[derive(Serialize)]
struct Item<'a> {
    id: &'static str,
    state: &'static str,
    efficiency: &'static str,
    correctness: &'static str,
    text: &'a str,
    remedy: Option<&'a str>,
}

#[derive(Serialize)]
struct Counts {
    ok: usize,
    info: usize,
    unknown: usize,
    warn: usize,
    fail: usize,
}

/// The report, for programs.
pub(super) fn json(report: &Report, args: &Doctor, ttl: Duration, code: u8) -> String {
    let purpose: Purpose = args.purpose.into();
    let findings: Vec<&Finding> = report.findings.iter().collect();
    let count = |state| count(&findings, purpose, state);
    let document = Document {
        schema: "leasehold.doctor/1",
        store: &report.store,
        server: ServerJson {
            engine: said(&report.server.engine),
            version: said(&report.server.version),
            mode: said(&report.server.mode),
            role: said(&report.server.role),
            uptime_ms: report.server.uptime.map(|uptime| uptime.as_millis()),
        },
        purpose: match args.purpose {
            For::Efficiency => "efficiency",
            For::Correctness => "correctness",
        },
        ttl_ms: ttl.as_millis(),
        quick: args.quick,
        counts: Counts {
            ok: count(State::Ok),
            info: count(State::Info),
            unknown: count(State::Unknown),
            warn: count(State::Warn),
            fail: count(State::Fail),
        },
        findings: findings
            .iter()
            .map(|finding| Item {
                id: finding.id,
                state: finding.state(purpose).as_str(),
                efficiency: finding.efficiency.as_str(),
                correctness: finding.correctness.as_str(),
                text: &finding.text,
                remedy: said(&finding.remedy),
            })
            .collect(),
        acl: report.acl.as_deref(),
        exit_code: code,
    };
    // Fails only for maps whose keys are no text; there are none.
    output::json_for_people(&document).unwrap_or_default() + "\n"
}

fn said(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
