//! A store that was chosen, and one connection to it, from connect to close. Closing it releases all locks and queue
//! places.

use std::time::Duration;

use leasehold::doctor::{Examination, Examined};
use leasehold::{Client, ClientBuilder, Clock, Error, Lost, QuorumInit, StoreErrorKind, StoreUrl};

use crate::config::{self, Origin, REDIS_URL, Value};
use crate::diagnosis::{Finding, Purpose, State, diagnose};
use crate::exit::{Exit, LOST};
use crate::inherited_store::{StoreLocation, UrlFile, Variables};
use crate::terminal::Signals;
use crate::{messages, sys};

/// The TTL of a lease, unless configured or shorter in a quorum.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A store to connect to, with its settings.
#[derive(Clone)]
pub(crate) struct Target {
    /// The location of the store.
    pub(crate) place: StoreLocation,
    pub(crate) origin: Origin,
    pub(crate) builder: ClientBuilder,
    /// The variables that make a command use the same key names: the namespace and the key template, where set.
    /// [`StoreLocation`] says where they are not set.
    pub(crate) naming: Vec<(&'static str, String)>,
    pub(crate) ttl: Option<Value>,
    /// How long the first connection may take, and whether not to say that it does.
    pub(crate) patience: (Duration, bool),
}

/// The pause between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(250);

impl Target {
    /// The variables by which a command finds the same store and the same key names, and a file to keep until the
    /// command has ended.
    pub(crate) fn hand_on(&self) -> (Variables, Option<UrlFile>) {
        let (mut variables, url_file) = self.place.hand_on();
        let naming = self.naming.iter();
        variables.extend(naming.map(|(name, value)| (*name, Some(value.into()))));
        (variables, url_file)
    }

    /// Waits for a store that cannot be reached, for at most so long. By default, such a store is an error at once.
    pub(crate) fn patient(self, limit: Option<Duration>, is_quiet: bool) -> Self {
        Self {
            patience: (limit.unwrap_or_default(), is_quiet),
            ..self
        }
    }

    /// Connects to the store.
    pub(crate) async fn connect(&self) -> Result<Client, Exit> {
        let (clock, (limit, mut is_told)) = (Clock::system(), self.patience);
        let begun = clock.now();
        loop {
            match self.try_connect().await {
                Err(Error::Store(error))
                    if error.kind.is_transient()
                        && error.kind != StoreErrorKind::Exhausted
                        && clock.now().since(begun) < limit =>
                {
                    if !std::mem::replace(&mut is_told, true) {
                        messages::say(&format!("waiting for the store: {error}"));
                    }
                    tokio::time::sleep(AGAIN).await;
                }
                connected => return connected.map_err(|error| self.explained(error)),
            }
        }
    }

    async fn try_connect(&self) -> Result<Client, Error> {
        let builder = self.builder.clone();
        match &self.place.whole()[..] {
            [url] => builder.connect(url).await,
            urls => builder.connect_quorum(urls).await,
        }
    }

    /// Marks the servers of a new quorum.
    pub(crate) async fn init_quorum(&self, again: bool) -> Result<QuorumInit, Error> {
        let builder = self.builder.clone();
        builder.init_quorum(self.place.whole(), again).await
    }

    /// The exit for a failed connection, with the source of the URL unless it was typed.
    pub(crate) fn explained(&self, error: Error) -> Exit {
        self.origin.of_url(error.into(), &self.shown())
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
        messages::urls_shown(&self.place.urls)
    }

    /// The TTL: the `typed` one, else the configured one, else 30 s, or what a quorum allows if that is less.
    pub(crate) fn ttl(&self, typed: Option<Duration>) -> Result<Duration, Exit> {
        self.ttl_or(DEFAULT_TTL, typed)
    }

    /// As [`Target::ttl`], with another default.
    pub(crate) fn ttl_or(
        &self,
        default: Duration,
        typed: Option<Duration>,
    ) -> Result<Duration, Exit> {
        match (typed, &self.ttl) {
            (Some(ttl), _) => Ok(ttl),
            (None, None) => {
                let longest = self.place.urls.iter().map(StoreUrl::longest_ttl).min();
                Ok(longest.unwrap_or(default).min(default))
            }
            (None, Some(setting)) => config::ttl(setting.text()?)
                .map_err(|why| setting.origin.refuse(format!("invalid TTL: {why}"))),
        }
    }

    /// Checks that the store is fit for locks.
    pub(crate) async fn examine(&self, how: &Examination) -> Result<Examined, Error> {
        let builder = self.builder.clone();
        match &self.place.whole()[..] {
            [url] => builder.examine(url, how).await,
            urls => builder.examine_quorum(urls, how).await,
        }
    }
}

/// The time limit for closing the client. The TTL ends what is left after that.
const CLOSE: Duration = Duration::from_secs(1);

/// The time limit for closing after a lost lease, shorter because a restart of the work should not wait.
const CLOSE_LOST: Duration = Duration::from_millis(200);

/// The time limit for the confirmation of a release. Without it the TTL ends the lease.
pub(crate) const RELEASE: Duration = Duration::from_secs(3);

/// The outcome of a release.
pub(crate) enum Released {
    Yes,
    WasLost(Lost),
    Unconfirmed(String),
}

impl Released {
    /// Awaits the confirmation of a release, for at most `limit`.
    pub(crate) async fn within(
        limit: Duration,
        release: impl Future<Output = Result<(), Error>>,
    ) -> Self {
        match tokio::time::timeout(limit, release).await {
            Ok(Ok(())) => Self::Yes,
            Ok(Err(Error::Lost(lost))) => Self::WasLost(lost),
            Ok(Err(error)) => Self::Unconfirmed(error.to_string()),
            Err(_) => Self::Unconfirmed("the store does not answer".into()),
        }
    }
}

/// The maximal number of files this process opens: two runtimes, the signals, a connection with its name look-up
/// or database files, the terminal, the guardian's socket, a command being started.
const FILES: usize = 20;

/// Runs `work` with a client of `target`, and closes the client afterwards. Until the connection is made, an
/// ending signal ends the process; then `work` handles signals.
pub(crate) fn with_client(
    target: &Target,
    work: impl AsyncFnOnce(&Client, &mut Signals) -> Result<Exit, Exit>,
) -> Result<Exit, Exit> {
    in_runtime(async {
        let mut signals = Signals::catch()?;
        let client = tokio::select! {
            biased;
            signal = signals.next_ending() => return Err(Exit::by(signal)),
            client = target.connect() => client?,
        };
        closing(target, &client, work(&client, &mut signals)).await
    })
}

/// Runs `work` with a client of `target`, and closes the client afterwards. An ending signal ends the process at any
/// time.
pub(crate) fn with_client_until_signal(
    target: &Target,
    work: impl AsyncFnOnce(&Client) -> Result<Exit, Exit>,
) -> Result<Exit, Exit> {
    with_client(target, async |client: &Client, signals: &mut Signals| {
        tokio::select! {
            biased;
            signal = signals.next_ending() => Err(Exit::by(signal)),
            done = work(client) => done,
        }
    })
}

/// Awaits `work`, and closes the client afterwards.
pub(crate) async fn closing(
    target: &Target,
    client: &Client,
    work: impl Future<Output = Result<Exit, Exit>>,
) -> Result<Exit, Exit> {
    let notice = tokio::time::timeout(CLOSE, Box::pin(target.notice()));
    let (exit, _noticed) = tokio::join!(work, notice);
    let limit = match &exit {
        Ok(exit) if exit.code() == LOST => CLOSE_LOST,
        _ => CLOSE,
    };
    // On a timeout the store does not answer, which is already reported or no longer matters.
    client.close_within(limit).await;
    exit
}

/// Runs `work` on this thread. Commands are started from it, and it lives as long as the process (see
/// `sys::prepare`).
pub(crate) fn in_runtime<T>(work: impl Future<Output = Result<T, Exit>>) -> Result<T, Exit> {
    // tokio panics without a free file for its signals, and other failures would blame the store or the command.
    sys::have_room_for(FILES)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(work);
    // A name look-up cannot be cancelled and may take half a minute; neither can a thread that reads.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use clap::Parser;
    use leasehold::Clock;

    use super::*;
    use crate::store::StoreArgs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        store: StoreArgs,
    }

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "blocks as the look-up of a name does"
    )]
    fn the_end_does_not_wait_for_a_name_to_be_looked_up() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("local:{}/locks.db", directory.path().display());
        let line = Line::try_parse_from(["x", "--url", &url]).unwrap();
        let begun = Clock::system().now();
        let exit = with_client(&line.store.target().unwrap(), async |_, _| {
            drop(tokio::task::spawn_blocking(|| {
                sleep(Duration::from_secs(60));
            }));
            tokio::task::yield_now().await;
            Ok(Exit::quiet(7))
        });
        assert_eq!(exit, Ok(Exit::quiet(7)));
        assert!(Clock::system().now().since(begun) < Duration::from_secs(30));
    }
}
