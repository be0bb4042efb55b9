//! The pipeline without I/O: the tests play the callers, the connection, the sweeper and the server.

mod flight;
mod interleavings;
mod queue;
mod schedules;
mod server;

use std::time::Duration;

use leasehold_core::quorum::{Proposal, QuorumTerms};
use leasehold_core::{Block, ClientId, Fence, Fences, Mode, Owner, Step, Ttl};

use super::Queue;
use crate::clock::Moment;
use crate::store::contract::{Answer, Done};

impl Queue {
    /// Delivers the answers to a batch, as the connection does.
    fn answer(&self, id: u64, answers: impl IntoIterator<Item = Option<Answer>>) {
        let callers = self.callers(id).into_iter().zip(answers);
        Done::answer_all(callers.filter_map(|(waiting, answer)| Some((waiting.done?, answer?))));
    }
}

fn at(millis: u64) -> Moment {
    Moment::from_micros(1_000_000 + millis * 1_000)
}

fn owner(number: u64) -> Owner {
    Owner::new(u128::from(number), ClientId::new(1), "host", 1, "").unwrap()
}

fn acquire(number: u64) -> Step {
    Step::Acquire {
        owner: owner(number),
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        block: Block::ONE,
        wait: None,
    }
}

fn propose(number: u64, fence: u64) -> Step {
    Step::Propose(Proposal {
        owner: owner(number),
        is_shared: false,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        fences: Fences {
            first: Fence::new(fence),
            block: Block::ONE,
        },
        terms: QuorumTerms {
            nodes: 3,
            longest_ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        },
        wait: None,
    })
}

fn release(number: u64) -> Step {
    Step::Release {
        owner: owner(number),
        keep: None,
        fence: None,
    }
}

/// A release by an owner that knows its fence, which the short form compares.
fn release_under(number: u64) -> Step {
    Step::Release {
        owner: owner(number),
        keep: None,
        fence: Some(Fence::new(number)),
    }
}

/// The number of a step's owner.
fn number(step: &Step) -> u64 {
    match step {
        Step::Acquire { owner, .. } | Step::Extend { owner, .. } | Step::Release { owner, .. } => {
            number_in(owner.token())
        }
        _ => 0,
    }
}

/// The number of the owner with this token.
fn number_in(token: &str) -> u64 {
    u64::from_str_radix(&token[4..36], 16).unwrap()
}
