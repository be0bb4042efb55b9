//! One thing happening. Must never decide what becomes of the entry: each step of the store is [`Rules::apply`].

use leasehold_core::ClientId;
use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, EntryState, Format, Reply, Standing, Step, Version,
};

use super::act::Action;
use super::given::Rules;
use super::judge::{self, Taken};
use super::setup::Situation;
use super::state::{Client, Id, Load, Message, Phase, Request, State};
use super::time::{NOW, set_back, settle, tick};

/// How many calls of a client the store and the network may know at once. Their numbers are used again.
const NUMBERS: u8 = 8;

/// One step under way.
struct Turn<'a> {
    rules: &'a Rules,
    state: State,
    /// What the store said last, for the trace.
    said: Option<Reply>,
}

impl Rules {
    /// The state after `action`, and what the store said; `None` if it lies out of bounds.
    pub(super) fn step(&self, before: &State, action: Action) -> Option<(State, Option<Reply>)> {
        let mut turn = Turn {
            rules: self,
            state: before.clone(),
            said: None,
        };
        turn.act(action)?;
        let Turn {
            mut state, said, ..
        } = turn;
        settle(&mut state);
        (state.flight.len() <= self.setup.in_flight).then_some((state, said))
    }

    /// The step that a client sends.
    pub(super) fn asks(&self, from: Id, request: Request) -> Step {
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

impl Turn<'_> {
    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Ask {
                client,
                request,
                lost,
            } => {
                let from = self.begin(client, request)?;
                let reply = self.carry_out(from, request);
                if !lost {
                    self.hears(from, &reply);
                } else if matches!(reply, Reply::Load { .. }) {
                    self.rules.reached(Situation::GrantUnheard);
                } else if matches!(reply, Reply::Committed(_)) {
                    self.rules.reached(Situation::CommitUnheard);
                }
            }
            Action::Send { client, request } => {
                let from = self.begin(client, request)?;
                self.state.flight.push(Message {
                    from,
                    request,
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
                if !self.state.is_current(from) {
                    self.rules.reached(Situation::AppliedLate);
                }
                let reply = self.carry_out(from, request);
                self.hears(from, &reply);
            }
            Action::Drop { at } => {
                self.state.flight.remove(at);
            }
            Action::Crash { client } => {
                let client = self.state.client_mut(client);
                if matches!(client.phase, Phase::Loading(_)) {
                    self.rules.reached(Situation::CrashedLoading);
                }
                client.phase = Phase::Idle;
            }
            Action::Invalidate { remove } => {
                if self.loads() > 0 {
                    self.rules.reached(Situation::InvalidatedDuringLoad);
                }
                self.take(None, &Step::Invalidate { remove }, false);
                self.loads_are_old();
            }
            Action::LoseControl => {
                if self.loads() > 0 {
                    self.rules.reached(Situation::ControlLost);
                }
                self.state.entry.control = None;
                self.state.books.lease = None;
                self.state.books.rests = None;
                for client in &mut self.state.clients {
                    client.told = false;
                }
                // What the store has forgotten counts as invalidated, but for what is stored.
                self.loads_are_old();
            }
            Action::LoseValue => {
                if self.loads() > 0 {
                    self.rules.reached(Situation::ValueLost);
                }
                self.state.entry.value = None;
            }
            Action::SetBack => {
                if self.loads() > 0 {
                    self.rules.reached(Situation::ClockSetBack);
                }
                set_back(&mut self.state);
            }
            Action::Tick => tick(&mut self.state),
        }
        // A client that does nothing has no number, so that equal situations are equal states.
        for client in &mut self.state.clients {
            if client.phase == Phase::Idle {
                client.nth = 0;
            }
        }
        Some(())
    }

    /// Gets ready to send: with a fresh token, if it begins.
    fn begin(&mut self, client: u8, request: Request) -> Option<Id> {
        let Client { mut nth, phase, .. } = *self.state.client(client);
        if let (Phase::Idle, Request::Begin(seen)) = (phase, request) {
            let known = self.state.known();
            let over = known.iter().filter(|id| !self.state.is_current(**id));
            if over.count() > self.rules.setup.left_over {
                return None;
            }
            nth = (0..NUMBERS).find(|nth| !known.contains(&Id { client, nth: *nth }))?;
            let begins = self.state.client_mut(client);
            (begins.nth, begins.phase) = (nth, Phase::Asking(seen));
        }
        if matches!(request, Request::Fail | Request::GiveUp) {
            self.state.client_mut(client).phase = Phase::Idle;
        }
        Some(Id { client, nth })
    }

    fn carry_out(&mut self, from: Id, request: Request) -> Reply {
        let step = self.rules.asks(from, request);
        let old = matches!(request, Request::Commit(Load { old: true, .. }));
        self.take(Some(from), &step, old)
    }

    /// The store takes a step, and it is judged.
    fn take(&mut self, by: Option<Id>, step: &Step, old: bool) -> Reply {
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

    /// What was reached.
    fn note(&self, taken: &Taken<'_>) {
        let rules = self.rules;
        let is_fresh = |entry: &EntryState| {
            let value = entry.value.as_ref();
            value.is_some_and(|(value, _)| value.standing(NOW) == Standing::Fresh)
        };
        let told = self.state.clients.iter().filter(|client| client.told);
        if told.count() > 1 {
            rules.reached(Situation::TwoWait);
        }
        if !taken.first.wakes.is_empty() {
            rules.reached(Situation::Woken);
        }
        match &taken.first.reply {
            Reply::Fresh(_) => rules.reached(Situation::Fresh),
            Reply::Load { .. } => {
                if self.loads() > 0 {
                    rules.reached(Situation::TakenOver);
                }
                if is_fresh(taken.before) {
                    rules.reached(Situation::RefreshedEarly);
                }
                let stored = taken.before.value.as_ref();
                let version = stored.map(|(value, _)| value.header.version.get());
                if taken.before.control.is_none() && version > Some(NOW.wall_us) {
                    rules.reached(Situation::StoredAhead);
                }
            }
            Reply::Busy { stale, .. } => {
                rules.reached(Situation::Busy);
                if stale.is_some() {
                    rules.reached(Situation::StaleServed);
                }
            }
            Reply::BackOff { .. } => rules.reached(Situation::BackOff),
            Reply::Renewed => rules.reached(Situation::Renewed),
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
            rules.reached(Situation::CommittedTwice);
            return;
        }
        if let (Step::Commit(commit), Some(control)) = (taken.step, &taken.before.control)
            && commit.version > control.last
        {
            rules.reached(Situation::UnknownCommit);
        }
        match kept {
            CommitOutcome::Fresh(_) => {
                if !is_holder {
                    rules.reached(Situation::LateKept);
                }
                if books.rests.is_some() {
                    rules.reached(Situation::BackOffEnded);
                }
            }
            CommitOutcome::Stale => {
                rules.reached(Situation::StoredAsStale);
                if books.lease.is_some() && !is_holder {
                    rules.reached(Situation::ForgottenCommit);
                }
            }
            CommitOutcome::Overtaken => rules.reached(Situation::Overtaken),
        }
    }

    /// A client is answered, if it still listens.
    fn hears(&mut self, from: Id, reply: &Reply) {
        if !self.state.is_current(from) {
            return;
        }
        let client = self.state.client_mut(from.client);
        client.phase = match (client.phase, reply) {
            (Phase::Asking(_), Reply::Fresh(_)) | (Phase::Loading(_), Reply::Committed(_)) => {
                Phase::Idle
            }
            // It loads under the first version that it hears of.
            (Phase::Asking(_), Reply::Load { version, .. }) => Phase::Loading(Load {
                version: version.get(),
                old: false,
            }),
            (phase, _) => phase,
        };
    }

    fn loads(&self) -> usize {
        let loads = |client: &&Client| matches!(client.phase, Phase::Loading(_));
        self.state.clients.iter().filter(loads).count()
    }

    /// What is under way may not be true any more.
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
