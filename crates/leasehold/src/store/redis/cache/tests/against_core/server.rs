//! The side of Redis: a real server whose clock the test controls, used through the production scripts and codec.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::cache::{
    BackOff, Begin, Control, EntryState, Loader, Step, Token, Value, Version,
};
use leasehold_core::{ClientId, LockName};
use testkit::{RedisServer, Reply, RespConn};
use tokio::runtime::{Builder, Runtime};

use super::super::super::{Scripts, by_script};
use crate::store::entries::Taken;
use crate::store::redis::connection::link::Wire;
use crate::store::redis::tests::vectors::wire_to;

const CHANNELS: &str = "leasehold:wake:";

pub(super) struct Redis {
    runtime: Runtime,
    wire: Wire,
    scripts: Scripts,
    commands: RespConn,
    subscriber: RespConn,
    server: RedisServer,
}

/// The step as the rules see it: without a listener if the connection is not subscribed.
pub(super) fn as_heard(step: &Step, listens: bool) -> Step {
    match step {
        Step::Begin(begin) if !listens => Step::Begin(Begin {
            listener: None,
            ..*begin
        }),
        other => other.clone(),
    }
}

impl Redis {
    pub(super) fn start() -> Self {
        let server = RedisServer::builder().virtual_clock().start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let wire = runtime.block_on(wire_to(&server.url()));
        let mut subscriber = server.connection();
        subscriber.send(&["PSUBSCRIBE", "*"]).unwrap();
        subscriber.receive().unwrap();
        Self {
            runtime,
            wire,
            scripts: Scripts::default(),
            commands: server.connection(),
            subscriber,
            server,
        }
    }

    /// Resets the server to an empty one.
    pub(super) fn reset(&mut self, clock_us: u64) {
        self.set_clock(clock_us);
        self.commands.command(&["FLUSHALL"]);
    }

    pub(super) fn set_clock(&mut self, clock_us: u64) {
        self.server.clock().set(clock_us);
    }

    pub(super) fn flush_scripts(&mut self) {
        self.commands.command(&["SCRIPT", "FLUSH"]);
    }

    pub(super) fn delete(&mut self, key: &str) {
        self.commands.command(&["DEL", key]);
    }

    pub(super) fn put(&mut self, key: &str, value: &str) {
        self.commands.command(&["SET", key, value]);
    }

    pub(super) fn put_for(&mut self, key: &str, value: &[u8], left_ms: u64) {
        let left = left_ms.to_string();
        let words: [&[u8]; 5] = [b"SET", key.as_bytes(), value, b"PX", left.as_bytes()];
        self.commands.command(&words);
    }

    pub(super) fn put_set(&mut self, key: &str) {
        self.delete(key);
        self.commands.command(&["ZADD", key, "1", "a"]);
    }

    pub(super) fn put_hash(&mut self, key: &str) {
        self.delete(key);
        self.commands.command(&["HSET", key, "last", "7"]);
    }

    pub(super) fn take(
        &mut self,
        key: &LockName,
        step: &Step,
        listens: bool,
    ) -> Result<Taken, String> {
        let taken = by_script(&self.scripts, &mut self.wire, key, step, listens);
        self.runtime
            .block_on(taken)
            .map_err(|error| error.to_string())
    }

    /// The messages published since the last call: client and message, sorted, since the order of hints to different
    /// clients does not matter.
    pub(super) fn messages(&mut self) -> Vec<(String, String)> {
        self.subscriber.send(&["PING"]).unwrap();
        let mut messages = Vec::new();
        loop {
            let push = self.subscriber.receive().unwrap();
            match push.array() {
                [kind, ..] if kind.text() == "pong" => break,
                [_, _, channel, payload] => {
                    let channel = channel.text();
                    let client = channel.strip_prefix(CHANNELS).expect("a channel of wakes");
                    messages.push((client.to_owned(), payload.text()));
                }
                other => panic!("{other:?}"),
            }
        }
        messages.sort();
        messages
    }

    /// Reads the stored state, translated to core's types.
    pub(super) fn state(&mut self, key: &LockName, now_ms: u64) -> Result<EntryState, String> {
        let (entry, control) = (key.key().to_owned(), key.beside(":lh-cache"));
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let replies = self.commands.commands(&[
            words(&["TYPE", &entry]),
            words(&["GET", &entry]),
            words(&["PTTL", &entry]),
            words(&["TYPE", &control]),
            words(&["HGETALL", &control]),
            words(&["PTTL", &control]),
            words(&["DBSIZE"]),
        ]);
        let [kind, value, left, control_kind, fields, control_left, count] = &replies[..] else {
            unreachable!("seven commands")
        };
        let mut state = EntryState::default();
        let until = |left: &Reply| {
            let left = u64::try_from(left.int()).map_err(|_| "a key of ours without a TTL")?;
            Ok::<_, String>(now_ms + left)
        };
        match kind.text().as_str() {
            "none" => {}
            "string" => match Value::read(value.bytes()) {
                Some(value) => state.value = Some((value, until(left)?)),
                None => state.foreign = Some("string".into()),
            },
            other => state.foreign = Some(other.to_owned()),
        }
        let fields: BTreeMap<String, String> = match control_kind.text().as_str() {
            "hash" => (fields.array().chunks(2))
                .map(|pair| (pair[0].text(), pair[1].text()))
                .collect(),
            _ => BTreeMap::new(),
        };
        match control_kind.text().as_str() {
            "none" => {}
            "hash" if fields.contains_key("epoch") => {
                state.control = Some(read(&fields, until(control_left)?)?);
            }
            other => state.foreign = Some(other.to_owned()),
        }
        let keys = [kind, control_kind];
        let keys = keys.iter().filter(|kind| kind.text() != "none").count();
        if usize::try_from(count.int()) != Ok(keys) {
            return Err(format!("{count:?} keys are left, {keys} expected"));
        }
        state.expire(leasehold_core::Now::at_micros(now_ms * 1_000));
        Ok(state)
    }
}

/// Reads a control without the production code, and checks that it has no other fields.
fn read(fields: &BTreeMap<String, String>, forget_at_ms: u64) -> Result<Control, String> {
    let text = |field: &str| fields.get(field).map(String::as_str);
    let number = |field: &str| {
        let parse = |text: &str| text.parse::<u64>();
        text(field)
            .map(parse)
            .transpose()
            .map_err(|error| format!("{field}: {error}"))
    };
    let some = |field| number(field)?.ok_or(format!("no {field} in {fields:?}"));
    let mut known = 2;
    let mut has = |field: &str, with: usize| {
        let there = fields.contains_key(field);
        known += if there { with } else { 0 };
        there
    };
    let loader = if has("token", 3) {
        Some(Loader {
            token: Token(
                u128::from_str_radix(text("token").unwrap(), 16).map_err(|e| e.to_string())?,
            ),
            version: Version::new(some("version")?),
            until_ms: some("until")?,
        })
    } else {
        None
    };
    let back_off = if has("back_off_until", 2) {
        Some(BackOff {
            until_ms: some("back_off_until")?,
            error: text("error").ok_or("no error")?.to_owned(),
        })
    } else {
        None
    };
    has("failures", 1);
    let waiting: BTreeSet<ClientId> = fields
        .keys()
        .filter_map(|field| field.strip_prefix("w:"))
        .map(|id| u64::from_str_radix(id, 16).map(ClientId::new))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if fields.len() != known + waiting.len() {
        return Err(format!("something else is in {fields:?}"));
    }
    Ok(Control {
        last: Version::new(some("last")?),
        epoch: Version::new(some("epoch")?),
        loader,
        back_off,
        failures: u32::try_from(number("failures")?.unwrap_or(0)).map_err(|e| e.to_string())?,
        waiting,
        forget_at_ms,
    })
}
