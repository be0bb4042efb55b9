//! Firings on a server. The script `lua/once.lua` implements the rules. An answer of an unknown form is an error, never a guess.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use leasehold_core::once::{Answer, Firing, Reply, Run, Step};
use leasehold_core::{BEFORE_FIRING, Fence, LockName, Owner};
use redis::{Cmd, RedisResult, Value};

use super::RedisStore;
use super::cluster::Server;
use super::connection::link::Wire;
use super::protocol::{array, no_known_form, number, text};
use super::scripts::{ONCE, Scripts};
use crate::error::StoreError;

/// Executes a step on a firing.
pub(super) async fn take(
    store: &RedisStore,
    name: &LockName,
    firing: &Firing,
    step: &Step,
) -> Result<Answer, StoreError> {
    let take = async |server: Arc<Server>, mut wire: Wire| {
        by_script(&server.scripts, &mut wire, name, firing, step).await
    };
    store.servers.call(name.key(), store.limit, take).await
}

/// The key of a firing, in the slot of its lock.
fn key_of(name: &LockName, firing: &Firing) -> String {
    name.beside(&format!("{BEFORE_FIRING}{firing}"))
}

/// Executes a step as one script.
pub(super) async fn by_script(
    scripts: &Scripts,
    connection: &mut Wire,
    name: &LockName,
    firing: &Firing,
    step: &Step,
) -> RedisResult<Answer> {
    let key = key_of(name, firing);
    let write = |command: &mut Cmd| {
        command.arg(2).arg(name.key()).arg(&key);
        let by = |command: &mut Cmd, owner: &Owner, fence: &Fence| {
            command.arg(owner.token()).arg(fence.get());
        };
        match step {
            Step::Look => {
                command.arg("");
            }
            Step::Begin {
                owner,
                fence,
                tries,
                keep,
            } => {
                by(command, owner, fence);
                command.arg(tries.get()).arg(keep.millis());
            }
            Step::Finish { owner, fence, keep } => {
                by(command, owner, fence);
                command.arg("").arg(keep.millis());
            }
        }
    };
    let value = scripts.run(ONCE, connection, write).await?;
    decode(&value).ok_or_else(|| no_known_form(&value))
}

/// Reads the answer of the script; `None` if it has an unknown form.
fn decode(value: &Value) -> Option<Answer> {
    let [word, now, rest @ ..] = array(value)? else {
        return None;
    };
    let reply = match (text(word)?, rest) {
        ("new", []) => Reply::New,
        ("not-held", []) => Reply::NotHeld,
        ("begun", run) => Reply::Begun(read(run)?),
        ("finished", run) => Reply::Finished(read(run)?),
        ("spent", run) => Reply::Spent(read(run)?),
        _ => return None,
    };
    let now_us = number(now)?;
    Some(Answer { reply, now_us })
}

fn read(run: &[Value]) -> Option<Run> {
    let [count, fence, at, token] = run else {
        return None;
    };
    Some(Run {
        owner: Owner::parse(text(token)?)?,
        fence: Fence::new(number(fence)?),
        number: u32::try_from(number(count)?).ok()?,
        at_us: number(at)?,
    })
}
