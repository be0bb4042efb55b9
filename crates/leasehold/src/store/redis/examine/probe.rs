//! Uses a scratch lock as this user, through the real scripts, and the commands that a user must be allowed. It removes its keys and
//! touches no others.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, LockName, Mode, Owner, Step, Ttl, Wait};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::sync::mpsc;

use super::super::address::Address;
use super::super::connection::handshake::Handshake;
use super::super::connection::link::Wire;
use super::super::fault::{classify, is_denied, silent};
use super::super::protocol::{COUNTER, Contended, INDEX, QUEUE, WAITERS, channel};
use super::super::scripts::{self, Scripts};
use crate::clock::Clock;
use crate::doctor::Without::{self, NoLocks, Unseen, Worse};
use crate::doctor::{Part, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;

/// How long the clocks are compared.
const STEP: Duration = Duration::from_secs(5);

/// How long this host is watched.
const STALL: Duration = Duration::from_secs(1);

/// No more pings than these, in no more time than this.
const PINGS: usize = 200;
const PING_TIME: Duration = Duration::from_secs(1);

/// The reply to a request, which may be a refusal. The error: there is no reply, and the connection is of no use any more.
pub(super) type Answered<T> = Result<RedisResult<T>, StoreError>;

/// The facts of a request, unless the server refuses it. The error: as for [`Answered`].
pub(super) type Told<T> = Result<Option<T>, StoreError>;

/// A connection to ask over.
pub(super) struct Talk<'a> {
    pub(super) wire: Wire,
    /// The scripts that are tried.
    pub(super) scripts: Arc<Scripts>,
    pub(super) address: &'a Address,
    pub(super) clock: &'a Clock,
    /// How long an answer may take.
    pub(super) limit: Duration,
}

/// A look at the server's clock, half-way through the request, in us.
struct Look {
    there_us: u64,
    /// This host's time then.
    here_us: u64,
    /// This host's steady clock then.
    steady_us: u64,
    /// How long the request took.
    took: Duration,
}

impl Talk<'_> {
    /// Asks, and waits for the answer.
    pub(super) async fn ask<T: FromRedisValue>(&self, request: &Cmd) -> Answered<T> {
        let mut wire = self.wire.clone();
        let answer = request.query_async::<Value>(&mut wire);
        let value = self.answered(answer).await?;
        // An answer of another form is none.
        Ok(value.and_then(|value| T::from_redis_value(value).map_err(RedisError::from)))
    }

    /// Asks, and takes a refusal for no fact.
    pub(super) async fn told<T: FromRedisValue>(&self, request: &Cmd) -> Told<T> {
        Ok(self.ask(request).await?.ok())
    }

    /// Waits for the answer to a request that was made elsewhere.
    pub(super) async fn answered<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Answered<T> {
        let store = || self.address.to_string();
        match self.clock.within(self.limit, answer).await {
            None => {
                let detail = format!("waited {:.1?}", self.limit);
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

    /// How long 99 of 100 answers took at most.
    pub(super) async fn ping(&self, quick: bool) -> Told<Duration> {
        let begun = self.clock.now();
        let most = if quick { PINGS / 10 } else { PINGS };
        let mut took = Vec::new();
        while took.len() < most && self.clock.now().since(begun) < PING_TIME {
            let sent = self.clock.now();
            if self.told::<String>(&cmd("PING")).await?.is_none() {
                return Ok(None);
            }
            took.push(self.clock.now().since(sent));
        }
        took.sort_unstable();
        let last = (took.len() * 99).div_ceil(100).saturating_sub(1);
        Ok(took.get(last).copied())
    }

    /// How far the server's clock is from this host's, and how exact that is.
    pub(super) async fn offset(&self) -> Told<(Duration, Duration)> {
        let offset = |look: Look| {
            let apart = look.there_us.abs_diff(look.here_us);
            (Duration::from_micros(apart), look.took / 2)
        };
        Ok(self.look().await?.map(offset))
    }

    /// The difference between the time that passed there and here in a few seconds, beyond the error of both readings.
    pub(super) async fn step(&self) -> Told<Duration> {
        let Some(first) = self.look().await? else {
            return Ok(None);
        };
        self.clock.sleep(STEP).await;
        Ok(self.look().await?.map(|second| {
            let there = i128::from(second.there_us) - i128::from(first.there_us);
            let here = i128::from(second.steady_us) - i128::from(first.steady_us);
            let apart = u64::try_from((there - here).unsigned_abs()).unwrap_or(u64::MAX);
            Duration::from_micros(apart).saturating_sub((first.took + second.took) / 2)
        }))
    }

    /// The quickest of some looks at the server's clock, which is the most exact.
    async fn look(&self) -> Told<Look> {
        let mut best: Option<Look> = None;
        for _ in 0..10 {
            let sent = self.clock.store_now();
            let Some((seconds, micros)) = self.told::<(u64, u64)>(&cmd("TIME")).await? else {
                return Ok(None);
            };
            let now_us = self.clock.store_now().clock_us;
            let took_us = now_us.saturating_sub(sent.clock_us);
            let took = Duration::from_micros(took_us);
            if best.as_ref().is_none_or(|best| took < best.took) {
                best = Some(Look {
                    there_us: seconds * 1_000_000 + micros,
                    here_us: sent.wall_us + took_us / 2,
                    steady_us: sent.clock_us + took_us / 2,
                    took,
                });
            }
        }
        Ok(best)
    }
}

/// How long this host let a timer wait beyond its time.
pub(super) async fn stall(clock: &Clock) -> Duration {
    let pause = Duration::from_millis(2);
    let begun = clock.now();
    let mut longest = Duration::ZERO;
    while clock.now().since(begun) < STALL {
        let slept = clock.now();
        clock.sleep(pause).await;
        longest = longest.max(clock.now().since(slept).saturating_sub(pause));
    }
    longest
}

/// If this process ends meanwhile, the lock goes by then; the end of its queue takes a minute, as ever.
const TTL: Duration = Duration::from_secs(5);

/// How long a message may take.
const HEAR: Duration = Duration::from_secs(1);

/// What means something else in a pattern of keys.
const WILD: [char; 4] = ['*', '?', '[', '\\'];

/// The messages of the connection's channel.
pub(super) type Messages = mpsc::UnboundedReceiver<Notice>;

/// Tries all commands one by one, then a connection as clients make it, then a lock. `pattern` is that of the locks.
pub(super) async fn probe(
    talk: &Talk<'_>,
    pattern: &str,
    messages: &mut Messages,
) -> Result<Probe, StoreError> {
    let mut trial = Trial::new(talk, pattern)?;
    trial.try_commands().await?;
    trial.try_keys().await?;
    trial.try_channel().await?;
    // Keys and channels come before commands.
    let rank = |part: &Part| NEEDS.iter().position(|need| need.part == *part);
    trial.found.denied.sort_by_key(rank);
    if let Some(listens) = trial.connect().await? {
        trial.use_lock(listens).await?;
        if listens && trial.found.failed.is_empty() {
            trial.found.heard = hear(talk, messages).await;
        }
    }
    Ok(trial.found)
}

/// A private lock and its client, and what was found.
struct Trial<'a> {
    talk: &'a Talk<'a>,
    /// The pattern of the locks.
    pattern: &'a str,
    name: LockName,
    channel: String,
    client: ClientId,
    found: Probe,
}

impl<'a> Trial<'a> {
    /// If the pattern is a prefix, the lock has a name of that kind: this user may be allowed no others.
    fn new(talk: &'a Talk<'a>, pattern: &'a str) -> Result<Self, StoreError> {
        let bits = || {
            getrandom::u64().map_err(|error| {
                StoreError::new("operating system", StoreErrorKind::Unavailable, error)
            })
        };
        let client = ClientId::new(bits()?);
        let prefix = prefix(pattern).unwrap_or_default();
        Ok(Self {
            talk,
            pattern,
            name: LockName::from_key(&format!("{prefix}leasehold:doctor:{:016x}", bits()?)),
            channel: channel(client),
            client,
            found: Probe::default(),
        })
    }

    /// All keys that it may make: a string, a sorted set and a hash.
    fn keys(&self) -> [String; 3] {
        let name = &self.name;
        [
            name.key().to_owned(),
            name.beside(QUEUE),
            name.beside(WAITERS),
        ]
    }

    async fn try_commands(&mut self) -> Result<(), StoreError> {
        let [key, set, hash] = self.keys();
        for need in NEEDS.iter().filter(|need| !need.words.is_empty()) {
            let mut command = Cmd::new();
            for word in need.words {
                command.arg(match *word {
                    KEY => key.as_str(),
                    SET => set.as_str(),
                    HASH => hash.as_str(),
                    CHANNEL => self.channel.as_str(),
                    text => text,
                });
            }
            if let Err(error) = self.talk.ask::<Value>(&command).await? {
                self.note(need.part, need.words, &error);
            }
        }
        Ok(())
    }

    /// Whether this user may read and write the counter, and the lock if the pattern is the name of one.
    async fn try_keys(&mut self) -> Result<(), StoreError> {
        let mut keys = Vec::new();
        if !self.pattern.contains(WILD) {
            let name = LockName::from_key(self.pattern);
            keys.push((name.key().to_owned(), None));
            keys.push((name.beside(QUEUE), None));
        }
        keys.push((COUNTER.to_owned(), Some(COUNTER_PLACE)));
        for (key, part) in keys {
            // Neither changes anything: a missing key stays missing, and a key of another type is refused.
            let mut looks = cmd("ZRANGE");
            looks.arg(&key).arg(0).arg(0);
            let mut writes = cmd("ZADD");
            writes.arg(&key).arg("XX").arg(1).arg("leasehold:doctor");
            for request in [looks, writes] {
                let said = self.talk.ask::<Value>(&request).await?.err();
                if said.as_ref().is_some_and(is_about_a_place) {
                    self.bar(part);
                }
            }
        }
        Ok(())
    }

    async fn try_channel(&mut self) -> Result<(), StoreError> {
        let subscribed = self.talk.wire.subscribe(&self.channel);
        let subscribed = self.talk.answered(subscribed).await?;
        let subscribe = NEEDS.iter().find(|need| need.part.name == "subscribe");
        if let (Err(error), Some(need)) = (subscribed, subscribe) {
            self.note(need.part, &[CHANNEL], &error);
        }
        Ok(())
    }

    /// Remembers that a command was refused, or its key or channel. An error about its arguments says that it may be used.
    fn note(&mut self, part: Part, words: &[&str], error: &RedisError) {
        let said = words_of(error);
        let lower = said.to_lowercase();
        let kind = classify("", error).0.kind;
        if is_about_a_place(error) {
            // The keys of the lock itself are of the pattern, if that is a prefix.
            let is_own = |part: &Part| {
                let name = part.name;
                name.starts_with('~')
                    && name.contains("leasehold:doctor:")
                    && prefix(self.pattern).is_some()
            };
            let place = place(words).filter(|part| !is_own(part));
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
        let Talk {
            address,
            clock,
            limit,
            ..
        } = *self.talk;
        let handshake = Handshake {
            address,
            scripts: &self.talk.scripts,
            channel: &self.channel,
        };
        let mut wire = self.talk.wire.clone();
        let agreed = clock.within(limit, handshake.exchange(&mut wire));
        match agreed.await {
            Some(Ok(agreed)) => Ok(Some(agreed.listening)),
            Some(Err(error)) => {
                let failed = ("connect", error.kind, error.detail);
                self.found.failed.push(failed);
                Ok(None)
            }
            None => Err(silent(address, Some(limit))),
        }
    }

    /// One holder, one waiter: takes it, waits for it, renews it, looks at it, hands it over, lets it go.
    async fn use_lock(&mut self, listens: bool) -> Result<(), StoreError> {
        let Ok(ttl) = Ttl::new(TTL) else {
            return Ok(());
        };
        let (holder, waiter) = (self.owner(1)?, self.owner(2)?);
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
        let Talk { wire, scripts, .. } = self.talk;
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
            let request = wire.run_batch(scripts, &self.channel, kind, steps);
            let said = self.talk.answered(request).await?;
            self.count(what, said.and_then(|mut replies| replies.pop().transpose()));
        }
        let keys = self.keys();
        let write = |command: &mut Cmd| {
            command.arg(1).arg(&keys[1]).arg(&keys[0]);
        };
        let mut wire = wire.clone();
        let request = scripts.run(scripts::INDEX, &mut wire, write);
        let said = self.talk.answered(request).await?;
        self.count("index", said);
        self.talk.told::<Value>(cmd("DEL").arg(&keys)).await?;
        Ok(())
    }

    fn owner(&self, number: u128) -> Result<Owner, StoreError> {
        let random = u128::from(self.client.get()) << 64 | number;
        Owner::new(random, self.client, "doctor", std::process::id(), "doctor")
            .map_err(|error| StoreError::new("client", StoreErrorKind::Protocol, error))
    }

    /// Remembers that a use of the lock failed.
    fn count<T>(&mut self, what: &'static str, said: RedisResult<T>) {
        if let Err(error) = said {
            let kind = classify("", &error).0.kind;
            self.found.failed.push((what, kind, words_of(&error)));
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
    talk.clock.within(HEAR, heard).await == Some(true)
}

/// A command that the scripts, the connection or the doctor use.
#[derive(Debug)]
struct Need {
    part: Part,
    /// A call that leaves nothing behind: it changes only an existing key, and a scratch key does not exist.
    /// HSET has no such form. It gets a field without a value; the server checks the permission before it refuses that.
    words: &'static [&'static str],
}

const fn need(name: &'static str, without: Without, words: &'static [&'static str]) -> Need {
    Need {
        part: Part { name, without },
        words,
    }
}

/// Stands in [`Need::words`] for the scratch key of a string.
const KEY: &str = "{string}";
/// Stands for the scratch key of a sorted set.
const SET: &str = "{sorted set}";
/// Stands for the scratch key of a hash.
const HASH: &str = "{hash}";
/// Stands for the channel of this client.
const CHANNEL: &str = "{channel}";

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
    need("publish", Worse, &["PUBLISH", CHANNEL, "doctor"]),
    need("pubsub|numsub", Worse, &["PUBSUB", "NUMSUB", CHANNEL]),
    need("subscribe", Worse, &[]),
    need("role", Worse, &["ROLE"]),
    need("script|exists", Worse, &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"]),
    need("script|load", Worse, &["SCRIPT", "LOAD", "return 1"]),
    // As old as the command itself; it names the library in CLIENT LIST.
    need("client|setinfo", Unseen, &[]),
    need("select", NoLocks, &[]),
    need("ping", Unseen, &[]),
    // The doctor misses most. A connection does not know which server it leads to: each new one may lead to another.
    need("info", Unseen, &[]),
    // An empty SETRANGE makes no key.
    #[cfg(feature = "entries")]
    need("setrange", Without::NoCache, &["SETRANGE", KEY, "0", ""]),
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
const DIRECT: [&str; 7] = [
    "subscribe",
    "role",
    "evalsha",
    "script|exists",
    "script|load",
    "client|tracking",
    "client|caching",
];

/// The counter of fences, as a place that a user may use.
const COUNTER_PLACE: Part = Part {
    name: "~leasehold:fence",
    without: NoLocks,
};

/// The keys or the channel that a refused command with these words needs.
fn place(words: &[&str]) -> Option<Part> {
    let mut places = words.iter().filter_map(|word| match *word {
        KEY => Some(("~leasehold:doctor:*", NoLocks)),
        SET | HASH => Some(("~{leasehold:doctor:*}:lh-*", NoLocks)),
        INDEX => Some(("~leasehold:index", Worse)),
        CHANNEL => Some(("&leasehold:wake:*", Worse)),
        _ => None,
    });
    let (name, without) = places.next()?;
    Some(Part { name, without })
}

/// The ACL rule of a user with the permissions that locks and cache entries need, and no others. `version` is that of the Redis whose
/// commands the server has. An older server refuses the whole rule for one command that it does not know. `keys` is the pattern of the
/// locks.
pub(super) fn line(version: Option<(u32, u32)>, database: i64, keys: &str) -> String {
    let is_wanted = |need: &&Need| match need.part.name {
        "client|setinfo" => version.is_some_and(|version| version >= (7, 2)),
        "select" => database != 0,
        _ => true,
    };
    let commands = NEEDS.iter().filter(is_wanted);
    let commands: Vec<&str> = commands.map(|need| need.part.name).collect();
    format!(
        "ACL SETUSER leasehold on >SECRET resetkeys {} resetchannels &leasehold:wake:* -@all +{}",
        all_keys(keys),
        commands.join(" +")
    )
}

/// The rule for a user of a quorum's nodes, which have keys of their own for marks and counters.
pub(super) fn of_node(line: &str) -> String {
    let counter = "~leasehold:fence ";
    line.replacen(counter, &format!("{counter}~leasehold:quorum* "), 1)
}

/// The locks' own keys, those beside them, the fence counter, and those of the index and the doctor.
fn all_keys(pattern: &str) -> String {
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
    // `{` and `}` mean nothing in a pattern of Redis'.
    format!(
        "~{pattern} ~{beside} ~leasehold:fence ~leasehold:index ~leasehold:doctor:* ~{{leasehold:doctor:*}}:lh-*"
    )
}
