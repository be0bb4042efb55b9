//! A store that was chosen, and the requests to it as a whole.

use std::time::Duration;

use leasehold::doctor::{Examination, Examined};
use leasehold::{Client, ClientBuilder, Clock, QuorumInit, StoreErrorKind};

use crate::config::{Origin, REDIS_URL, Value};
use crate::diagnosis::{Finding, Purpose, State, diagnose};
use crate::exit::Exit;
use crate::inherited_store::StoreLocation;
use crate::{address, messages, values};

/// The TTL of a lease, unless configured.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A store to connect to, with its settings.
pub(crate) struct Target {
    pub(super) place: StoreLocation,
    pub(super) origin: Origin,
    pub(super) builder: ClientBuilder,
    /// The variables that make a command use the same key names.
    pub(super) naming: Vec<(&'static str, String)>,
    pub(super) ttl: Option<Value>,
    pub(super) patience: Patience,
}

/// How long the first connection may take, and whether to say that it does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    limit: Duration,
    is_quiet: bool,
}

/// The pause between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(250);

impl Target {
    /// The location of the store, for passing it on to a command.
    pub(crate) fn place(&self) -> &StoreLocation {
        &self.place
    }

    /// The variables that make a command use the same key names: the namespace and the key template, where set.
    /// [`StoreLocation`] says where they are not set.
    pub(crate) fn naming(&self) -> &[(&'static str, String)] {
        &self.naming
    }

    /// Waits for a store that cannot be reached, for at most so long. By default, such a store is an error at once.
    pub(crate) fn patient(self, limit: Option<Duration>, is_quiet: bool) -> Self {
        let limit = limit.unwrap_or_default();
        Self {
            patience: Patience { limit, is_quiet },
            ..self
        }
    }

    /// Connects to the store.
    pub(crate) async fn connect(&self) -> Result<Client, leasehold::Error> {
        let (clock, Patience { limit, is_quiet }) = (Clock::system(), self.patience);
        let begun = clock.now();
        let mut is_told = is_quiet;
        loop {
            match self.try_connect().await {
                Err(leasehold::Error::Store(error))
                    if error.kind.is_transient()
                        && error.kind != StoreErrorKind::Exhausted
                        && clock.now().since(begun) < limit =>
                {
                    if !std::mem::replace(&mut is_told, true) {
                        messages::say(&format!("waiting for the store: {error}"));
                    }
                    tokio::time::sleep(AGAIN).await;
                }
                connected => return connected,
            }
        }
    }

    async fn try_connect(&self) -> Result<Client, leasehold::Error> {
        let builder = self.builder.clone();
        match address::split(&self.place.whole)[..] {
            [url] => builder.connect(url).await,
            ref urls => builder.connect_quorum(urls).await,
        }
    }

    /// Marks the servers of a new quorum.
    pub(crate) async fn init_quorum(&self, again: bool) -> Result<QuorumInit, leasehold::Error> {
        let urls = address::split(&self.place.whole);
        self.builder.clone().init_quorum(urls, again).await
    }

    /// The exit for a failed [`Target::connect`], with the source of the URL unless it was typed.
    pub(crate) fn explained(&self, error: leasehold::Error) -> Exit {
        match &self.origin {
            Origin::Typed(_) => error.into(),
            origin => {
                Exit::from(error).adding(&format!("the URL came from {origin}: {}", self.shown()))
            }
        }
    }

    /// Warns if the store is a cache that may evict locks. Only for a URL from `REDIS_URL`, which often names a
    /// cache.
    pub(crate) async fn notice(&self) {
        if self.origin != Origin::Variable(REDIS_URL) {
            return;
        }
        let glance = Examination::new(DEFAULT_TTL).glance();
        let Ok(examined) = self.examine(&glance).await else {
            return;
        };
        let evicts =
            |finding: &&Finding| finding.id == "mem.policy" && finding.state == State::Fail;
        let findings = diagnose(&examined.facts, Purpose::Correctness);
        if let Some(finding) = findings.iter().find(evicts) {
            messages::say(&format!(
                "the store is that of REDIS_URL, which may be a cache: {}\n    next    leasehold doctor; then set LEASEHOLD_URL, which ends this notice",
                finding.text
            ));
        }
    }

    /// The URL without user and password.
    pub(crate) fn shown(&self) -> String {
        address::shown(&self.place.url)
    }

    /// The TTL: the `typed` one, else the configured one, else 30 s.
    pub(crate) fn ttl(&self, typed: Option<Duration>) -> Result<Duration, Exit> {
        match (typed, &self.ttl) {
            (Some(ttl), _) => Ok(ttl),
            (None, None) => Ok(DEFAULT_TTL),
            (None, Some(setting)) => values::ttl(setting.text()?)
                .map_err(|why| setting.origin.refuse(format!("invalid TTL: {why}"))),
        }
    }

    /// Checks that the store is fit for locks.
    pub(crate) async fn examine(&self, how: &Examination) -> Result<Examined, leasehold::Error> {
        let builder = self.builder.clone();
        match address::split(&self.place.whole)[..] {
            [url] => builder.examine(url, how).await,
            ref urls => builder.examine_quorum(urls, how).await,
        }
    }
}
