//! The effects of one action. Each step of the store is the `apply` of [`GuardedEntry`](super::model::GuardedEntry).

use leasehold_core::ClientId;
use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, EntryState, Format, Reply, Standing, Step, Version,
};

use super::actions::CacheAction;
use super::judge::{self, Taken};
use super::model::{CacheModel, CacheTurn};
use super::setup::CacheSituation;
use super::state::{CacheClient, CacheMessage, CachePhase, Load, Request};
use super::time::{set_back, settle, tick};
use crate::frame::{CallId, NOW};

impl CacheModel {
    /// The step that a client sends.
    pub(super) fn asks(&self, from: CallId, request: Request) -> Step {
        let (token, entry) = (from.token(), &self.subject);
        let lease = entry.lease;
        match request {
            Request::Begin(seen) => Step::Begin(Begin {
                token,
                seen: Version::new(seen.unwrap_or_default()),
                over: seen.is_some(),
                lease,
                listener: Some(ClientId::new(from.client.into())),
            }),
            Request::Renew => Step::Renew { token, lease },
            Request::Commit(load) => Step::Commit(Commit {
                token,
                version: Version::new(load.version),
                fresh_ms: entry.fresh_ms,
                stale_ms: entry.stale_ms,
                load_ms: 0,
                format: Format::Raw,
                body: entry.body.clone(),
            }),
            Request::Fail => Step::Abandon {
                token,
                back_off: Some((entry.back_off, String::new())),
            },
            Request::GiveUp => Step::Abandon {
                token,
                back_off: None,
            },
        }
    }
}

impl CacheTurn<'_> {
    /// Carries out an action, and settles the times. `None` if it is out of bounds.
    pub(super) fn carry_out(&mut self, action: CacheAction) -> Option<()> {
        self.act(action)?;
        // An idle client has no number, so that equal situations are equal states.
        for client in &mut self.state.clients {
            if client.phase == CachePhase::Idle {
                client.nth = 0;
            }
        }
        settle(&mut self.state);
        (self.state.flight.len() <= self.model.setup.in_flight).then_some(())
    }

    fn act(&mut self, action: CacheAction) -> Option<()> {
        match action {
            CacheAction::Ask {
                client,
                request,
                lost,
            } => {
                let from = self.begin(client, request)?;
                let reply = self.ask(from, request);
                match reply {
                    _ if !lost => self.hears(from, &reply),
                    Reply::Load { .. } => self.reached(CacheSituation::GrantUnheard),
                    Reply::Committed(_) => self.reached(CacheSituation::CommitUnheard),
                    _ => {}
                }
            }
            CacheAction::Send { client, request } => {
                let from = self.begin(client, request)?;
                self.state.flight.push(CacheMessage {
                    from,
                    request,
                    twice: false,
                });
            }
            CacheAction::Arrive { at, again } => {
                let CacheMessage { from, request, .. } = self.state.flight[at];
                if again {
                    self.state.flight[at].twice = true;
                } else {
                    self.state.flight.remove(at);
                }
                if !self.state.is_current(from) {
                    self.reached(CacheSituation::AppliedLate);
                }
                let reply = self.ask(from, request);
                self.hears(from, &reply);
            }
            CacheAction::Drop { at } => {
                self.state.flight.remove(at);
            }
            CacheAction::Crash { client } => {
                if matches!(self.state.client(client).phase, CachePhase::Loading(_)) {
                    self.reached(CacheSituation::CrashedLoading);
                }
                self.state.client_mut(client).phase = CachePhase::Idle;
            }
            CacheAction::Invalidate { remove } => {
                self.reached_loading(CacheSituation::InvalidatedDuringLoad);
                self.take(None, &Step::Invalidate { remove }, false);
                self.loads_are_old();
            }
            CacheAction::LoseControl => {
                self.reached_loading(CacheSituation::ControlLost);
                self.state.entry.control = None;
                self.state.books.lease = None;
                self.state.books.rests = None;
                for client in &mut self.state.clients {
                    client.told = false;
                }
                // Forgotten history counts as invalidated, except for the stored value.
                self.loads_are_old();
            }
            CacheAction::LoseValue => {
                self.reached_loading(CacheSituation::ValueLost);
                self.state.entry.value = None;
            }
            CacheAction::SetBack => {
                self.reached_loading(CacheSituation::ClockSetBack);
                set_back(&mut self.state);
            }
            CacheAction::Tick => tick(&mut self.state),
        }
        Some(())
    }

    /// Notes a situation if a client loads in it.
    fn reached_loading(&self, situation: CacheSituation) {
        if self.loads() > 0 {
            self.reached(situation);
        }
    }

    /// Prepares a request: with a fresh token, if it begins a call.
    fn begin(&mut self, client: u8, request: Request) -> Option<CallId> {
        let mut from = self.state.id(client);
        if let (CachePhase::Idle, Request::Begin(seen)) = (self.state.client(client).phase, request)
        {
            let is_current = |id| self.state.is_current(id);
            let left_over = self.model.setup.left_over;
            from = CallId::fresh(client, left_over, &self.state.known(), is_current)?;
            let begins = self.state.client_mut(client);
            (begins.nth, begins.phase) = (from.nth, CachePhase::Asking(seen));
        }
        if matches!(request, Request::Fail | Request::GiveUp) {
            self.state.client_mut(client).phase = CachePhase::Idle;
        }
        Some(from)
    }

    fn ask(&mut self, from: CallId, request: Request) -> Reply {
        let step = self.model.asks(from, request);
        let old = matches!(request, Request::Commit(Load { old: true, .. }));
        self.take(Some(from), &step, old)
    }

    /// The store takes a step, which is judged.
    fn take(&mut self, by: Option<CallId>, step: &Step, old: bool) -> Reply {
        let before = self.state.entry.clone();
        let apply = self.model.subject.apply;
        let first = apply(&mut self.state.entry, NOW, step);
        let mut again = self.state.entry.clone();
        let second = apply(&mut again, NOW, step);
        let taken = Taken {
            by,
            step,
            old,
            before: &before,
            first: &first,
            second: &second,
            again: &again,
        };
        self.note(&taken);
        judge::step(&mut self.state, &taken);
        self.said = Some(first.reply.clone());
        first.reply
    }

    /// Records the situations that were reached.
    fn note(&self, taken: &Taken<'_>) {
        let is_fresh = |entry: &EntryState| {
            let value = entry.value.as_ref();
            value.is_some_and(|(value, _)| value.standing(NOW) == Standing::Fresh)
        };
        let told = self.state.clients.iter().filter(|client| client.told);
        if told.count() > 1 {
            self.reached(CacheSituation::TwoWait);
        }
        if !taken.first.wakes.is_empty() {
            self.reached(CacheSituation::Woken);
        }
        match &taken.first.reply {
            Reply::Fresh(_) => self.reached(CacheSituation::Fresh),
            Reply::Load { .. } => {
                self.reached_loading(CacheSituation::TakenOver);
                if is_fresh(taken.before) {
                    self.reached(CacheSituation::RefreshedEarly);
                }
                let stored = taken.before.value.as_ref();
                let version = stored.map(|(value, _)| value.header.version.get());
                if taken.before.control.is_none() && version > Some(NOW.wall_us) {
                    self.reached(CacheSituation::StoredAhead);
                }
            }
            Reply::Busy { stale, .. } => {
                self.reached(CacheSituation::Busy);
                if stale.is_some() {
                    self.reached(CacheSituation::StaleServed);
                }
            }
            Reply::BackOff { .. } => self.reached(CacheSituation::BackOff),
            Reply::Renewed => self.reached(CacheSituation::Renewed),
            Reply::Committed(kept) => self.note_commit(taken, *kept),
            _ => {}
        }
    }

    fn note_commit(&self, taken: &Taken<'_>, kept: CommitOutcome) {
        let books = &self.state.books;
        let is_holder = books.lease.map(|(id, _)| id) == taken.by;
        if let Step::Commit(commit) = taken.step
            && let Some((value, _)) = &taken.before.value
            && value.header.version == commit.version
        {
            self.reached(CacheSituation::CommittedTwice);
            return;
        }
        if let (Step::Commit(commit), Some(control)) = (taken.step, &taken.before.control)
            && commit.version > control.last
        {
            self.reached(CacheSituation::UnknownCommit);
        }
        match kept {
            CommitOutcome::Fresh(_) => {
                if !is_holder {
                    self.reached(CacheSituation::LateKept);
                }
                if books.rests.is_some() {
                    self.reached(CacheSituation::BackOffEnded);
                }
            }
            CommitOutcome::Stale => {
                self.reached(CacheSituation::StoredAsStale);
                if books.lease.is_some() && !is_holder {
                    self.reached(CacheSituation::ForgottenCommit);
                }
            }
            CommitOutcome::Overtaken => self.reached(CacheSituation::Overtaken),
        }
    }

    /// A client receives a reply, if it still waits for it.
    fn hears(&mut self, from: CallId, reply: &Reply) {
        if !self.state.is_current(from) {
            return;
        }
        let client = self.state.client_mut(from.client);
        client.phase = match (client.phase, reply) {
            (CachePhase::Asking(_), Reply::Fresh(_))
            | (CachePhase::Loading(_), Reply::Committed(_)) => CachePhase::Idle,
            // It loads under the first version that it receives.
            (CachePhase::Asking(_), Reply::Load { version, .. }) => CachePhase::Loading(Load {
                version: version.get(),
                old: false,
            }),
            (phase, _) => phase,
        };
    }

    fn loads(&self) -> usize {
        let loads = |client: &&CacheClient| matches!(client.phase, CachePhase::Loading(_));
        self.state.clients.iter().filter(loads).count()
    }

    /// Marks the loads in progress as possibly outdated.
    fn loads_are_old(&mut self) {
        for client in &mut self.state.clients {
            if let CachePhase::Loading(load) = &mut client.phase {
                load.old = true;
            }
        }
        for message in &mut self.state.flight {
            if let Request::Commit(load) = &mut message.request {
                load.old = true;
            }
        }
    }
}
