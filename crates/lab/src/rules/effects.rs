//! The effects of one action. Each step of the store is [`LockModel::apply`].

use leasehold_core::{
    Block, Counter, Fence, Fences, Foreign, Reply, Session, Snapshot, Step, Waiter, World,
};

use super::actions::Action;
use super::before::is_its_hold;
use super::input::LockModel;
use super::setup::{Fault, NUMBERS, Situation};
use super::state::{AcquisitionId, Client, Message, Phase, RequestKind, State};
use super::time::{NOW, TICK_MS, settle, tick};

/// One action in progress.
pub(super) struct StepContext<'a> {
    pub(super) rules: &'a LockModel,
    pub(super) state: State,
    /// The store's last reply, for the trace.
    pub(super) said: Option<Reply>,
}

impl LockModel {
    /// The state after `action`, and the store's reply; `None` if it is out of bounds.
    pub(super) fn step(&self, before: &State, action: Action) -> Option<(State, Option<Reply>)> {
        let mut turn = StepContext {
            rules: self,
            state: before.clone(),
            said: None,
        };
        turn.act(action)?;
        let StepContext {
            mut state, said, ..
        } = turn;
        settle(&mut state, &self.name);
        let wakes = state
            .flight
            .iter()
            .filter(|message| matches!(message, Message::Wake { .. }))
            .count();
        let room = self.setup.in_flight;
        (wakes <= room && state.flight.len() - wakes <= room).then_some((state, said))
    }
}

impl StepContext<'_> {
    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Ask { client, verb, lost } => {
                let (from, fence) = self.begin(client, verb)?;
                let got = self.apply(from, verb, fence)?;
                if lost {
                    self.rules.reached(Situation::ReplyLost);
                } else {
                    self.answered(from, verb, got, (0, 0))?;
                }
            }
            Action::Send { client, verb } => {
                let (from, fence) = self.begin(client, verb)?;
                self.state.flight.push(Message::Request {
                    from,
                    verb,
                    fence,
                    age: 0,
                    twice: false,
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
                self.rules.reached(match self.state.flight.remove(at) {
                    Message::Wake { .. } => Situation::WakeLost,
                    _ => Situation::ReplyLost,
                });
            }
            Action::GiveUp { client } => {
                let at = self.state.client(client);
                if self.is_queued(AcquisitionId {
                    client,
                    nth: at.nth,
                }) {
                    self.rules.reached(Situation::Cancelled);
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
                let expires_at_ms =
                    (!forever).then(|| NOW.millis() + u64::from(self.rules.setup.ttl) * TICK_MS);
                let foreign = Foreign {
                    kind: "string".into(),
                    value: b"theirs".to_vec(),
                    expires_at_ms,
                };
                self.state.world.entry(&self.rules.name).foreign = Some(foreign);
            }
            Action::ForeignEnds => self.state.world.entry(&self.rules.name).foreign = None,
            Action::HandOn { client } => self.hand_on(client)?,
            Action::LoseCounter => {
                if self.is_held() {
                    self.rules.reached(Situation::CounterLost);
                }
                self.state.world.counter = Counter::default();
            }
            Action::Flush => {
                if self.is_held() {
                    self.rules.reached(Situation::Flushed);
                }
                self.robbed();
                self.state.world = World::default();
                self.state.unclaimed = None;
            }
            Action::Part => self.state.replica = Some(self.state.world.clone()),
            Action::FailOver => self.fail_over()?,
            Action::Tick => self.tick(),
        }
        Some(())
    }

    /// Prepares a request: with a fresh owner if it begins, and with the fence by which the client believes to hold, if any.
    fn begin(&mut self, client: u8, verb: RequestKind) -> Option<(AcquisitionId, u64)> {
        let at = *self.state.client(client);
        let fence = match at.phase {
            Phase::Holding { fences, .. } => fences.first,
            _ => 0,
        };
        let mut nth = at.nth;
        if at.phase == Phase::Idle {
            // A bound on ended owners in the store or the network when another acquisition begins.
            let known = self.state.known();
            let left_over = known
                .iter()
                .filter(|id| !self.state.is_current(**id))
                .count();
            if left_over > self.rules.setup.left_over {
                return None;
            }
            nth = (0..NUMBERS).find(|nth| !known.contains(&AcquisitionId { client, nth: *nth }))?;
            *self.state.client_mut(client) = Client {
                nth,
                phase: Phase::Asking(None),
                robbed: false,
                away: false,
            };
        }
        if matches!(verb, RequestKind::Release | RequestKind::Keep) {
            self.state.client_mut(client).phase = Phase::Leaving;
        }
        Some((AcquisitionId { client, nth }, fence))
    }

    fn arrive(&mut self, at: usize, again: bool) -> Option<()> {
        let Message::Request {
            from,
            verb,
            fence,
            age,
            twice,
        } = self.state.flight[at]
        else {
            return None;
        };
        if again {
            self.state.flight[at] = Message::Request {
                from,
                verb,
                fence,
                age,
                twice: true,
            };
        } else {
            self.state.flight.remove(at);
        }
        if !matches!(verb, RequestKind::Release | RequestKind::Keep)
            && (!self.state.is_current(from)
                || self.state.client(from.client).phase == Phase::Leaving)
        {
            self.rules.reached(Situation::AppliedLate);
        }
        if twice {
            self.rules.reached(Situation::AppliedTwice);
        }
        let got = self.apply(from, verb, fence)?;
        // If a request is executed twice, the second reply counts.
        if !again {
            if self.rules.setup.may(Fault::LateReply) {
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
        let holder = holder.map(|holder| AcquisitionId::of(&holder.owner));
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
                self.rules.reached(Situation::Broken);
            }
            if robbed.is_current(holder) {
                self.state.client_mut(holder.client).robbed = true;
            }
        } else {
            self.rules.reached(Situation::BreakTooLate);
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
        self.rules.reached(Situation::HandedOn);
        Some(())
    }

    /// Grants that the replica does not know are undone, and clients that believe in them are robbed.
    fn fail_over(&mut self) -> Option<()> {
        let replica = self.state.replica.take()?;
        let lock = replica.get(&self.rules.name).cloned().unwrap_or_default();
        for (index, client) in (0u8..).zip(&mut self.state.clients) {
            let Phase::Holding { left, fences } = client.phase else {
                continue;
            };
            let (id, until) = (
                AcquisitionId {
                    client: index,
                    nth: client.nth,
                },
                NOW.millis() + u64::from(left) * TICK_MS,
            );
            let is_known = |holder| is_its_hold(holder, (id, fences), until);
            if !lock.holders.iter().any(is_known) {
                client.robbed = true;
                self.rules.reached(Situation::RolledBack);
            }
        }
        (self.state.world, self.state.unclaimed) = (replica, None);
        self.both_believe();
        Some(())
    }

    /// Marks the store's holder as robbed: it may believe to hold for longer than it does.
    fn robbed(&mut self) {
        let holders = self
            .state
            .lock()
            .map(|lock| lock.holders.clone())
            .unwrap_or_default();
        for id in holders
            .iter()
            .map(|holder| AcquisitionId::of(&holder.owner))
        {
            if self.state.is_current(id) {
                self.state.client_mut(id.client).robbed = true;
            }
        }
    }

    fn crash(&mut self, client: u8) {
        let id = AcquisitionId {
            client,
            nth: self.state.client(client).nth,
        };
        if self.is_queued(id) {
            self.rules.reached(Situation::CrashedWaiting);
        } else if matches!(self.state.client(client).phase, Phase::Holding { .. }) {
            self.rules.reached(Situation::CrashedHolding);
        }
        *self.state.client_mut(client) = Client {
            nth: 0,
            phase: Phase::Crashed,
            robbed: false,
            away: false,
        };
    }

    fn tick(&mut self) {
        let (rules, state) = (self.rules, &mut self.state);
        let was = state
            .lock()
            .map(|lock| (!lock.holders.is_empty(), lock.foreign.is_some()));
        let unclaimed = state.unclaimed.is_some();
        let last = |client: &Client| matches!(client.phase, Phase::Holding { left: 1, .. });
        if state.clients.iter().any(last) {
            rules.reached(Situation::DeadlinePassed);
        }
        tick(state, &rules.name, (rules.setup.ttl, rules.window));
        let is = state.lock().map_or((false, false), |lock| {
            (!lock.holders.is_empty(), lock.foreign.is_some())
        });
        if let Some((held, foreign)) = was {
            if held && !is.0 {
                rules.reached(if unclaimed {
                    Situation::ClaimMissed
                } else {
                    Situation::Expired
                });
            }
            if foreign && !is.1 {
                rules.reached(Situation::ForeignExpired);
            }
        }
    }

    fn is_held(&self) -> bool {
        self.state
            .lock()
            .is_some_and(|lock| !lock.holders.is_empty())
    }

    fn is_queued(&self, id: AcquisitionId) -> bool {
        let of = |waiter: &Waiter| AcquisitionId::of(&waiter.owner) == id;
        self.state
            .lock()
            .is_some_and(|lock| lock.queue.iter().any(of))
    }
}
