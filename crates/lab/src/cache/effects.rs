//! The effects of one action. Each step of the store is [`CacheModel::apply`].

use leasehold_core::ClientId;
use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, EntryState, Format, Reply, Standing, Step, Version,
};

use super::actions::CacheAction;
use super::input::CacheModel;
use super::judge::{self, Taken};
use super::setup::CacheSituation;
use super::state::{CacheClient, CacheMessage, CachePhase, CacheState, CallId, Load, Request};
use super::time::{NOW, set_back, settle, tick};

/// How many calls of a client the store and the network may know at once. Their numbers are used again.
const NUMBERS: u8 = 8;

/// One action in progress.
struct CacheStepContext<'a> {
    rules: &'a CacheModel,
    state: CacheState,
    /// The store's last reply, for the trace.
    said: Option<Reply>,
}

impl CacheModel {
    /// The state after `action`, and the store's reply; `None` if it is out of bounds.
    pub(super) fn step(
        &self,
        before: &CacheState,
        action: CacheAction,
    ) -> Option<(CacheState, Option<Reply>)> {
        let mut turn = CacheStepContext {
            rules: self,
            state: before.clone(),
            said: None,
        };
        turn.act(action)?;
        let CacheStepContext {
            mut state, said, ..
        } = turn;
        settle(&mut state);
        (state.flight.len() <= self.setup.in_flight).then_some((state, said))
    }

    /// The step that a client sends.
    pub(super) fn asks(&self, from: CallId, request: Request) -> Step {
        let (token, lease) = (from.token(), self.lease);
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
                fresh_ms: self.fresh_ms,
                stale_ms: self.stale_ms,
                load_ms: 0,
                format: Format::Raw,
                body: self.body.clone(),
            }),
            Request::Fail => Step::Abandon {
                token,
                back_off: Some((self.back_off, String::new())),
            },
            Request::GiveUp => Step::Abandon {
                token,
                back_off: None,
            },
        }
    }
}

impl CacheStepContext<'_> {
    fn act(&mut self, action: CacheAction) -> Option<()> {
        match action {
            CacheAction::Ask {
                client,
                request,
                lost,
            } => {
                let from = self.begin(client, request)?;
                let reply = self.carry_out(from, request);
                if !lost {
                    self.hears(from, &reply);
                } else if matches!(reply, Reply::Load { .. }) {
                    self.rules.reached(CacheSituation::GrantUnheard);
                } else if matches!(reply, Reply::Committed(_)) {
                    self.rules.reached(CacheSituation::CommitUnheard);
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
                    self.rules.reached(CacheSituation::AppliedLate);
                }
                let reply = self.carry_out(from, request);
                self.hears(from, &reply);
            }
            CacheAction::Drop { at } => {
                self.state.flight.remove(at);
            }
            CacheAction::Crash { client } => {
                let client = self.state.client_mut(client);
                if matches!(client.phase, CachePhase::Loading(_)) {
                    self.rules.reached(CacheSituation::CrashedLoading);
                }
                client.phase = CachePhase::Idle;
            }
            CacheAction::Invalidate { remove } => {
                if self.loads() > 0 {
                    self.rules.reached(CacheSituation::InvalidatedDuringLoad);
                }
                self.take(None, &Step::Invalidate { remove }, false);
                self.loads_are_old();
            }
            CacheAction::LoseControl => {
                if self.loads() > 0 {
                    self.rules.reached(CacheSituation::ControlLost);
                }
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
                if self.loads() > 0 {
                    self.rules.reached(CacheSituation::ValueLost);
                }
                self.state.entry.value = None;
            }
            CacheAction::SetBack => {
                if self.loads() > 0 {
                    self.rules.reached(CacheSituation::ClockSetBack);
                }
                set_back(&mut self.state);
            }
            CacheAction::Tick => tick(&mut self.state),
        }
        // An idle client has no number, so that equal situations are equal states.
        for client in &mut self.state.clients {
            if client.phase == CachePhase::Idle {
                client.nth = 0;
            }
        }
        Some(())
    }

    /// Prepares a request: with a fresh token, if it begins a call.
    fn begin(&mut self, client: u8, request: Request) -> Option<CallId> {
        let CacheClient { mut nth, phase, .. } = *self.state.client(client);
        if let (CachePhase::Idle, Request::Begin(seen)) = (phase, request) {
            let known = self.state.known();
            let over = known.iter().filter(|id| !self.state.is_current(**id));
            if over.count() > self.rules.setup.left_over {
                return None;
            }
            nth = (0..NUMBERS).find(|nth| !known.contains(&CallId { client, nth: *nth }))?;
            let begins = self.state.client_mut(client);
            (begins.nth, begins.phase) = (nth, CachePhase::Asking(seen));
        }
        if matches!(request, Request::Fail | Request::GiveUp) {
            self.state.client_mut(client).phase = CachePhase::Idle;
        }
        Some(CallId { client, nth })
    }

    fn carry_out(&mut self, from: CallId, request: Request) -> Reply {
        let step = self.rules.asks(from, request);
        let old = matches!(request, Request::Commit(Load { old: true, .. }));
        self.take(Some(from), &step, old)
    }

    /// The store takes a step, which is judged.
    fn take(&mut self, by: Option<CallId>, step: &Step, old: bool) -> Reply {
        let before = self.state.entry.clone();
        let first = (self.rules.apply)(&mut self.state.entry, NOW, step);
        let mut again = self.state.entry.clone();
        let second = (self.rules.apply)(&mut again, NOW, step);
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
        let rules = self.rules;
        let is_fresh = |entry: &EntryState| {
            let value = entry.value.as_ref();
            value.is_some_and(|(value, _)| value.standing(NOW) == Standing::Fresh)
        };
        let told = self.state.clients.iter().filter(|client| client.told);
        if told.count() > 1 {
            rules.reached(CacheSituation::TwoWait);
        }
        if !taken.first.wakes.is_empty() {
            rules.reached(CacheSituation::Woken);
        }
        match &taken.first.reply {
            Reply::Fresh(_) => rules.reached(CacheSituation::Fresh),
            Reply::Load { .. } => {
                if self.loads() > 0 {
                    rules.reached(CacheSituation::TakenOver);
                }
                if is_fresh(taken.before) {
                    rules.reached(CacheSituation::RefreshedEarly);
                }
                let stored = taken.before.value.as_ref();
                let version = stored.map(|(value, _)| value.header.version.get());
                if taken.before.control.is_none() && version > Some(NOW.wall_us) {
                    rules.reached(CacheSituation::StoredAhead);
                }
            }
            Reply::Busy { stale, .. } => {
                rules.reached(CacheSituation::Busy);
                if stale.is_some() {
                    rules.reached(CacheSituation::StaleServed);
                }
            }
            Reply::BackOff { .. } => rules.reached(CacheSituation::BackOff),
            Reply::Renewed => rules.reached(CacheSituation::Renewed),
            Reply::Committed(kept) => self.note_commit(taken, *kept),
            _ => {}
        }
    }

    fn note_commit(&self, taken: &Taken<'_>, kept: CommitOutcome) {
        let rules = self.rules;
        let books = &self.state.books;
        let is_holder = books.lease.map(|(id, _)| id) == taken.by;
        if let Step::Commit(commit) = taken.step
            && let Some((value, _)) = &taken.before.value
            && value.header.version == commit.version
        {
            rules.reached(CacheSituation::CommittedTwice);
            return;
        }
        if let (Step::Commit(commit), Some(control)) = (taken.step, &taken.before.control)
            && commit.version > control.last
        {
            rules.reached(CacheSituation::UnknownCommit);
        }
        match kept {
            CommitOutcome::Fresh(_) => {
                if !is_holder {
                    rules.reached(CacheSituation::LateKept);
                }
                if books.rests.is_some() {
                    rules.reached(CacheSituation::BackOffEnded);
                }
            }
            CommitOutcome::Stale => {
                rules.reached(CacheSituation::StoredAsStale);
                if books.lease.is_some() && !is_holder {
                    rules.reached(CacheSituation::ForgottenCommit);
                }
            }
            CommitOutcome::Overtaken => rules.reached(CacheSituation::Overtaken),
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
