//! Judges whether a store is fit for locks, from facts that the library gathered. The checks are tables: a row has an id and a rule, in
//! the order of `docs/reference/doctor.md`. The rules do no I/O.
//!
//! | module | what it is |
//! |---|---|
//! | [`server`] | rules for one store |
//! | [`quorum`] | rules over all servers of a quorum |

#![allow(
    clippy::unnecessary_wraps,
    reason = "a rule that always applies has the form of all others"
)]

mod quorum;
mod server;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use leasehold::doctor::{Facts, FileFacts, QuorumFacts, ServerFacts};
use serde::Serialize;

/// The use of the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Purpose {
    /// Double work is a cost
    Efficiency,
    /// Double work is damage
    Correctness,
}

/// The result of one check, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// In order.
    Ok,
    /// Worth knowing.
    Info,
    /// The store does not say, or this user may not ask. Never a failure.
    Unknown,
    /// Locks work, and will cause trouble some day.
    Warn,
    /// Locks do not work here, or do not serve their purpose.
    Fail,
}

impl State {
    /// The best first.
    pub(crate) const ALL: [Self; 5] = [Self::Ok, Self::Info, Self::Unknown, Self::Warn, Self::Fail];
}

/// The outcome of one check, as `leasehold doctor --json` writes it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The check, as in `docs/reference/doctor.md`.
    pub(crate) id: &'static str,
    /// The state for the purpose of the locks.
    pub(crate) state: State,
    /// The state for locks that save work.
    pub(crate) efficiency: State,
    /// The state for locks that prevent damage.
    pub(crate) correctness: State,
    /// The observation and its consequence.
    pub(crate) text: String,
    /// The advice, if there is something to do.
    pub(crate) remedy: Option<String>,
}

/// The verdict of a rule.
type Judged = Result<Finding, Unjudged>;

/// Why a rule has no verdict.
#[derive(Debug, Clone, Copy)]
enum Unjudged {
    /// The check does not apply to this store, or its measurement was left out.
    NotApplicable,
    /// The store does not tell what the verdict depends on: the words for it, and the advice. A rule cannot make a failure of this.
    Unknown(&'static str, Option<&'static str>),
}

/// The state for locks that save work, and that for locks that prevent damage.
type Grade = (State, State);

/// In order.
const OK: Grade = (State::Ok, State::Ok);
/// Worth knowing.
const INFO: Grade = (State::Info, State::Info);
/// Worth knowing; trouble for locks that prevent damage.
const HINT: Grade = (State::Info, State::Warn);
/// Locks work, and will cause trouble some day.
const WARN: Grade = (State::Warn, State::Warn);
/// Trouble some day; locks that prevent damage do not serve their purpose.
const RISK: Grade = (State::Warn, State::Fail);
/// Locks do not work here.
const FAIL: Grade = (State::Fail, State::Fail);

/// A finding for locks that save work; [`Rule::finding`] adds what a rule does not know. What is in order needs no advice.
fn judge(grade: Grade, text: impl Into<String>, fix: impl Into<String>) -> Judged {
    let fix = Some(fix.into()).filter(|fix| grade != OK && !fix.is_empty());
    Ok(finding(grade, text, fix))
}

fn finding(
    (efficiency, correctness): Grade,
    text: impl Into<String>,
    remedy: Option<String>,
) -> Finding {
    Finding {
        id: "",
        state: efficiency,
        efficiency,
        correctness,
        text: text.into(),
        remedy,
    }
}

/// In order.
fn ok(text: impl Into<String>) -> Judged {
    judge(OK, text, "")
}

/// Worth knowing, and nothing can be done.
fn info(text: impl Into<String>) -> Judged {
    judge(INFO, text, "")
}

/// A check of the stores that have facts of one kind: a row of a table.
struct Rule<F> {
    /// As in `docs/reference/doctor.md`.
    id: &'static str,
    /// The rule. It does no I/O.
    judge: fn(&F) -> Judged,
}

/// A row of a table.
const fn rule<F>(id: &'static str, judge: fn(&F) -> Judged) -> Rule<F> {
    Rule { id, judge }
}

impl<F> Rule<F> {
    /// The finding for locks of this purpose; `None` where the check does not apply.
    fn finding(&self, facts: &F, purpose: Purpose) -> Option<Finding> {
        let mut found = match (self.judge)(facts) {
            Ok(found) => found,
            Err(Unjudged::NotApplicable) => return None,
            Err(Unjudged::Unknown(text, remedy)) => {
                let remedy = remedy.map(str::to_owned);
                finding((State::Unknown, State::Unknown), text, remedy)
            }
        };
        found.id = self.id;
        if purpose == Purpose::Correctness {
            found.state = found.correctness;
        }
        Some(found)
    }
}

/// The checks of a server.
static SERVER: &[Rule<ServerFacts>] = &[
    rule("reach.ping", server::ping),
    rule("reach.role", server::role),
    rule("reach.loading", server::loading),
    rule("id.engine", server::engine),
    rule("id.mode", server::mode),
    rule("id.restart", server::restart),
    rule("cap.lua", server::scripts),
    rule("cap.cas", server::compare_and_delete),
    rule("cap.wait", server::wait),
    rule("mem.policy", server::eviction_policy),
    rule("mem.full", server::full_memory),
    rule("mem.evicted", server::evictions),
    rule("dur.mode", server::persistence),
    rule("dur.health", server::last_save),
    rule("dur.fsync", server::slow_disk),
    rule("fork.stall", server::fork),
    rule("lat.monitor", server::server_stalls),
    rule("lat.script", server::slow_scripts),
    rule("rep.count", server::replicas),
    rule("rep.ack", server::unconfirmed_writes),
    rule("rep.short", server::too_few_replicas),
    rule("acl.probe", server::scratch_lock),
    rule("acl.wide", server::wide_user),
    rule("sec.tls", server::clear_text),
    rule("net.timeout", server::idle_timeout),
    rule("net.clients", server::clients),
    rule("clk.offset", server::clock_offset),
    rule("clk.step", server::clock_steps),
    rule("clk.self", server::host_stalls),
    rule("hz", server::late_expiry),
    rule("key.immortal", server::immortal_keys),
    rule("key.type", server::foreign_keys),
    rule("key.shared", server::other_data),
];

/// The checks of a server that mean nothing for a node of a quorum: it has no replica, and after a restart it keeps out.
const NOT_OF_A_NODE: [&str; 4] = ["id.restart", "dur.mode", "rep.count", "rep.ack"];

/// The checks over all servers of a quorum.
static QUORUM: &[Rule<QuorumFacts>] = &[
    rule("q.nodes", quorum::nodes),
    rule("q.marks", quorum::marks),
    rule("q.clocks", quorum::clocks),
    rule("q.alone", quorum::alone),
    rule("q.restart", quorum::restart),
];

/// The checks of a file.
static FILE: &[Rule<FileFacts>] = &[
    rule("file.write", server::writable_file),
    rule("file.system", server::file_system),
    rule("scope.host", server::one_host),
];

/// The check of the memory of a client.
static MEMORY: &[Rule<Facts>] = &[rule("scope.process", server::one_client)];

/// Judges a store, for locks of this purpose. The findings stand in the order of the tables.
pub(crate) fn diagnose(facts: &Facts, purpose: Purpose) -> Vec<Finding> {
    match facts {
        Facts::Server(facts) => findings(SERVER, facts, purpose),
        Facts::Quorum(facts) => of_quorum(facts, purpose),
        Facts::File(facts) => findings(FILE, facts, purpose),
        Facts::Memory => findings(MEMORY, facts, purpose),
    }
}

fn findings<F>(checks: &[Rule<F>], facts: &F, purpose: Purpose) -> Vec<Finding> {
    let found = checks.iter().map(|check| check.finding(facts, purpose));
    found.flatten().collect()
}

/// The findings over all servers, then those of each server that answered. A finding that all servers share stands there once.
fn of_quorum(quorum: &QuorumFacts, purpose: Purpose) -> Vec<Finding> {
    let mut all = findings(QUORUM, quorum, purpose);
    for check in SERVER {
        if NOT_OF_A_NODE.contains(&check.id) {
            continue;
        }
        let of_node = quorum.nodes.iter().filter_map(|node| {
            let finding = check.finding(node.facts.as_ref().ok()?, purpose)?;
            Some((node.server.as_str(), finding))
        });
        let mut found: Vec<(&str, Finding)> = of_node.collect();
        if found.len() > 1 && found.iter().all(|(_, other)| *other == found[0].1) {
            found.truncate(1);
            found[0].0 = "each server";
        }
        all.extend(found.into_iter().map(|(server, finding)| Finding {
            text: format!("{server}: {}", finding.text),
            ..finding
        }));
    }
    all
}
