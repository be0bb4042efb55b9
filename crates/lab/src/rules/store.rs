//! One step of the store in the lock model: [`LockModel::apply`], then the judge.

use leasehold_core::{
    Block, Fence, Fences, Held, LockState, Mode, Outcome, Owner, Presence, Reply, Step,
    UnknownPresence, Wait, Waiter,
};

use super::before::{Before, Kept};
use super::effects::StepContext;
use super::input::LockModel;
use super::judge;
use super::setup::{Fault, Situation};
use super::state::{AcquisitionId, Client, Message, Phase, ReplyKind, RequestKind, Span};
use super::time::{NOW, TICK_MS};

/// How many fences a client with hand-overs draws: more than two, so that neither the first nor the last is next to all others.
const MANY: u64 = 3;

/// A presence in which the store knows which connections are closed.
struct Connections<'a>(&'a [Client]);

impl Presence for Connections<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let client = AcquisitionId::of(&waiter.owner).client;
        let client = self.0[usize::from(client)];
        client.phase == Phase::Crashed || client.away
    }
}

impl LockModel {
    /// The step that a client sends. It believes to hold under this fence, unless that is 0.
    pub(super) fn asks(&self, owner: &Owner, verb: RequestKind, fence: u64) -> Step {
        let (owner, ttl, mode) = (owner.clone(), self.ttl, Mode::Exclusive);
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

impl StepContext<'_> {
    /// The store takes a step for an owner.
    pub(super) fn apply(
        &mut self,
        from: AcquisitionId,
        verb: RequestKind,
        fence: u64,
    ) -> Option<ReplyKind> {
        let step = self.rules.asks(self.rules.owner(from)?, verb, fence);
        let reply = self.take(&step, Some(from))?;
        Some(match reply {
            Reply::Held(Held { fence, block, .. }) => ReplyKind::Held(told(fence, block)),
            Reply::Busy(_) => ReplyKind::Busy,
            Reply::Released => ReplyKind::Released,
            Reply::NotHeld(_) | Reply::NoVote(_) | Reply::Seen(_) => ReplyKind::NotHeld,
        })
    }

    /// The store takes a step, the judge checks it, and the woken clients are told.
    pub(super) fn take(&mut self, step: &Step, by: Option<AcquisitionId>) -> Option<Reply> {
        let (rules, name) = (self.rules, &self.rules.name);
        let before = self.state.lock().cloned().unwrap_or_default();
        let counter = self.state.world.counter;
        let clients = self.state.clients.clone();
        let knows = rules.setup.may(Fault::SeenCrash) || rules.setup.may(Fault::Away);
        let presence: &dyn Presence = if knows {
            &Connections(&clients)
        } else {
            &UnknownPresence
        };
        let first = (rules.apply)(&mut self.state.world, NOW, name, step, presence);
        let mut again = self.state.world.clone();
        let second = (rules.apply)(&mut again, NOW, name, step, presence);
        let nothing = LockState::default();
        let mut seen = Before {
            lock: &before,
            counter,
            step,
            presence,
            issued: self.state.issued,
        };
        let after = Kept::of(&self.state.world, name, &nothing);
        let repeated = Kept::of(&again, name, &nothing);
        self.state.broken |= judge::step(&mut seen, &first, after, (&second, repeated));
        self.state.issued = seen.issued;
        if first.first.is_some() {
            rules.reached(Situation::ToldFirst);
        }
        let Outcome { reply, wakes, .. } = first;
        self.note(
            &before,
            by,
            &reply,
            &wakes.iter().map(|wake| &wake.owner).collect::<Vec<_>>(),
        );
        self.said = Some(reply.clone());
        for wake in wakes {
            let (to, fences) = (AcquisitionId::of(&wake.owner), told(wake.fence, wake.block));
            if rules.setup.may(Fault::LateWake) {
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
    fn note(
        &mut self,
        before: &LockState,
        by: Option<AcquisitionId>,
        reply: &Reply,
        woken: &[&Owner],
    ) {
        let rules = self.rules;
        let holder = |lock: &LockState| {
            lock.holders
                .first()
                .map(|holder| AcquisitionId::of(&holder.owner))
        };
        let (was, is) = (holder(before), self.state.lock().and_then(holder));
        // An owner that got *released* and still holds has released with a delay.
        let heard = by.is_some() && by == is && matches!(reply, Reply::Held(_) | Reply::Released);
        if heard && matches!(reply, Reply::Released) {
            rules.reached(Situation::Kept);
        }
        if heard && was == is {
            rules.reached(if self.state.unclaimed.is_some() {
                Situation::Claimed
            } else {
                Situation::Renewed
            });
            self.state.unclaimed = None;
        }
        if matches!(reply, Reply::NotHeld(_)) && by.is_some() && (by == was || by == is) {
            rules.reached(Situation::OtherGrant);
        }
        if was != is {
            let mut holders = self.state.lock().into_iter().flat_map(|lock| &lock.holders);
            if holders.any(|holder| holder.fences.block > Block::ONE) {
                rules.reached(Situation::BlockDrawn);
            }
            let told = !heard
                && woken
                    .iter()
                    .any(|owner| Some(AcquisitionId::of(owner)) == is);
            self.state.unclaimed = told.then_some(0);
            if told {
                rules.reached(Situation::Granted);
            }
        }
        if let Reply::Busy(_) = reply {
            rules.reached(Situation::Busy);
            if before.foreign.is_some() {
                rules.reached(Situation::ForeignHeld);
            }
        }
        let queue = || self.state.lock().into_iter().flat_map(|lock| &lock.queue);
        if queue().count() > 1 {
            rules.reached(Situation::QueueOfTwo);
        }
        // Passed-over waiters count as alive for two seconds, rounded down to a tick.
        let is_passed = |waiter: &Waiter| {
            let is_late = waiter.seen_until_ms < NOW.millis() + TICK_MS;
            is_late && waiter.seen_until_ms > NOW.millis()
        };
        if queue().any(is_passed) {
            rules.reached(Situation::GonePassed);
        }
        let was_passed = |waiter: &&Waiter| waiter.seen_until_ms == NOW.millis();
        let mut passed = before.queue.iter().filter(was_passed);
        if was != is && passed.any(|waiter| Some(AcquisitionId::of(&waiter.owner)) == is) {
            rules.reached(Situation::CameBack);
        }
        let stays = |waiter: &Waiter| queue().any(|other| other.owner == waiter.owner);
        let left = before.queue.iter().filter(|waiter| !stays(waiter));
        for waiter in left.filter(|waiter| {
            Some(AcquisitionId::of(&waiter.owner)) != is
                && Some(AcquisitionId::of(&waiter.owner)) != by
        }) {
            if waiter.seen_until_ms < NOW.millis() {
                rules.reached(Situation::SilentPassed);
            }
        }
    }
}

/// The fences that a reply or a wake names.
fn told(first: Option<Fence>, block: Block) -> Span {
    let fences = first.map(|first| Fences { first, block });
    fences.map_or(Span::one(0), Span::of)
}
