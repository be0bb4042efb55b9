//! An entry with a clock, and steps in short words for the stories.

use std::time::Duration;

use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, EntryState, Format, Outcome, Reply, Standing, Step, Token, Value,
    Version,
};
use leasehold_core::{ClientId, Now, Ttl};

pub(crate) const LEASE_MS: u64 = 2_000;
pub(crate) const FRESH_MS: u64 = 60_000;
pub(crate) const STALE_MS: u64 = 600_000;

pub(crate) struct Play {
    pub(crate) state: EntryState,
    pub(crate) now: Now,
}

pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

/// A subscribed client that has seen no version and takes any fresh value.
pub(crate) fn asks(token: u128) -> Begin {
    Begin {
        token: Token(token),
        seen: Version::default(),
        over: false,
        lease: ttl(LEASE_MS),
        listener: Some(ClientId::new(u64::try_from(token).unwrap())),
    }
}

pub(crate) fn brings(token: u128, version: Version) -> Commit {
    Commit {
        token: Token(token),
        version,
        fresh_ms: FRESH_MS,
        stale_ms: STALE_MS,
        load_ms: 20,
        format: Format::Raw,
        body: format!("{token}@{}", version.get()).into_bytes().into(),
    }
}

impl Play {
    pub(crate) fn new() -> Self {
        Self {
            state: EntryState::default(),
            now: Now::at_micros(1_700_000_000_000_000),
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.clock_us += ms * 1_000;
        self.now.wall_us += ms * 1_000;
    }

    pub(crate) fn take(&mut self, step: &Step) -> Outcome {
        self.state.apply(self.now, step)
    }

    pub(crate) fn begin(&mut self, begin: Begin) -> Reply {
        self.take(&Step::Begin(begin)).reply
    }

    /// Asks, and must become the loader.
    #[track_caller]
    pub(crate) fn load(&mut self, token: u128) -> Version {
        match self.begin(asks(token)) {
            Reply::Load { version, .. } => version,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and must wait for another loader. Returns the poll interval, and the stale value if any.
    #[track_caller]
    pub(crate) fn busy(&mut self, begin: Begin) -> (u64, Option<Value>) {
        match self.begin(begin) {
            Reply::Busy { poll_after, stale } => {
                (u64::try_from(poll_after.as_millis()).unwrap(), stale)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Commits a value. Returns the outcome and the clients to wake.
    #[track_caller]
    pub(crate) fn commit(
        &mut self,
        token: u128,
        version: Version,
    ) -> (CommitOutcome, Vec<ClientId>) {
        match self.take(&Step::Commit(brings(token, version))) {
            Outcome {
                reply: Reply::Committed(kept),
                wakes,
            } => (kept, wakes),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn renew(&mut self, token: u128) -> Reply {
        let lease = ttl(LEASE_MS);
        let token = Token(token);
        self.take(&Step::Renew { token, lease }).reply
    }

    /// Ends a load without a value. Returns the clients to wake.
    pub(crate) fn abandon(&mut self, token: u128, back_off_ms: Option<u64>) -> Vec<ClientId> {
        let back_off = back_off_ms.map(|ms| (ttl(ms), "no database".to_owned()));
        let token = Token(token);
        let outcome = self.take(&Step::Abandon { token, back_off });
        assert_eq!(outcome.reply, Reply::Abandoned);
        outcome.wakes
    }

    /// The clients to wake.
    pub(crate) fn invalidate(&mut self, remove: bool) -> Vec<ClientId> {
        let outcome = self.take(&Step::Invalidate { remove });
        assert_eq!(outcome.reply, Reply::Invalidated);
        outcome.wakes
    }

    /// The stored version, and whether it may be used.
    pub(crate) fn stands(&self) -> Option<(Version, Standing)> {
        let value = self.state.look(self.now)?;
        Some((value.header.version, value.standing(self.now)))
    }

    /// The soft expiry of a value that is stored now.
    pub(crate) fn fresh(&self) -> CommitOutcome {
        CommitOutcome::Fresh(self.now.millis() + FRESH_MS)
    }
}

pub(crate) fn ids(tokens: &[u64]) -> Vec<ClientId> {
    tokens.iter().copied().map(ClientId::new).collect()
}

impl Play {
    /// Asks, and must be refused. Returns the kind of refusal.
    #[track_caller]
    pub(crate) fn busy_or_back_off(&mut self, begin: Begin) -> &'static str {
        match self.begin(begin) {
            Reply::Busy { .. } => "busy",
            Reply::BackOff { .. } => "back-off",
            other => panic!("{other:?}"),
        }
    }
}
