//! Uses a scratch lock as this user, through the real scripts. It removes its keys and touches no others.

use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, LockName, Mode, Owner, Step, Ttl, Wait};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};
use tokio::sync::mpsc;

use super::super::codec::form::Batch;
use super::super::codec::form::Contended;
use super::super::codec::words::INDEX;
use super::super::fault::classify;
use super::super::scripts::{self, Scripts};
use super::super::wake;
use super::access::{Word, needs};
use super::talk::Talk;
use crate::doctor::{Part, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;

/// If this process ends meanwhile, the lock goes by then; the end of its queue takes a minute, as ever.
const TTL: Duration = Duration::from_secs(5);

/// How long a message may take.
const HEAR: Duration = Duration::from_secs(1);

/// A private lock and its client.
struct Scratch {
    name: LockName,
    channel: String,
    client: ClientId,
}

/// Tries all commands one by one, then a lock.
pub(super) async fn probe(
    talk: &Talk,
    messages: &mut mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<Probe, StoreError> {
    let scratch = Scratch::new()?;
    let mut probe = Probe::default();
    try_commands(talk, &scratch, &mut probe).await?;
    let mut connection = talk.connection.clone();
    let subscribed = talk
        .answered(connection.subscribe(&scratch.channel))
        .await?;
    let listens = subscribed.is_ok();
    let subscribe = needs().find(|need| need.part.name == "subscribe");
    if let Some(need) = subscribe {
        probe.note(need.part, subscribed.err().as_ref());
    }
    probe.denied.sort_by_key(place);
    use_lock(talk, &scratch, listens, messages, &mut probe).await?;
    Ok(probe)
}

/// The place of a command in the list of all.
fn place(part: &Part) -> Option<usize> {
    needs().position(|need| need.part == *part)
}

impl Scratch {
    fn new() -> Result<Self, StoreError> {
        let bits = || {
            getrandom::u64().map_err(|error| {
                StoreError::new("operating system", StoreErrorKind::Unavailable, error)
            })
        };
        let client = ClientId::new(bits()?);
        Ok(Self {
            name: LockName::from_key(&format!("leasehold:doctor:{:016x}", bits()?)),
            channel: wake::channel(client),
            client,
        })
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
    /// Remembers that a command was refused as such; any other error says that it may be used.
    fn note(&mut self, part: Part, error: Option<&RedisError>) {
        let Some(error) = error else { return };
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
            self.denied.push(part);
        } else if error.to_string().to_lowercase().contains("unknown command") {
            self.missing.push(part);
        }
    }
}

async fn try_commands(talk: &Talk, scratch: &Scratch, probe: &mut Probe) -> Result<(), StoreError> {
    for need in needs().filter(|need| !need.words.is_empty()) {
        let said = talk.ask::<Value>(&scratch.command(need.words)).await?;
        probe.note(need.part, said.as_ref().err());
    }
    Ok(())
}

/// One holder, one waiter: takes it, waits for it, renews it, looks at it, hands it over, lets it go.
async fn use_lock(
    talk: &Talk,
    scratch: &Scratch,
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
            // redis-rs spells some codes in its own way; the rules search the server's own words.
            let said = match (error.code(), error.detail()) {
                (Some(code), Some(detail)) => format!("{code} {detail}"),
                (Some(code), None) => code.to_owned(),
                _ => fault.detail,
            };
            self.failed.push((what, fault.kind, said));
        }
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
