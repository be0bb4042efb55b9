//! Judges whether a store is fit for locks, from facts that the library gathered. The rules do no I/O.
//!
//! | module | what it is |
//! |---|---|
//! | [`report`] | the outcome, for both purposes of locks |
//! | [`rule`] | the form of a rule |
//! | [`reach`], [`memory`], [`durability`], [`replication`], [`access`], [`host`], [`keys`] | the rules for a server |
//! | [`quorum`] | the rules for a quorum of servers |
//! | [`embedded`] | the rules for a file, and for memory |

#![allow(
    clippy::unnecessary_wraps,
    reason = "a rule that always applies has the form of all others"
)]

mod access;
mod durability;
mod embedded;
mod host;
mod keys;
mod memory;
mod quorum;
mod reach;
mod replication;
mod report;
mod rule;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold::doctor::{Examined, Facts, ServerFacts};

pub(crate) use self::report::{Finding, Purpose, Report, Server, State};
use self::rule::Rule;

fn rules() -> impl Iterator<Item = &'static Rule> {
    [
        reach::RULES,
        memory::RULES,
        durability::RULES,
        replication::RULES,
        access::RULES,
        host::RULES,
        keys::RULES,
    ]
    .into_iter()
    .flatten()
}

/// Judges a store. The findings stand in the order of `docs/reference/doctor.md`.
pub(crate) fn diagnose(examined: Examined) -> Report {
    let store = examined.store;
    match examined.facts {
        Facts::Server(facts) => Report {
            store,
            server: server(&facts),
            findings: judge(&facts),
            acl: Some(facts.acl),
        },
        Facts::Quorum(facts) => Report {
            store,
            server: Server::named(&format!("{} servers", facts.nodes.len()), ""),
            findings: quorum::findings(&facts),
            acl: facts
                .nodes
                .into_iter()
                .find_map(|node| Some(node.facts.ok()?.acl)),
        },
        Facts::File(facts) => Report {
            store,
            server: Server::named("SQLite file", &facts.sqlite),
            findings: embedded::file(&facts),
            acl: None,
        },
        Facts::Memory => Report {
            store,
            server: Server::named("memory", ""),
            findings: vec![embedded::memory()],
            acl: None,
        },
    }
}

fn server(facts: &ServerFacts) -> Server {
    let (engine, version) = facts.engine().unwrap_or_default();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Server {
        mode: text(facts.mode()),
        role: text(facts.role()),
        uptime: facts
            .info_number("uptime_in_seconds")
            .map(Duration::from_secs),
        ..Server::named(&engine, &version)
    }
}

/// The findings of all rules that apply to a server.
fn judge(facts: &ServerFacts) -> Vec<Finding> {
    rules()
        .filter_map(|rule| {
            let verdict = (rule.judge)(facts)?;
            Some(verdict.of_check(rule.id))
        })
        .collect()
}
