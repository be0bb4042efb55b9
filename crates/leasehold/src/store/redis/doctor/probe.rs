//! Uses a scratch lock as this user, through the real scripts. It removes its keys and touches no others.

use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, LockName, Mode, Owner, Step, Ttl, Wait};
use redis::{Cmd, RedisError, RedisResult, Value, cmd};
use tokio::sync::mpsc;

use super::super::address::Address;
use super::super::codec::form::Batch;
use super::super::codec::form::Contended;
use super::super::codec::words::{COUNTER, INDEX};
use super::super::connection::handshake::Handshake;
use super::super::connection::refusal::silent;
use super::super::fault::{classify, is_denied};
use super::super::scripts::{self, Scripts};
use super::super::wake;
use super::access::{COUNTER_PLACE, DIRECT, Word, needs, place};
use super::talk::Talk;
use crate::doctor::{Part, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;

/// If this process ends meanwhile, the lock goes by then; the end of its queue takes a minute, as ever.
const TTL: Duration = Duration::from_secs(5);

/// How long a message may take.
const HEAR: Duration = Duration::from_secs(1);

/// A private lock and its client.
struct Scratch<'a> {
    /// The pattern of the locks.
    pattern: &'a str,
    name: LockName,
    channel: String,
    client: ClientId,
}

/// The text before the star, if nothing follows it and it means nothing else in a pattern.
fn prefix(pattern: &str) -> Option<&str> {
    let prefix = pattern.strip_suffix('*')?;
    (!prefix.is_empty() && !prefix.contains(['*', '?', '[', '\\'])).then_some(prefix)
}

/// Tries all commands one by one, then a connection as clients make it, then a lock. `keys` is the pattern of the locks.
pub(super) async fn probe(
    talk: &Talk,
    address: &Address,
    keys: &str,
    messages: &mut mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<Probe, StoreError> {
    let scratch = Scratch::new(keys)?;
    let mut probe = Probe::default();
    try_commands(talk, &scratch, &mut probe).await?;
    try_keys(talk, keys, &mut probe).await?;
    let mut connection = talk.connection.clone();
    let subscribed = talk
        .answered(connection.subscribe(&scratch.channel))
        .await?;
    if let Some(need) = needs().find(|need| need.part.name == "subscribe") {
        let said = subscribed.err();
        probe.note(need.part, &[Word::Channel], &scratch, said.as_ref());
    }
    probe.denied.sort_by_key(rank);
    let scripts = Scripts::default();
    let handshake = Handshake {
        address,
        scripts: &scripts,
        channel: &scratch.channel,
        tracks: cfg!(feature = "cache"),
    };
    let agreed = talk
        .clock
        .within(talk.limit, handshake.exchange(&mut connection));
    let listens = match agreed.await {
        Some(Ok(agreed)) => agreed.listening,
        Some(Err(error)) => {
            probe.failed.push(("connect", error.kind, error.detail));
            return Ok(probe);
        }
        None => return Err(silent(address, Some(talk.limit))),
    };
    use_lock(talk, &scratch, listens, messages, &mut probe).await?;
    Ok(probe)
}

/// The rank of a command in the list of all; keys and channels come before.
fn rank(part: &Part) -> Option<usize> {
    needs().position(|need| need.part == *part)
}

impl<'a> Scratch<'a> {
    /// If the pattern is a prefix, the lock has a name of that kind: this user may be allowed no others.
    fn new(pattern: &'a str) -> Result<Self, StoreError> {
        let bits = || {
            getrandom::u64().map_err(|error| {
                StoreError::new("operating system", StoreErrorKind::Unavailable, error)
            })
        };
        let client = ClientId::new(bits()?);
        let prefix = prefix(pattern).unwrap_or_default();
        Ok(Self {
            pattern,
            name: LockName::from_key(&format!("{prefix}leasehold:doctor:{:016x}", bits()?)),
            channel: wake::channel(client),
            client,
        })
    }

    /// True for keys of the lock itself, if they are of the pattern.
    fn owns(&self, part: &Part) -> bool {
        let is_own = part.name.starts_with('~') && part.name.contains("leasehold:doctor:");
        is_own && prefix(self.pattern).is_some()
    }

    fn owner(&self, number: u128) -> Result<Owner, StoreError> {
        let random = u128::from(self.client.get()) << 64 | number;
        Owner::new(random, self.client, "doctor", std::process::id(), "doctor")
            .map_err(|error| StoreError::new("client", StoreErrorKind::Protocol, error))
    }

    /// All keys that the probe may make.
    fn keys(&self) -> [String; 3] {
        [
            self.name.key().to_owned(),
            self.name.beside(":lh-queue"),
            self.name.beside(":lh-waiters"),
        ]
    }

    fn command(&self, words: &[Word]) -> Cmd {
        let mut command = Cmd::new();
        let [string, set, hash] = self.keys();
        for word in words {
            match word {
                Word::Text(text) => command.arg(text),
                Word::String => command.arg(&string),
                Word::Set => command.arg(&set),
                Word::Hash => command.arg(&hash),
                Word::Index => command.arg(INDEX),
                Word::Channel => command.arg(&self.channel),
            };
        }
        command
    }
}

impl Probe {
    /// Remembers that a command was refused, or its key or channel. An error about its arguments says that it may be used.
    fn note(
        &mut self,
        part: Part,
        words: &[Word],
        scratch: &Scratch<'_>,
        error: Option<&RedisError>,
    ) {
        let Some(error) = error else { return };
        let said = words_of(error);
        let lower = said.to_lowercase();
        let kind = classify("", error).0.kind;
        if is_about_a_place(error) {
            self.bar(
                place(words).filter(|part| !scratch.owns(part)),
                scratch.pattern,
            );
        } else if kind == StoreErrorKind::Denied {
            self.denied.push(part);
        } else if lower.contains("unknown command") {
            self.missing.push(part);
        } else if kind == StoreErrorKind::Protocol
            && DIRECT.contains(&part.name)
            && (part.name != "evalsha" || lower.contains("evalsha"))
            // The server's answer to one that is allowed, but comes without tracking.
            && !lower.contains("tracking mode")
        {
            self.refused.push((part, said));
        }
    }
}

impl Probe {
    /// This user may not use these keys or this channel; `None` for the keys of the locks.
    fn bar(&mut self, part: Option<Part>, pattern: &str) {
        match part {
            None => self.barred = Some(pattern.to_owned()),
            Some(part) if self.denied.contains(&part) => {}
            Some(part) => self.denied.push(part),
        }
    }
}

/// True for a refusal that is not about the command, but about a key or a channel.
fn is_about_a_place(refusal: &RedisError) -> bool {
    let said = words_of(refusal).to_lowercase();
    is_denied(refusal)
        && !said.contains("to run ")
        && (said.contains(" key") || said.contains(" channel"))
}

/// Whether this user may read and write the counter, and the lock if the pattern is the name of one.
async fn try_keys(talk: &Talk, pattern: &str, probe: &mut Probe) -> Result<(), StoreError> {
    let name = LockName::from_key(pattern);
    let own = (!pattern.contains(['*', '?', '[', '\\']))
        .then(|| [name.key().to_owned(), name.beside(":lh-queue")]);
    let own = own.iter().flatten().map(|key| (key.as_str(), None));
    for (key, part) in own.chain([(COUNTER, Some(COUNTER_PLACE))]) {
        // Neither changes anything: a missing key stays missing, and a key of another type is refused.
        let looks = cmd("ZRANGE").arg(key).arg(0).arg(0).to_owned();
        let writes = cmd("ZADD")
            .arg(key)
            .arg("XX")
            .arg(1)
            .arg("leasehold:doctor")
            .to_owned();
        for request in [looks, writes] {
            let said = talk.ask::<Value>(&request).await?.err();
            if said.as_ref().is_some_and(is_about_a_place) {
                probe.bar(part, pattern);
            }
        }
    }
    Ok(())
}

async fn try_commands(
    talk: &Talk,
    scratch: &Scratch<'_>,
    probe: &mut Probe,
) -> Result<(), StoreError> {
    for need in needs().filter(|need| !need.words.is_empty()) {
        let said = talk.ask::<Value>(&scratch.command(need.words)).await?;
        probe.note(need.part, need.words, scratch, said.as_ref().err());
    }
    Ok(())
}

/// One holder, one waiter: takes it, waits for it, renews it, looks at it, hands it over, lets it go.
async fn use_lock(
    talk: &Talk,
    scratch: &Scratch<'_>,
    listens: bool,
    messages: &mut mpsc::UnboundedReceiver<Vec<u8>>,
    probe: &mut Probe,
) -> Result<(), StoreError> {
    let Ok(ttl) = Ttl::new(TTL) else {
        return Ok(());
    };
    let (holder, waiter) = (scratch.owner(1)?, scratch.owner(2)?);
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
    let scripts = Scripts::default();
    for (what, step) in [
        ("acquire", acquire(&holder, None)),
        ("wait", acquire(&waiter, Some(wait))),
        ("extend", extend),
        ("inspect", Step::Inspect),
        ("release", release(&holder)),
        ("release", release(&waiter)),
    ] {
        let batch = Batch {
            id: 0,
            kind: Contended::default().kind(&scratch.name, &step),
            steps: vec![(scratch.name.clone(), step)],
        };
        let mut connection = talk.connection.clone();
        let request = scripts.run_batch(&mut connection, &scratch.channel, &batch);
        let said = talk.answered(request).await?;
        let said = said.and_then(|mut replies| replies.pop().transpose());
        probe.count(what, said);
    }
    let index = scratch.keys()[1].clone();
    let mut connection = talk.connection.clone();
    let write = |command: &mut Cmd| {
        command.arg(1).arg(&index).arg(scratch.name.key());
    };
    let said = talk
        .answered(scripts.run(scripts::INDEX, &mut connection, write))
        .await?;
    probe.count("index", said);
    talk.told::<Value>(cmd("DEL").arg(&scratch.keys())).await?;
    if listens && probe.failed.is_empty() {
        probe.heard = hear(talk, messages).await;
    }
    Ok(())
}

impl Probe {
    fn count<T>(&mut self, what: &'static str, said: RedisResult<T>) {
        if let Err(error) = said {
            let (fault, _) = classify("", &error);
            self.failed.push((what, fault.kind, words_of(&error)));
        }
    }
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
async fn hear(talk: &Talk, messages: &mut mpsc::UnboundedReceiver<Vec<u8>>) -> bool {
    let heard = async {
        while let Some(message) = messages.recv().await {
            if let Some(Notice::Wanted { .. } | Notice::Granted { .. }) = wake::parse(&message) {
                return true;
            }
        }
        false
    };
    talk.clock.within(HEAR, heard).await == Some(true)
}
