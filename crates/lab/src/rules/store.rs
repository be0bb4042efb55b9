//! One step of the store in the lock model: the rules, then the judge.

use leasehold_core::{
    Block, Fence, Fences, Held, LockState, Mode, Now, Outcome, Presence, Reply, Step,
    UnknownPresence, Wait, Waiter, World,
};

use super::judge::{self, Before, Kept};
use super::model::{Lock, LockModel, LockTurn};
use super::setup::{Fault, Situation};
use super::state::{Client, Message, Phase, ReplyKind, RequestKind, Span};
use super::time::TICK_MS;
use crate::frame::{CallId, NOW};

/// How many fences a client with hand-overs draws: more than two, so that neither the first nor the last is next to all others.
const MANY: u64 = 3;

/// A presence in which the store knows which connections are closed.
struct Connections<'a>(&'a [Client]);

impl Presence for Connections<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let client = CallId::of(&waiter.owner).client;
        let client = self.0[usize::from(client)];
        client.phase == Phase::Crashed || client.away
    }
}

impl Lock {
    /// The store executes a step, by the rules alone.
    pub(super) fn execute(
        &self,
        world: &mut World,
        now: Now,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        (self.apply)(world, now, &self.name, step, presence)
    }
}

impl LockModel {
    /// The step that a client sends. It believes to hold under this fence, unless that is 0.
    pub(super) fn asks(&self, from: CallId, verb: RequestKind, fence: u64) -> Step {
        let owner = self.subject.owners.of(from).clone();
        let (ttl, mode) = (self.subject.ttl, Mode::Exclusive);
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
    /// The store takes a step for an owner.
    pub(super) fn apply(
        &mut self,
        from: CallId,
        verb: RequestKind,
        fence: u64,
    ) -> Option<ReplyKind> {
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
    pub(super) fn take(&mut self, step: &Step, by: Option<CallId>) -> Option<Reply> {
        let (setup, subject) = (&self.model.setup, &self.model.subject);
        let before = self.state.lock().cloned().unwrap_or_default();
        let counter = self.state.world.counter;
        let clients = self.state.clients.clone();
        let knows = setup.may(Fault::SeenCrash) || setup.may(Fault::Away);
        let presence: &dyn Presence = if knows {
            &Connections(&clients)
        } else {
            &UnknownPresence
        };
        let first = subject.execute(&mut self.state.world, NOW, step, presence);
        let mut again = self.state.world.clone();
        let second = subject.execute(&mut again, NOW, step, presence);
        let nothing = LockState::default();
        let mut seen = Before {
            lock: &before,
            counter,
            step,
            presence,
            issued: self.state.issued,
        };
        let after = Kept::of(&self.state.world, &subject.name, &nothing);
        let repeated = Kept::of(&again, &subject.name, &nothing);
        self.state.broken |= judge::step(&mut seen, &first, after, (&second, repeated));
        self.state.issued = seen.issued;
        if first.first.is_some() {
            self.reached(Situation::ToldFirst);
        }
        let Outcome { reply, wakes, .. } = first;
        let woken: Vec<_> = wakes.iter().map(|wake| CallId::of(&wake.owner)).collect();
        self.note(&before, by, &reply, &woken);
        self.said = Some(reply.clone());
        for wake in wakes {
            let (to, fences) = (CallId::of(&wake.owner), told(wake.fence, wake.block));
            if setup.may(Fault::LateWake) {
                self.state.flight.push(Message::Wake { to, fences, age: 0 });
            } else {
                let said = self.said.take();
                self.woken(to, fences, 0)?;
                self.said = said;
            }
        }
        Some(reply)
    }

    /// Tracks a granted waiter that has been silent since, and records the situations that were reached.
    fn note(&mut self, before: &LockState, by: Option<CallId>, reply: &Reply, woken: &[CallId]) {
        let holder = |lock: &LockState| {
            let holder = lock.holders.first()?;
            Some(CallId::of(&holder.owner))
        };
        let (was, is) = (holder(before), self.state.lock().and_then(holder));
        // An owner that got *released* and still holds has released with a delay.
        let heard = by.is_some() && by == is && matches!(reply, Reply::Held(_) | Reply::Released);
        if heard && matches!(reply, Reply::Released) {
            self.reached(Situation::Kept);
        }
        if heard && was == is {
            self.reached(if self.state.unclaimed.is_some() {
                Situation::Claimed
            } else {
                Situation::Renewed
            });
            self.state.unclaimed = None;
        }
        if matches!(reply, Reply::NotHeld(_)) && by.is_some() && (by == was || by == is) {
            self.reached(Situation::OtherGrant);
        }
        if was != is {
            let mut holders = self.state.lock().into_iter().flat_map(|lock| &lock.holders);
            if holders.any(|holder| holder.fences.block > Block::ONE) {
                self.reached(Situation::BlockDrawn);
            }
            let told = !heard && is.is_some_and(|is| woken.contains(&is));
            self.state.unclaimed = told.then_some(0);
            if told {
                self.reached(Situation::Granted);
            }
        }
        if let Reply::Busy(_) = reply {
            self.reached(Situation::Busy);
            if before.foreign.is_some() {
                self.reached(Situation::ForeignHeld);
            }
        }
        let queue = || self.state.lock().into_iter().flat_map(|lock| &lock.queue);
        if queue().count() > 1 {
            self.reached(Situation::QueueOfTwo);
        }
        // Passed-over waiters count as alive for two seconds, rounded down to a tick.
        let is_passed = |waiter: &Waiter| {
            let is_late = waiter.seen_until_ms < NOW.millis() + TICK_MS;
            is_late && waiter.seen_until_ms > NOW.millis()
        };
        if queue().any(is_passed) {
            self.reached(Situation::GonePassed);
        }
        let was_passed = |waiter: &&Waiter| waiter.seen_until_ms == NOW.millis();
        let mut passed = before.queue.iter().filter(was_passed);
        if was != is && passed.any(|waiter| Some(CallId::of(&waiter.owner)) == is) {
            self.reached(Situation::CameBack);
        }
        let leaves = |waiter: &&Waiter| !queue().any(|other| other.owner == waiter.owner);
        for waiter in before.queue.iter().filter(leaves) {
            let id = Some(CallId::of(&waiter.owner));
            if id != is && id != by && waiter.seen_until_ms < NOW.millis() {
                self.reached(Situation::SilentPassed);
            }
        }
    }
}

/// The fences that a reply or a wake names.
fn told(first: Option<Fence>, block: Block) -> Span {
    let fences = first.map(|first| Fences { first, block });
    fences.map_or(Span::one(0), Span::of)
}
