//! The effects of one action. Each step of the store is the `apply` of [`Lock`](super::model::Lock).

use leasehold_core::{
    Block, Counter, Fence, Fences, Foreign, Reply, Session, Snapshot, Step, Waiter, World,
};

use super::actions::Action;
use super::judge::is_its_hold;
use super::model::LockTurn;
use super::setup::{Fault, Situation};
use super::state::{Client, Message, Phase, RequestKind};
use super::time::{TICK_MS, settle, tick};
use crate::frame::{CallId, NOW};

impl LockTurn<'_> {
    /// Carries out an action, and settles the times. `None` if it is out of bounds.
    pub(super) fn carry_out(&mut self, action: Action) -> Option<()> {
        self.act(action)?;
        settle(&mut self.state, &self.model.subject.name);
        let is_wake = |message: &&Message| matches!(message, Message::Wake { .. });
        let wakes = self.state.flight.iter().filter(is_wake).count();
        let room = self.model.setup.in_flight;
        (wakes <= room && self.state.flight.len() - wakes <= room).then_some(())
    }

    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Ask { client, verb, lost } => {
                let (from, fence) = self.begin(client, verb)?;
                let got = self.apply(from, verb, fence)?;
                if lost {
                    self.reached(Situation::ReplyLost);
                } else {
                    self.answered(from, verb, got, (0, 0))?;
                }
            }
            Action::Send { client, verb } => {
                let (from, fence) = self.begin(client, verb)?;
                let (age, twice) = (0, false);
                self.state.flight.push(Message::Request {
                    from,
                    verb,
                    fence,
                    age,
                    twice,
                });
            }
            Action::Arrive { at, again } => self.arrive(at, again)?,
            Action::Hear { at } => match self.state.flight.remove(at) {
                Message::Reply {
                    to,
                    verb,
                    got,
                    lag,
                    age,
                } => self.answered(to, verb, got, (lag, age))?,
                Message::Wake { to, fences, age } => self.woken(to, fences, age)?,
                Message::Request { .. } => return None,
            },
            Action::Lose { at } => {
                let lost = match self.state.flight.remove(at) {
                    Message::Wake { .. } => Situation::WakeLost,
                    _ => Situation::ReplyLost,
                };
                self.reached(lost);
            }
            Action::GiveUp { client } => {
                if self.is_queued(self.state.id(client)) {
                    self.reached(Situation::Cancelled);
                }
                self.state.client_mut(client).phase = Phase::Leaving;
            }
            Action::Cut { client } => self.state.client_mut(client).away = true,
            Action::Connect { client } => self.state.client_mut(client).away = false,
            Action::Crash { client } => self.crash(client),
            Action::Restart { client } => self.state.client_mut(client).phase = Phase::Idle,
            Action::Look => {
                if let Reply::Seen(Snapshot {
                    holder: Some(holder),
                    ..
                }) = self.take(&Step::Inspect, None)?
                {
                    self.state.seen = holder.fence.map(Fence::get);
                }
            }
            Action::Break => self.break_lock()?,
            Action::ForeignTakes { forever } => {
                let ttl_ms = u64::from(self.model.setup.ttl) * TICK_MS;
                self.set_foreign(Some(Foreign {
                    kind: "string".into(),
                    value: b"theirs".to_vec(),
                    expires_at_ms: (!forever).then(|| NOW.millis() + ttl_ms),
                }));
            }
            Action::ForeignEnds => self.set_foreign(None),
            Action::HandOn { client } => self.hand_on(client)?,
            Action::LoseCounter => {
                if self.state.is_held() {
                    self.reached(Situation::CounterLost);
                }
                self.state.world.counter = Counter::default();
            }
            Action::Flush => {
                if self.state.is_held() {
                    self.reached(Situation::Flushed);
                }
                self.robbed();
                self.state.world = World::default();
                self.state.unclaimed = None;
            }
            Action::Part => self.state.replica = Some(self.state.world.clone()),
            Action::FailOver => self.fail_over()?,
            Action::Tick => self.pass(),
        }
        Some(())
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
            *self.state.client_mut(client) = Client::in_phase(from.nth, Phase::Asking(None));
        }
        if verb.is_release() {
            self.state.client_mut(client).phase = Phase::Leaving;
        }
        Some((from, fence))
    }

    fn arrive(&mut self, at: usize, again: bool) -> Option<()> {
        let mut message = self.state.flight[at];
        let Message::Request {
            from,
            verb,
            fence,
            age,
            twice,
        } = &mut message
        else {
            return None;
        };
        let (from, verb, fence, age) = (*from, *verb, *fence, *age);
        let is_repeat = std::mem::replace(twice, true);
        if again {
            self.state.flight[at] = message;
        } else {
            self.state.flight.remove(at);
        }
        if !verb.is_release()
            && (!self.state.is_current(from)
                || self.state.client(from.client).phase == Phase::Leaving)
        {
            self.reached(Situation::AppliedLate);
        }
        if is_repeat {
            self.reached(Situation::AppliedTwice);
        }
        let got = self.apply(from, verb, fence)?;
        // If a request is executed twice, the second reply counts.
        if !again {
            if self.model.setup.may(Fault::LateReply) {
                self.state.flight.push(Message::Reply {
                    to: from,
                    verb,
                    got,
                    lag: age,
                    age: 0,
                });
            } else {
                self.answered(from, verb, got, (age, 0))?;
            }
        }
        Some(())
    }

    fn break_lock(&mut self) -> Option<()> {
        let seen = self.state.seen.take()?;
        let holder = self.state.lock().and_then(|lock| lock.holders.first());
        let holder = holder.map(|holder| CallId::of(&holder.owner));
        let robbed = self.state.clone();
        let reply = self.take(
            &Step::Break {
                fence: Fence::new(seen),
            },
            None,
        )?;
        if matches!(reply, Reply::Released) {
            let holder = holder?;
            if matches!(robbed.client(holder.client).phase, Phase::Holding { .. }) {
                self.reached(Situation::Broken);
            }
            if robbed.is_current(holder) {
                self.state.client_mut(holder.client).robbed = true;
            }
        } else {
            self.reached(Situation::BreakTooLate);
        }
        Some(())
    }

    /// A client gives its lease to another task of its process. Each step that it takes from then on names the later fence.
    fn hand_on(&mut self, client: u8) -> Option<()> {
        let Phase::Holding { fences, .. } = &mut self.state.client_mut(client).phase else {
            return None;
        };
        let left = Fences {
            first: Fence::new(fences.first),
            block: Block::nearest(fences.last - fences.first + 1),
        };
        fences.first = Session::new(left).hand_over(0).ok()?.get();
        self.reached(Situation::HandedOn);
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

    /// Marks the store's holder as robbed: it may believe to hold for longer than it does.
    fn robbed(&mut self) {
        let lock = self.state.lock().cloned().unwrap_or_default();
        for holder in &lock.holders {
            let id = CallId::of(&holder.owner);
            if self.state.is_current(id) {
                self.state.client_mut(id.client).robbed = true;
            }
        }
    }

    fn crash(&mut self, client: u8) {
        if self.is_queued(self.state.id(client)) {
            self.reached(Situation::CrashedWaiting);
        } else if matches!(self.state.client(client).phase, Phase::Holding { .. }) {
            self.reached(Situation::CrashedHolding);
        }
        *self.state.client_mut(client) = Client::in_phase(0, Phase::Crashed);
    }

    fn pass(&mut self) {
        let (setup, subject) = (&self.model.setup, &self.model.subject);
        let (was_held, was_foreign) = (self.state.is_held(), self.state.is_foreign());
        let unclaimed = self.state.unclaimed.is_some();
        let last = |client: &Client| matches!(client.phase, Phase::Holding { left: 1, .. });
        if self.state.clients.iter().any(last) {
            self.reached(Situation::DeadlinePassed);
        }
        tick(&mut self.state, &subject.name, (setup.ttl, subject.window));
        if was_held && !self.state.is_held() {
            self.reached(if unclaimed {
                Situation::ClaimMissed
            } else {
                Situation::Expired
            });
        }
        if was_foreign && !self.state.is_foreign() {
            self.reached(Situation::ForeignExpired);
        }
    }

    fn set_foreign(&mut self, foreign: Option<Foreign>) {
        let name = &self.model.subject.name;
        self.state.world.entry(name).foreign = foreign;
    }

    fn is_queued(&self, id: CallId) -> bool {
        let of = |waiter: &Waiter| CallId::of(&waiter.owner) == id;
        self.state
            .lock()
            .is_some_and(|lock| lock.queue.iter().any(of))
    }
}
