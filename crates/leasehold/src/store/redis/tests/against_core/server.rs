//! The side of Redis: a real server whose clock the test controls, used through the production scripts and codec.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    ClientId, Foreign, Holder, LockName, LockState, Mode, Outcome, Owner, Reply, Step,
};
use redis::{RedisError, RedisResult};
use testkit::{RedisServer, RespConn};
use tokio::runtime::{Builder, Runtime};

use super::kept::{holder, waiter};
use super::model::channel;
use super::node::{self, Memory, Role, wants};
use super::steps::{FOREIGN_VALUES, Intrusion};
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::Attach;
use crate::store::redis::connection::Connected;
use crate::store::redis::connection::handshake::Seat;
use crate::store::redis::protocol::{Contended, Kind};
use crate::store::redis::scripts::{Counters, NodeTerms, Scripts};
use crate::store::redis::{Address, RedisStore};

/// In real time; only a hang takes this long.
const LIMIT: Duration = Duration::from_secs(20);

/// A channel that is always subscribed to, which keeps the connection in subscriber mode.
const NO_CHANNEL: &str = "against-core";

/// The data that Redis stores for a lock.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    /// Translated to core's types.
    pub(super) state: LockState,
    /// How long the queue lasts, if there is one.
    pub(super) queue_for_ms: Option<u64>,
}

/// A message as a subscriber received it.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    pub(super) channel: String,
    pub(super) payload: String,
}

impl Message {
    /// The messages of a step, in their order.
    pub(super) fn of(outcome: &Outcome, name: &LockName) -> Vec<Self> {
        let to = |owner: &Owner, payload| Self {
            channel: format!("leasehold:wake:{}", owner.client()),
            payload,
        };
        let key = name.key();
        let granted = outcome.wakes.iter().map(|wake| {
            let (owner, fence) = (&wake.owner, wake.fence.unwrap());
            let more = match wake.block.get() {
                1 => String::new(),
                more => format!("/{more}"),
            };
            let (at_us, queued, token) = (wake.at_us, wake.queued, owner.token());
            to(
                owner,
                format!("granted {fence}{more} {at_us} {queued} {token} {key}"),
            )
        });
        let wanted = (outcome.wanted.iter())
            .map(|owner| to(owner, format!("wanted {} {key}", owner.token())));
        let first =
            (outcome.first.iter()).map(|owner| to(owner, format!("first {} {key}", owner.token())));
        granted.chain(wanted).chain(first).collect()
    }
}

pub(super) struct Redis {
    pub(super) role: Role,
    store: RedisStore,
    /// The store of clients that count the nodes of another quorum.
    others: RedisStore,
    runtime: Runtime,
    commands: RespConn,
    subscriber: RespConn,
    server: RedisServer,
    requests: usize,
}

impl Redis {
    pub(super) fn start() -> Self {
        Self::start_as(Role::Alone)
    }

    pub(super) fn start_as(role: Role) -> Self {
        Self::start_with(role, Scripts::new)
    }

    /// With these scripts, which may be broken.
    pub(super) fn start_with(role: Role, scripts: impl Fn(Counters) -> Scripts) -> Self {
        Self::start_on(None, role, scripts)
    }

    /// Another program than the installed server, if one is named.
    pub(super) fn start_on(
        binary: Option<&Path>,
        role: Role,
        scripts: impl Fn(Counters) -> Scripts,
    ) -> Self {
        let mut builder = RedisServer::builder().virtual_clock();
        if let Some(binary) = binary {
            builder = builder.binary(binary);
        }
        let server = builder.start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let open = |others| {
            let _inside = runtime.enter();
            let address = Address::parse(&server.url()).unwrap();
            let attach = Attach {
                client: ClientId::new(u64::MAX),
                listener: Arc::new(drop),
                clock: Clock::system(),
                tasks: Tasks::here().unwrap(),
                limit: LIMIT,
            };
            let (counters, seat) = match role {
                Role::Alone => (Counters::Shared, None),
                Role::Node => {
                    let (terms, durable) = (node::terms_of(others), true);
                    let seat = Seat::new(Arc::default(), &address.to_string());
                    (Counters::ByBucket(NodeTerms { terms, durable }), Some(seat))
                }
            };
            RedisStore::with(scripts(counters), address, attach, seat)
        };
        let (store, others) = (open(false), open(true));
        Self {
            role,
            store,
            others,
            runtime,
            commands: server.connection(),
            subscriber: server.connection(),
            server,
            requests: 0,
        }
    }

    /// Resets the server to an empty one, started at `clock_us`, with the first two clients subscribed.
    pub(super) fn reset(&mut self, clock_us: u64) {
        self.set_clock(clock_us);
        self.flush();
        self.mark();
        self.requests = 0;
        self.subscriber
            .send(&["SUBSCRIBE", NO_CHANNEL, &channel(0), &channel(1)])
            .unwrap();
        self.messages();
    }

    pub(super) fn set_clock(&mut self, clock_us: u64) {
        self.server.clock().set(clock_us);
    }

    /// The form of the next steps: the short one if there is one, and the long one each third time.
    pub(super) fn kind(&mut self, steps: &[(LockName, Step)]) -> Kind {
        self.requests += 1;
        let kinds = || (steps.iter()).map(|(name, step)| Contended::default().kind(name, step));
        let kind = kinds().next().unwrap();
        if self.requests.is_multiple_of(3) || kinds().any(|other| other != kind) {
            kind.long()
        } else {
            kind
        }
    }

    /// Sends steps in one request and returns the replies in readable form.
    pub(super) fn apply(
        &mut self,
        steps: &[(LockName, Step)],
    ) -> Result<Vec<Result<Reply, String>>, String> {
        let kind = self.kind(steps);
        self.apply_as(kind, steps, false)
    }

    /// Sends steps in this form, maybe as a client of another quorum, and returns the replies in readable form.
    pub(super) fn apply_as(
        &mut self,
        kind: Kind,
        steps: &[(LockName, Step)],
        others: bool,
    ) -> Result<Vec<Result<Reply, String>>, String> {
        let said = |error: RedisError| error.to_string();
        let replies = self.batch_by(others, kind, steps).map_err(said)?;
        Ok(replies
            .into_iter()
            .map(|reply| reply.map_err(said))
            .collect())
    }

    /// Sends steps as a store does, but for any client (that of the first acquire), and with a limit in real time only.
    pub(super) fn batch(
        &mut self,
        kind: Kind,
        steps: &[(LockName, Step)],
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        self.batch_by(false, kind, steps)
    }

    fn batch_by(
        &mut self,
        others: bool,
        kind: Kind,
        steps: &[(LockName, Step)],
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        let store = if others { &self.others } else { &self.store };
        let channel = wants(&steps[0].1).map(|owner| format!("leasehold:wake:{}", owner.client()));
        let channel = channel.unwrap_or_default();
        let request = async |connected: &Connected| {
            let (wire, steps) = (&connected.wire, steps.to_vec());
            Ok(wire.run_batch(&store.scripts, &channel, kind, steps).await)
        };
        let answered = store.connection.call(LIMIT, request);
        self.runtime.block_on(answered).unwrap()
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(super) fn command(&mut self, words: &[&str]) -> testkit::Reply {
        self.commands.command(words)
    }

    pub(super) fn intrude(&mut self, name: &LockName, intrusion: Intrusion) {
        let ttl;
        let mut words: Vec<&[u8]> = match intrusion {
            Intrusion::SetNxPx { value, ttl_ms } => {
                ttl = ttl_ms.to_string();
                vec![b"SET", FOREIGN_VALUES[value], b"NX", b"PX", ttl.as_bytes()]
            }
            Intrusion::Set { value } => vec![b"SET", FOREIGN_VALUES[value]],
            Intrusion::Del => vec![b"DEL"],
            Intrusion::HashSet => vec![b"HSET", b"field", b"1"],
            Intrusion::SortedSetAdd => vec![b"ZADD", b"1", b"member"],
        };
        words.insert(1, name.key().as_bytes());
        // The answer does not matter: Redis refuses it if a key of another type is in the way.
        self.commands.command(&words);
    }

    pub(super) fn evict_counters(&mut self, names: &[LockName]) {
        let keys = self.counter_keys(names).unwrap();
        for key in keys {
            self.commands.command(&["DEL", &key]);
        }
    }

    pub(super) fn flush(&mut self) {
        self.commands.command(&["FLUSHALL"]);
    }

    pub(super) fn flush_scripts(&mut self) {
        self.commands.command(&["SCRIPT", "FLUSH"]);
    }

    pub(super) fn listen(&mut self, client: usize, on: bool) {
        let verb = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        self.subscriber.send(&[verb, &channel(client)]).unwrap();
        self.messages();
    }

    /// From now on, a client subscribes to every channel by a pattern.
    pub(super) fn overhear(&mut self) {
        self.subscriber.send(&["PSUBSCRIBE", "*"]).unwrap();
        self.messages();
    }

    /// The messages published since the last call. The reply to PING comes after all of them.
    pub(super) fn messages(&mut self) -> Vec<Message> {
        self.subscriber.send(&["PING"]).unwrap();
        let mut messages = Vec::new();
        loop {
            let push = self.subscriber.receive().unwrap();
            // The very first PING of a connection may be answered before it is subscribed to anything.
            match push.array() {
                [kind, ..] if kind.text() == "pong" => return messages,
                [kind, channel, payload] if kind.text() == "message" => messages.push(Message {
                    channel: channel.text(),
                    payload: payload.text(),
                }),
                _ => {}
            }
        }
    }

    /// Reads the keys of all locks and the counter back, and checks that there is no other key.
    pub(super) fn kept(
        &mut self,
        names: &[LockName],
        now_ms: u64,
    ) -> Result<(Vec<Kept>, Memory), String> {
        let of = |name| self.kept_of(name, now_ms);
        let all: Vec<Kept> = names.iter().map(of).collect::<Result<_, _>>()?;
        let count = |Kept { state, .. }: &Kept| {
            i64::from(!state.holders.is_empty() || state.foreign.is_some())
                + if state.queue.is_empty() { 0 } else { 2 }
        };
        let (memory, remembered) = self.memory(names)?;
        let expected = all.iter().map(count).sum::<i64>() + remembered;
        let keys = self.commands.command(&["DBSIZE"]);
        if keys.int() != expected {
            return Err(format!("{} keys are left, {expected} expected", keys.int()));
        }
        Ok((all, memory))
    }

    fn kept_of(&mut self, name: &LockName, now_ms: u64) -> Result<Kept, String> {
        let key = name.key().to_owned();
        let (queue, waiters) = (name.beside(":lh-queue"), name.beside(":lh-waiters"));
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let replies = self.commands.commands(&[
            words(&["TYPE", &key]),
            words(&["GET", &key]),
            words(&["PTTL", &key]),
            words(&["ZRANGE", &queue, "0", "-1"]),
            words(&["HGETALL", &waiters]),
            words(&["PTTL", &queue]),
            words(&["PTTL", &waiters]),
        ]);
        let [kind, value, lease, queue, waiters, queue_for, waiters_for] = &replies[..] else {
            unreachable!("seven commands")
        };
        // PTTL: -1 is without end, -2 is a missing key.
        let left = |pttl: &testkit::Reply| u64::try_from(pttl.int()).ok();
        let (mut state, mut marked) = (LockState::default(), true);
        let kind = kind.text();
        if kind != "none" {
            let value = if kind == "string" {
                value.bytes().to_vec()
            } else {
                Vec::new()
            };
            let expires_at_ms = left(lease).map(|left| now_ms + left);
            match std::str::from_utf8(&value).ok().and_then(holder) {
                Some((owner, fences, is_marked)) => {
                    marked = is_marked;
                    state.holders.push(Holder {
                        owner,
                        mode: Mode::Exclusive,
                        fences,
                        expires_at_ms: expires_at_ms.ok_or("a holder of ours without a TTL")?,
                        kept: false,
                    });
                }
                None => {
                    state.foreign = Some(Foreign {
                        kind,
                        value,
                        expires_at_ms,
                    });
                }
            }
        }
        let records: BTreeMap<String, String> = waiters
            .array()
            .chunks(2)
            .map(|pair| (pair[0].text(), pair[1].text()))
            .collect();
        for token in queue.array() {
            let record = records
                .get(&token.text())
                .ok_or("a waiter without a record")?;
            state.queue.push_back(waiter(&token.text(), record)?);
        }
        if records.len() != state.queue.len() || left(queue_for) != left(waiters_for) {
            return Err(format!(
                "queue and records differ: {queue:?} {queue_for:?} {waiters:?} {waiters_for:?}"
            ));
        }
        if !marked && !state.queue.is_empty() {
            return Err("somebody waits, and the holder's value does not say so".into());
        }
        Ok(Kept {
            queue_for_ms: left(queue_for),
            state,
        })
    }
}
