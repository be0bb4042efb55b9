//! What facts mean for locks: one table, judged without any I/O. Must never fail a server for what it does not tell.

#![allow(
    clippy::unnecessary_wraps,
    reason = "a rule that always applies has the form of all others"
)]

mod access;
mod durability;
mod host;
mod keys;
mod memory;
mod reach;
mod replication;
mod rule;

use self::rule::Rule;
use super::facts::Facts;
use crate::doctor::Finding;

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

/// All that can be said of the server.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    rules()
        .filter_map(|rule| {
            let verdict = (rule.judge)(facts)?;
            Some(Finding {
                id: rule.id,
                efficiency: verdict.efficiency,
                correctness: verdict.correctness,
                text: verdict.text,
                remedy: verdict.remedy,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
