//! The possible actions of the cache model, and their effects. Slow and idle clients are covered: any client may do nothing. Each step of
//! the store is the `apply` of [`GuardedEntry`](super::model::GuardedEntry), then judged.

use leasehold_core::ClientId;
use leasehold_core::cache::{Begin, Commit, CommitOutcome, Format, Reply, Standing, Step, Version};

use super::judge::{self, Taken};
use super::model::{CacheModel, CacheTurn, FRESH, Fault, STALE, Situation, ticks_ms};
use super::state::{Load, Message, Phase, Request, State};
use super::time::{AHEAD_US, set_back, settle, tick};
use crate::frame::{CallId, NOW, those_possible, worded};

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A request that is executed and answered at once, unless the reply is lost.
    Ask {
        client: u8,
        verb: Request,
        lost: bool,
    },
    /// A request that stays in the network for a while.
    Send { client: u8, verb: Request },
    /// A request in flight is executed; with `again`, it will be executed once more.
    Arrive { at: usize, again: bool },
    /// A request in flight is lost.
    Drop { at: usize },
    /// A client crashes or stops waiting.
    Crash { client: u8 },
    /// Something happens to the entry.
    Entry(EntryEvent),
    /// Time passes.
    Tick,
}

worded! {
    /// What may happen to the entry.
    EntryEvent {
        Invalidate => "someone invalidates",
        Remove => "someone invalidates and removes",
        /// The store loses the control.
        LoseControl => "the control is lost",
        /// The store loses the value.
        LoseValue => "the value is lost",
        /// The wall clock is set back.
        SetBack => "the clock is set back",
    }
}

impl CacheModel {
    /// All actions that are possible in this state.
    pub(super) fn possible(&self, state: &State, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        into.push(Action::Tick);
        for client in 0..self.setup.clients {
            self.of_client(state, client, into);
        }
        for (at, message) in state.flight.iter().enumerate() {
            into.push(Action::Arrive { at, again: false });
            into.push(Action::Drop { at });
            if !message.twice && may(Fault::Twice) {
                into.push(Action::Arrive { at, again: true });
            }
        }
        let invalidates = may(Fault::Invalidate);
        let issued = state.books.issued;
        let is_behind = (1..AHEAD_US).contains(&issued);
        // K2 excludes a loss before the clock has passed the last number, except by a step back of the clock.
        let passed = !(NOW.wall_us..AHEAD_US).contains(&issued);
        let (has_control, has_value) = (state.entry.control.is_some(), state.entry.value.is_some());
        let loses_control = may(Fault::LostControl) && passed && has_control;
        let events = [
            (EntryEvent::Invalidate, invalidates),
            (EntryEvent::Remove, invalidates),
            (EntryEvent::SetBack, may(Fault::ClockBack) && is_behind),
            (EntryEvent::LoseControl, loses_control),
            (EntryEvent::LoseValue, may(Fault::LostValue) && has_value),
        ];
        into.extend(those_possible(events).map(Action::Entry));
    }

    fn of_client(&self, state: &State, client: u8, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        let phase = state.client(client).phase;
        let stored = state.entry.value.as_ref();
        let seen = stored.map(|(value, _)| value.header.version.get());
        let mut verbs = match phase {
            Phase::Idle => vec![Request::Begin(None)],
            Phase::Asking(seen) => vec![Request::Begin(seen)],
            Phase::Loading(load) => vec![Request::Renew, Request::Commit(load)],
        };
        if phase == Phase::Idle && may(Fault::Refresh) && seen.is_some() {
            verbs.push(Request::Begin(seen));
        }
        if matches!(phase, Phase::Loading(_)) && may(Fault::Fail) {
            verbs.extend([Request::Fail, Request::GiveUp]);
        }
        for verb in verbs {
            let ask = |lost| Action::Ask { client, verb, lost };
            into.push(ask(false));
            if may(Fault::LostReply) {
                into.push(ask(true));
            }
            if may(Fault::LateRequest) {
                into.push(Action::Send { client, verb });
            }
        }
        if may(Fault::Crash) && phase != Phase::Idle {
            into.push(Action::Crash { client });
        }
    }

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
                fresh_ms: ticks_ms(FRESH),
                stale_ms: ticks_ms(STALE),
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
    pub(super) fn carry_out(&mut self, action: Action) -> Option<()> {
        self.act(action)?;
        // An idle client has no number, so that equal situations are equal states.
        for client in &mut self.state.clients {
            if client.phase == Phase::Idle {
                client.nth = 0;
            }
        }
        settle(&mut self.state);
        (self.state.flight.len() <= self.model.setup.in_flight).then_some(())
    }

    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Ask { client, verb, lost } => {
                let from = self.begin(client, verb)?;
                let reply = self.ask(from, verb);
                match reply {
                    _ if !lost => self.hears(from, &reply),
                    Reply::Load { .. } => self.reached(Situation::GrantUnheard),
                    Reply::Committed(_) => self.reached(Situation::CommitUnheard),
                    _ => {}
                }
            }
            Action::Send { client, verb } => {
                let from = self.begin(client, verb)?;
                self.state.flight.push(Message {
                    from,
                    request: verb,
                    twice: false,
                });
            }
            Action::Arrive { at, again } => {
                let Message { from, request, .. } = self.state.flight[at];
                if again {
                    self.state.flight[at].twice = true;
                } else {
                    self.state.flight.remove(at);
                }
                let is_over = !self.state.is_current(from);
                self.reached_if(is_over, Situation::AppliedLate);
                let reply = self.ask(from, request);
                self.hears(from, &reply);
            }
            Action::Drop { at } => {
                self.state.flight.remove(at);
            }
            Action::Crash { client } => {
                let phase = self.state.client(client).phase;
                let loads = matches!(phase, Phase::Loading(_));
                self.reached_if(loads, Situation::CrashedLoading);
                self.state.client_mut(client).phase = Phase::Idle;
            }
            Action::Entry(event) => self.happen(event),
            Action::Tick => tick(&mut self.state),
        }
        Some(())
    }

    fn happen(&mut self, event: EntryEvent) {
        let reached = match event {
            EntryEvent::Invalidate | EntryEvent::Remove => Situation::InvalidatedDuringLoad,
            EntryEvent::LoseControl => Situation::ControlLost,
            EntryEvent::LoseValue => Situation::ValueLost,
            EntryEvent::SetBack => Situation::ClockSetBack,
        };
        self.reached_if(self.loads(), reached);
        match event {
            EntryEvent::Invalidate | EntryEvent::Remove => {
                let remove = event == EntryEvent::Remove;
                self.take(None, &Step::Invalidate { remove }, false);
                self.loads_are_old();
            }
            EntryEvent::LoseControl => {
                self.state.entry.control = None;
                self.state.books.lease = None;
                self.state.books.rests = None;
                for client in &mut self.state.clients {
                    client.told = false;
                }
                // Forgotten history counts as invalidated, except for the stored value.
                self.loads_are_old();
            }
            EntryEvent::LoseValue => self.state.entry.value = None,
            EntryEvent::SetBack => set_back(&mut self.state),
        }
    }

    /// Prepares a request: with a fresh token, if it begins a call.
    fn begin(&mut self, client: u8, request: Request) -> Option<CallId> {
        let mut from = self.state.id(client);
        if let (Phase::Idle, Request::Begin(seen)) = (self.state.client(client).phase, request) {
            let is_current = |id| self.state.is_current(id);
            let left_over = self.model.setup.left_over;
            from = CallId::fresh(client, left_over, &self.state.known(), is_current)?;
            let begins = self.state.client_mut(client);
            (begins.nth, begins.phase) = (from.nth, Phase::Asking(seen));
        }
        if matches!(request, Request::Fail | Request::GiveUp) {
            self.state.client_mut(client).phase = Phase::Idle;
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
            before,
            first,
            second,
            again,
        };
        self.note(&taken);
        judge::step(&mut self.state, &taken);
        self.said = Some(taken.first.reply.clone());
        taken.first.reply
    }

    /// Records the situations that were reached.
    fn note(&self, taken: &Taken<'_>) {
        let before = &taken.before;
        let stored = before.value.as_ref().map(|(value, _)| value);
        let told = self.state.clients.iter().filter(|client| client.told);
        self.reached_if(told.count() > 1, Situation::TwoWait);
        self.reached_if(!taken.first.wakes.is_empty(), Situation::Woken);
        match &taken.first.reply {
            Reply::Fresh(_) => self.reached(Situation::Fresh),
            Reply::Load { .. } => {
                self.reached_if(self.loads(), Situation::TakenOver);
                let is_fresh = stored.is_some_and(|it| it.standing(NOW) == Standing::Fresh);
                self.reached_if(is_fresh, Situation::RefreshedEarly);
                let version = stored.map(|value| value.header.version.get());
                let is_ahead = before.control.is_none() && version > Some(NOW.wall_us);
                self.reached_if(is_ahead, Situation::StoredAhead);
            }
            Reply::Busy { stale, .. } => {
                self.reached(Situation::Busy);
                self.reached_if(stale.is_some(), Situation::StaleServed);
            }
            Reply::BackOff { .. } => self.reached(Situation::BackOff),
            Reply::Renewed => self.reached(Situation::Renewed),
            Reply::Committed(kept) => self.note_commit(taken, *kept),
            _ => {}
        }
    }

    fn note_commit(&self, taken: &Taken<'_>, kept: CommitOutcome) {
        let Step::Commit(Commit { version, .. }) = taken.step else {
            return;
        };
        let books = &self.state.books;
        let is_holder = books.lease.map(|(id, _)| id) == taken.by;
        let stored = taken.before.value.as_ref();
        if stored.is_some_and(|(value, _)| value.header.version == *version) {
            self.reached(Situation::CommittedTwice);
            return;
        }
        let control = taken.before.control.as_ref();
        let is_unknown = control.is_some_and(|control| *version > control.last);
        self.reached_if(is_unknown, Situation::UnknownCommit);
        match kept {
            CommitOutcome::Fresh(_) => {
                self.reached_if(!is_holder, Situation::LateKept);
                self.reached_if(books.rests.is_some(), Situation::BackOffEnded);
            }
            CommitOutcome::Stale => {
                self.reached(Situation::StoredAsStale);
                let has_other = books.lease.is_some() && !is_holder;
                self.reached_if(has_other, Situation::ForgottenCommit);
            }
            CommitOutcome::Overtaken => self.reached(Situation::Overtaken),
        }
    }

    /// A client receives a reply, if it still waits for it.
    fn hears(&mut self, from: CallId, reply: &Reply) {
        if !self.state.is_current(from) {
            return;
        }
        let client = self.state.client_mut(from.client);
        client.phase = match (client.phase, reply) {
            (Phase::Asking(_), Reply::Fresh(_)) | (Phase::Loading(_), Reply::Committed(_)) => {
                Phase::Idle
            }
            // It loads under the first version that it receives.
            (Phase::Asking(_), Reply::Load { version, .. }) => Phase::Loading(Load {
                version: version.get(),
                old: false,
            }),
            (phase, _) => phase,
        };
    }

    /// Whether a client loads.
    fn loads(&self) -> bool {
        let mut clients = self.state.clients.iter();
        clients.any(|client| matches!(client.phase, Phase::Loading(_)))
    }

    /// Marks the loads in progress as possibly outdated.
    fn loads_are_old(&mut self) {
        for client in &mut self.state.clients {
            if let Phase::Loading(load) = &mut client.phase {
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
