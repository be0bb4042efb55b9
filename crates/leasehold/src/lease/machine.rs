//! The state machine of a client: takes events, and returns effects. It does no I/O and never waits. The time comes
//! with each event; only a lease reads the clock itself, to say whether it is lost (L3).
//!
//! # Invariants
//!
//! Those of [`owners`](super::owners), of [`keeper`](super::keeper) and of [`settle`](super::settle), and:
//!
//! - **E2** A wake for an owner that neither acquires nor holds begins a settlement, since the lock was granted to a caller that had gone.
//!   Not if the lock is to stay taken (U3).

use std::collections::VecDeque;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Block, Busy, CLAIM_WINDOW, Fence, Fences, Held, LockName, Mode, Owner, Reply, Session, Step,
    Ttl, Wait, Wake, block_for,
};
use tokio::sync::oneshot;

use super::acquisition::{Hint, SentRequest};
use super::effects::{Due, Effect, Effects, PendingRelease, ReleaseReply};
use super::hold::{Hold, NO_FENCE, Start};
use super::identity::Identity;
use super::keeper::{AT_ONCE, ExtendReply, Keeper, Renewal};
use super::owners::{Entry, Holding, OwnerState, Owners, alike, drop_gone, fences_for, take_once};
use super::settle::{Settle, Settlement, Stage};
use super::terms::{Term, Terms, deadline};
use super::waiter::{AcquireOutcome, AcquireRequest, Waiter};
use crate::backoff::jittered;
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, Replaced, StoreError, StoreErrorKind};
use crate::store::{Answer, Notice, RenewalCause, Scope, To};
use crate::telemetry::{How, Said};

/// A store that leaves a request unanswered for longer than an eighth of its time limit, or than this, is not reported as a busy lock.
const SILENCE: Duration = Duration::from_millis(250);

/// How many slots are asked for beside those of the lines: with one of a line, they are a batch.
const PROBES: usize = 31;

/// How many settlements that were not confirmed are remembered.
const ABANDONED: usize = 1024;

/// Stands for the fences of a reader of a quorum, which has none.
const UNFENCED: Fences = Fences {
    first: NO_FENCE,
    block: Block::ONE,
};

/// An event.
pub(super) enum Event {
    /// A request for a lock came in, with this number.
    Asked(u64, AcquireRequest, oneshot::Sender<AcquireOutcome>),
    /// The request with this number went away.
    Left(LockName, u64),
    /// Its `on_wait` panicked, and is not called again.
    Deaf(LockName, u64),
    /// The store has answered.
    Answered(To, Answer),
    /// The store sent a notice.
    Noticed(Notice),
    /// A caller renews a lease, for this TTL from now.
    Extended(Owner, Ttl, ExtendReply),
    /// A lease is given back.
    Released(Release),
    /// Undo the requests of an owner, whether its lock stays taken or not.
    Undone(Settle),
    /// The first timer is due.
    Passed,
    /// The client is being closed.
    Closed,
}

/// A lease that is given back.
pub(super) struct Release {
    pub(super) hold: Arc<Hold>,
    /// How long the lock stays taken.
    pub(super) keep: Option<Ttl>,
    pub(super) verdict: Option<ReleaseReply>,
    /// Whether the store currently notifies the client of waiters. If not, the client assumes that there are some.
    pub(super) tells_wanted: bool,
}

impl Release {
    /// Releases a lease, if it was not released before. `tells_wanted` is called at that moment.
    pub(super) fn once(
        hold: &Arc<Hold>,
        keep: Option<Ttl>,
        verdict: Option<ReleaseReply>,
        tells_wanted: impl FnOnce() -> bool,
    ) -> Option<Self> {
        if hold.give_back() {
            return Some(Self {
                hold: hold.clone(),
                keep,
                verdict,
                tells_wanted: tells_wanted(),
            });
        }
        if let Some(verdict) = verdict
            && let Some(lost) = hold.loss()
        {
            // The client was closed meanwhile: report the loss to the caller.
            drop(verdict.send(Err(lost.into())));
        }
        None
    }
}

/// The locks of a client.
pub(super) struct Machine {
    owners: Owners,
    /// The effects of the events so far, and the timers.
    pub(super) effects: Effects,
    /// The time of the event that is handled.
    now: Moment,
    /// How many automatic renewals are under way.
    renewals: usize,
    /// How many requests for slots are under way beside those of the lines.
    probes: usize,
    /// It has held slots. Only then a notice may be for other owners of the same name.
    has_had_slots: bool,
    /// Leases that are due, but too many renewals are under way (RN5).
    backlog: VecDeque<Owner>,
    /// The last replacement of the server, and when the client learned of it.
    replaced: Option<(Moment, Replaced)>,
    /// How many settlements wait for their next release.
    waiting: usize,
    /// Owners whose settlements ended without an answer, oldest first. A server that was stopped for longer may still execute the requests
    /// that they should have undone, with a full TTL.
    abandoned: VecDeque<Owner>,
    /// Owners whose locks stay taken after the release (U3).
    kept: VecDeque<Owner>,
    identity: Arc<Identity>,
    /// Memory for the text of a new owner.
    room: String,
    /// For the holds. The machine itself gets the time with each event.
    clock: Clock,
    about: About,
    is_closed: bool,
}

/// Facts of the store that the machine needs.
pub(super) struct About {
    /// Its name in errors.
    pub(super) store: Arc<str>,
    /// See [`ClientBuilder::outage_timeout`](crate::ClientBuilder::outage_timeout).
    pub(super) outage_timeout: Duration,
    /// See [`ClientBuilder::request_timeout`](crate::ClientBuilder::request_timeout).
    pub(super) request_timeout: Duration,
}

impl Machine {
    pub(super) fn new(about: About, identity: Arc<Identity>, clock: Clock) -> Self {
        Self {
            owners: Owners::default(),
            effects: Effects::default(),
            now: clock.now(),
            renewals: 0,
            probes: 0,
            has_had_slots: false,
            backlog: VecDeque::new(),
            replaced: None,
            waiting: 0,
            abandoned: VecDeque::new(),
            kept: VecDeque::new(),
            identity,
            room: String::new(),
            clock,
            about,
            is_closed: false,
        }
    }

    /// Handles an event that happened at `now` or a moment before.
    pub(super) fn handle(&mut self, now: Moment, event: Event) {
        self.now = now;
        match event {
            Event::Asked(id, request, answer) => {
                self.asked(Waiter::new(id, request, now, answer));
            }
            Event::Left(name, id) => {
                if let Some(waiter) = self.leave(&name, id) {
                    self.effects.push(Effect::Gone(waiter));
                }
            }
            Event::Deaf(name, id) => {
                if let Some(entry) = self.owners.acting_for(&name)
                    && let Some(at) = entry.position(id)
                {
                    entry.waiting[at].stop_watching();
                }
            }
            Event::Answered(to, answer) => match to {
                To::Acquisition(owner) => self.acquire_answered(&owner, answer),
                To::Renewal(owner, why) => self.renewed(&owner, why, answer),
                To::Settlement(owner, number) => self.release_answered(&owner, number, answer),
            },
            Event::Noticed(notice) => self.noticed(notice),
            Event::Extended(owner, ttl, caller) => self.extend(&owner, ttl, caller),
            Event::Released(release) => self.released(release),
            Event::Undone(work) => self.settle(work),
            Event::Passed => {
                if let Some(due) = self.effects.pop(now) {
                    self.due(due);
                }
            }
            Event::Closed => self.close(),
        }
        #[cfg(test)]
        self.owners.check();
    }

    /// Whether a release has to be repeated later. Then `Client::close` has to wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The held and idle leases, when the client has no users any more.
    pub(super) fn leases(&mut self) -> Vec<(LockName, Owner)> {
        let mut leases = self.owners.close();
        leases.retain(|(_, owner)| self.owners.holding(owner).is_some());
        leases
    }

    fn due(&mut self, due: Due) {
        match due {
            Due::Ask(owner) => self.hint(&owner, Hint::Ask),
            Due::Lease(owner) => self.lease_due(&owner),
            Due::Limit(request) => self.limit_passed(&request.0, request.1),
            Due::Idle(owner) => self.idle_due(&owner),
            Due::Settlement(owner) => self.settlement_due(&owner),
        }
    }

    /// Takes a notice of the store.
    fn noticed(&mut self, notice: Notice) {
        match notice {
            Notice::Granted { key, wake } => self.granted(&LockName::from_key(&key), &wake),
            Notice::Wanted { key, owner } => {
                if !self.wanted(&owner) && self.has_had_slots {
                    self.slots_wanted(&LockName::from_key(&key));
                }
            }
            Notice::First { owner, .. } => self.hint(&owner, Hint::Ask),
            Notice::Cut { .. } => {
                for (_, asking) in self.owners.all_asking() {
                    asking.broken();
                }
            }
            Notice::Replaced(how, scope) => self.server_replaced(how, &scope),
            Notice::Reconnected { .. } | Notice::Missed => self.reconnected(),
            // The engine takes it for telemetry.
            Notice::NodeFailed { .. } => {}
            // For the listeners of entries.
            #[cfg(feature = "entries")]
            Notice::LoadEnded { .. } | Notice::Changed { .. } => {}
        }
    }

    /// The store answers again: whatever was missed is asked for.
    fn reconnected(&mut self) {
        let mut asks = Vec::new();
        for (owner, asking) in self.owners.all_asking() {
            asking.broken();
            asks.push(owner);
        }
        for owner in asks {
            self.hint(&owner, Hint::Ask);
        }
        for owner in mem::take(&mut self.abandoned) {
            if let Some(entry) = self.owners.get(&owner)
                && let OwnerState::Abandoned { ttl, .. } = entry.state
            {
                let work = Settle::of(entry.name.clone(), owner, ttl, None);
                self.settle(work);
            }
        }
        // Others wait for what could not be released.
        for open in self.owners.all_waiting_to_settle() {
            self.waiting -= 1;
            open.tried_again(self.now, &mut self.effects);
        }
        // A lease may expire before the next attempt to renew it.
        for (owner, keeper) in self.owners.all_held() {
            if keeper.is_tried_again(self.now) {
                schedule(owner, keeper, &mut self.effects, self.now);
            }
        }
    }

    // Requests for a lock.

    fn asked(&mut self, mut waiter: Waiter) {
        if self.is_closed {
            return self.refuse([waiter], &StoreError::closed().into());
        }
        if let Some(limit) = waiter.limit {
            let due = Due::Limit(Box::new((waiter.name().clone(), waiter.id)));
            waiter.alarm = Some(self.effects.wake(limit, due));
        }
        self.enter(waiter);
    }

    /// A request joins the line of its lock, or begins one.
    fn enter(&mut self, waiter: Waiter) {
        let name = waiter.name().clone();
        let Some(entry) = self.owners.acting_for(&name) else {
            return self.ask_for(waiter, iter::empty(), None);
        };
        if let OwnerState::Holding(holding) = &mut entry.state
            && entry.waiting.is_empty()
            && holding.admits(&waiter, false, self.now)
        {
            let owner = holding.keeper.hold.owner.clone();
            return self.join(&owner, waiter, false);
        }
        match &entry.state {
            OwnerState::Holding(holding) if holding.idle_until.is_some() => {
                return self.take_idle(&name, waiter);
            }
            OwnerState::Holding(holding) => {
                if let Some(lost) = holding.keeper.hold.loss() {
                    // The lease is seen to be lost: it ends before its user notices (Q6).
                    let owner = holding.keeper.hold.owner.clone();
                    self.end(&owner, Some(lost.cause), None);
                    return self.enter(waiter);
                }
                if waiter.is_once() {
                    return self.tell_busy(waiter);
                }
            }
            OwnerState::Asking(asking) if waiter.is_once() => {
                if asking.is_busy() {
                    return self.tell_busy(waiter);
                }
                if let Some(error) = asking.failure.as_deref() {
                    let error = Error::from(error.clone());
                    return self.refuse([waiter], &error);
                }
            }
            _ => {}
        }
        let id = waiter.id;
        entry.waiting.push_back(waiter);
        self.tell_watchers(&name, Some(id));
    }

    /// Asks for so many more slots, once, for the waiters of a line (Q1). All of these requests are one batch.
    fn probe(&mut self, name: &LockName, terms: &Terms, slots: usize) {
        for _ in 0..slots.min(PROBES.saturating_sub(self.probes)) {
            self.probes += 1;
            let owner = self.identity.owner(&terms.note, &mut self.room);
            let mut entry = self.owners.fresh(name);
            entry.asks(terms.clone(), false, self.now);
            self.owners.stands_aside(owner.clone(), entry);
            let step = acquire(&owner, terms, Block::ONE, false);
            self.send(name.clone(), step, To::Acquisition(owner));
        }
    }

    /// A request for a slot beside a line was answered. A slot goes to the first of the line.
    fn probed(&mut self, owner: &Owner, mut request: SentRequest, answer: &Answer) {
        self.probes -= 1;
        if let Ok(Reply::Held(held)) = answer {
            let until = deadline(request.sent, request.ttl);
            if let Some(fences) = fences_of(held)
                && until > self.now
            {
                let term = Term {
                    asked_at: request.sent,
                    until,
                    lasts: request.ttl,
                };
                self.serves_the_line(owner);
                return self.taken(owner, fences, (held.slot, held.queued), term, true);
            }
            request.left.unsettle(self.now);
        }
        self.owners.retire(owner);
        self.leave_behind(owner, &request);
    }

    /// The line goes on with these waiters, after the stay `before` if there was one. Without waiters, it ends (Q2, Q5).
    fn go_on(&mut self, name: &LockName, mut waiting: VecDeque<Waiter>, before: Option<&Session>) {
        drop_gone(&mut waiting);
        match waiting.pop_front() {
            Some(first) => self.ask_for(first, waiting.into_iter(), before),
            None => drop(self.owners.ends(name)),
        }
    }

    /// Asks the store with a new owner, on behalf of a waiter and those behind it, after the stay `before` if there was one.
    fn ask_for(
        &mut self,
        first: Waiter,
        behind: impl ExactSizeIterator<Item = Waiter>,
        before: Option<&Session>,
    ) {
        let (name, terms, waits) = (
            first.name().clone(),
            first.terms().clone(),
            !first.is_once(),
        );
        let owner = self.identity.owner(&terms.note, &mut self.room);
        let mut entry = self.owners.fresh(&name);
        let waiting = &mut entry.waiting;
        waiting.reserve_exact(1 + behind.len());
        waiting.push_back(first);
        waiting.extend(behind);
        let step = acquire(&owner, &terms, fences_for(waiting, before), waits);
        entry.asks(terms, waits, self.now);
        self.owners.acts(owner.clone(), entry);
        self.send(name, step, To::Acquisition(owner));
    }

    /// A caller leaves. If no other one wants the lock, the acquisition ends.
    fn leave(&mut self, name: &LockName, id: u64) -> Option<Waiter> {
        let entry = self.owners.acting_for(name)?;
        let at = entry.position(id)?;
        let waiter = entry.waiting.remove(at)?;
        let asks_in_vain = entry.waiting.is_empty() && matches!(entry.state, OwnerState::Asking(_));
        unset_alarm(&waiter, &mut self.effects);
        if asks_in_vain && let Some(owner) = self.owners.ends(name) {
            self.abandon(&owner);
        } else if at == 0 {
            self.has_another_first(name);
        }
        Some(waiter)
    }

    /// No caller wants the lock any more. The traces in the store are undone; with a request under way, when its answer arrives (W1).
    fn abandon(&mut self, owner: &Owner) {
        let Some(OwnerState::Asking(asking)) = self.owners.retire(owner) else {
            return;
        };
        if let Some(ticket) = asking.asks_at {
            self.effects.unset(ticket);
        }
        if let Some(entry) = self.owners.get(owner)
            && entry.asked.is_none()
            && asking.left.is_something()
        {
            let (name, until) = (entry.name.clone(), asking.left.unsettled_until);
            let work = Settle::of(name, owner.clone(), asking.terms.ttl, until);
            self.clean_up(work);
        }
        self.owners.tidy(owner);
    }

    /// The store has answered a request for a lock.
    fn acquire_answered(&mut self, owner: &Owner, answer: Answer) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let Some(mut request) = entry.asked.take() else {
            return;
        };
        match &answer {
            Ok(Reply::Busy(_)) => request.left.queued |= request.waits,
            Ok(Reply::Held(_)) => request.left.queued = true,
            Err(error) if error.may_have_taken_effect => {
                request.left.unsettled_until = Some(self.now.after(request.ttl.get()));
            }
            Ok(_) | Err(_) => {}
        }
        if entry.waiting.is_empty() && matches!(entry.state, OwnerState::Asking(_)) {
            return self.probed(owner, request, &answer);
        }
        let OwnerState::Asking(asking) = &mut entry.state else {
            // A wake was faster, or no caller wants the lock any more. This request may have taken or queued the owner again.
            if matches!(answer, Ok(Reply::Held(_))) || answer.is_ok() && request.waits {
                request.left.unsettle(self.now);
            }
            return self.leave_behind(owner, &request);
        };
        asking.ends(&request, answer.is_ok());
        let mode = asking.terms.mode;
        match answer {
            Ok(Reply::Held(held)) => {
                let until = deadline(request.sent, request.ttl);
                let unfenced = (mode == Mode::Shared).then_some(UNFENCED);
                if let Some(fences) = fences_of(&held).or(unfenced)
                    && until > self.now
                {
                    let term = Term {
                        asked_at: request.sent,
                        until,
                        lasts: request.ttl,
                    };
                    self.taken(owner, fences, (held.slot, held.queued), term, true);
                } else {
                    let why = "the answer came after the lease had ended";
                    let (label, kind) = (&*self.about.store, StoreErrorKind::TimedOut);
                    let error = StoreError::new(label, kind, why);
                    self.failed(owner, &request, error);
                }
            }
            Ok(Reply::Busy(busy)) => self.busy(owner, request, busy),
            // A claim that came too late: back to the end of the queue.
            Ok(_) => self.ask(owner),
            Err(error) => self.failed(owner, &request, error),
        }
    }

    /// The lock is busy.
    fn busy(&mut self, owner: &Owner, mut request: SentRequest, busy: Box<Busy>) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Asking(asking) = &mut entry.state else {
            return;
        };
        let told = asking.busy.is_none().then(|| busy.clone());
        let pause = if busy.ahead == 0 {
            busy.poll_after
        } else {
            jittered(busy.poll_after)
        };
        asking.heard(request.sent, busy);
        let mode = asking.terms.mode;
        let (name, once) = (entry.name.clone(), take_once(&mut entry.waiting));
        let first = entry.waiting.front().map(Waiter::mode);
        let goes_on = first.is_some();
        // Those whose time limit has passed since this answer was asked for.
        let is_late = |waiter: &&Waiter| waiter.limit.is_some_and(|limit| limit <= self.now);
        let late = entry.waiting.iter().filter(is_late);
        let late: Vec<u64> = late.map(|waiter| waiter.id).collect();
        for waiter in once {
            self.tell_busy(waiter);
        }
        for id in late {
            self.limit_passed(&name, id);
        }
        if self.owners.asking(owner).is_none() {
            // They were the last.
            return;
        }
        if !goes_on {
            if request.waits {
                // The waiters have gone meanwhile.
                request.left.unsettle(self.now);
            }
            return self.ends(&name, owner, &request);
        }
        if let Some(busy) = told {
            self.effects.push(Effect::InLine(name.clone(), busy));
            // A lock with waiters is worth showing.
            self.effects.push(Effect::Index(name.clone()));
        }
        if first.is_some_and(|first| first != mode) {
            return self.has_another_first(&name);
        }
        if request.waits {
            self.listen(owner, pause);
        } else {
            // A waiter has joined a caller that only tried.
            self.ask(owner);
        }
        // Last, so no request waits for the watchers.
        self.tell_watchers(&name, None);
    }

    /// A request failed: retries it, or refuses all waiters of the line.
    fn failed(&mut self, owner: &Owner, request: &SentRequest, error: StoreError) {
        let outage_timeout = self.about.outage_timeout;
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Asking(asking) = &mut entry.state else {
            return;
        };
        let name = entry.name.clone();
        match asking.failed(error.clone(), outage_timeout, self.now) {
            Err(error) => {
                let waiting = mem::take(&mut entry.waiting);
                self.refuse(waiting, &error.into());
                self.ends(&name, owner, request);
            }
            Ok(pause) => {
                if request.left.queued {
                    // Waiters wait for the end of the outage. Callers that only try are refused.
                    let once = take_once(&mut entry.waiting);
                    let goes_on = !entry.waiting.is_empty();
                    self.refuse(once, &error.into());
                    if !goes_on {
                        return self.ends(&name, owner, request);
                    }
                }
                self.listen(owner, pause);
                if request.left.queued {
                    self.has_another_first(&name);
                }
            }
        }
    }

    /// A line ends without the lock, and its owner with it.
    fn ends(&mut self, name: &LockName, owner: &Owner, request: &SentRequest) {
        self.owners.ends(name);
        self.owners.retire(owner);
        self.leave_behind(owner, request);
    }

    /// The acquisition for which `request` was sent is over. Its traces in the store are undone, unless it became a lease (W1).
    fn leave_behind(&mut self, owner: &Owner, request: &SentRequest) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let until = request.left.unsettled_until;
        if let OwnerState::Holding(holding) = &mut entry.state {
            if let Some(until) = until {
                // The release of this lease undoes them.
                let keeper = &mut holding.keeper;
                keeper.hold.unsettle(until);
                keeper.request_may_be_late(request.ttl, self.now);
                schedule(owner, keeper, &mut self.effects, self.now);
            }
        } else if request.left.is_something() {
            let work = Settle::of(entry.name.clone(), owner.clone(), request.ttl, until);
            self.clean_up(work);
        }
        self.owners.tidy(owner);
    }

    /// Waits for a hint, for at most `pause`.
    fn listen(&mut self, owner: &Owner, pause: Duration) {
        let Some(asking) = self.owners.asking(owner) else {
            return;
        };
        if let Some(hint) = asking.hint.take() {
            return self.hint(owner, hint);
        }
        let at = self.now.after(pause);
        asking.asks_at = Some(self.effects.wake(at, Due::Ask(owner.clone())));
    }

    /// Takes a hint, now or when the request under way is answered.
    fn hint(&mut self, owner: &Owner, hint: Hint) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Asking(asking) = &mut entry.state else {
            return;
        };
        if entry.asked.is_some() {
            asking.hint = asking.hint.max(Some(hint));
            return;
        }
        match hint {
            Hint::Claim => self.claim(owner),
            Hint::Ask if asking.is_full() => self.claim(owner),
            Hint::Ask => self.ask(owner),
        }
    }

    /// Asks the store. Joins the store's queue if any caller waits.
    fn ask(&mut self, owner: &Owner) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Asking(asking) = &entry.state else {
            return;
        };
        let waits = entry.waiting.iter().any(|waiter| !waiter.is_once());
        // The first request, without others in the way, was another one.
        let block = block_for(alike(&entry.waiting, &asking.terms), true);
        let step = acquire(owner, &asking.terms, block, waits);
        self.request(owner, step, waits);
    }

    /// Claims a lock that may have been granted. Works also on a server that refuses new requests because its memory is full.
    fn claim(&mut self, owner: &Owner) {
        let Some(asking) = self.owners.asking(owner) else {
            return;
        };
        let step = Step::Extend {
            owner: owner.clone(),
            ttl: asking.terms.ttl,
            // Whatever it was granted is welcome.
            fence: None,
        };
        self.request(owner, step, true);
    }

    fn request(&mut self, owner: &Owner, step: Step, waits: bool) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Asking(asking) = &mut entry.state else {
            return;
        };
        if let Some(ticket) = asking.asks_at.take() {
            self.effects.unset(ticket);
        }
        asking.sends();
        entry.asked = Some(SentRequest {
            ttl: asking.terms.ttl,
            sent: self.now,
            waits,
            left: asking.left,
        });
        let name = entry.name.clone();
        self.send(name, step, To::Acquisition(owner.clone()));
    }

    /// The time limit of a request has passed: refuses it with the reason, unless an answer is expected soon. A missing answer gets a moment
    /// more than the limit, since it may grant the lock or give the reason. After a request that has just failed, the next one may be
    /// answered: with a short TTL, a stall of some milliseconds makes a request fail.
    fn limit_passed(&mut self, name: &LockName, id: u64) {
        let now = self.now;
        let Some(entry) = self.owners.acting_for(name) else {
            return;
        };
        let Some(at) = entry.position(id) else {
            return;
        };
        let waiter = &mut entry.waiting[at];
        let error = match &entry.state {
            OwnerState::Asking(asking) => {
                // Who has a slow store has given it more time.
                let patience = SILENCE.max(self.about.request_timeout / 8);
                let silent_since = asking.silent_since(entry.asked.as_ref());
                let patient_until = silent_since.map(|since| since.after(patience));
                if let Some(until) = patient_until.filter(|until| *until > now) {
                    // The answer may come before.
                    let at = until.min(now.after(SILENCE));
                    let due = Due::Limit(Box::new((name.clone(), id)));
                    waiter.alarm = Some(self.effects.wake(at, due));
                    return;
                }
                let under_way = entry.asked.is_some();
                let (client, store) = (self.identity.client, &*self.about.store);
                waiter.not_taken(asking, under_way, client, at, now, store)
            }
            OwnerState::Holding(holding) => {
                waiter.still_busy(holding.keeper.hold.view(), true, at, now)
            }
            // No other owner acts for a line.
            _ => return,
        };
        if let Some(waiter) = self.leave(name, id) {
            self.effects.push(Effect::Refuse(waiter, Box::new(error)));
        }
    }

    // Grants, and the end of a lease.

    /// A wake says that the store has granted the lock.
    fn granted(&mut self, name: &LockName, wake: &Wake) {
        let owner = &wake.owner;
        if owner.client() != self.identity.client {
            // Whoever may publish could make this client release others.
            return;
        }
        if let Some(asking) = self.owners.asking(owner) {
            let (Some(first), Some(term)) = (wake.fence, asking.granted_until(wake, self.now))
            else {
                return self.hint(owner, Hint::Claim);
            };
            if let Some(ticket) = asking.asks_at.take() {
                self.effects.unset(ticket);
            }
            let block = wake.block;
            self.taken(
                owner,
                Fences { first, block },
                (wake.slot, wake.queued),
                term,
                false,
            );
        } else if self.owners.holding(owner).is_none()
            && let Ok(granted) = Ttl::new(CLAIM_WINDOW)
        {
            // The acquisition was given up (E2). If the lock was used and released instead, this does nothing.
            let work = Settle::of(name.clone(), owner.clone(), granted, None);
            self.clean_up(work);
        }
    }

    /// The store has granted the lock, with this slot and so many waiters. The first waiter gets it; the grant is undone if nobody wants
    /// it on these terms. A grant that is the answer to a request was made at once, so the next one may be as well.
    fn taken(
        &mut self,
        owner: &Owner,
        fences: Fences,
        (slot, queued): (Option<u16>, u32),
        term: Term,
        is_answer: bool,
    ) {
        let now = self.now;
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Asking(asking) = &entry.state else {
            return;
        };
        drop_gone(&mut entry.waiting);
        let is_for_it = |waiter: &Waiter| *waiter.terms() == asking.terms;
        let unsettled_until = asking.left.unsettled_until;
        let fits = entry.waiting.front().is_some_and(is_for_it);
        let Some(waiter) = fits.then(|| entry.waiting.pop_front()).flatten() else {
            let (name, waiting) = (entry.name.clone(), mem::take(&mut entry.waiting));
            let ttl = asking.terms.ttl;
            let work = Settle::of(name.clone(), owner.clone(), ttl, unsettled_until);
            self.clean_up(work);
            return if self.owners.is_acting(&name, owner) {
                self.go_on(&name, waiting, None);
            };
        };
        let mut start = Start {
            asked_at: term.asked_at,
            until: term.until,
            unsettled_until,
            lasts: term.lasts,
            slot,
            ..waiter.start(owner, fences.first)
        };
        let is_shared = start.mode == Mode::Shared;
        if is_shared {
            // Its readers have the settings of their requests.
            (start.auto_renew, start.max_hold) = (true, None);
        }
        let hold = Arc::new(Hold::new(self.clock.clone(), start, now));
        let mut keeper = Keeper::new(hold.clone(), now);
        if let Some(asked) = &entry.asked {
            // A wake was faster than the answer.
            keeper.request_is_under_way(asked.ttl, now);
        }
        if let Some((at, how)) = self.replaced
            && hold.asked_at <= at
        {
            // The old server may have granted it (L4).
            keeper.replaced(how, now);
        }
        schedule(owner, &mut keeper, &mut self.effects, self.now);
        let mut stay = Session::new(fences);
        stay.queued(queued.max(asking.wanted.into()), now.as_micros());
        let heard = asking.wanted.then_some(now);
        let holding = Holding::new(asking.terms.clone(), stay, keeper, heard);
        entry.state = OwnerState::Holding(holding);
        if is_shared {
            self.join(owner, waiter, true);
            return self.let_readers_in(owner, true);
        }
        if let Some(number) = slot {
            let waiting = mem::take(&mut entry.waiting);
            unset_alarm(&waiter, &mut self.effects);
            let terms = waiter.terms().clone();
            self.effects.push(Effect::Grant(waiter, hold.clone()));
            self.has_had_slots = true;
            let may_be_free = is_answer && queued == 0;
            let above = may_be_free.then_some(number);
            return self.stands_aside(&hold, &terms, waiting, above);
        }
        let once = take_once(&mut entry.waiting);
        if entry.waiting.is_empty() {
            let line = mem::take(&mut entry.waiting);
            self.owners.spare_line(line);
        }
        unset_alarm(&waiter, &mut self.effects);
        self.effects.push(Effect::Grant(waiter, hold));
        for waiter in once {
            self.tell_busy(waiter);
        }
    }

    /// The owner of a slot leaves its line, which goes on with another one (Q1). If slots above this number may be free, some are asked for
    /// at once on these terms: all below it are taken (core: C9). Those requests go before the line's own, which asks for one as well. So
    /// when that is answered, nothing is to come for its callers.
    fn stands_aside(
        &mut self,
        hold: &Arc<Hold>,
        terms: &Terms,
        waiting: VecDeque<Waiter>,
        above: Option<u16>,
    ) {
        let name = &hold.name;
        if !self.owners.is_acting(name, &hold.owner) {
            return;
        }
        self.owners.ends(name);
        if let (Some(number), Mode::Slot(slots)) = (above, terms.mode) {
            let free = usize::from(slots.get().saturating_sub(number));
            let wanted = alike(&waiting, terms).min(free);
            self.probe(name, terms, wanted.saturating_sub(1));
        }
        self.go_on(name, waiting, None);
    }

    /// An owner that was granted a slot beside a line serves the first of it.
    fn serves_the_line(&mut self, owner: &Owner) {
        if let Some(entry) = self.owners.get(owner)
            && let OwnerState::Asking(asking) = &entry.state
        {
            let (name, terms) = (entry.name.clone(), asking.terms.clone());
            let first = self.first_of_line(&name, &terms);
            if let Some(entry) = self.owners.get(owner) {
                entry.waiting.extend(first);
            }
        }
    }

    /// Takes out the first caller of a line that asks, if it wants these terms. The line ends with its last one (Q5).
    fn first_of_line(&mut self, name: &LockName, terms: &Terms) -> Option<Waiter> {
        let entry = self.owners.acting_for(name)?;
        if !matches!(entry.state, OwnerState::Asking(_)) {
            return None;
        }
        drop_gone(&mut entry.waiting);
        let fits = entry
            .waiting
            .front()
            .is_some_and(|first| first.terms() == terms);
        let first = fits.then(|| entry.waiting.pop_front()).flatten();
        if entry.waiting.is_empty()
            && let Some(owner) = self.owners.ends(name)
        {
            self.abandon(&owner);
        } else if first.is_some() {
            self.has_another_first(name);
        }
        first
    }

    /// The first of a line has gone, or another caller. Readers that it kept out join those that hold. Where the owner asks for another
    /// mode than the first now wants, the line asks anew: it would keep out others for nothing.
    fn has_another_first(&mut self, name: &LockName) {
        let Some(entry) = self.owners.acting_for(name) else {
            return;
        };
        match &entry.state {
            OwnerState::Holding(holding) if !holding.keeper.readers.is_empty() => {
                let owner = holding.keeper.hold.owner.clone();
                self.let_readers_in(&owner, false);
            }
            OwnerState::Asking(asking) => {
                let mode = asking.terms.mode;
                let first = entry.waiting.front();
                if first.is_some_and(|first| first.mode() != mode) {
                    let waiting = mem::take(&mut entry.waiting);
                    if let Some(owner) = self.owners.ends(name) {
                        self.abandon(&owner);
                    }
                    self.go_on(name, waiting, None);
                }
            }
            _ => {}
        }
    }

    /// A reader joins the stay of this owner (Q7), which has just been granted or has gone on for a while.
    fn join(&mut self, owner: &Owner, waiter: Waiter, is_granted: bool) {
        let now = self.now;
        let Some(holding) = self.owners.holding(owner) else {
            return;
        };
        holding.idle_until = None;
        let keeper = &mut holding.keeper;
        let stay = &keeper.hold;
        let start = waiter.start(owner, stay.fence);
        let own_end = if start.auto_renew {
            stay.deadline()
        } else {
            now.after(start.ttl.get())
        };
        let start = Start {
            grant: stay.grant,
            asked_at: stay.asked_at,
            until: stay.deadline().min(own_end),
            stay: Some(stay.clone()),
            ..start
        };
        let hold = Arc::new(Hold::new(self.clock.clone(), start, now));
        hold.doubt_like(stay);
        keeper.readers.push(hold.clone());
        if hold.ttl > keeper.ttl {
            keeper.ask_for(hold.ttl);
        }
        schedule(owner, keeper, &mut self.effects, now);
        let is_short = hold.deadline().since(now) < hold.ttl.get() / 2;
        let asks = !is_granted && is_short && keeper.under_way.is_none();
        unset_alarm(&waiter, &mut self.effects);
        self.effects.push(Effect::Grant(waiter, hold));
        if asks {
            self.renew(owner, RenewalCause::Asked);
        }
    }

    /// The readers at the head of the line join the stay of this owner: all of them at its grant. Callers that only try are told.
    fn let_readers_in(&mut self, owner: &Owner, is_granted: bool) {
        loop {
            let Some(entry) = self.owners.get(owner) else {
                return;
            };
            let OwnerState::Holding(holding) = &mut entry.state else {
                return;
            };
            drop_gone(&mut entry.waiting);
            let enters = |first| holding.admits(first, is_granted, self.now);
            if entry.waiting.front().is_some_and(enters)
                && let Some(first) = entry.waiting.pop_front()
            {
                self.join(owner, first, is_granted);
                continue;
            }
            for waiter in take_once(&mut entry.waiting) {
                self.tell_busy(waiter);
            }
            return;
        }
    }

    /// A reader is given back. The lock is released with the last one.
    fn reader_released(&mut self, stay: &Arc<Hold>, pending: PendingRelease, tells_wanted: bool) {
        let (now, hold) = (self.now, pending.hold.clone());
        let owner = &hold.owner;
        let is_last = stay.reader_left();
        let lost = pending.lost.as_deref().cloned();
        let result = lost.map_or(Ok(()), |lost| Err(lost.into()));
        if let Some(keep) = pending.keep
            && result.is_ok()
        {
            stay.keep_until(now.after(keep.get()));
        }
        let Some(Entry {
            name,
            state: OwnerState::Holding(holding),
            waiting,
            ..
        }) = self.owners.get(owner)
        else {
            // The stay is over, and its line has gone on without it. It is released once: it may be kept on purpose.
            if is_last && stay.give_back() {
                self.give_up(owner, stay, Some(pending));
            } else {
                self.effects.push(Effect::Released(pending, result));
            }
            return;
        };
        let readers = &mut holding.keeper.readers;
        readers.retain(|reader| !Arc::ptr_eq(reader, &hold));
        if !readers.is_empty() {
            return self.effects.push(Effect::Released(pending, result));
        }
        drop_gone(waiting);
        let stays_here = result.is_ok()
            && !self.is_closed
            && stay.left_to_keep(now).is_none()
            && stay.is_fit_to_hand_on(stay.ttl, now);
        if stays_here
            && waiting.is_empty()
            && tells_wanted
            && holding.stays_idle(&hold, now, &mut self.effects)
        {
            return self.effects.push(Effect::Released(pending, Ok(())));
        }
        let (name, waiting) = (name.clone(), mem::take(waiting));
        self.give_up(owner, stay, Some(pending));
        self.go_on(&name, waiting, None);
    }

    /// A slot is given back: to the first of the line, or to the store.
    fn slot_released(&mut self, pending: PendingRelease, stays_here: bool) {
        let (now, hold) = (self.now, pending.hold.clone());
        let owner = &hold.owner;
        if stays_here
            && let Some(holding) = self.owners.holding(owner)
            && let Ok(fence) = holding.stay.hand_over(now.as_micros())
        {
            let terms = holding.terms.clone();
            if let Some(waiter) = self.first_of_line(&hold.name, &terms) {
                self.hand_on(owner, waiter, fence);
                return self.effects.push(Effect::Released(pending, Ok(())));
            }
        }
        self.give_up(owner, &hold, Some(pending));
    }

    /// Ends the readers whose own end has come. The stay goes on with the others, or is over: returns whether it is.
    fn readers_due(&mut self, owner: &Owner) -> bool {
        let now = self.now;
        let Some(holding) = self.owners.holding(owner) else {
            return true;
        };
        let (readers, effects) = (&mut holding.keeper.readers, &mut self.effects);
        readers.retain(|reader| {
            let cause = reader.overdue(now);
            if let Some(cause) = cause.clone() {
                effects.push(Effect::Ended(reader.clone(), reader.lose(cause)));
            }
            cause.is_none()
        });
        if !readers.is_empty() {
            return false;
        }
        let stay = holding.keeper.hold.clone();
        let line = self.owners.get(owner);
        let waiting = line.map(|entry| mem::take(&mut entry.waiting));
        self.give_up(owner, &stay, None);
        self.go_on(&stay.name, waiting.unwrap_or_default(), None);
        true
    }

    /// A request finds the lock idle, and gets it if that fits.
    fn take_idle(&mut self, name: &LockName, waiter: Waiter) {
        let now = self.now;
        let Some(entry) = self.owners.acting_for(name) else {
            return;
        };
        let OwnerState::Holding(holding) = &mut entry.state else {
            return;
        };
        let hold = holding.keeper.hold.clone();
        let fits =
            *waiter.terms() == holding.terms && hold.is_fit_to_hand_on(holding.terms.ttl, now);
        if fits && let Ok(fence) = holding.stay.hand_over(now.as_micros()) {
            holding.idle_until = None;
            self.hand_on(&hold.owner, waiter, fence);
        } else {
            let stay = holding.stay.clone();
            self.give_up(&hold.owner, &hold, None);
            self.ask_for(waiter, iter::empty(), Some(&stay));
        }
    }

    /// The lock goes on to this waiter, under the next fence of the stay.
    fn hand_on(&mut self, owner: &Owner, waiter: Waiter, fence: Fence) {
        let Some(holding) = self.owners.holding(owner) else {
            return;
        };
        let before = &holding.keeper.hold;
        let start = Start {
            grant: before.grant,
            slot: before.slot,
            asked_at: before.asked_at,
            until: before.deadline(),
            unsettled_until: before.unsettled_until(),
            ..waiter.start(owner, fence)
        };
        let hold = Arc::new(Hold::new(self.clock.clone(), start, self.now));
        unset_alarm(&waiter, &mut self.effects);
        self.keep_on(owner, &hold);
        self.effects.push(Effect::Grant(waiter, hold));
    }

    /// The next lease of an owner, after a hand-over. It has the deadline of the lease before it.
    fn keep_on(&mut self, owner: &Owner, hold: &Arc<Hold>) {
        let Some(holding) = self.owners.holding(owner) else {
            // Lost a moment ago.
            let ended = hold.lose(LossCause::Deadline(None));
            return self.effects.push(Effect::Ended(hold.clone(), ended));
        };
        let keeper = &mut holding.keeper;
        if let Err(cause) = hold.renew_until(keeper.hold.deadline()) {
            // Its deadline has passed since it was made, and a reader may have seen that (L3, Q6).
            keeper.hold = hold.clone();
            return self.end(owner, Some(cause), None);
        }
        let is_short = hold.deadline().since(hold.since) < hold.ttl.get() / 2;
        if keeper.goes_on_with(hold, is_short) {
            schedule(owner, keeper, &mut self.effects, self.now);
        }
        if is_short && keeper.under_way.is_none() {
            self.renew(owner, RenewalCause::Asked);
        }
    }

    /// Ends a lease, which was not ended before.
    fn released(&mut self, release: Release) {
        let Release {
            hold,
            keep,
            verdict,
            tells_wanted,
        } = release;
        let (now, lost) = (self.now, hold.loss());
        let fits = lost.is_none() && hold.is_fit_to_hand_on(hold.ttl, now);
        // Then no waiter gets the lock, not even one of this client.
        let keep = keep.max(hold.left_to_keep(now));
        let stays_here = keep.is_none() && fits && !self.is_closed;
        let how = match (&lost, &verdict) {
            (Some(lost), _) => How::Lost(lost.cause.clone()),
            (None, Some(_)) => How::Released,
            (None, None) => How::Dropped,
        };
        let ended = hold.retire(how);
        self.effects.push(Effect::Ended(hold.clone(), ended));
        let owner = &hold.owner;
        if !tells_wanted {
            // The store does not notify of waiters, so assume that there are some.
            self.wanted(owner);
        }
        let pending = PendingRelease {
            hold: hold.clone(),
            keep,
            lost: lost.map(Box::new),
            verdict,
        };
        if let Some(stay) = &hold.stay {
            return self.reader_released(stay, pending, tells_wanted);
        }
        if hold.slot.is_some() {
            return self.slot_released(pending, stays_here);
        }
        let Some(Entry {
            name,
            state: OwnerState::Holding(holding),
            waiting,
            ..
        }) = self.owners.get(owner)
        else {
            // It was lost, and its line has gone on without it.
            return self.give_up(owner, &hold, Some(pending));
        };
        drop_gone(waiting);
        let is_for_it = |waiter: &Waiter| *waiter.terms() == holding.terms;
        let fits_next = waiting.front().is_some_and(is_for_it);
        if stays_here
            && waiting.is_empty()
            && tells_wanted
            && holding.stays_idle(&hold, now, &mut self.effects)
        {
            return self.effects.push(Effect::Released(pending, Ok(())));
        }
        if stays_here
            && fits_next
            && let Ok(fence) = holding.stay.hand_over(now.as_micros())
            && let Some(waiter) = waiting.pop_front()
        {
            self.hand_on(owner, waiter, fence);
            return self.effects.push(Effect::Released(pending, Ok(())));
        }
        let (name, stay) = (name.clone(), holding.stay.clone());
        // An empty line stays where it is, with its memory.
        let waiting = if waiting.is_empty() {
            VecDeque::new()
        } else {
            mem::take(waiting)
        };
        self.give_up(owner, &hold, Some(pending));
        self.go_on(&name, waiting, Some(&stay));
    }

    /// Gives the lock of `owner` back to the store; with a use of it that ends now, or else of an idle lease.
    fn give_up(&mut self, owner: &Owner, hold: &Arc<Hold>, pending: Option<PendingRelease>) {
        let now = self.now;
        let keep = pending.as_ref().and_then(|release| release.keep);
        // A lease extended by hand may have longer to go than it was taken for.
        let left = Ttl::new(hold.deadline().since(now));
        let lost = pending.as_ref().and_then(|release| release.lost.as_ref());
        // Another owner may hold a lost lock now, so it must not be kept. A lease lost by closing the client is still this client's.
        let is_lost = lost.is_some_and(|lost| lost.cause != LossCause::Closed);
        // A reader that comes later does not release it again.
        hold.give_back();
        self.settle(Settle {
            name: hold.name.clone(),
            owner: owner.clone(),
            ttl: left.map_or(hold.ttl, |left| left.max(hold.ttl)),
            fence: hold.named(),
            keep: keep.filter(|_| !is_lost).max(hold.left_to_keep(now)),
            unsettled_until: hold.unsettled_until(),
            pending_release: pending,
            is_detached: hold.is_detached(),
        });
    }

    /// An idle lock goes back to the store, and its line ends.
    fn give_up_idle(&mut self, owner: &Owner) {
        if let Some(holding) = self.owners.holding(owner) {
            let hold = holding.keeper.hold.clone();
            self.owners.ends(&hold.name);
            self.give_up(owner, &hold, None);
        }
    }

    /// Another client waits for the lock of `owner`: an idle lease is released at once. Returns whether that is all.
    fn wanted(&mut self, owner: &Owner) -> bool {
        let now = self.now;
        if let Some(asking) = self.owners.asking(owner) {
            asking.wanted = true;
            return true;
        }
        let Some(holding) = self.owners.holding(owner) else {
            return false;
        };
        if holding.idle_until.is_some() {
            self.give_up_idle(owner);
            return true;
        }
        holding.is_wanted(now);
        holding.keeper.hold.slot.is_none()
    }

    /// Another client waits for a slot. The store tells one owner of each client, which may not hold any more, and any slot will do.
    fn slots_wanted(&mut self, name: &LockName) {
        for holding in self.owners.all_slots(name) {
            holding.is_wanted(self.now);
        }
    }

    /// Checks an idle lease: it is released if it has been idle for long enough.
    fn idle_due(&mut self, owner: &Owner) {
        let now = self.now;
        let Some(holding) = self.owners.holding(owner) else {
            return;
        };
        if holding.idle_until.is_some_and(|until| until <= now) {
            self.give_up_idle(owner);
        } else {
            holding.look(owner, now, &mut self.effects);
        }
    }

    /// A lease has ended by itself, for this reason if it was in use. The waiters do not wait until its user notices. With `left_held`, the
    /// store has a grant of this TTL that no lease uses: it is released before the waiters ask.
    fn end(&mut self, owner: &Owner, cause: Option<LossCause>, left_held: Option<Ttl>) {
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Holding(holding) = &mut entry.state else {
            return;
        };
        let keeper = &mut holding.keeper;
        let (name, hold, waiting) = (
            entry.name.clone(),
            keeper.hold.clone(),
            mem::take(&mut entry.waiting),
        );
        let is_idle = holding.idle_until.is_some();
        entry.lost_renewal = keeper.under_way.as_ref().map(|renewal| renewal.ttl);
        if let Some(cause) = cause {
            for hold in keeper.all() {
                let ended = hold.lose(cause.clone());
                self.effects.push(Effect::Ended(hold.clone(), ended));
            }
        }
        if is_idle {
            // It has no user that would release it.
            self.give_up(owner, &hold, None);
        } else {
            if let Some(OwnerState::Holding(mut holding)) = self.owners.retire(owner) {
                forget(&mut holding.keeper, &mut self.effects);
            }
            self.owners.tidy(owner);
        }
        if let Some(ttl) = left_held {
            self.clean_up(Settle::of(name.clone(), owner.clone(), ttl, None));
        }
        // The owner of a slot stands beside its line.
        if hold.slot.is_none() {
            self.go_on(&name, waiting, None);
        }
    }

    /// Ends all waiting and all leases.
    fn close(&mut self) {
        self.is_closed = true;
        let lines = self.owners.close();
        for (_, owner) in &lines {
            if let Some(entry) = self.owners.get(owner) {
                let waiting = mem::take(&mut entry.waiting);
                self.refuse(waiting, &StoreError::closed().into());
            }
        }
        for (_, owner) in &lines {
            if self.owners.asking(owner).is_some() {
                self.abandon(owner);
            }
        }
        for (_, owner) in lines {
            if let Some(holding) = self.owners.holding(&owner) {
                let keeper = &holding.keeper;
                let hold = keeper.hold.clone();
                for lease in keeper.all() {
                    let ended = lease.lose(LossCause::Closed);
                    self.effects.push(Effect::Ended(lease.clone(), ended));
                    // An idle lease was released by its user, but not in the store.
                    lease.give_back();
                    if let Some(keep) = lease.left_to_keep(self.now) {
                        hold.keep_until(self.now.after(keep.get()));
                    }
                }
                self.give_up(&owner, &hold, None);
            }
        }
    }

    // Renewals.

    /// Renews a lease now, for `ttl`, and uses `ttl` from then on.
    fn extend(&mut self, owner: &Owner, ttl: Ttl, caller: ExtendReply) {
        let Some(holding) = self.owners.holding(owner) else {
            return self.effects.push(Effect::Forgotten(vec![caller]));
        };
        let keeper = &mut holding.keeper;
        // One reader does not shorten the stay of others.
        let least = (!keeper.readers.is_empty()).then_some(keeper.ttl);
        keeper.ask_for(least.map_or(ttl, |least| least.max(ttl)));
        keeper.callers.push(caller);
        if holding.keeper.under_way.is_none() {
            self.renew(owner, RenewalCause::Asked);
        }
    }

    /// The timer of this lease has fired.
    fn lease_due(&mut self, owner: &Owner) {
        let now = self.now;
        let Some(holding) = self.owners.holding(owner) else {
            return;
        };
        let keeper = &mut holding.keeper;
        keeper.ticket = None;
        if let Some(cause) = keeper.hold.overdue(now) {
            return self.end(owner, Some(cause), None);
        }
        if keeper.has_reader_due(now) {
            if self.readers_due(owner) {
                return;
            }
            return self.lease_due(owner);
        }
        if !keeper.is_due(now) {
            schedule(owner, keeper, &mut self.effects, self.now);
        } else if self.renewals >= AT_ONCE {
            keeper.is_in_backlog = true;
            schedule(owner, keeper, &mut self.effects, self.now);
            self.backlog.push_back(owner.clone());
        } else {
            self.renew(owner, RenewalCause::Due);
        }
    }

    /// Sends a renewal, unless the lease ended a moment ago.
    fn renew(&mut self, owner: &Owner, why: RenewalCause) {
        let Some(holding) = self.owners.holding(owner) else {
            return;
        };
        let keeper = &mut holding.keeper;
        if keeper.has_reader_due(self.now) {
            if self.readers_due(owner) {
                return;
            }
            return self.renew(owner, why);
        }
        let hold = keeper.hold.clone();
        if hold.is_lost() || hold.is_past() {
            let callers = mem::take(&mut keeper.callers);
            let lost = hold.loss();
            let cause = lost.as_ref().map(|lost| lost.cause.clone());
            self.end(owner, cause, None);
            let verdict = lost.map_or_else(|| StoreError::closed().into(), Error::Lost);
            self.effects.push(Effect::Extended(callers, Err(verdict)));
            return;
        }
        let step = Step::Extend {
            owner: owner.clone(),
            ttl: keeper.begin(self.now),
            fence: hold.named(),
        };
        if keeper.is_to_be_indexed(self.now) {
            self.effects.push(Effect::Index(hold.name.clone()));
        }
        schedule(owner, keeper, &mut self.effects, self.now);
        self.renewals += usize::from(why == RenewalCause::Due);
        self.send(hold.name.clone(), step, To::Renewal(owner.clone(), why));
    }

    /// A renewal was answered.
    fn renewed(&mut self, owner: &Owner, why: RenewalCause, answer: Answer) {
        let holding = self.owners.holding(owner);
        if let Some(renewal) = holding.and_then(|holding| holding.keeper.under_way.take()) {
            self.lease_renewed(owner, &renewal, answer);
        } else if let Some(entry) = self.owners.get(owner)
            && let Some(ttl) = entry.lost_renewal.take()
        {
            // Lost while the renewal was under way (RN3). What was released is settled already, and may be kept on purpose.
            if matches!(answer, Ok(Reply::Held(_))) {
                let work = Settle::of(entry.name.clone(), owner.clone(), ttl, None);
                self.clean_up(work);
            }
            self.owners.tidy(owner);
        }
        if why == RenewalCause::Due {
            self.renewals -= 1;
            self.send_from_backlog();
        }
    }

    fn lease_renewed(&mut self, owner: &Owner, renewal: &Renewal, answer: Answer) {
        let now = self.now;
        let Some(holding) = self.owners.holding(owner) else {
            return;
        };
        let (keeper, sent, ttl) = (&mut holding.keeper, renewal.sent, renewal.ttl);
        let (lease, has_readers) = (keeper.hold.clone(), !keeper.readers.is_empty());
        // If the old server has confirmed the lease, its callers wait for the word of the new one, which is asked below.
        let asked = keeper.told_by_the_old(&answer).then_some(0);
        let asked = asked.unwrap_or(renewal.callers as usize);
        let callers: Vec<_> = keeper.callers.drain(..asked).collect();
        let answer = keeper.believes(answer, &self.about.store);
        let said = Said::by(&answer);
        let (verdict, heard) = match answer.map(|reply| keeper.heard(reply, sent, ttl, now)) {
            Ok(Ok(held)) => (Ok(()), Ok(Some(held.queued))),
            Ok(Err((cause, left))) => {
                let lost = lease.lost(cause.clone());
                (Err(lost.into()), Err((cause, left)))
            }
            Err(error) => {
                keeper.failed(ttl, &error, now);
                (Err(error.into()), Ok(None))
            }
        };
        if !callers.is_empty() {
            self.effects.push(Effect::Extended(callers, verdict));
        }
        let took = now.since(sent);
        self.effects.push(Effect::Renewed(lease, took, said));
        match heard {
            Ok(queued) => {
                if keeper.callers.is_empty() {
                    schedule(owner, keeper, &mut self.effects, self.now);
                } else {
                    self.renew(owner, RenewalCause::Asked);
                }
                match queued {
                    Some(0) => {
                        if let Some(holding) = self.owners.holding(owner) {
                            holding.is_wanted_by_none(sent, now);
                        }
                    }
                    Some(_) => {
                        self.wanted(owner);
                    }
                    None => {}
                }
                if has_readers {
                    self.let_readers_in(owner, false);
                }
            }
            Err((cause, left_held)) => {
                self.end(owner, Some(cause), left_held.then_some(ttl));
            }
        }
    }

    /// Sends the next renewals of the backlog (RN5).
    fn send_from_backlog(&mut self) {
        while self.renewals < AT_ONCE
            && let Some(owner) = self.backlog.pop_front()
        {
            let now = self.now;
            let holding = self.owners.holding(&owner);
            // If a caller renewed it meanwhile, it has its renewal (RN1).
            if let Some(keeper) = holding.map(|holding| &mut holding.keeper)
                && mem::take(&mut keeper.is_in_backlog)
            {
                if keeper.is_due(now) {
                    self.renew(&owner, RenewalCause::Due);
                } else {
                    schedule(&owner, keeper, &mut self.effects, self.now);
                }
            }
        }
        if self.backlog.is_empty() {
            // A long backlog must not keep its memory.
            self.backlog.shrink_to(AT_ONCE);
        }
    }

    /// Another server answers for these locks. It is asked for each lease at once, the lease with the earliest deadline first (L4).
    fn server_replaced(&mut self, how: Replaced, scope: &Scope) {
        // Also for the answers about other locks that are under way: it is not known which server they come from.
        self.replaced = Some((self.now, how));
        for (owner, keeper) in self.owners.all_held() {
            if scope.has(&keeper.hold.name) {
                keeper.replaced(how, self.now);
                schedule(owner, keeper, &mut self.effects, self.now);
            }
        }
    }

    // Settlements.

    /// Releases an owner, and repeats that until it is confirmed (U1). Its lease, if it has one, is not renewed any more.
    fn settle(&mut self, work: Settle) {
        let now = self.now;
        let entry = self.owners.entry(&work.name, &work.owner);
        match &mut entry.state {
            OwnerState::Settling(open) => {
                self.waiting -= usize::from(open.is_waiting());
                open.join(work, now);
                return open.release(now, &mut self.effects);
            }
            OwnerState::Holding(holding) => forget(&mut holding.keeper, &mut self.effects),
            _ => {}
        }
        let mut open = Settlement::new(work, now);
        open.release(now, &mut self.effects);
        entry.state = OwnerState::Settling(open);
    }

    /// Releases an unused owner, unless its lock is to stay taken (U3).
    fn clean_up(&mut self, work: Settle) {
        let now = self.now;
        match self.owners.get(&work.owner).map(|entry| &mut entry.state) {
            Some(
                OwnerState::Kept(until)
                | OwnerState::Abandoned {
                    kept_until: Some(until),
                    ..
                },
            ) if *until > now => {}
            Some(OwnerState::Settling(open)) if open.kept_until(now).is_some() => {
                open.may_be_late(work.unsettled_until);
            }
            _ => self.settle(work),
        }
    }

    /// The release of this number was answered.
    fn release_answered(&mut self, owner: &Owner, number: u32, answer: Answer) {
        let now = self.now;
        let Some(entry) = self.owners.get(owner) else {
            return;
        };
        let OwnerState::Settling(open) = &mut entry.state else {
            return;
        };
        self.waiting -= usize::from(open.is_waiting());
        let stage = open.answered(number, answer, now, &mut self.effects);
        let kept_until = open.kept_until(now);
        match stage {
            Stage::GoesOn => self.waiting += usize::from(open.is_waiting()),
            Stage::Settled => {
                entry.state = kept_until.map_or(OwnerState::Left, OwnerState::Kept);
                self.settled(owner, kept_until);
            }
            Stage::Abandoned(ttl) => {
                entry.state = OwnerState::Abandoned { ttl, kept_until };
                self.abandoned.push_back(owner.clone());
                if self.abandoned.len() > ABANDONED
                    && let Some(oldest) = self.abandoned.pop_front()
                    && let Some(entry) = self.owners.get(&oldest)
                    && let OwnerState::Abandoned { kept_until, .. } = entry.state
                {
                    let kept_until = kept_until.filter(|until| *until > now);
                    entry.state = kept_until.map_or(OwnerState::Left, OwnerState::Kept);
                    self.settled(&oldest, kept_until);
                }
            }
        }
    }

    /// A settlement is over. The owner is used no more, or its lock stays taken, which is remembered until `kept_until` (U3).
    fn settled(&mut self, owner: &Owner, kept_until: Option<Moment>) {
        if kept_until.is_some() {
            self.remember_kept(owner);
        } else {
            self.owners.tidy(owner);
        }
    }

    /// Remembers that the lock of this owner stays taken, and forgets those for which that is over.
    fn remember_kept(&mut self, owner: &Owner) {
        for owner in mem::take(&mut self.kept) {
            match self.owners.get(&owner).map(|entry| &mut entry.state) {
                Some(OwnerState::Kept(until)) if *until > self.now => self.kept.push_back(owner),
                Some(state @ OwnerState::Kept(_)) => {
                    *state = OwnerState::Left;
                    self.owners.tidy(&owner);
                }
                _ => {}
            }
        }
        self.kept.push_back(owner.clone());
    }

    /// It may be time for the next release of this owner.
    fn settlement_due(&mut self, owner: &Owner) {
        if let Some(open) = self.owners.settling(owner) {
            self.waiting -= usize::from(open.is_waiting());
            open.due(self.now, &mut self.effects);
            self.waiting += usize::from(open.is_waiting());
        }
    }

    // What callers are told.

    fn send(&mut self, name: LockName, step: Step, to: To) {
        self.effects.push(Effect::Send { name, step, to });
    }

    fn tell_busy(&mut self, waiter: Waiter) {
        unset_alarm(&waiter, &mut self.effects);
        self.effects.push(Effect::Busy(waiter));
    }

    /// Tells these waiters why they get no lease.
    fn refuse(&mut self, waiters: impl IntoIterator<Item = Waiter>, error: &Error) {
        for waiter in waiters {
            unset_alarm(&waiter, &mut self.effects);
            let refused = Effect::Refuse(waiter, Box::new(error.clone()));
            self.effects.push(refused);
        }
    }

    /// Calls `on_wait` of all waiters of a line, or of one.
    fn tell_watchers(&mut self, name: &LockName, only: Option<u64>) {
        let Some(entry) = self.owners.acting_for(name) else {
            return;
        };
        for (at, waiter) in entry.waiting.iter().enumerate() {
            if only.is_none_or(|id| id == waiter.id)
                && let Some(told) = waiter.watch(|| entry.seen(), at, self.now)
            {
                self.effects
                    .push(Effect::Watch(name.clone(), waiter.id, told));
            }
        }
    }
}

/// The step that asks for the lock.
fn acquire(owner: &Owner, terms: &Terms, block: Block, waits: bool) -> Step {
    Step::Acquire {
        owner: owner.clone(),
        mode: terms.mode,
        ttl: terms.ttl,
        block,
        wait: waits.then_some(Wait { listening: true }),
    }
}

/// The fences in the store's answer.
fn fences_of(held: &Held) -> Option<Fences> {
    let (first, block) = (held.fence?, held.block);
    Some(Fences { first, block })
}

/// Sets the timer of a lease (RN2).
fn schedule(owner: &Owner, keeper: &mut Keeper, effects: &mut Effects, now: Moment) {
    let at = keeper.next_event(now);
    match keeper.ticket {
        Some(ticket) if ticket.at() == at => return,
        Some(ticket) => effects.unset(ticket),
        None => {}
    }
    keeper.ticket = Some(effects.wake(at, Due::Lease(owner.clone())));
}

/// The lease of this keeper is over: it is not renewed any more.
fn forget(keeper: &mut Keeper, effects: &mut Effects) {
    if let Some(ticket) = keeper.ticket.take() {
        effects.unset(ticket);
    }
    keeper.under_way = None;
    let callers = mem::take(&mut keeper.callers);
    if !callers.is_empty() {
        effects.push(Effect::Forgotten(callers));
    }
}

fn unset_alarm(waiter: &Waiter, effects: &mut Effects) {
    if let Some(alarm) = waiter.alarm {
        effects.unset(alarm);
    }
}

#[cfg(test)]
impl Machine {
    /// Whether there is no line and no lease.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_idle()
    }

    /// Whether an owner is being settled.
    pub(super) fn is_settling(&self) -> bool {
        let waiting = self.owners.waiting_settlements();
        assert_eq!(waiting.iter().filter(|waits| **waits).count(), self.waiting);
        !waiting.is_empty()
    }

    /// Whether this owner is known to it (E1), requests under way aside.
    pub(super) fn knows(&mut self, owner: &Owner) -> bool {
        let entry = self.owners.get(owner);
        entry.is_some_and(|entry| !matches!(entry.state, OwnerState::Left))
    }

    /// How many leases there are.
    pub(super) fn leases_kept(&mut self) -> usize {
        self.owners.all_held().len()
    }

    /// Hands on a lease that was made a while ago.
    pub(super) fn hands_on(&mut self, hold: &Arc<Hold>, now: Moment) {
        self.now = now;
        self.keep_on(&hold.owner, hold);
    }
}
