//! Writes steps as the arguments of their scripts.

use leasehold_core::quorum::Proposal;
use leasehold_core::{Fence, LockName, Owner, Step, Ttl, Wait};
use redis::Cmd;

use super::form::Kind;
use super::words::{COUNTER, MARK, POLL_ONLY, QUEUE, WAITERS, counter_of, mode_word};
use crate::store::redis::scripts::{
    ACQUIRE_MANY, BREAK, Counters, INSPECT, PROPOSE, PROPOSE_MANY, SETTLE, SETTLE_MANY, TAKE,
};

/// The script that executes these steps of one kind.
pub(in crate::store::redis) fn script_of(kind: Kind, steps: &[(LockName, Step)]) -> usize {
    match (kind, steps.first()) {
        (Kind::Settle, _) => SETTLE,
        (Kind::SettleLong, _) => SETTLE_MANY,
        (Kind::Acquire, Some((_, Step::Propose(_)))) => PROPOSE,
        (Kind::AcquireLong, Some((_, Step::Propose(_)))) => PROPOSE_MANY,
        (Kind::Acquire, _) => TAKE,
        (Kind::AcquireLong, _) => ACQUIRE_MANY,
        (Kind::Alone, Some((_, Step::Break { .. }))) => BREAK,
        (Kind::Alone, _) => INSPECT,
    }
}

/// Writes the keys and the arguments for these steps of one kind. Scripts publish wakes for waiters on `channel`. A node of
/// a quorum compares `counts` with its mark: how this client counts, and the server.
pub(in crate::store::redis) fn write(
    kind: Kind,
    counters: Counters,
    counts: &str,
    channel: &str,
    steps: &[(LockName, Step)],
    into: &mut Cmd,
) {
    let suffixes: &[&str] = match kind {
        Kind::Settle => &[],
        Kind::Acquire => &[QUEUE],
        Kind::SettleLong | Kind::AcquireLong | Kind::Alone => &[QUEUE, WAITERS],
    };
    // The key before all others, and the terms of the counters before each name.
    let (first, terms) = match (kind, counters) {
        (Kind::Settle, Counters::Shared) => (None, None),
        (Kind::Settle, Counters::ByBucket(_)) => (Some(MARK), None),
        (_, Counters::Shared) => (Some(COUNTER), None),
        (_, Counters::ByBucket(node)) => (Some(MARK), Some(node.terms)),
    };
    let each = 1 + suffixes.len() + usize::from(terms.is_some());
    into.arg(usize::from(first.is_some()) + steps.len() * each);
    into.arg(first);
    for (name, _) in steps {
        into.arg(terms.map(|terms| counter_of(terms, name)));
        into.arg(name.key());
        for suffix in suffixes {
            into.arg(name.beside(suffix));
        }
    }
    for (_, step) in steps {
        encode(kind, channel, step, into);
    }
    if matches!(counters, Counters::ByBucket(_)) {
        into.arg(counts);
    }
}

/// Writes the arguments of a step.
fn encode(kind: Kind, channel: &str, step: &Step, into: &mut Cmd) {
    let is_long = kind.is_long();
    match step {
        Step::Acquire {
            owner,
            mode,
            ttl,
            block,
            wait,
        } => {
            into.arg(owner.token()).arg(ttl.millis());
            if is_long {
                into.arg(mode_word(*mode));
            }
            into.arg(block.get());
            if is_long {
                into.arg(waits_on(*wait, channel));
            }
        }
        Step::Propose(Proposal {
            owner,
            ttl,
            fences,
            wait,
            ..
        }) => {
            into.arg(owner.token()).arg(ttl.millis());
            into.arg(fences.first.get()).arg(fences.block.get());
            if is_long {
                into.arg(waits_on(*wait, channel));
            }
        }
        Step::GiveBack { owner, fence } => {
            // The short form of a release compares the fence.
            let verb = if is_long { "give-back" } else { "release" };
            encode_settle(kind, verb, owner, 0, Some(*fence), into);
        }
        Step::Extend { owner, ttl, fence } => {
            encode_settle(kind, "extend", owner, ttl.millis(), *fence, into);
        }
        Step::Release { owner, keep, fence } => {
            let keep = keep.map_or(0, Ttl::millis);
            encode_settle(kind, "release", owner, keep, *fence, into);
        }
        Step::Break { fence } => {
            into.arg(fence.get());
        }
        Step::Inspect => {}
    }
}

/// How a request waits: not at all, on a channel, or by polls only.
fn waits_on(wait: Option<Wait>, channel: &str) -> &str {
    match wait {
        None => "",
        Some(wait) if wait.listening => channel,
        Some(_) => POLL_ONLY,
    }
}

fn encode_settle(
    kind: Kind,
    verb: &str,
    owner: &Owner,
    ms: u64,
    fence: Option<Fence>,
    into: &mut Cmd,
) {
    let fence = fence.map_or_else(String::new, |fence| fence.to_string());
    if kind == Kind::Settle {
        into.arg(format!("{}#{fence}", owner.token()));
        into.arg(verb).arg(ms);
    } else {
        into.arg(verb).arg(owner.token()).arg(ms).arg(fence);
    }
}
