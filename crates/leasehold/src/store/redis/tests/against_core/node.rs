//! A node of a quorum: its memory on both sides, and the numbers that clients propose to it.

use std::time::Duration;

use leasehold_core::quorum::{Mark, NodeMemory, Proposal, QuorumTerms};
use leasehold_core::{Counter, Fence, Fences, LockName, LockState, Owner, Step, Ttl};

use super::server::Redis;
use super::steps::Number;
use crate::store::redis::protocol::{COUNTER, MARK, counter_of};

/// Whether the server is alone or a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    Node,
}

/// What a server remembers beside its locks: for each name its counter, and a node's mark.
#[derive(Debug, PartialEq)]
pub(super) struct Memory {
    pub(super) counters: Vec<Counter>,
    pub(super) mark: Option<Mark>,
}

/// The terms of the quorum. The shortest quarantine, so that it ends in many sequences.
pub(super) fn terms() -> QuorumTerms {
    QuorumTerms {
        nodes: 3,
        longest_ttl: Ttl::new(Duration::from_secs(2)).unwrap(),
    }
}

/// The terms of a client that counts the nodes of another quorum, if it is one of the `others`.
pub(super) fn terms_of(others: bool) -> QuorumTerms {
    let mut terms = terms();
    terms.nodes += 2 * u8::from(others);
    terms
}

/// The mark of a node of a new quorum.
pub(super) fn mark() -> Mark {
    Mark {
        terms: terms(),
        made_at_ms: 0,
    }
}

impl Number {
    /// The first fence that is proposed now.
    pub(super) fn first(
        self,
        clock_us: u64,
        memory: &NodeMemory,
        name: &LockName,
        lock: &LockState,
    ) -> Fence {
        let counter = memory.clone().counter(name).0.map_or(0, Fence::get);
        let held = lock.holders.first();
        let held = held.map_or(clock_us, |holder| holder.fences.first.get());
        let floor = memory.mark.map_or(clock_us, Mark::floor_us);
        let (from, by) = match self {
            Self::Clock(by) => (clock_us, by),
            Self::Counter(by) => (counter, by),
            Self::Ahead(by) => (clock_us + 10_000_000, by),
            Self::Held(by) => (held, by),
            Self::Floor(by) => (floor, by),
        };
        Fence::new(from.saturating_add_signed(by))
    }
}

/// Turns an acquire into a proposal, by a client with these terms.
pub(super) fn proposed(step: Step, first: Fence, terms: QuorumTerms) -> Step {
    match step {
        Step::Acquire {
            owner,
            ttl,
            block,
            wait,
            ..
        } => Step::Propose(Proposal {
            owner,
            ttl,
            fences: Fences { first, block },
            terms,
            wait,
        }),
        step => step,
    }
}

/// The owner that wants the lock, if the step is a request for it.
pub(super) fn wants(step: &Step) -> Option<&Owner> {
    match step {
        Step::Acquire { owner, .. } => Some(owner),
        Step::Propose(proposal) => Some(&proposal.owner),
        _ => None,
    }
}

impl Redis {
    /// Marks the server as a node of a new quorum, if it is one.
    pub(super) fn mark(&mut self) {
        if self.role == Role::Node {
            let QuorumTerms { nodes, longest_ttl } = terms();
            let info = self.command(&["INFO", "server"]).text();
            let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
            let start = &run_id.unwrap()[..16];
            let mark = format!("{nodes} {} 0 {start}", longest_ttl.millis());
            self.command(&["SET", MARK, &mark]);
        }
    }

    /// The keys of the counters of these names. A node has them for the terms of its mark, and after a loss of its memory a
    /// client with other terms may have made that.
    pub(super) fn counter_keys(&mut self, names: &[LockName]) -> Result<Vec<String>, String> {
        if self.role == Role::Alone {
            return Ok(vec![COUNTER.into()]);
        }
        let terms = self.mark_of()?.map_or(terms(), |mark| mark.terms);
        let of = |name| counter_of(terms, name);
        Ok(names.iter().map(of).collect())
    }

    /// Whether the mark of a node is not of the quorum of these clients.
    pub(super) fn refuses(&mut self, others: bool) -> Result<bool, String> {
        let mark = match self.role {
            Role::Alone => None,
            Role::Node => self.mark_of()?,
        };
        Ok(mark.is_some_and(|mark| mark.terms != terms_of(others)))
    }

    fn mark_of(&mut self) -> Result<Option<Mark>, String> {
        let mark = self.command(&["GET", MARK]);
        let mark = (!mark.is_nil()).then(|| mark.text());
        mark.map(|text| read(&text).ok_or(text)).transpose()
    }

    /// Reads the counters and the mark, and how many keys they are.
    pub(super) fn memory(&mut self, names: &[LockName]) -> Result<(Memory, i64), String> {
        let mut counters = Vec::new();
        for key in self.counter_keys(names)? {
            let last = self.command(&["GET", &key]);
            let counter = if last.is_nil() {
                Counter::default()
            } else if self.command(&["PTTL", &key]).int() == -1 {
                let last = last.text().parse().map_err(|_| format!("{last:?}"))?;
                Counter(Some(Fence::new(last)))
            } else {
                return Err("a counter has a TTL".into());
            };
            counters.push(counter);
        }
        let mark = self.mark_of()?;
        let keys = counters
            .iter()
            .filter(|counter| counter.0.is_some())
            .count()
            + usize::from(mark.is_some());
        Ok((Memory { counters, mark }, i64::try_from(keys).unwrap()))
    }
}

/// Reads a mark without the production code.
fn read(text: &str) -> Option<Mark> {
    let words: Vec<&str> = text.split(' ').collect();
    let ([nodes, longest, made_at, id] | [nodes, longest, made_at, id, "young"]) = words[..] else {
        return None;
    };
    let longest = Duration::from_millis(longest.parse().ok()?);
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then_some(Mark {
        terms: QuorumTerms {
            nodes: nodes.parse().ok()?,
            longest_ttl: Ttl::new(longest).ok()?,
        },
        made_at_ms: made_at.parse().ok()?,
    })
}
