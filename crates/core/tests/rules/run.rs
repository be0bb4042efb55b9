//! A random sequence in progress, and the checks after each step. The checks read the state; they never call the code that
//! they check.

use std::time::Duration;

use leasehold_core::{
    Block, CLAIM_WINDOW, ClientId, Fence, Fences, Holder, LockName, LockState, Mode, Now, Outcome,
    Owner, Reply, Step, Ttl, Wait, World,
};
use proptest::prelude::*;

use crate::believed::{as_believed, holds, is_believed, waits};
use crate::clients::Clients;
use crate::events::{Ask, Event, OWNERS};

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
                    .first()
                    .map_or(0, |holder| holder.expires_at_ms);
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
            Ask::Acquire(ms, block, wait) => Step::Acquire {
                owner,
                mode: Mode::Exclusive,
                ttl: ttl(ms),
                block: Block::nearest(block),
                wait: wait.map(|listening| Wait { listening }),
            },
            Ask::Extend(ms, believed) => Step::Extend {
                owner,
                ttl: ttl(ms),
                fence: believed.fence(&self.state()),
            },
            Ask::Release(keep, believed) => Step::Release {
                owner,
                keep: keep.map(ttl),
                fence: believed.fence(&self.state()),
            },
            Ask::Break(right) => Step::Break {
                fence: self.issued.filter(|_| right).unwrap_or(Fence::new(1)),
            },
            Ask::Inspect => Step::Inspect,
        }
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
        self.one_holder(&before, &outcome, &after)?;
        holds_stay(step, &before, &after)?;
        as_believed(step, &before, &outcome, &after)?;
        self.in_order(step, &before, &outcome, &after)?;
        self.fences_rise(step, &before, &outcome, &after)?;
        self.may_be_repeated(step, &outcome, &after)?;
        self.claim_window(step, &outcome)
    }

    /// C1 and C6, and that no owner is in two places.
    fn one_holder(
        &self,
        before: &LockState,
        outcome: &Outcome,
        after: &LockState,
    ) -> Result<(), TestCaseError> {
        prop_assert!(after.holders.len() <= 1, "C1");
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
        prop_assert!(
            !after.holders.is_empty() || after.queue.iter().all(passed_over),
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

    /// C4: the granted waiter was before all others that can be told, and all living waiters keep their order.
    fn in_order(
        &self,
        step: &Step,
        before: &LockState,
        outcome: &Outcome,
        after: &LockState,
    ) -> Result<(), TestCaseError> {
        let mut granted: Vec<&Owner> = outcome.wakes.iter().map(|wake| &wake.owner).collect();
        if let (Step::Acquire { owner, .. }, Reply::Held(_)) = (step, &outcome.reply)
            && !holds(before, owner)
        {
            granted.push(owner);
        }
        let mut alive = before.queue.iter().filter(|waiter| {
            asker(step) == Some(&waiter.owner) && matches!(step, Step::Acquire { .. })
                || self.clients.able(waiter, self.now)
        });
        let mut next = alive.next();
        for owner in granted {
            if let Some(waiter) = next {
                prop_assert_eq!(&waiter.owner, owner, "C4");
            }
            next = alive.next();
        }
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

    /// C2, and that an extension grants nothing.
    fn fences_rise(
        &mut self,
        step: &Step,
        before: &LockState,
        outcome: &Outcome,
        after: &LockState,
    ) -> Result<(), TestCaseError> {
        for wake in &outcome.wakes {
            prop_assert!(wake.fence > self.issued, "C2");
            self.issued = wake.fence.map(|first| last_of(first, wake.block));
        }
        if let Reply::Held(held) = &outcome.reply {
            let owner = asker(step).unwrap();
            let fences = after.holders.first().unwrap().fences;
            prop_assert_eq!((held.fence, held.block), (Some(fences.first), fences.block));
            if holds(before, owner) {
                let before = before.holders.first().unwrap();
                prop_assert_eq!(before.fences, fences, "the same lease");
            } else if matches!(step, Step::Extend { .. }) {
                prop_assert!(waits(before, owner), "extend never takes a lock again");
            } else if !waits(before, owner) {
                prop_assert!(held.fence > self.issued, "C2");
            }
            self.issued = self.issued.max(Some(fences.last()));
        }
        prop_assert_eq!(self.world.counter.0, self.issued, "C2");
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

    /// A granted waiter that stays away delays the others until the first step after the claim window.
    fn claim_window(&self, step: &Step, outcome: &Outcome) -> Result<(), TestCaseError> {
        let Some(wake) = outcome.wakes.last() else {
            return Ok(());
        };
        let mut later = self.now;
        later.clock_us += micros(CLAIM_WINDOW) + 1_000;
        // The owner that claimed it by its own step has more.
        if asker(step) != Some(&wake.owner) {
            let mut world = self.world.clone();
            let other = self
                .owners
                .iter()
                .find(|owner| **owner != wake.owner)
                .unwrap();
            world.apply(
                later,
                &self.name,
                &self.step(Ask::Acquire(10, 1, None), other.clone()),
                &self.clients,
            );
            prop_assert!(
                world
                    .get(&self.name)
                    .is_none_or(|state| !holds(state, &wake.owner))
            );
        }
        Ok(())
    }
}

/// C3: a holder's state is changed only by its own steps, or by a break that names its fence.
fn holds_stay(step: &Step, before: &LockState, after: &LockState) -> Result<(), TestCaseError> {
    let Some(holder) = before.holders.first() else {
        return Ok(());
    };
    let named = matches!(step, Step::Break { fence } if holder.fences.contains(*fence));
    if asker(step) != Some(&holder.owner) && !named {
        prop_assert_eq!(after.holders.first(), Some(holder), "C3");
    } else if !matches!(step, Step::Release { keep: None, .. } | Step::Break { .. })
        && is_believed(step, before)
    {
        prop_assert!(holds(after, &holder.owner), "C3");
    }
    Ok(())
}

fn last_of(first: Fence, block: Block) -> Fence {
    Fences { first, block }.last()
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
