//! A random sequence in progress, and the checks after each step. The checks read the state; they never call the code that
//! they check.

use std::time::Duration;

use leasehold_core::{
    Block, CLAIM_WINDOW, ClientId, Fence, Fences, Holder, LockName, LockState, Mode, Now, Outcome,
    Owner, Reply, Step, Ttl, Wait, World,
};
use proptest::prelude::*;

use crate::believed::{as_believed, hold, holds, is_believed, waits};
use crate::clients::Clients;
use crate::events::{Ask, Event, OWNERS};
use crate::grants::{Grant, admit_each_other, admits, fences_rise, grants, slots_differ};

pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) name: LockName,
    pub(crate) now: Now,
    pub(crate) owners: Vec<Owner>,
    pub(crate) clients: Clients,
    /// The highest fence of any grant.
    issued: Option<Fence>,
}

impl Run {
    pub(crate) fn new() -> Self {
        let owner = |at: usize| {
            let client = ClientId::new(u64::try_from(at / 2).unwrap());
            Owner::new(u128::try_from(at).unwrap(), client, "h", 1, "").unwrap()
        };
        Self {
            world: World::default(),
            name: LockName::new("orders:42").unwrap(),
            now: Now {
                clock_us: 5_000_500,
                wall_us: 1_700_000_000_000_000,
            },
            owners: (0..OWNERS).map(owner).collect(),
            clients: Clients::default(),
            issued: None,
        }
    }

    fn state(&self) -> LockState {
        self.world.get(&self.name).cloned().unwrap_or_default()
    }

    fn pass(&mut self, micros: u64) {
        self.now.clock_us += micros;
        self.now.wall_us += micros;
    }

    pub(crate) fn happens(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Pass(micros) => self.pass(micros),
            Event::PassLease(beyond) => {
                let ends = self
                    .state()
                    .holders
                    .iter()
                    .map(|holder| holder.expires_at_ms)
                    .min()
                    .unwrap_or(0);
                self.pass((ends + beyond).saturating_sub(self.now.millis()) * 1_000);
            }
            Event::PassSilent(beyond) => {
                let until = self
                    .state()
                    .queue
                    .front()
                    .map_or(0, |head| head.seen_until_ms);
                self.pass((until + beyond).saturating_sub(self.now.millis()) * 1_000);
            }
            Event::WallBack(micros) => self.now.wall_us -= micros,
            Event::Crash(client) => self.clients.crashed[client] = true,
            Event::Deaf(client, deaf) => self.clients.deaf[client] = deaf,
            Event::Ask(ask, who) => {
                let owner = self.owners[who].clone();
                // A dead client sends nothing.
                if !self.clients.crashed(&owner) {
                    let step = self.step(ask, owner);
                    self.takes(&step)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn step(&self, ask: Ask, owner: Owner) -> Step {
        match ask {
            Ask::Acquire(mode, ms, block, wait) => Step::Acquire {
                mode: self.mode_of(&owner).unwrap_or(mode),
                owner,
                ttl: ttl(ms),
                block: Block::nearest(block),
                wait: wait.map(|listening| Wait { listening }),
            },
            Ask::Extend(ms, believed) => Step::Extend {
                ttl: ttl(ms),
                fence: believed.fence(&self.state(), &owner),
                owner,
            },
            Ask::Release(keep, believed) => Step::Release {
                keep: keep.map(ttl),
                fence: believed.fence(&self.state(), &owner),
                owner,
            },
            Ask::Break(right) => {
                let state = self.state();
                let of_hold = hold(&state, &owner).map(|hold| hold.fences.last());
                let fence = of_hold.or(self.issued).filter(|_| right);
                Step::Break {
                    fence: fence.unwrap_or(Fence::new(1)),
                }
            }
            Ask::Inspect => Step::Inspect,
        }
    }

    /// A request keeps its mode: a retry is the same request.
    fn mode_of(&self, owner: &Owner) -> Option<Mode> {
        let LockState { holders, queue, .. } = self.state();
        let held = holders.iter().map(|holder| (&holder.owner, holder.mode));
        let asked = queue.iter().map(|waiter| (&waiter.owner, waiter.mode));
        let mut all = held.chain(asked);
        all.find_map(|(other, mode)| (other == owner).then_some(mode))
    }

    pub(crate) fn takes(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let kept = self.state();
        let mut before = kept.clone();
        before.expire(self.now);
        before
            .holders
            .retain(|holder| holder.kept || !self.clients.crashed(&holder.owner));
        let outcome = self.world.apply(self.now, &self.name, step, &self.clients);
        let after = self.state();

        if matches!(step, Step::Inspect) {
            prop_assert_eq!(&after, &kept, "inspect changes nothing");
            return Ok(());
        }
        self.none_left(&before, &outcome, &after)?;
        let all = grants(step, &before, &outcome, &after);
        admit_each_other(&all, &before, &after)?;
        slots_differ(&all, &before, &after)?;
        holds_stay(step, &before, &after)?;
        as_believed(step, &before, &outcome, &after)?;
        self.in_order(step, &before, (&outcome, &all), &after)?;
        self.issued = fences_rise(step, &all, self.issued, &before, &after)?;
        prop_assert_eq!(self.world.counter.0, self.issued, "C2");
        told_what_is_held(step, &before, &outcome, &after)?;
        told_who_holds(step, &outcome, &after)?;
        self.may_be_repeated(step, &outcome, &after)?;
        self.claim_window(step, &outcome)
    }

    /// C6, and that no owner is in two places.
    fn none_left(
        &self,
        before: &LockState,
        outcome: &Outcome,
        after: &LockState,
    ) -> Result<(), TestCaseError> {
        prop_assert!(
            after
                .holders
                .iter()
                .all(|holder| holder.expires_at_ms >= self.now.millis())
        );
        let lasts = |holder: &Holder| holder.kept || !self.clients.crashed(&holder.owner);
        prop_assert!(
            after.holders.iter().all(lasts),
            "C3: a hold ends with its process, unless it is kept"
        );
        let passed_over = |waiter| self.clients.passed_over(waiter, self.now);
        let first = after.queue.iter().find(|waiter| !passed_over(waiter));
        prop_assert!(
            first.is_none_or(|first| !admits(first.mode, &after.holders)),
            "C6"
        );
        for (at, waiter) in after.queue.iter().enumerate() {
            prop_assert!(!holds(after, &waiter.owner));
            prop_assert!(
                after
                    .queue
                    .iter()
                    .skip(at + 1)
                    .all(|other| other.owner != waiter.owner)
            );
        }
        for (at, wake) in outcome.wakes.iter().enumerate() {
            // Granted at most once for each time it joined.
            prop_assert!(before.queue.iter().any(|waiter| waiter.owner == wake.owner));
            prop_assert!(after.queue.iter().all(|waiter| waiter.owner != wake.owner));
            prop_assert!(
                outcome.wakes[at + 1..]
                    .iter()
                    .all(|other| other.owner != wake.owner)
            );
        }
        Ok(())
    }

    /// C4: the granted waiters were before all others that can be told, whatever their modes, and all living waiters keep their order.
    fn in_order(
        &self,
        step: &Step,
        before: &LockState,
        (outcome, granted): (&Outcome, &[Grant]),
        after: &LockState,
    ) -> Result<(), TestCaseError> {
        let is_granted = |owner: &Owner| granted.iter().any(|grant| grant.owner == owner);
        let leaves = |owner: &Owner| {
            let releases = matches!(step, Step::Release { .. });
            releases && asker(step) == Some(owner) && !is_granted(owner)
        };
        let able = before.queue.iter().filter(|waiter| {
            asker(step) == Some(&waiter.owner) && matches!(step, Step::Acquire { .. })
                || self.clients.able(waiter, self.now) && !leaves(&waiter.owner)
        });
        let mut able = able.map(|waiter| &waiter.owner);
        for grant in granted {
            // Who did not wait comes last.
            let next = grant.waited.then_some(grant.owner);
            prop_assert_eq!(able.next(), next, "C4");
        }
        let caller = asker(step).filter(|_| matches!(step, Step::Acquire { .. }));
        let woken = granted.iter().map(|grant| grant.owner);
        let woken: Vec<_> = woken.filter(|owner| Some(*owner) != caller).collect();
        let told: Vec<_> = outcome.wakes.iter().map(|wake| &wake.owner).collect();
        prop_assert_eq!(told, woken, "C4: in this order");
        let left = |owner: &Owner| {
            asker(step) == Some(owner)
                && matches!(step, Step::Release { .. } | Step::Acquire { .. })
        };
        for waiter in before
            .queue
            .iter()
            .filter(|waiter| self.clients.alive(waiter, self.now))
        {
            let owner = &waiter.owner;
            let granted = outcome.wakes.iter().any(|wake| wake.owner == *owner);
            prop_assert!(granted || left(owner) || waits(after, owner), "C4");
        }
        let stayed: Vec<_> = before
            .queue
            .iter()
            .map(|waiter| &waiter.owner)
            .filter(|owner| waits(after, owner))
            .collect();
        let queue: Vec<_> = after.queue.iter().map(|waiter| &waiter.owner).collect();
        prop_assert_eq!(&queue[..stayed.len()], &stayed[..], "C4");
        let joined = &queue[stayed.len()..];
        prop_assert!(
            joined.iter().all(|owner| asker(step) == Some(*owner)) && joined.len() <= 1,
            "C4"
        );
        let may_join = matches!(step, Step::Acquire { wait: Some(_), .. });
        prop_assert!(may_join || joined.is_empty(), "who asks once");
        Ok(())
    }

    /// C5: repeats the step at once.
    fn may_be_repeated(
        &self,
        step: &Step,
        first: &Outcome,
        after: &LockState,
    ) -> Result<(), TestCaseError> {
        let mut again = after.clone();
        let mut counter = self.world.counter;
        let second = again.apply(&mut counter, self.now, step, &self.clients);
        prop_assert_eq!(&again, after, "C5");
        prop_assert_eq!(counter, self.world.counter, "C5");
        prop_assert_eq!(second.wakes, vec![], "C5");
        if first.reply == Reply::Released && !matches!(step, Step::Release { keep: Some(_), .. }) {
            prop_assert!(matches!(second.reply, Reply::NotHeld(_)), "C5");
        } else if first.reply == Reply::Released {
            // A kept lock can be kept again. A place in the queue can be left only once.
            prop_assert!(
                second.reply == Reply::Released || !holds(after, asker(step).unwrap()),
                "C5"
            );
        } else {
            prop_assert_eq!(&second.reply, &first.reply, "C5");
        }
        Ok(())
    }

    /// Granted waiters that stay away delay the others until the first step after the claim window.
    fn claim_window(&self, step: &Step, outcome: &Outcome) -> Result<(), TestCaseError> {
        let mut later = self.now;
        later.clock_us += micros(CLAIM_WINDOW) + 1_000;
        // The owner that claimed it by its own step has more.
        let wakes = outcome.wakes.iter().map(|wake| &wake.owner);
        for woken in wakes.filter(|owner| asker(step) != Some(*owner)) {
            let mut world = self.world.clone();
            let other = self.owners.iter().find(|owner| *owner != woken).unwrap();
            let ask = Ask::Acquire(Mode::Exclusive, 10, 1, None);
            world.apply(
                later,
                &self.name,
                &self.step(ask, other.clone()),
                &self.clients,
            );
            let state = world.get(&self.name);
            prop_assert!(state.is_none_or(|state| !holds(state, woken)));
        }
        Ok(())
    }
}

/// A reply *held* tells of the owner's hold, which an extension never makes. A wake tells of a hold, too.
fn told_what_is_held(
    step: &Step,
    before: &LockState,
    outcome: &Outcome,
    after: &LockState,
) -> Result<(), TestCaseError> {
    for wake in &outcome.wakes {
        // Who releases may be granted the lock first.
        let leaves = matches!(step, Step::Release { .. }) && asker(step) == Some(&wake.owner);
        prop_assert!(leaves || holds(after, &wake.owner), "told of a hold");
        if let Some(hold) = hold(after, &wake.owner) {
            let told = (wake.fence, wake.block, wake.slot);
            let Fences { first, block } = hold.fences;
            prop_assert_eq!(told, (Some(first), block, hold.slot));
        }
    }
    if let Reply::Held(held) = &outcome.reply {
        let owner = asker(step).unwrap();
        let now = hold(after, owner).unwrap();
        let Fences { first, block } = now.fences;
        let told = (held.fence, held.block, held.slot);
        prop_assert_eq!(told, (Some(first), block, now.slot));
        if let Some(was) = hold(before, owner) {
            let same = (was.fences, was.slot) == (now.fences, now.slot);
            prop_assert!(same, "the same lease");
        } else if matches!(step, Step::Extend { .. }) {
            prop_assert!(waits(before, owner), "extend never takes a lock again");
        }
    }
    Ok(())
}

/// A refusal shows the holder whose end it waits for: the first of the slots, the last of others. The first in line asks each client that
/// holds to give way.
fn told_who_holds(step: &Step, outcome: &Outcome, after: &LockState) -> Result<(), TestCaseError> {
    let holders = &after.holders;
    let mut wanted = Vec::new();
    if let (Step::Acquire { mode, wait, .. }, Reply::Busy(busy)) = (step, &outcome.reply) {
        let shown = holders.iter().find(|it| busy.holder.is(&it.owner)).unwrap();
        let ends = holders.iter().map(|holder| holder.expires_at_ms);
        let are_slots = matches!(mode, Mode::Slot(_)) && shown.slot.is_some();
        let end = if are_slots { ends.min() } else { ends.max() };
        prop_assert_eq!(Some(shown.expires_at_ms), end);
        prop_assert_eq!(usize::try_from(busy.others).unwrap(), holders.len() - 1);
        if wait.is_some() && busy.ahead == 0 {
            wanted.extend(holders.iter().map(|holder| holder.owner.client()));
            wanted.sort_unstable();
            wanted.dedup();
        }
    }
    prop_assert!(outcome.wanted.iter().all(|owner| holds(after, owner)));
    let mut told: Vec<_> = outcome.wanted.iter().map(Owner::client).collect();
    told.sort_unstable();
    prop_assert_eq!(told, wanted, "once each");
    Ok(())
}

/// C3: the state of each holder is changed only by its own steps, or by a break that names its fence.
fn holds_stay(step: &Step, before: &LockState, after: &LockState) -> Result<(), TestCaseError> {
    for holder in &before.holders {
        let named = matches!(step, Step::Break { fence } if holder.fences.contains(*fence));
        if asker(step) != Some(&holder.owner) && !named {
            prop_assert_eq!(hold(after, &holder.owner), Some(holder), "C3");
        } else if !matches!(step, Step::Release { keep: None, .. } | Step::Break { .. })
            && is_believed(step, before)
        {
            prop_assert!(holds(after, &holder.owner), "C3");
        }
    }
    Ok(())
}

fn asker(step: &Step) -> Option<&Owner> {
    match step {
        Step::Acquire { owner, .. }
        | Step::Extend { owner, .. }
        | Step::Release { owner, .. }
        | Step::GiveBack { owner, .. } => Some(owner),
        Step::Propose(proposal) => Some(&proposal.owner),
        Step::Break { .. } | Step::Inspect => None,
    }
}

pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
