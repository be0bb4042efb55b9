//! Clients of cache entries.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, Format, Reply, Standing, Step, Token, Value, Version,
};
use leasehold_core::{ClientId, LockName, Ttl};

use super::peer::{name, opened};
#[cfg(target_os = "linux")]
use super::worlds::OnRedis;
use super::worlds::{InMemory, Local, World};
use crate::store::contract::{Notice, Store};
use crate::store::entries::{self, Looked};

pub(super) const LEASE: Duration = Duration::from_secs(2);
pub(super) const FRESH: Duration = Duration::from_secs(60);
pub(super) const STALE: Duration = Duration::from_secs(600);

/// A store with cache entries.
pub(super) trait Entries: World {
    /// True if a listening waiter is told when a load ends. If not, it polls more often.
    const TELLS: bool = true;
}

impl Entries for InMemory {}

impl Entries for Local {
    const TELLS: bool = false;
}

#[cfg(target_os = "linux")]
impl Entries for OnRedis {}

/// A client of a store that wants one value.
pub(super) struct Reader {
    pub(super) store: Arc<dyn Store>,
    entries: Arc<dyn entries::EntryStore>,
    pub(super) client: ClientId,
    pub(super) key: LockName,
    begin: Begin,
    heard: Receiver<Notice>,
}

impl Reader {
    pub(super) async fn of(world: &impl World, number: u64) -> Self {
        let client = ClientId::new(number);
        let (store, heard) = opened(world, client).await;
        let entries = store.clone().entries().unwrap();
        let begin = Begin {
            token: Token(number.into()),
            seen: Version::default(),
            over: false,
            lease: ttl(LEASE),
            listener: Some(client),
        };
        let key = name();
        Self {
            store,
            entries,
            client,
            key,
            begin,
            heard,
        }
    }

    async fn step(&self, step: Step) -> Reply {
        self.entries.take(&self.key, &step).await.unwrap().reply
    }

    pub(super) async fn asks(&self) -> Reply {
        self.step(Step::Begin(self.begin)).await
    }

    /// Asks and gets the order to load.
    pub(super) async fn loads(&self) -> Version {
        match self.asks().await {
            Reply::Load { version, .. } => version,
            other => panic!("not told to load: {other:?}"),
        }
    }

    /// Asks and gets a fresh value.
    pub(super) async fn finds(&self) -> Value {
        match self.asks().await {
            Reply::Fresh(value) => value,
            other => panic!("not fresh: {other:?}"),
        }
    }

    pub(super) async fn commits(&self, version: Version, body: &str) -> CommitOutcome {
        let commit = Commit {
            token: self.begin.token,
            version,
            fresh_ms: ms(FRESH),
            stale_ms: ms(STALE),
            load_ms: 246,
            format: Format::Json,
            body: body.as_bytes().into(),
        };
        match self.step(Step::Commit(commit)).await {
            Reply::Committed(kept) => kept,
            other => panic!("not committed: {other:?}"),
        }
    }

    pub(super) async fn abandons(&self, failed: Option<(Duration, &str)>) {
        let token = self.begin.token;
        let back_off = failed.map(|(left, error)| (ttl(left), error.to_owned()));
        let reply = self.step(Step::Abandon { token, back_off }).await;
        assert_eq!(reply, Reply::Abandoned);
    }

    pub(super) async fn invalidates(&self, remove: bool) {
        let reply = self.step(Step::Invalidate { remove }).await;
        assert_eq!(reply, Reply::Invalidated);
    }

    /// The result of a look: the value and its standing.
    pub(super) async fn looks(&self) -> Option<(String, Standing)> {
        let found = self.looks_at(std::slice::from_ref(&self.key)).await;
        let value = found.values[0].as_ref()?;
        Some((text(value), value.header.standing(found.now_ms)))
    }

    pub(super) async fn looks_at(&self, keys: &[LockName]) -> Looked {
        self.entries.look(keys, false).await.unwrap()
    }

    /// True if it is told that a load ended. On one connection, earlier messages have arrived before a reply.
    pub(super) async fn is_told(&self) -> bool {
        self.looks().await;
        let ended = |notice| match notice {
            Notice::LoadEnded { key } => {
                assert_eq!(key, self.key.key());
                true
            }
            _ => false,
        };
        let mut told = false;
        while let Ok(notice) = self.heard.recv_timeout(Duration::from_millis(20)) {
            told |= ended(notice);
        }
        told
    }
}

pub(super) fn ttl(ttl: Duration) -> Ttl {
    Ttl::new(ttl).unwrap()
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

pub(super) fn text(value: &Value) -> String {
    String::from_utf8(value.body.to_vec()).unwrap()
}

pub(super) fn fresh(body: &str) -> (String, Standing) {
    (body.to_owned(), Standing::Fresh)
}

pub(super) fn stale(body: &str) -> (String, Standing) {
    (body.to_owned(), Standing::Stale)
}

pub(super) async fn two(world: &impl World) -> (Reader, Reader) {
    (Reader::of(world, 1).await, Reader::of(world, 2).await)
}
