//! The set-up of the stories: one lock, its clock, and steps by name.

use std::time::Duration;

use leasehold_core::{
    Block, ClientId, Fence, Foreign, HolderIdentity, LockName, Mode, Now, Outcome, Owner, Presence,
    Reply, Step, Wait, Waiter, World,
};

use crate::run::ttl;

const START_MS: u64 = 1_700_000_000_000;

/// One lock with a clock. Its owners have names.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) name: LockName,
    pub(crate) now_ms: u64,
    pub(crate) deaf: Deaf,
}

/// The clients that cannot be told of a grant.
#[derive(Default)]
pub(crate) struct Deaf(pub(crate) Vec<&'static str>);

impl Presence for Deaf {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        self.0.iter().any(|who| *who == waiter.owner.note())
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            world: World::default(),
            name: LockName::new("orders:42").unwrap(),
            now_ms: START_MS,
            deaf: Deaf::default(),
        }
    }

    pub(crate) fn queue(&self) -> Vec<String> {
        let lock = self.world.get(&self.name);
        let queue = lock.into_iter().flat_map(|lock| &lock.queue);
        queue.map(|waiter| waiter.owner.note()).collect()
    }

    /// The holders, in the order of their grants.
    pub(crate) fn holders(&self) -> Vec<String> {
        let lock = self.world.get(&self.name);
        let holders = lock.into_iter().flat_map(|lock| &lock.holders);
        holders.map(|holder| holder.owner.note()).collect()
    }

    pub(crate) fn is_held_by_another_program(&mut self) {
        self.world.entry(&self.name).foreign = Some(Foreign {
            kind: "string".into(),
            value: b"random".into(),
            expires_at_ms: None,
        });
    }

    pub(crate) fn step(&mut self, step: &Step) -> Outcome {
        let now = Now::at_micros(self.now_ms * 1_000);
        self.world.apply(now, &self.name, step, &self.deaf)
    }

    pub(crate) fn acquires(&mut self, who: &str, ms: u64, waits: bool) -> Reply {
        let wait = waits.then_some(Wait { listening: true });
        self.step(&acquire(who, ms, Block::ONE, wait)).reply
    }

    /// A request in this mode that waits.
    pub(crate) fn waits_in(&mut self, mode: Mode, who: &str, ms: u64) -> Outcome {
        let wait = Some(Wait { listening: true });
        self.step(&acquire_in(mode, owner(who), ms, wait))
    }

    /// A request in this mode that does not wait.
    pub(crate) fn tries_in(&mut self, mode: Mode, who: &str) -> Reply {
        let step = acquire_in(mode, owner(who), 30_000, None);
        self.step(&step).reply
    }

    pub(crate) fn extends(&mut self, who: &str, ms: u64) -> Reply {
        self.extends_under(None, who, ms)
    }

    /// By an owner that believes to hold under this fence.
    pub(crate) fn extends_under(&mut self, fence: Option<Fence>, who: &str, ms: u64) -> Reply {
        let step = Step::Extend {
            owner: owner(who),
            ttl: ttl(ms),
            fence,
        };
        self.step(&step).reply
    }

    pub(crate) fn releases(&mut self, who: &str, keep_ms: Option<u64>) -> Outcome {
        let step = Step::Release {
            owner: owner(who),
            keep: keep_ms.map(ttl),
            fence: None,
        };
        self.step(&step)
    }

    /// An acquisition that draws several fences and does not wait.
    pub(crate) fn draws(&mut self, who: &str, fences: u64) -> Reply {
        let step = acquire(who, 30_000, Block::nearest(fences), None);
        self.step(&step).reply
    }

    pub(crate) fn breaks(&mut self, fence: Fence) -> Reply {
        self.step(&Step::Break { fence }).reply
    }

    pub(crate) fn holder(&mut self) -> Option<String> {
        let Reply::Seen(seen) = self.step(&Step::Inspect).reply else {
            unreachable!()
        };
        seen.holder.map(|holder| match holder.who {
            HolderIdentity::Owner(owner) => owner.note(),
            HolderIdentity::Foreign { kind, .. } => format!("a foreign {kind}"),
        })
    }
}

pub(crate) fn acquire(who: &str, ms: u64, block: Block, wait: Option<Wait>) -> Step {
    Step::Acquire {
        owner: owner(who),
        mode: Mode::Exclusive,
        ttl: ttl(ms),
        block,
        wait,
    }
}

pub(crate) fn acquire_in(mode: Mode, owner: Owner, ms: u64, wait: Option<Wait>) -> Step {
    Step::Acquire {
        owner,
        mode,
        ttl: ttl(ms),
        block: Block::ONE,
        wait,
    }
}

pub(crate) fn owner(who: &str) -> Owner {
    let number = who
        .bytes()
        .fold(0, |number, byte| number * 256 + u128::from(byte));
    Owner::new(number, ClientId::new(1), "web-3", 4121, who).unwrap()
}

#[track_caller]
pub(crate) fn fence(reply: &Reply) -> Fence {
    match reply {
        Reply::Held(held) => held.fence.unwrap(),
        other => panic!("expected a lease, got {other:?}"),
    }
}

/// The number of the slot.
#[track_caller]
pub(crate) fn slot(reply: &Reply) -> u16 {
    match reply {
        Reply::Held(held) => held.slot.unwrap(),
        other => panic!("expected a slot, got {other:?}"),
    }
}

/// Whose end a refused request waits for, how many others hold, and when to ask again.
#[track_caller]
pub(crate) fn behind(reply: &Reply) -> (String, u32, u64) {
    let Reply::Busy(busy) = reply else {
        panic!("expected busy, got {reply:?}")
    };
    let HolderIdentity::Owner(holder) = &busy.holder.who else {
        panic!("expected an owner, got {busy:?}")
    };
    let poll_after = u64::try_from(busy.poll_after.as_millis()).unwrap();
    (holder.note(), busy.others, poll_after)
}

/// Who was woken, in this order.
pub(crate) fn woken(outcome: &Outcome) -> Vec<String> {
    let wakes = outcome.wakes.iter();
    wakes.map(|wake| wake.owner.note()).collect()
}

#[track_caller]
pub(crate) fn ahead(reply: &Reply) -> (u32, Duration) {
    match reply {
        Reply::Busy(busy) => (busy.ahead, busy.poll_after),
        other => panic!("expected busy, got {other:?}"),
    }
}
