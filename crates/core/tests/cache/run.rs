//! A random sequence in progress, and the checks after each step. The checks keep their own record of requests and replies;
//! they never call the code that they check.

use std::collections::BTreeMap;

use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, EntryState, Format, MEMORY, Outcome, POLL, Reply, Standing, Step,
    Token, Version,
};
use leasehold_core::{ClientId, Now};
use proptest::prelude::*;

use crate::events::{CLIENTS, End, Event, Lost};
use crate::ttl;

type Checked = Result<(), TestCaseError>;

/// How often each event happened.
pub(crate) type Seen = BTreeMap<&'static str, usize>;

/// A load that was granted.
#[derive(Debug, Clone, Copy)]
struct Load {
    token: Token,
    version: Version,
    /// The last millisecond of its lease, while it has one.
    lease: Option<u64>,
    /// The number of invalidations at its grant.
    born: u32,
    /// Whether the store has lost its control since.
    forgotten: bool,
    /// Whether it was neither committed nor abandoned so far.
    open: bool,
}

pub(crate) struct Run<'a> {
    pub(crate) state: EntryState,
    pub(crate) now: Now,
    tokens: [u128; CLIENTS],
    loads: Vec<Load>,
    invalidations: u32,
    /// The highest number given out (K2).
    highest: u64,
    /// The subscribed clients that were told to wait, and not yet woken.
    waiting: Vec<ClientId>,
    seen: &'a mut Seen,
}

impl<'a> Run<'a> {
    pub(crate) fn new(seen: &'a mut Seen) -> Self {
        Self {
            state: EntryState::default(),
            now: Now {
                clock_us: 5_000_500,
                wall_us: 1_700_000_000_000_000,
            },
            tokens: std::array::from_fn(|at| at as u128),
            loads: Vec::new(),
            invalidations: 0,
            highest: 0,
            waiting: Vec::new(),
            seen,
        }
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn pass(&mut self, micros: u64) {
        self.now.clock_us += micros;
        self.now.wall_us += micros;
    }

    pub(crate) fn happens(&mut self, event: Event) -> Checked {
        match event {
            Event::Pass(micros) => self.pass(micros),
            Event::PassTo(end, beyond) => {
                let until = self.end(end).map_or(0, |until| until + beyond);
                self.pass(until.saturating_sub(self.now.millis()) * 1_000);
            }
            Event::WallBack(micros) => self.now.wall_us -= micros,
            Event::Lose(what) => self.lose(what),
            Event::LoseBehind(what) => self.lose_behind(what),
            _ => {
                if let Some(step) = self.step(event) {
                    self.takes(&step)?;
                }
            }
        }
        Ok(())
    }

    fn end(&self, end: End) -> Option<u64> {
        let control = self.state.control.as_ref();
        let value = self.state.value.as_ref();
        match end {
            End::Lease => control?.loader.map(|loader| loader.until_ms),
            End::BackOff => control?.back_off.as_ref().map(|failed| failed.until_ms),
            End::Memory => control.map(|control| control.forget_at_ms),
            End::Soft => value.map(|(value, _)| value.header.soft_ms),
            End::Hard => value.map(|(_, until)| *until),
        }
    }

    fn lose(&mut self, what: Lost) {
        if what != Lost::Control {
            self.state.value = None;
        }
        if what != Lost::Value {
            if self.is_loading() {
                self.saw("control lost during a load");
            }
            self.state.control = None;
            self.forget();
        }
    }

    /// The exception of K2.
    fn lose_behind(&mut self, what: Lost) {
        if self.is_loading() {
            self.saw("clock step and loss during a load");
        }
        self.lose(what);
        if what != Lost::Value {
            self.highest = 0;
        }
        self.now.wall_us -= 24 * 3_600_000_000;
        // No client repeats a request after so long: a token serves one load.
        for token in &mut self.tokens {
            *token += 16;
        }
    }

    /// Whether the control exists and never gave out the number of this commit.
    fn is_unknown(&self, commit: &Commit, before: &EntryState) -> bool {
        before.control.is_some() && commit.version.get() > self.highest
    }

    /// K2 and K3 hold across a loss if the wall clock has passed the last number.
    fn forget(&mut self) {
        for load in &mut self.loads {
            (load.lease, load.forgotten) = (None, true);
        }
        self.waiting.clear();
        self.now.wall_us = self.now.wall_us.max(self.highest + 1);
    }

    fn is_loading(&self) -> bool {
        self.loads.iter().any(|load| load.lease.is_some())
    }

    fn load(&self, back: usize) -> Option<Load> {
        self.loads.iter().rev().nth(back).copied()
    }

    fn step(&mut self, event: Event) -> Option<Step> {
        Some(match event {
            Event::Begin {
                client,
                again,
                over,
                listens,
                lease,
            } => {
                if !again {
                    self.tokens[client] += 16;
                }
                let stored = self.state.value.as_ref();
                let seen = stored.map_or(Version::default(), |(value, _)| value.header.version);
                let listener = listens.then(|| ClientId::new(u64::try_from(client).unwrap()));
                Step::Begin(Begin {
                    token: Token(self.tokens[client]),
                    seen: if over { seen } else { Version::default() },
                    over,
                    lease: ttl(lease),
                    listener,
                })
            }
            Event::Renew(back, lease) => Step::Renew {
                token: self.load(back)?.token,
                lease: ttl(lease),
            },
            Event::Commit { load, fresh, stale } => {
                let Load { token, version, .. } = self.load(load)?;
                Step::Commit(Commit {
                    token,
                    version,
                    fresh_ms: fresh,
                    stale_ms: stale,
                    load_ms: 1,
                    format: Format::Raw,
                    body: version.get().to_string().into_bytes().into(),
                })
            }
            Event::Abandon(back, failed) => Step::Abandon {
                token: self.load(back)?.token,
                back_off: failed.map(|ms| (ttl(ms), "failed".to_owned())),
            },
            Event::Invalidate(remove) => Step::Invalidate { remove },
            _ => return None,
        })
    }

    fn takes(&mut self, step: &Step) -> Checked {
        let mut before = self.state.clone();
        before.expire(self.now);
        if before.control.is_none() {
            self.forget();
        }
        let ms = self.now.millis();
        for load in &mut self.loads {
            load.lease = load.lease.filter(|until| *until >= ms);
        }
        let outcome = self.state.apply(self.now, step);
        self.may_be_repeated(step, &outcome)?;
        self.told(step, &outcome, &before)?;
        if !outcome.wakes.is_empty() {
            self.saw("waiters woken");
        }
        let what = self.event(step, &outcome.reply, &before);
        self.saw(what);
        match step {
            Step::Begin(begin) => self.began(begin, &outcome.reply)?,
            Step::Renew { token, lease } => {
                let mut live = self
                    .loads
                    .iter_mut()
                    .filter(|load| load.token == *token && load.lease.is_some());
                if let Some(load) = live.next() {
                    prop_assert_eq!(&outcome.reply, &Reply::Renewed);
                    load.lease = Some(ms + lease.millis());
                } else {
                    prop_assert_eq!(&outcome.reply, &Reply::NotLoading, "K1");
                }
            }
            Step::Commit(commit) => self.committed(commit, &outcome.reply, &before)?,
            Step::Abandon { token, .. } => self.ended(*token),
            Step::Invalidate { .. } => self.invalidated()?,
        }
        self.value_is_true(step, &before)?;
        self.has_an_end(step)
    }

    fn ended(&mut self, token: Token) {
        for load in self.loads.iter_mut().filter(|load| load.token == token) {
            (load.lease, load.open) = (None, false);
        }
    }

    /// The name of what happened, for the floors of the test. The rarest is named first.
    fn event(&self, step: &Step, reply: &Reply, before: &EntryState) -> &'static str {
        match (step, reply) {
            (_, Reply::Fresh(_)) => "fresh",
            (_, Reply::Busy { .. }) => "busy",
            (_, Reply::BackOff { .. }) => "back-off",
            (_, Reply::Load { .. }) if self.is_loading() => "load again",
            (_, Reply::Load { .. }) if self.loads.last().is_some_and(|load| load.open) => {
                "second loader"
            }
            (_, Reply::Load { failures: 1.., .. }) => "load after a failure",
            (_, Reply::Load { .. }) => "load",
            (_, Reply::Renewed) => "renewed",
            (_, Reply::NotLoading) => "renewal refused",
            (Step::Commit(commit), Reply::Committed(kept)) => {
                self.end_of_commit(commit, *kept, before)
            }
            (_, Reply::Abandoned) if self.state.control != before.control => "abandoned",
            (_, Reply::Abandoned) => "abandoned too late",
            (_, Reply::Invalidated) if self.is_loading() => "invalidated during a load",
            _ => "invalidated",
        }
    }

    fn end_of_commit(
        &self,
        commit: &Commit,
        kept: CommitOutcome,
        before: &EntryState,
    ) -> &'static str {
        let version = commit.version;
        let mut loads = self.loads.iter().rev();
        let load = loads.find(|load| load.version == version).unwrap();
        let stored = before.value.as_ref().map(|(value, _)| value.header.version);
        let last = before.control.as_ref().map(|control| control.last);
        match kept {
            _ if stored == Some(version) => "commit repeated",
            _ if stored.is_none_or(|stored| stored < version)
                && self.is_unknown(commit, before) =>
            {
                "commit never given out"
            }
            CommitOutcome::Overtaken => "commit overtaken",
            CommitOutcome::Stale if load.forgotten => "commit stale after a loss",
            CommitOutcome::Stale => "commit stale",
            // Numbers that are counted within a microsecond lead by less.
            _ if version.get() > self.now.wall_us + 1_000 => "commit fresh after a clock step",
            _ if last > Some(version) => "commit fresh after a later load began",
            _ if load.lease.is_none() => "commit fresh after its lease",
            CommitOutcome::Fresh(_) => "commit fresh",
        }
    }

    /// K2.
    fn rises(&mut self, number: Version) -> Checked {
        prop_assert!(number.get() > self.highest, "K2");
        self.highest = number.get();
        Ok(())
    }

    /// K1 and K2, and that no client waits without a loader.
    fn began(&mut self, begin: &Begin, reply: &Reply) -> Checked {
        let live = self.loads.iter().find(|load| load.lease.is_some()).copied();
        let ms = self.now.millis();
        match reply {
            Reply::Load { version, .. } => {
                if let Some(live) = live {
                    prop_assert_eq!(live.token, begin.token, "K1");
                    prop_assert_eq!(live.version, *version, "K6");
                    self.ended(begin.token);
                } else {
                    self.rises(*version)?;
                }
                self.loads.push(Load {
                    token: begin.token,
                    version: *version,
                    lease: Some(ms + begin.lease.millis()),
                    born: live.map_or(self.invalidations, |live| live.born),
                    forgotten: false,
                    open: true,
                });
            }
            Reply::Busy { poll_after, .. } => {
                let until = live.and_then(|live| live.lease);
                prop_assert!(until.is_some(), "K5: it waits for nobody");
                let most = until.unwrap() - ms + 1;
                let after = u64::try_from(poll_after.as_millis()).unwrap();
                prop_assert!(*poll_after <= POLL && after <= most && after > 0, "K5");
            }
            Reply::BackOff { left, .. } => {
                prop_assert!(live.is_none());
                let mut later = self.now;
                later.clock_us += u64::try_from(left.as_micros()).unwrap();
                let mut state = self.state.clone();
                let reply = state.apply(later, &Step::Begin(*begin)).reply;
                let told = matches!(reply, Reply::Load { .. });
                prop_assert!(told, "K5: a back-off is as long as it says: {reply:?}");
            }
            Reply::Fresh(value) => {
                prop_assert_eq!(value.standing(self.now), Standing::Fresh, "K3");
                prop_assert!(!begin.over || value.header.version > begin.seen);
            }
            other => prop_assert!(false, "{other:?}"),
        }
        Ok(())
    }

    /// K3 and K4 for the reply, and that a slow loader fills the cache.
    fn committed(&mut self, commit: &Commit, reply: &Reply, before: &EntryState) -> Checked {
        let load = self.loads.iter().rev();
        let load = load.clone().find(|load| load.version == commit.version);
        let load = *load.unwrap();
        let true_still = load.born == self.invalidations && !load.forgotten;
        let stored = before.value.as_ref().map(|(value, _)| value.header);
        let expected = match stored {
            Some(newer) if newer.version > commit.version => CommitOutcome::Overtaken,
            Some(same) if same.version == commit.version && !same.invalidated => {
                CommitOutcome::Fresh(same.soft_ms)
            }
            Some(same) if same.version == commit.version => CommitOutcome::Stale,
            Some(_) if self.is_unknown(commit, before) => CommitOutcome::Overtaken,
            _ if true_still => CommitOutcome::Fresh(self.now.millis() + commit.fresh_ms),
            _ => CommitOutcome::Stale,
        };
        prop_assert_eq!(reply, &Reply::Committed(expected), "K3, K4");
        self.ended(commit.token);
        Ok(())
    }

    fn invalidated(&mut self) -> Checked {
        self.invalidations += 1;
        for load in &mut self.loads {
            load.lease = None;
        }
        match self.state.control.as_ref().map(|control| control.epoch) {
            Some(epoch) => self.rises(epoch),
            None => Ok(()),
        }
    }

    /// K3 and K4 for the stored value.
    fn value_is_true(&self, step: &Step, before: &EntryState) -> Checked {
        let Some((value, _)) = &self.state.value else {
            let gone = matches!(step, Step::Invalidate { remove: true });
            prop_assert!(before.value.is_none() || gone, "a value ends by time");
            return Ok(());
        };
        let version = value.header.version;
        // The version of its load: a new control may have raised it.
        let loaded = std::str::from_utf8(&value.body).unwrap().parse().unwrap();
        prop_assert!(version.get() >= loaded);
        if value.standing(self.now) == Standing::Fresh {
            let mut loads = self.loads.iter();
            let load = loads.find(|load| load.version.get() == loaded);
            prop_assert_eq!(load.unwrap().born, self.invalidations, "K3");
        }
        if let Some((old, _)) = &before.value {
            prop_assert!(version >= old.header.version, "K4");
        }
        Ok(())
    }

    /// K5: a waiting client is woken when the load ends.
    fn told(&mut self, step: &Step, outcome: &Outcome, before: &EntryState) -> Checked {
        for woken in &outcome.wakes {
            prop_assert!(
                self.waiting.contains(woken),
                "K5: nobody is woken that does not wait"
            );
        }
        let live = |token: &Token| {
            let mut of_token = self.loads.iter().filter(|load| load.token == *token);
            of_token.any(|load| load.lease.is_some())
        };
        let stored = before.value.as_ref().map(|(value, _)| value.header.version);
        let ends = match step {
            Step::Begin(_) | Step::Renew { .. } => false,
            Step::Commit(commit) => {
                let is_news = stored.is_none_or(|stored| stored < commit.version);
                live(&commit.token) || is_news && !self.is_unknown(commit, before)
            }
            Step::Abandon { token, .. } => live(token),
            Step::Invalidate { .. } => true,
        };
        if ends {
            prop_assert_eq!(outcome.wakes.len(), self.waiting.len(), "K5");
            self.waiting.clear();
        } else {
            prop_assert!(outcome.wakes.is_empty(), "K5: the load goes on");
        }
        let waits = matches!(outcome.reply, Reply::Busy { .. } | Reply::BackOff { .. });
        if let Step::Begin(begin) = step
            && waits
            && let Some(listener) = begin.listener
            && !self.waiting.contains(&listener)
        {
            self.waiting.push(listener);
        }
        Ok(())
    }

    /// K6.
    fn may_be_repeated(&self, step: &Step, first: &Outcome) -> Checked {
        let mut again = self.state.clone();
        let second = again.apply(self.now, step);
        prop_assert_eq!(&second.reply, &first.reply, "K6");
        prop_assert!(second.wakes.is_empty(), "K6");
        // Each invalidation has a number.
        if !matches!(step, Step::Invalidate { .. }) {
            prop_assert_eq!(&again, &self.state, "K6");
        }
        Ok(())
    }

    /// K7.
    fn has_an_end(&self, step: &Step) -> Checked {
        if let Some(control) = &self.state.control {
            let lease = control.loader.map_or(0, |loader| loader.until_ms);
            let back_off = control.back_off.as_ref();
            let needed = lease.max(back_off.map_or(0, |failed| failed.until_ms));
            let memory = u64::try_from(MEMORY.as_millis()).unwrap();
            prop_assert!(
                control.forget_at_ms >= self.now.millis().max(needed + memory),
                "{step:?}: it outlives the load by that time"
            );
            prop_assert!(
                control.forget_at_ms <= self.now.millis() + 90_000 + memory,
                "K7"
            );
            prop_assert!(control.loader.is_none() || control.back_off.is_none());
        }
        Ok(())
    }
}
