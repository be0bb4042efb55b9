//! The possible actions of the lock model, and their effects: on clients, messages, the store, and by faults. Slow and idle clients are
//! covered: any client may do nothing.
//!
//! A client has the essence of how the library acquires, claims, renews, gives up and settles. It knows only the messages that it
//! received, and its own clock. Each step of the store is the `apply` of [`Lock`](super::model::Lock), then judged.

use leasehold_core::{
    Block, Counter, Fence, Fences, Foreign, Held, LockState, Outcome, Presence, Reply, Session,
    Step, UnknownPresence, Wait, Waiter, Wake, World,
};

use super::judge::{Taken, admits, is_its_hold};
use super::model::{Fault, LockModel, LockTurn, Situation, TICK_MS};
use super::state::{
    BusyReply, Client, Message, Parcel, Phase, ReplyKind, RequestKind, Span, State,
};
use super::time::{settle, tick};
use crate::frame::{CallId, NOW, those_possible, worded};

/// How many fences a client with hand-overs draws: more than two, so that neither the first nor the last is next to all others.
const MANY: u64 = 3;

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A request that is executed and answered at once, unless the reply is lost.
    Ask {
        client: u8,
        verb: RequestKind,
        lost: bool,
    },
    /// A request that stays in the network for a while.
    Send { client: u8, verb: RequestKind },
    /// A request in flight is executed; with `again`, it will be executed once more.
    Arrive { at: usize, again: bool },
    /// A reply or a wake reaches its client.
    Hear { at: usize },
    /// A message in flight is lost.
    Lose { at: usize },
    /// Something happens to a client, or it does something besides.
    Client(u8, ClientEvent),
    /// Something happens to the store.
    Store(StoreEvent),
    /// Time passes.
    Tick,
}

worded! {
    /// What a client does besides its requests, or what happens to it.
    ClientEvent {
        /// Its connection is cut.
        Cut => "is cut off",
        /// It reconnects.
        Connect => "connects anew",
        /// It hands the lock on inside its process, with its next fence.
        HandOn => "hands it on in its process",
        /// It stops waiting.
        GiveUp => "gives up",
        Crash => "crashes",
        /// A new client begins in place of a crashed one.
        Restart => "begins anew",
    }
}

worded! {
    /// What others do in the store, or what happens to it.
    StoreEvent {
        /// The operator inspects the lock, and notes the fence of the holder.
        Look => "operator looks",
        /// The operator breaks the lock by the noted fence.
        Break => "operator breaks what it saw",
        /// A foreign program takes the free lock for a lease.
        ForeignTakes => "foreign program takes it",
        /// A foreign program takes the free lock without a TTL.
        ForeignStays => "foreign program takes it for ever",
        ForeignEnds => "foreign program gives it back",
        LoseCounter => "the counter of fences is lost",
        Flush => "everything stored is lost",
        /// From now on, the replica keeps the state of this moment.
        Part => "the replica stops following",
        FailOver => "the replica takes over",
    }
}

impl LockModel {
    /// All actions that are possible in this state.
    pub(super) fn possible(&self, state: &State, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        into.push(Action::Tick);
        for client in 0..self.setup.clients {
            self.of_client(state, client, into);
        }
        for (at, message) in state.flight.iter().enumerate() {
            match message.what {
                Parcel::Request { twice, .. } => {
                    into.push(Action::Arrive { at, again: false });
                    if !twice && may(Fault::Twice) {
                        into.push(Action::Arrive { at, again: true });
                    }
                    continue;
                }
                Parcel::Wake(_) if !may(Fault::LostWake) => {}
                Parcel::Wake(_) | Parcel::Reply { .. } => into.push(Action::Lose { at }),
            }
            into.push(Action::Hear { at });
        }
        self.of_store(state, into);
    }

    fn of_client(&self, state: &State, client: u8, into: &mut Vec<Action>) {
        use RequestKind::{Extend, Keep, Release, Try, Wait, WaitMany};
        let may = |fault| self.setup.may(fault);
        let phase = state.client(client).phase;
        if state.client(client).away {
            return into.push(Action::Client(client, ClientEvent::Connect));
        }
        let verbs: &[_] = match phase {
            // A waiter that may have been granted the lock claims it by extending, which works on a full server too.
            Phase::Asking(_) if may(Fault::Blocks) => &[Wait, WaitMany, Extend],
            Phase::Asking(_) if self.setup.waits => &[Wait, Extend],
            Phase::Idle if may(Fault::Blocks) => &[Wait, WaitMany],
            Phase::Idle if self.setup.waits => &[Wait],
            Phase::Idle | Phase::Asking(_) => &[Try],
            Phase::Holding { .. } if may(Fault::Keep) => &[Extend, Release, Keep],
            Phase::Holding { .. } => &[Extend, Release],
            Phase::Leaving => &[Release],
            Phase::Crashed => &[],
        };
        for &verb in verbs {
            let ask = |lost| Action::Ask { client, verb, lost };
            into.push(ask(false));
            if may(Fault::LostReply) {
                into.push(ask(true));
            }
            if may(Fault::LateRequest) {
                into.push(Action::Send { client, verb });
            }
        }
        let (asks, crashed) = (matches!(phase, Phase::Asking(_)), phase == Phase::Crashed);
        let was_told = matches!(phase, Phase::Asking(Some(_)));
        let has_more = matches!(phase, Phase::Holding { fences, .. } if fences.first < fences.last);
        // A client that the store knows to be gone is not the same as its successor.
        let is_seen =
            || may(Fault::SeenCrash) && state.known().iter().any(|id| id.client == client);
        let may_crash = may(Fault::Crash);
        let events = [
            (ClientEvent::Cut, may(Fault::Away) && was_told),
            (ClientEvent::HandOn, has_more),
            (ClientEvent::GiveUp, may(Fault::Cancel) && asks),
            (ClientEvent::Restart, may_crash && crashed && !is_seen()),
            (
                ClientEvent::Crash,
                may_crash && !crashed && phase != Phase::Idle,
            ),
        ];
        into.extend(those_possible(events).map(|event| Action::Client(client, event)));
    }

    fn of_store(&self, state: &State, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        let (exists, is_foreign) = (state.lock().is_some(), state.is_foreign());
        let is_free = !is_foreign && !state.is_held();
        // C2 excludes a loss before the clock has passed the last fence.
        let passed = state.issued < NOW.wall_us;
        let counter = state.world.counter;
        let may_fail_over = |replica: &World| passed || replica.counter == counter;
        let events = [
            (StoreEvent::Look, may(Fault::Break) && exists),
            (StoreEvent::Break, may(Fault::Break) && state.seen.is_some()),
            (StoreEvent::ForeignEnds, may(Fault::Foreign) && is_foreign),
            (StoreEvent::ForeignTakes, may(Fault::Foreign) && is_free),
            (StoreEvent::ForeignStays, may(Fault::Foreign) && is_free),
            (
                StoreEvent::LoseCounter,
                passed && may(Fault::LostCounter) && counter != Counter(None),
            ),
            (StoreEvent::Flush, passed && may(Fault::Flush) && exists),
            (
                StoreEvent::Part,
                may(Fault::Failover) && state.replica.is_none(),
            ),
            (
                StoreEvent::FailOver,
                state.replica.as_ref().is_some_and(may_fail_over),
            ),
        ];
        into.extend(those_possible(events).map(Action::Store));
    }

    /// The step that a client sends. It believes to hold under this fence, unless that is 0.
    pub(super) fn asks(&self, from: CallId, verb: RequestKind, fence: u64) -> Step {
        let owner = self.subject.owners.of(from).clone();
        let (ttl, mode) = (self.subject.ttl, self.subject.mode(from.client));
        let fence = (fence > 0).then(|| Fence::new(fence));
        let acquire = |block, wait| Step::Acquire {
            owner: owner.clone(),
            mode,
            ttl,
            block,
            wait,
        };
        let wait = Some(Wait { listening: true });
        match verb {
            RequestKind::Try => acquire(Block::ONE, None),
            RequestKind::Wait => acquire(Block::ONE, wait),
            RequestKind::WaitMany => acquire(Block::nearest(MANY), wait),
            RequestKind::Extend => Step::Extend { owner, ttl, fence },
            RequestKind::Release => Step::Release {
                owner,
                keep: None,
                fence,
            },
            RequestKind::Keep => Step::Release {
                owner,
                keep: Some(ttl),
                fence,
            },
        }
    }
}

impl LockTurn<'_> {
    /// Carries out an action, and settles the times. `None` if it is out of bounds.
    pub(super) fn carry_out(&mut self, action: Action) -> Option<()> {
        self.act(action)?;
        settle(&mut self.state, &self.model.subject.name);
        let is_wake = |message: &&Message| matches!(message.what, Parcel::Wake(_));
        let wakes = self.state.flight.iter().filter(is_wake).count();
        let room = self.model.setup.in_flight;
        (wakes <= room && self.state.flight.len() - wakes <= room).then_some(())
    }

    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Ask { client, verb, lost } => {
                let (from, fence) = self.begin(client, verb)?;
                let got = self.ask(from, verb, fence)?;
                if lost {
                    self.reached(Situation::ReplyLost);
                } else {
                    self.answered(from, verb, got, (0, 0))?;
                }
            }
            Action::Send { client, verb } => {
                let (from, fence) = self.begin(client, verb)?;
                let twice = false;
                let request = Parcel::Request { verb, fence, twice };
                self.state.flight.push(Message::new(from, request));
            }
            Action::Arrive { at, again } => self.arrive(at, again)?,
            Action::Hear { at } => {
                let Message { id, age, what } = self.state.flight.remove(at);
                match what {
                    Parcel::Reply { verb, got, lag } => self.answered(id, verb, got, (lag, age))?,
                    Parcel::Wake(fences) => self.woken(id, fences, age)?,
                    Parcel::Request { .. } => return None,
                }
            }
            Action::Lose { at } => {
                let message = self.state.flight.remove(at);
                self.reached(match message.what {
                    Parcel::Wake(_) => Situation::WakeLost,
                    _ => Situation::ReplyLost,
                });
            }
            Action::Client(client, event) => self.happen_to_client(client, event)?,
            Action::Store(event) => self.happen_to_store(event)?,
            Action::Tick => self.pass(),
        }
        Some(())
    }

    fn happen_to_client(&mut self, client: u8, event: ClientEvent) -> Option<()> {
        let id = self.state.id(client);
        let mut queue = self.state.lock().into_iter().flat_map(|lock| &lock.queue);
        let is_queued = queue.any(|waiter| CallId::of(&waiter.owner) == id);
        let it = self.state.client_mut(client);
        match event {
            ClientEvent::Cut => it.away = true,
            ClientEvent::Connect => it.away = false,
            ClientEvent::HandOn => {
                let Phase::Holding { fences, .. } = &mut it.phase else {
                    return None;
                };
                // Each step that it takes from then on names the later fence.
                let left = Fences {
                    first: Fence::new(fences.first),
                    block: Block::nearest(fences.last - fences.first + 1),
                };
                fences.first = Session::new(left).hand_over(0).ok()?.get();
                self.reached(Situation::HandedOn);
            }
            ClientEvent::GiveUp => {
                it.phase = Phase::Leaving;
                self.reached_if(is_queued, Situation::Cancelled);
            }
            ClientEvent::Crash => {
                let held = matches!(it.phase, Phase::Holding { .. });
                *it = it.in_phase(0, Phase::Crashed);
                self.reached_if(is_queued, Situation::CrashedWaiting);
                self.reached_if(held && !is_queued, Situation::CrashedHolding);
            }
            ClientEvent::Restart => it.phase = Phase::Idle,
        }
        Some(())
    }

    fn happen_to_store(&mut self, event: StoreEvent) -> Option<()> {
        let name = &self.model.subject.name;
        match event {
            StoreEvent::Look => {
                if let Reply::Seen(seen) = self.take(&Step::Inspect, None)?
                    && let Some(holder) = seen.holder
                {
                    self.state.seen = holder.fence.map(Fence::get);
                }
            }
            StoreEvent::Break => self.break_lock()?,
            StoreEvent::ForeignTakes | StoreEvent::ForeignStays => {
                let ttl_ms = u64::from(self.model.setup.ttl) * TICK_MS;
                let expires = event == StoreEvent::ForeignTakes;
                self.state.world.entry(name).foreign = Some(Foreign {
                    kind: "string".into(),
                    value: b"theirs".to_vec(),
                    expires_at_ms: expires.then_some(NOW.millis() + ttl_ms),
                });
            }
            StoreEvent::ForeignEnds => self.state.world.entry(name).foreign = None,
            StoreEvent::LoseCounter => {
                self.reached_if(self.state.is_held(), Situation::CounterLost);
                self.state.world.counter = Counter::default();
            }
            StoreEvent::Flush => {
                self.reached_if(self.state.is_held(), Situation::Flushed);
                // The holder may believe to hold for longer than it does.
                let lock = self.state.lock().cloned().unwrap_or_default();
                for holder in &lock.holders {
                    self.rob(CallId::of(&holder.owner));
                }
                self.state.world = World::default();
                self.state.unclaimed = None;
            }
            StoreEvent::Part => self.state.replica = Some(self.state.world.clone()),
            StoreEvent::FailOver => self.fail_over()?,
        }
        Some(())
    }

    /// The belief of a client may be wrong from now on.
    fn rob(&mut self, id: CallId) {
        if self.state.is_current(id) {
            self.state.client_mut(id.client).robbed = true;
        }
    }

    /// Prepares a request: with a fresh owner if it begins, and with the fence by which the client believes to hold, if any.
    fn begin(&mut self, client: u8, verb: RequestKind) -> Option<(CallId, u64)> {
        let at = *self.state.client(client);
        let fence = match at.phase {
            Phase::Holding { fences, .. } => fences.first,
            _ => 0,
        };
        let mut from = self.state.id(client);
        if at.phase == Phase::Idle {
            let is_current = |id| self.state.is_current(id);
            let left_over = self.model.setup.left_over;
            from = CallId::fresh(client, left_over, &self.state.known(), is_current)?;
            *self.state.client_mut(client) = at.in_phase(from.nth, Phase::Asking(None));
        }
        if verb.is_release() {
            self.state.client_mut(client).phase = Phase::Leaving;
        }
        Some((from, fence))
    }

    fn arrive(&mut self, at: usize, again: bool) -> Option<()> {
        let message = &mut self.state.flight[at];
        let (from, lag) = (message.id, message.age);
        let Parcel::Request { verb, fence, twice } = &mut message.what else {
            return None;
        };
        let (verb, fence) = (*verb, *fence);
        let is_repeat = std::mem::replace(twice, true);
        if !again {
            self.state.flight.remove(at);
        }
        let is_over =
            !self.state.is_current(from) || self.state.client(from.client).phase == Phase::Leaving;
        self.reached_if(!verb.is_release() && is_over, Situation::AppliedLate);
        self.reached_if(is_repeat, Situation::AppliedTwice);
        let got = self.ask(from, verb, fence)?;
        // If a request is executed twice, the second reply counts.
        if again {
            return Some(());
        }
        if self.model.setup.may(Fault::LateReply) {
            let reply = Parcel::Reply { verb, got, lag };
            self.state.flight.push(Message::new(from, reply));
        } else {
            self.answered(from, verb, got, (lag, 0))?;
        }
        Some(())
    }

    fn break_lock(&mut self) -> Option<()> {
        let fence = Fence::new(self.state.seen.take()?);
        let before = self.state.clone();
        let reply = self.take(&Step::Break { fence }, None)?;
        if !matches!(reply, Reply::Released) {
            self.reached(Situation::BreakTooLate);
            return Some(());
        }
        let holders = before.lock().into_iter().flat_map(|lock| &lock.holders);
        for holder in holders.filter(|holder| holder.fences.contains(fence)) {
            let id = CallId::of(&holder.owner);
            let held = matches!(before.client(id.client).phase, Phase::Holding { .. });
            self.reached_if(held, Situation::Broken);
            if before.is_current(id) {
                self.state.client_mut(id.client).robbed = true;
            }
        }
        Some(())
    }

    /// Grants that the replica does not know are undone, and clients that believe in them are robbed.
    fn fail_over(&mut self) -> Option<()> {
        let replica = self.state.replica.take()?;
        let lock = replica.get(&self.model.subject.name);
        let lock = lock.cloned().unwrap_or_default();
        let believers: Vec<_> = self.state.believers().collect();
        for it in believers {
            let is_known = |holder| is_its_hold(holder, it);
            if !lock.holders.iter().any(is_known) {
                self.state.client_mut(it.id.client).robbed = true;
                self.reached(Situation::RolledBack);
            }
        }
        (self.state.world, self.state.unclaimed) = (replica, None);
        self.both_believe();
        Some(())
    }

    fn pass(&mut self) {
        let (setup, subject) = (&self.model.setup, &self.model.subject);
        let (was_held, was_foreign) = (self.state.is_held(), self.state.is_foreign());
        let unclaimed = self.state.unclaimed.is_some();
        let last = |client: &Client| matches!(client.phase, Phase::Holding { left: 1, .. });
        let passes = self.state.clients.iter().any(last);
        self.reached_if(passes, Situation::DeadlinePassed);
        tick(&mut self.state, &subject.name, (setup.ttl, subject.window));
        let has_ended = was_held && !self.state.is_held();
        self.reached_if(has_ended && unclaimed, Situation::ClaimMissed);
        self.reached_if(has_ended && !unclaimed, Situation::Expired);
        let is_freed = was_foreign && !self.state.is_foreign();
        self.reached_if(is_freed, Situation::ForeignExpired);
    }

    /// The store takes a step for an owner.
    fn ask(&mut self, from: CallId, verb: RequestKind, fence: u64) -> Option<ReplyKind> {
        let step = self.model.asks(from, verb, fence);
        let reply = self.take(&step, Some(from))?;
        Some(match reply {
            Reply::Held(Held { fence, block, .. }) => ReplyKind::Held(told(fence, block)),
            Reply::Busy(_) => ReplyKind::Busy,
            Reply::Released => ReplyKind::Released,
            Reply::NotHeld(_) | Reply::NoVote(_) | Reply::Seen(_) => ReplyKind::NotHeld,
        })
    }

    /// The store takes a step, the judge checks it, and the woken clients are told.
    fn take(&mut self, step: &Step, by: Option<CallId>) -> Option<Reply> {
        let (setup, subject) = (&self.model.setup, &self.model.subject);
        let clients = self.state.clients.clone();
        let knows = setup.may(Fault::SeenCrash) || setup.may(Fault::Away);
        let presence: &dyn Presence = if knows {
            &Connections(&clients)
        } else {
            &UnknownPresence
        };
        let taken = Taken::of(&mut self.state.world, subject, step, presence);
        let (broken, issued) = taken.judge(self.state.issued);
        self.state.broken |= broken;
        self.state.issued = issued;
        let Outcome {
            reply,
            wakes,
            first,
            ..
        } = &taken.first;
        let told = |wake: &Wake| (CallId::of(&wake.owner), told(wake.fence, wake.block));
        let woken: Vec<_> = wakes.iter().map(told).collect();
        self.reached_if(first.is_some(), Situation::ToldFirst);
        self.note(&taken.before, by, reply, &woken);
        self.said = Some(reply.clone());
        for (to, fences) in woken {
            if setup.may(Fault::LateWake) {
                let wake = Message::new(to, Parcel::Wake(fences));
                self.state.flight.push(wake);
            } else {
                let said = self.said.take();
                self.woken(to, fences, 0)?;
                self.said = said;
            }
        }
        Some(taken.first.reply)
    }

    /// Tracks a granted waiter that has been silent since, and records the situations that were reached.
    fn note(
        &mut self,
        before: &LockState,
        by: Option<CallId>,
        reply: &Reply,
        woken: &[(CallId, Span)],
    ) {
        let holder = |lock: &LockState| {
            let holder = lock.holders.first()?;
            Some(CallId::of(&holder.owner))
        };
        let (was, is) = (holder(before), self.state.lock().and_then(holder));
        // An owner that got *released* and still holds has released with a delay.
        let heard = by.is_some() && by == is && matches!(reply, Reply::Held(_) | Reply::Released);
        self.reached_if(heard && *reply == Reply::Released, Situation::Kept);
        if heard && was == is {
            let claims = self.state.unclaimed.take().is_some();
            self.reached_if(claims, Situation::Claimed);
            self.reached_if(!claims, Situation::Renewed);
        }
        let other = matches!(reply, Reply::NotHeld(_)) && by.is_some() && (by == was || by == is);
        self.reached_if(other, Situation::OtherGrant);
        if was != is {
            let mut holders = self.state.lock().into_iter().flat_map(|lock| &lock.holders);
            let drawn = holders.any(|holder| holder.fences.block > Block::ONE);
            self.reached_if(drawn, Situation::BlockDrawn);
            let told = !heard && is.is_some_and(|is| woken.iter().any(|(to, _)| *to == is));
            self.state.unclaimed = told.then_some(0);
            self.reached_if(told, Situation::Granted);
        }
        let holders = self.state.lock().map_or(&[][..], |lock| &lock.holders);
        if holders.len() > 1 {
            // One that claims decides nothing for those who wait for all.
            self.state.unclaimed = None;
            self.reached(Situation::Together);
        }
        let busy = matches!(reply, Reply::Busy(_));
        self.reached_if(busy, Situation::Busy);
        self.reached_if(busy && before.foreign.is_some(), Situation::ForeignHeld);
        let queue = || self.state.lock().into_iter().flat_map(|lock| &lock.queue);
        self.reached_if(queue().count() > 1, Situation::QueueOfTwo);
        let holders = self.state.lock().map_or(&[][..], |lock| &lock.holders);
        let mut behind = queue().skip(1);
        let is_held_back = behind.any(|waiter| admits(waiter.mode, holders));
        self.reached_if(is_held_back, Situation::HeldBack);
        // Passed-over waiters count as alive for two seconds, rounded down to a tick.
        let is_passed = |waiter: &Waiter| {
            let is_late = waiter.seen_until_ms < NOW.millis() + TICK_MS;
            is_late && waiter.seen_until_ms > NOW.millis()
        };
        self.reached_if(queue().any(is_passed), Situation::GonePassed);
        for waiter in &before.queue {
            let id = Some(CallId::of(&waiter.owner));
            let was_passed = waiter.seen_until_ms == NOW.millis();
            let is_granted = was != is && id == is;
            self.reached_if(was_passed && is_granted, Situation::CameBack);
            let leaves = !queue().any(|other| other.owner == waiter.owner);
            let was_silent = waiter.seen_until_ms < NOW.millis() && id != is && id != by;
            self.reached_if(leaves && was_silent, Situation::SilentPassed);
        }
    }

    /// A client receives a reply. Its request was `lag` old when it was executed, `age` ago.
    pub(super) fn answered(
        &mut self,
        to: CallId,
        verb: RequestKind,
        got: ReplyKind,
        (lag, age): (u8, u8),
    ) -> Option<()> {
        if !self.state.is_current(to) {
            return self.unwanted(to, got);
        }
        // The deadline counts from before the request was sent.
        let left = self.model.setup.ttl.saturating_sub(lag + age);
        let phase = self.state.client(to.client).phase;
        self.state.client_mut(to.client).phase = match (phase, got) {
            (Phase::Asking(_), ReplyKind::Held(_)) if left == 0 => {
                self.reached(Situation::ReplyTooLate);
                phase
            }
            (Phase::Asking(_), ReplyKind::Held(fences)) => Phase::Holding { left, fences },
            (Phase::Asking(_), ReplyKind::Busy)
                if matches!(verb, RequestKind::Wait | RequestKind::WaitMany) =>
            {
                let limit = self.model.subject.window;
                Phase::Asking(Some(BusyReply {
                    lag: lag.min(limit),
                    age: age.min(limit),
                }))
            }
            // A request that is still in flight must be undone.
            (Phase::Asking(_), ReplyKind::Busy)
                if self.state.flight.iter().any(|message| message.id == to) =>
            {
                Phase::Leaving
            }
            (Phase::Asking(_), ReplyKind::Busy) => Phase::Idle,
            (Phase::Holding { left: had, fences }, ReplyKind::Held(_)) => {
                let left = had.max(left);
                Phase::Holding { left, fences }
            }
            (Phase::Holding { .. }, ReplyKind::NotHeld) => Phase::Leaving,
            (Phase::Leaving, ReplyKind::Held(_)) => return self.unwanted(to, got),
            (Phase::Leaving, ReplyKind::Released | ReplyKind::NotHeld) if verb.is_release() => {
                Phase::Idle
            }
            _ => phase,
        };
        // An idle client has no data without a meaning, so that equal situations are equal states.
        let client = self.state.client_mut(to.client);
        if client.phase == Phase::Idle {
            (client.nth, client.robbed) = (0, false);
        }
        self.both_believe();
        Some(())
    }

    /// A client receives a wake: the store granted it the lock `age` ago. It uses the lock without asking if it knows a time
    /// before which the grant cannot have been made: the last reply has the store's time, and the wake has it again.
    fn woken(&mut self, to: CallId, fences: Span, age: u8) -> Option<()> {
        self.reached_if(age > 0, Situation::WakeLate);
        if !self.state.is_current(to) || self.state.client(to.client).phase == Phase::Leaving {
            self.reached(Situation::WakeUnwanted);
            return self.unwanted(to, ReplyKind::Held(fences));
        }
        if let Phase::Asking(Some(told)) = self.state.client(to.client).phase {
            let window = self.model.subject.window;
            let left = window.saturating_sub(told.lag + age);
            if age <= told.age && left * 2 > window {
                self.reached(Situation::HeldByWake);
                self.state.client_mut(to.client).phase = Phase::Holding { left, fences };
                self.both_believe();
            }
        }
        Some(())
    }

    /// Releases a lock that no client uses, unless its process is gone. Not after a violated rule, since a release could be
    /// repeated without end.
    fn unwanted(&mut self, to: CallId, got: ReplyKind) -> Option<()> {
        let is_there = self.state.client(to.client).phase != Phase::Crashed;
        if matches!(got, ReplyKind::Held(_)) && is_there && self.state.broken == 0 {
            self.ask(to, RequestKind::Release, 0)?;
        }
        Some(())
    }

    fn both_believe(&self) {
        let believe = self.state.believers().count();
        self.reached_if(believe > 1, Situation::RobbedBelieves);
    }
}

/// A presence in which the store knows which connections are closed.
struct Connections<'a>(&'a [Client]);

impl Presence for Connections<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let client = CallId::of(&waiter.owner).client;
        let client = self.0[usize::from(client)];
        client.phase == Phase::Crashed || client.away
    }
}

/// The fences that a reply or a wake names.
fn told(first: Option<Fence>, block: Block) -> Span {
    let fences = first.map(|first| Fences { first, block });
    fences.map_or(Span::one(0), Span::of)
}
