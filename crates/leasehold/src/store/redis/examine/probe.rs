//! The permissions of a user: tries them with a scratch lock, through the real scripts, and writes the ACL rule that gives them. It removes
//! its keys and touches no others.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, LockName, Mode, Owner, SLOTS, Step, Ttl, Wait, slot};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::sync::mpsc;

use super::super::connection::dial::Dial;
use super::super::connection::handshake::Handshake;
use super::super::connection::link::Wire;
use super::super::fault::{Redirect, classify, is_denied, silent};
use super::super::protocol::{
    COUNTER, Contended, INDEX, POLL_ONLY, QUEUE, WAITERS, channel, slot_channel, slot_counter,
};
use super::super::scripts::{self, NodeTerms};
use crate::doctor::Without::{self, NoLocks, Unseen, Worse};
use crate::doctor::{Part, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;

/// If this process ends meanwhile, the lock goes by then; the end of its queue takes a minute, as ever.
const TTL: Duration = Duration::from_secs(5);

/// How long a message may take.
const HEAR: Duration = Duration::from_secs(1);

/// The characters with a meaning of their own in a pattern of keys.
const WILD: [char; 4] = ['*', '?', '[', '\\'];

/// The messages of the connection's channel.
pub(super) type Messages = mpsc::UnboundedReceiver<Notice>;

/// The reply to a request, which may be a refusal. The error: there is no reply, and the connection is of no use any more.
type Answered<T> = Result<RedisResult<T>, StoreError>;

/// The facts of a request, unless the server refuses it. The error: there is no reply.
pub(super) type Told<T> = Result<Option<T>, StoreError>;

/// What a server is a part of.
#[derive(Clone, Copy)]
pub(super) enum Membership<'a> {
    /// It has all locks.
    Alone,
    Quorum(NodeTerms),
    /// A node of a cluster has these slots. The names are the newest of the index, which only one node has.
    Cluster {
        slots: &'a [RangeInclusive<u16>],
        names: Option<&'a [Vec<u8>]>,
    },
}

/// True if the slot of this key is among these.
pub(super) fn has_slot(slots: &[RangeInclusive<u16>], key: &str) -> bool {
    slots.iter().any(|slots| slots.contains(&slot(key)))
}

/// A connection to ask over, and how it was made.
pub(super) struct Talk<'a> {
    pub(super) dial: Dial<'a>,
    pub(super) wire: Wire,
}

impl Talk<'_> {
    /// Waits for the answer to a request.
    pub(super) async fn answered<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Answered<T> {
        let Dial { clock, limit, .. } = self.dial;
        let store = || self.dial.address.to_string();
        match clock.within(limit, answer).await {
            None => {
                let detail = format!("waited {limit:.1?}");
                Err(StoreError::new(store(), StoreErrorKind::TimedOut, detail))
            }
            Some(Err(error)) => match classify(&store(), &error) {
                (_, true) => Ok(Err(error)),
                (mut lost, false) => {
                    lost.may_have_taken_effect = false;
                    Err(lost)
                }
            },
            Some(answer) => Ok(answer),
        }
    }

    /// Asks, and takes a refusal for no fact, as an answer of another form.
    pub(super) async fn told<T: FromRedisValue>(&self, request: &Cmd) -> Told<T> {
        let answer = self.refusable(request).await?;
        Ok(answer
            .ok()
            .and_then(|value| T::from_redis_value(value).ok()))
    }

    /// Asks. A refusal is an answer.
    pub(super) async fn refusable(&self, request: &Cmd) -> Answered<Value> {
        let mut wire = self.wire.clone();
        self.answered(request.query_async(&mut wire)).await
    }
}

/// Tries all commands one by one, then a connection as clients make it, then a lock. `pattern` is that of the locks.
pub(super) async fn probe(
    talk: &Talk<'_>,
    pattern: &str,
    membership: Membership<'_>,
    messages: &mut Messages,
) -> Result<Probe, StoreError> {
    let mut trial = Trial::new(talk, pattern, membership)?;
    trial.try_commands().await?;
    trial.try_keys().await?;
    if !trial.in_cluster {
        let subscribed = talk.answered(talk.wire.subscribe(&trial.channel)).await?;
        if let Err(error) = subscribed {
            trial.note(SUBSCRIBE, &[CHANNEL], &error);
        }
    }
    // Keys and channels come before commands.
    let rank = |part: &Part| NEEDS.iter().position(|need| need.part == *part);
    trial.found.denied.sort_by_key(rank);
    if let Some(listens) = trial.connect().await?.filter(|_| !trial.found.untried) {
        trial.use_lock(listens).await?;
        if listens && trial.found.failed.is_empty() {
            trial.found.heard = hear(talk, messages).await;
        }
    }
    Ok(trial.found)
}

/// Whether the scripts told the holder that somebody waits, or the waiter of its grant.
async fn hear(talk: &Talk<'_>, messages: &mut Messages) -> bool {
    let heard = async {
        while let Some(message) = messages.recv().await {
            if let Notice::Wanted { .. } | Notice::Granted { .. } = message {
                return true;
            }
        }
        false
    };
    talk.dial.clock.within(HEAR, heard).await == Some(true)
}

/// A private lock and its client, and what was found.
struct Trial<'a> {
    talk: &'a Talk<'a>,
    /// The pattern of the locks.
    pattern: &'a str,
    /// All keys that it may make: a string, a sorted set and a hash.
    keys: [String; 3],
    name: LockName,
    channel: String,
    client: ClientId,
    in_cluster: bool,
    found: Probe,
}

impl<'a> Trial<'a> {
    /// If the pattern is a prefix, the lock has a name of that kind: this user may be allowed no others.
    fn new(
        talk: &'a Talk<'a>,
        pattern: &'a str,
        membership: Membership<'_>,
    ) -> Result<Self, StoreError> {
        let bits = || {
            getrandom::u64().map_err(|error| {
                StoreError::new("operating system", StoreErrorKind::Unavailable, error)
            })
        };
        let client = ClientId::new(bits()?);
        let prefix = prefix(pattern).unwrap_or_default();
        let named = |bits: u64| format!("{prefix}leasehold:doctor:{bits:016x}");
        let (first, mut found) = (bits()?, Probe::default());
        let (mut key, mut channel) = (named(first), channel(client));
        let in_cluster = matches!(membership, Membership::Cluster { .. });
        if let Membership::Cluster { slots, .. } = membership {
            // Names differ in their slots, unless the prefix has a hash tag.
            let most = if slots.is_empty() { 0 } else { TRIES };
            let tries = (0..most).map(|number| named(first.wrapping_add(number)));
            match { tries }.find(|name| has_slot(slots, name)) {
                Some(here) => key = here,
                None => found.untried = true,
            }
            channel = slot_channel(&channel, slot(&key));
        }
        let name = LockName::from_key(&key);
        let (queue, waiters) = (name.beside(QUEUE), name.beside(WAITERS));
        Ok(Self {
            talk,
            pattern,
            keys: [name.key().to_owned(), queue, waiters],
            name,
            channel,
            client,
            in_cluster,
            found,
        })
    }

    async fn try_commands(&mut self) -> Result<(), StoreError> {
        let in_cluster = self.in_cluster;
        // In RESP2, clients do not subscribe to slots, and a connection that does takes no other request.
        let subscribes = self.talk.wire.has_pushes();
        let is_tried = |need: &&Need| {
            let is_known = need.part.name != "ssubscribe" || subscribes;
            !need.words.is_empty() && need.serves(in_cluster) && is_known
        };
        for need in NEEDS.iter().filter(is_tried) {
            let mut command = Cmd::new();
            for word in need.words {
                command.arg(match *word {
                    KEY => self.keys[0].as_str(),
                    SET => self.keys[1].as_str(),
                    HASH => self.keys[2].as_str(),
                    CHANNEL => self.channel.as_str(),
                    text => text,
                });
            }
            if let Err(error) = self.talk.refusable(&command).await? {
                self.note(need.part, need.words, &error);
            }
        }
        if in_cluster && !subscribes {
            let said = self.talk.refusable(cmd("HELLO").arg(3)).await?;
            let said = said.map_or_else(|error| words_of(&error), |_| "it answers in RESP2".into());
            self.found.refused.push((HELLO, said));
        }
        Ok(())
    }

    /// Whether this user may read and write the counter, and the lock if the pattern is the name of one.
    async fn try_keys(&mut self) -> Result<(), StoreError> {
        let mut keys = vec![if self.in_cluster {
            let counter = slot_counter(slot(self.name.key()));
            (counter, Some(COUNTERS_PLACE))
        } else {
            (COUNTER.to_owned(), Some(COUNTER_PLACE))
        }];
        if !self.pattern.contains(WILD) {
            let name = LockName::from_key(self.pattern);
            keys.push((name.key().to_owned(), None));
            keys.push((name.beside(QUEUE), None));
        }
        for (key, part) in keys {
            // Neither changes anything: a missing key stays missing, and a key of another type is refused.
            let mut looks = cmd("ZRANGE");
            looks.arg(&key).arg(0).arg(0);
            let mut writes = cmd("ZADD");
            writes.arg(&key).arg("XX").arg(1).arg("leasehold:doctor");
            for request in [looks, writes] {
                let said = self.talk.refusable(&request).await?.err();
                if said.as_ref().is_some_and(is_about_a_place) {
                    self.bar(part);
                }
            }
        }
        Ok(())
    }

    /// Remembers that a command was refused, or its key or channel. An error about its arguments says that it may be used.
    fn note(&mut self, part: Part, words: &[&str], error: &RedisError) {
        if Redirect::of(error).is_some() {
            // Another node has the key. This one has looked at the user's rights before.
            return;
        }
        let said = words_of(error);
        let lower = said.to_lowercase();
        let kind = classify("", error).0.kind;
        if is_about_a_place(error) {
            let mut marks = words.iter();
            let place = marks.find_map(|word| PLACES.iter().find(|(mark, _)| mark == word));
            // The keys of the lock itself are of the pattern, if that is a prefix.
            let is_own = |part: &Part| {
                part.name.contains("leasehold:doctor:") && prefix(self.pattern).is_some()
            };
            let place = place.map(|(_, part)| *part);
            let place = place.filter(|part| !is_own(part));
            self.bar(place);
        } else if kind == StoreErrorKind::Denied {
            self.found.denied.push(part);
        } else if lower.contains("unknown command") {
            self.found.missing.push(part);
        } else if kind == StoreErrorKind::Protocol
            && DIRECT.contains(&part.name)
            && (part.name != "evalsha" || lower.contains("evalsha"))
            // The server's answer to one that is allowed, but comes without tracking.
            && !lower.contains("tracking mode")
        {
            self.found.refused.push((part, said));
        }
    }

    /// This user may not use these keys or this channel; `None` for the keys of the locks.
    fn bar(&mut self, part: Option<Part>) {
        match part {
            None => self.found.barred = Some(self.pattern.to_owned()),
            Some(part) if self.found.denied.contains(&part) => {}
            Some(part) => self.found.denied.push(part),
        }
    }

    /// Connects as clients do. Returns whether the connection listens; `None` if clients are refused.
    async fn connect(&mut self) -> Result<Option<bool>, StoreError> {
        let dial = self.talk.dial;
        let handshake = Handshake {
            address: dial.address,
            scripts: dial.scripts,
            channel: &self.channel,
        };
        let mut wire = self.talk.wire.clone();
        let exchange = handshake.exchange(&mut wire);
        match dial.clock.within(dial.limit, exchange).await {
            Some(Ok(agreed)) => Ok(Some(agreed.listening)),
            Some(Err(error)) => {
                let failed = ("connect", error.kind, error.detail);
                self.found.failed.push(failed);
                Ok(None)
            }
            None => Err(silent(dial.address, Some(dial.limit))),
        }
    }

    /// One holder, one waiter: takes it, waits for it, renews it, looks at it, hands it over, lets it go.
    async fn use_lock(&mut self, listens: bool) -> Result<(), StoreError> {
        let Ok(ttl) = Ttl::new(TTL) else {
            return Ok(());
        };
        let owner = |number: u128| {
            let random = u128::from(self.client.get()) << 64 | number;
            Owner::new(random, self.client, "doctor", std::process::id(), "doctor")
                .map_err(|error| StoreError::new("client", StoreErrorKind::Protocol, error))
        };
        let (holder, waiter) = (owner(1)?, owner(2)?);
        let acquire = |owner: &Owner, wait| Step::Acquire {
            owner: owner.clone(),
            mode: Mode::Exclusive,
            ttl,
            block: Block::ONE,
            wait,
        };
        let release = |owner: &Owner| Step::Release {
            owner: owner.clone(),
            keep: None,
            fence: None,
        };
        let wait = Wait { listening: listens };
        // Under no fence of its own, so that the short form is tried and the long one follows.
        let extend = Step::Extend {
            owner: holder.clone(),
            ttl,
            fence: Some(Fence::MAX),
        };
        let Talk { dial, wire } = self.talk;
        let channel = if listens {
            self.channel.clone()
        } else {
            POLL_ONLY.to_owned()
        };
        for (what, step) in [
            ("acquire", acquire(&holder, None)),
            ("wait", acquire(&waiter, Some(wait))),
            ("extend", extend),
            ("inspect", Step::Inspect),
            ("release", release(&holder)),
            ("release", release(&waiter)),
        ] {
            let kind = Contended::default().kind(&self.name, &step);
            let steps = vec![(self.name.clone(), step)];
            let request = wire.run_batch(dial.scripts, &channel, kind, steps);
            let said = self.talk.answered(request).await?;
            self.count(what, said.and_then(|mut replies| replies.pop().transpose()));
        }
        let write = |command: &mut Cmd| {
            command.arg(1).arg(&self.keys[1]).arg(&self.keys[0]);
        };
        let mut wire = wire.clone();
        let request = dial.scripts.run(scripts::INDEX, &mut wire, write);
        let said = self.talk.answered(request).await?;
        self.count("index", said);
        self.talk.told::<Value>(cmd("DEL").arg(&self.keys)).await?;
        Ok(())
    }

    /// Remembers that a use of the lock failed.
    fn count<T>(&mut self, what: &'static str, said: RedisResult<T>) {
        if let Err(error) = said {
            let (kind, said) = match self.talk.dial.scripts.refusal(&error) {
                Some(refusal) => (refusal.kind, refusal.detail),
                None => (classify("", &error).0.kind, words_of(&error)),
            };
            self.found.failed.push((what, kind, said));
        }
    }
}

/// The text before the star, if nothing follows it and it means nothing else in a pattern.
fn prefix(pattern: &str) -> Option<&str> {
    let prefix = pattern.strip_suffix('*')?;
    (!prefix.is_empty() && !prefix.contains(WILD)).then_some(prefix)
}

/// True for a refusal that is not about the command, but about a key or a channel.
fn is_about_a_place(refusal: &RedisError) -> bool {
    let said = words_of(refusal).to_lowercase();
    is_denied(refusal)
        && !said.contains("to run ")
        && (said.contains(" key") || said.contains(" channel"))
}

/// The server's own words: redis-rs spells some codes in its own way.
fn words_of(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => error.to_string(),
    }
}

/// A command that the scripts, the connection or the doctor use.
#[derive(Debug)]
struct Need {
    part: Part,
    /// Only a node of a cluster has a use for it, or only another server.
    in_cluster: Option<bool>,
    /// A call that leaves nothing behind: it changes only an existing key, and a scratch key does not exist.
    /// HSET has no such form. It gets a field without a value; the server checks the permission before it refuses that.
    words: &'static [&'static str],
}

const fn need(name: &'static str, without: Without, words: &'static [&'static str]) -> Need {
    Need {
        part: part(name, without),
        in_cluster: None,
        words,
    }
}

impl Need {
    /// Of use only in a cluster, or only elsewhere.
    const fn only(self, in_cluster: bool) -> Self {
        let in_cluster = Some(in_cluster);
        Self { in_cluster, ..self }
    }

    /// True if it is of use in a cluster, or elsewhere.
    fn serves(&self, in_cluster: bool) -> bool {
        self.in_cluster.is_none_or(|only| only == in_cluster)
    }
}

const fn part(name: &'static str, without: Without) -> Part {
    Part { name, without }
}

/// Stands in [`Need::words`] for the scratch key of a string.
const KEY: &str = "{string}";
/// Stands for the scratch key of a sorted set.
const SET: &str = "{sorted set}";
/// Stands for the scratch key of a hash.
const HASH: &str = "{hash}";
/// Stands for the channel of this client.
const CHANNEL: &str = "{channel}";

/// The keys or the channel that a refused command with this word needs.
static PLACES: [(&str, Part); 5] = [
    (KEY, part("~leasehold:doctor:*", NoLocks)),
    (SET, part("~{leasehold:doctor:*}:lh-*", NoLocks)),
    (HASH, part("~{leasehold:doctor:*}:lh-*", NoLocks)),
    (INDEX, part("~leasehold:index", Worse)),
    (CHANNEL, part("&leasehold:wake:*", Worse)),
];

/// The counter of fences, as a place that a user may use.
const COUNTER_PLACE: Part = part("~leasehold:fence", NoLocks);

/// Those of a cluster: each slot has one.
const COUNTERS_PLACE: Part = part("~leasehold:fence:*", NoLocks);

/// How many names are looked at for one in the slots of a node. With one slot, 1 of 16,384 names is.
const TRIES: u64 = 16 * SLOTS as u64;

/// A request of each connection, which is tried apart.
const SUBSCRIBE: Part = part("subscribe", Worse);
const HELLO: Part = part("hello", Worse);

/// All of them, for the features of this build. AUTH and HELLO need no permission.
#[rustfmt::skip]
static NEEDS: &[Need] = &[
    need("eval", NoLocks, &["EVAL", "return 1", "0"]),
    need("evalsha", Worse, &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"]),
    need("exists", NoLocks, &["EXISTS", INDEX]),
    need("get", NoLocks, &["GET", KEY]),
    need("mget", NoLocks, &["MGET", KEY]),
    need("getrange", NoLocks, &["GETRANGE", KEY, "0", "0"]),
    need("set", NoLocks, &["SET", KEY, "0", "XX", "PX", "5000"]),
    need("del", NoLocks, &["DEL", KEY]),
    need("pexpire", NoLocks, &["PEXPIRE", KEY, "5000"]),
    need("pttl", NoLocks, &["PTTL", KEY]),
    need("time", NoLocks, &["TIME"]),
    need("zadd", NoLocks, &["ZADD", SET, "XX", "1", "x"]),
    need("zcard", NoLocks, &["ZCARD", SET]),
    need("zrange", NoLocks, &["ZRANGE", SET, "0", "0"]),
    need("zrank", NoLocks, &["ZRANK", SET, "x"]),
    need("zrem", NoLocks, &["ZREM", SET, "x"]),
    need("hget", NoLocks, &["HGET", HASH, "x"]),
    need("hset", NoLocks, &["HSET", HASH, "x", "x", "x"]),
    need("hdel", NoLocks, &["HDEL", HASH, "x"]),
    need("type", Worse, &["TYPE", KEY]),
    need("zremrangebyscore", Worse, &["ZREMRANGEBYSCORE", SET, "0", "0"]),
    // Only read/write locks and semaphores need these, and no mutex.
    need("zcount", Worse, &["ZCOUNT", SET, "0", "0"]),
    need("zrangebyscore", Worse, &["ZRANGEBYSCORE", SET, "0", "0"]),
    need("hlen", Worse, &["HLEN", HASH]),
    #[cfg(not(feature = "entries"))]
    need("hmget", Worse, &["HMGET", HASH, "x"]),
    need("publish", Worse, &["PUBLISH", CHANNEL, "doctor"]).only(false),
    need("pubsub|numsub", Worse, &["PUBSUB", "NUMSUB", CHANNEL]).only(false),
    Need { part: SUBSCRIBE, in_cluster: Some(false), words: &[] },
    need("cluster|slots", Worse, &["CLUSTER", "SLOTS"]).only(true),
    need("asking", Worse, &["ASKING"]).only(true),
    need("spublish", Worse, &["SPUBLISH", CHANNEL, "doctor"]).only(true),
    need("pubsub|shardnumsub", Worse, &["PUBSUB", "SHARDNUMSUB", CHANNEL]).only(true),
    need("ssubscribe", Worse, &["SSUBSCRIBE", CHANNEL]).only(true),
    need("role", Worse, &["ROLE"]),
    need("script|exists", Worse, &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"]),
    need("script|load", Worse, &["SCRIPT", "LOAD", "return 1"]),
    // As old as the command itself; it names the library in CLIENT LIST.
    need("client|setinfo", Unseen, &[]),
    need("select", NoLocks, &[]),
    need("ping", Unseen, &[]),
    // Only newer servers have one of them. Without it, scripts free locks.
    need("delifeq", Unseen, &[]),
    need("delex", Unseen, &[]),
    // The doctor misses most. A connection does not know which server it leads to: each new one may lead to another.
    need("info", Unseen, &[]),
    // An empty SETRANGE makes no key.
    #[cfg(feature = "entries")]
    need("setrange", Without::NoCache, &["SETRANGE", KEY, "0", ""]),
    // Semaphores need it too.
    #[cfg(feature = "entries")]
    need("hmget", Without::NoCache, &["HMGET", HASH, "x"]),
    #[cfg(feature = "entries")]
    need("hkeys", Without::NoCache, &["HKEYS", HASH]),
    // Without it, no notice drops a changed value from the process. `CLIENT` changes this connection only.
    #[cfg(feature = "entries")]
    need("client|tracking", Without::NoCache, &["CLIENT", "TRACKING", "OFF"]),
    #[cfg(feature = "entries")]
    need("client|caching", Without::NoCache, &["CLIENT", "CACHING", "YES"]),
];

/// The requests that the client itself sends and can do without. A proxy sees no others: the scripts run behind it.
const DIRECT: [&str; 10] = [
    "subscribe",
    "ssubscribe",
    "cluster|slots",
    "asking",
    "role",
    "evalsha",
    "script|exists",
    "script|load",
    "client|tracking",
    "client|caching",
];

/// The ACL rule of a user with the permissions that locks and cache entries need, and no others. `version` is that of the Redis whose
/// commands the server has, and `known` are those that only some servers have. An older server refuses the whole rule for one command that
/// it does not know. `keys` is the pattern of the locks.
pub(super) fn acl(
    version: Option<(u32, u32)>,
    known: &[String],
    database: i64,
    keys: &str,
    membership: Membership<'_>,
) -> String {
    let is_node = matches!(membership, Membership::Quorum(_));
    let in_cluster = matches!(membership, Membership::Cluster { .. });
    let is_wanted = |need: &&Need| match need.part.name {
        _ if !need.serves(in_cluster) => false,
        "ssubscribe" | "spublish" | "pubsub|shardnumsub" => {
            version.is_none_or(|version| version >= (7, 0))
        }
        name @ ("delifeq" | "delex") => !is_node && known.iter().any(|known| known == name),
        "client|setinfo" => version.is_some_and(|version| version >= (7, 2)),
        "select" => database != 0,
        _ => true,
    };
    let commands = NEEDS.iter().filter(is_wanted);
    let commands: Vec<&str> = commands.map(|need| need.part.name).collect();
    format!(
        "ACL SETUSER leasehold on >SECRET resetkeys {} resetchannels &leasehold:wake:* -@all +{}",
        all_keys(keys, membership),
        commands.join(" +")
    )
}

/// The locks' own keys, those beside them, the fence counter, and those of the index and the doctor. The nodes of a quorum have keys of
/// their own for marks and counters, and those of a cluster a counter for each slot.
fn all_keys(pattern: &str, membership: Membership<'_>) -> String {
    if pattern == "*" {
        return "~*".into();
    }
    let (tagged, plain) = (format!("{pattern}:lh-*"), format!("{{{pattern}}}:lh-*"));
    let beside = if pattern.contains('{') {
        tagged
    } else if pattern.ends_with('*') {
        // The pattern also covers the keys beside a name with a hash tag.
        plain
    } else {
        format!("{plain} ~{tagged}")
    };
    let counters = match membership {
        Membership::Alone => "~leasehold:fence",
        Membership::Quorum(_) => "~leasehold:fence ~leasehold:quorum*",
        Membership::Cluster { .. } => "~leasehold:fence:*",
    };
    // `{` and `}` mean nothing in a pattern of Redis'.
    format!(
        "~{pattern} ~{beside} {counters} ~leasehold:index ~leasehold:doctor:* ~{{leasehold:doctor:*}}:lh-*"
    )
}
