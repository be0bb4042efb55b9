//! Writes steps as the arguments of their scripts.

use leasehold_core::{Fence, LockName, Owner, Step, Ttl};
use redis::Cmd;

use super::form::Kind;
use super::words::{COUNTER, POLL_ONLY, QUEUE, WAITERS, mode_word};
use crate::store::redis::scripts::{ACQUIRE_MANY, BREAK, INSPECT, SETTLE, SETTLE_MANY, TAKE};

/// The script that executes these steps of one kind.
pub(in crate::store::redis) fn script_of(kind: Kind, steps: &[(LockName, Step)]) -> usize {
    match (kind, steps.first()) {
        (Kind::Settle, _) => SETTLE,
        (Kind::SettleLong, _) => SETTLE_MANY,
        (Kind::Acquire, _) => TAKE,
        (Kind::AcquireLong, _) => ACQUIRE_MANY,
        (Kind::Alone, Some((_, Step::Break { .. }))) => BREAK,
        (Kind::Alone, _) => INSPECT,
    }
}

/// Writes the keys and the arguments for these steps of one kind. Scripts publish wakes for waiters on `channel`.
pub(in crate::store::redis) fn write(
    kind: Kind,
    channel: &str,
    steps: &[(LockName, Step)],
    into: &mut Cmd,
) {
    let (counters, suffixes): (usize, &[&str]) = match kind {
        Kind::Settle => (0, &[]),
        Kind::Acquire => (1, &[QUEUE]),
        Kind::SettleLong | Kind::AcquireLong | Kind::Alone => (1, &[QUEUE, WAITERS]),
    };
    into.arg(counters + steps.len() * (1 + suffixes.len()));
    if counters > 0 {
        into.arg(COUNTER);
    }
    for (name, _) in steps {
        into.arg(name.key());
        for suffix in suffixes {
            into.arg(name.beside(suffix));
        }
    }
    for (_, step) in steps {
        encode(kind, channel, step, into);
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
                into.arg(match wait {
                    None => "",
                    Some(wait) if wait.listening => channel,
                    Some(_) => POLL_ONLY,
                });
            }
        }
        Step::Extend { owner, ttl, fence } => {
            encode_settle(kind, ("extend", owner, ttl.millis(), *fence), into);
        }
        Step::Release { owner, keep, fence } => {
            let keep = keep.map_or(0, Ttl::millis);
            encode_settle(kind, ("release", owner, keep, *fence), into);
        }
        Step::Break { fence } => {
            into.arg(fence.get());
        }
        Step::Inspect => {}
    }
}

fn encode_settle(kind: Kind, step: (&str, &Owner, u64, Option<Fence>), into: &mut Cmd) {
    let (verb, owner, ms, fence) = step;
    let fence = fence.map_or_else(String::new, |fence| fence.to_string());
    if kind == Kind::Settle {
        into.arg(format!("{}#{fence}", owner.token()));
        into.arg(verb).arg(ms);
    } else {
        into.arg(verb).arg(owner.token()).arg(ms).arg(fence);
    }
}
