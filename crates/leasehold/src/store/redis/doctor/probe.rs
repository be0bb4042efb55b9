//! Uses a scratch lock as this user, through the real scripts. It removes its keys and touches no others.

use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, LockName, Mode, Owner, Step, Ttl, Wait};
use redis::{Cmd, RedisError, RedisResult, Value, cmd};
use tokio::sync::mpsc;

use super::super::connection::handshake::Handshake;
use super::super::fault::{classify, is_denied, silent};
use super::super::protocol::{COUNTER, Contended, QUEUE, WAITERS, channel};
use super::super::scripts;
use super::access::{CHANNEL, COUNTER_PLACE, DIRECT, HASH, KEY, NEEDS, SET, place};
use super::talk::Talk;
use crate::doctor::{Part, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;

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
