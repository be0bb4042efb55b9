//! The lock models, by name: clients, leases, faults, and the rules that are explored.
//!
//! Times are whole ticks of [`TICK`]. A tick is three seconds, the claim window. So a lease of two ticks is longer than a claim, and a
//! lease of one tick is not.

use std::time::Duration;

use leasehold_core::{
    CLAIM_WINDOW, Invalid, LockName, Mode, Now, Outcome, Presence, Step, Ttl, World,
};

use crate::frame::{Framed, Owners, SetupOf, Turn, millis, models, worded};

/// The rules of a lock: [`World::apply`], or a broken version in a test.
pub type Apply = fn(&mut World, Now, &LockName, &Step, &dyn Presence) -> Outcome;

/// One tick.
pub(super) const TICK: Duration = Duration::from_secs(3);
pub(super) const TICK_MS: u64 = millis(TICK);

worded! {
    /// The possible faults. Besides, any client may do nothing for as long as it likes, which covers pauses.
    Fault {
        /// A request may stay in the network, and be executed after its client gave up.
        LateRequest => "requests that come late",
        /// A request in flight may be executed twice.
        Twice => "requests that are carried out twice",
        /// The answer to a late request may come late.
        LateReply => "answers that come late",
        /// An answer may be lost.
        LostReply => "answers that are lost",
        /// A wake may come late.
        LateWake => "wakes that come late",
        /// A wake may be lost.
        LostWake => "wakes that are lost",
        /// A client may stop waiting.
        Cancel => "clients that stop waiting",
        /// A client may crash and restart.
        Crash => "crashes of clients",
        /// The store knows which connections are closed.
        SeenCrash => "a store that sees whose connection is gone",
        /// The connection of a waiting client may be cut for a while, and the store knows it.
        Away => "connections that are cut for a while, which the store sees",
        /// An operator who saw a fence may break the lock.
        Break => "breaks by an operator who saw a fence",
        /// A foreign program may take a free lock, for a lease or without a TTL, and release it.
        Foreign => "a program of another kind that takes the lock, for a time or for ever",
        /// The store may lose the counter of fences, once time has passed since the last one was drawn.
        LostCounter => "losses of the counter of fences, some time after the last one was drawn",
        /// The store may lose everything, under the same condition.
        Flush => "losses of all that is stored, likewise",
        /// The store may be rolled back under the same condition: a replica stops following and is promoted later.
        Failover => "failovers to a replica that had stopped following, likewise",
        /// Not a fault: a waiter may ask for several fences, and hand the lock on inside its process.
        Blocks => "waiters that ask for several fences, and hand the lock on in their process",
        /// Not a fault: a holder may release with a delay of one lease.
        Keep => "holders that release the lock and keep it for a lease more",
    }
}

/// The bounds of a model that are numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) clients: u8,
    /// How many ticks a lease lasts.
    pub(super) ttl: u8,
    /// The modes in which the first clients ask; the others ask for the lock alone.
    pub(super) modes: &'static [&'static str],
    /// Whether the clients wait for a busy lock.
    pub(super) waits: bool,
    /// How many messages may be in flight at once.
    pub(super) in_flight: usize,
    /// How many ended owners the store or the network may still know when an acquisition begins.
    pub(super) left_over: usize,
}

/// A model without faults other than pauses.
const PLAIN: Limits = Limits {
    clients: 3,
    ttl: 2,
    modes: &[],
    waits: true,
    in_flight: 1,
    left_over: 1,
};

pub(super) const MODELS: &[SetupOf<Lock>] = models! {
    Limits, Fault, Situation, PLAIN;

    "mutex" { waits: false, left_over: 0 }
        may [LateRequest, LateReply, LostReply]
        reaches [Busy, Renewed, Expired, DeadlinePassed, ReplyLost, ReplyTooLate, AppliedLate];

    "queue" {}
        may []
        reaches [Busy, QueueOfTwo, Granted, Claimed, SilentPassed];

    "grant and claim" { ttl: 1 }
        may [LateWake, Blocks]
        reaches [Granted, Claimed, HeldByWake, ClaimMissed, WakeLate, BlockDrawn, HandedOn];

    "lost wake" {}
        may [LateWake, LostWake]
        reaches [WakeLost, WakeLate, Claimed, HeldByWake, ClaimMissed];

    "lost reply" {}
        may [LostReply]
        reaches [ReplyLost, QueueOfTwo, Claimed];

    "delayed command" { ttl: 1, left_over: 0 }
        may [LateRequest, Twice]
        reaches [AppliedLate, AppliedTwice, ReplyTooLate, QueueOfTwo];

    "delayed answer" { ttl: 1, left_over: 0 }
        may [LateRequest, LateReply]
        reaches [AppliedLate, ReplyLost, ReplyTooLate, QueueOfTwo];

    "cancel" {}
        may [Cancel, LateWake]
        reaches [Cancelled, WakeUnwanted, QueueOfTwo];

    "crash" { left_over: 0 }
        may [Crash]
        reaches [CrashedHolding, CrashedWaiting, ClaimMissed, SilentPassed, Expired];

    "crash that the store sees" {}
        may [Crash, SeenCrash]
        reaches [CrashedHolding, CrashedWaiting, GonePassed];

    "connection cut while waiting" { ttl: 1, left_over: 0 }
        may [Away]
        reaches [GonePassed, CameBack, QueueOfTwo, Granted];

    "pause and expiry" { ttl: 3 }
        may []
        reaches [Expired, DeadlinePassed, ClaimMissed, Renewed, SilentPassed];

    "break" {}
        may [Break, Blocks]
        reaches [Broken, BreakTooLate, RobbedBelieves, BlockDrawn, HandedOn];

    "at least hold" {}
        may [Keep]
        reaches [Kept, Expired, QueueOfTwo, Granted];

    "foreign program" {}
        may [Foreign, Cancel]
        reaches [ForeignHeld, ForeignExpired, Granted, ToldFirst];

    "lost counter" {}
        may [LostCounter, Flush, Blocks]
        reaches [CounterLost, Flushed, RobbedBelieves, BlockDrawn, HandedOn];

    "failover" { left_over: 0 }
        may [Failover]
        reaches [RolledBack, OtherGrant, RobbedBelieves, Granted];

    "readers and a writer" { modes: &["shared", "shared"] }
        may []
        reaches [Together, HeldBack, QueueOfTwo, Granted, Claimed, Renewed, SilentPassed];

    "crash of a reader" { modes: &["shared", "shared"], left_over: 0 }
        may [Crash]
        reaches [Together, HeldBack, CrashedHolding, CrashedWaiting, SilentPassed, Expired];

    "late wakes to readers" { modes: &["shared", "shared"], left_over: 0 }
        may [LateWake]
        reaches [Together, HeldBack, WakeLate, HeldByWake, ClaimMissed];

    "break of a phase" { modes: &["shared", "shared"], left_over: 0 }
        may [Break]
        reaches [Together, Broken, BreakTooLate, RobbedBelieves];

    "readers cut off while a writer waits" { modes: &["shared", "shared"], ttl: 1, left_over: 0 }
        may [Away]
        reaches [Together, HeldBack, GonePassed, CameBack, Granted];

    "break of a slot" { modes: &["slot/2", "slot/2", "slot/2"], left_over: 0 }
        may [Break]
        reaches [Together, Broken, BreakTooLate, Granted];

    "two slots and one" { modes: &["slot/2", "slot/2", "slot/1"] }
        may []
        reaches [Together, HeldBack, QueueOfTwo, Granted, Claimed, Renewed];

    "slots and a mutex" { modes: &["slot/2", "slot/2"], left_over: 0 }
        may [Cancel]
        reaches [Together, HeldBack, Cancelled, Granted];
};

/// A situation that a model must reach. The exploration counts it, so a model that explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A client was refused, or told to wait.
    Busy,
    /// Two clients waited at once.
    QueueOfTwo,
    /// A release handed the lock to a waiter.
    Granted,
    /// That waiter asked again within its claim window.
    Claimed,
    /// That waiter claimed the lock by the wake, without a request.
    HeldByWake,
    /// That waiter did neither, and the window passed.
    ClaimMissed,
    /// A lease was renewed.
    Renewed,
    /// A lease in use expired in the store.
    Expired,
    /// A client saw its own deadline pass.
    DeadlinePassed,
    /// An answer was lost.
    ReplyLost,
    /// A reply came after its lease had ended.
    ReplyTooLate,
    /// A request was executed for a client that had given up or gone on.
    AppliedLate,
    /// A request was executed twice.
    AppliedTwice,
    /// A wake was lost.
    WakeLost,
    /// A wake was delayed by at least a tick.
    WakeLate,
    /// A wake came for an owner that no longer wants the lock.
    WakeUnwanted,
    /// A client left the queue.
    Cancelled,
    /// A client crashed while it held the lock.
    CrashedHolding,
    /// A client crashed while it waited.
    CrashedWaiting,
    /// A waiter was passed over because it could not be told.
    GonePassed,
    /// A passed-over waiter came back in time and was granted the lock.
    CameBack,
    /// A waiter was passed over because it was silent.
    SilentPassed,
    /// An operator broke the lock of a client that believed to hold it.
    Broken,
    /// An operator named a fence that no longer was the holder's.
    BreakTooLate,
    /// A foreign program held the lock while a client waited.
    ForeignHeld,
    /// The foreign lock expired.
    ForeignExpired,
    /// A waiter was told that it is the first behind the foreign lock now.
    ToldFirst,
    /// The counter of fences was lost while a client held the lock.
    CounterLost,
    /// Everything was lost while a client held the lock.
    Flushed,
    /// Several fences were drawn with a grant.
    BlockDrawn,
    /// A client handed the lock on inside its process, and named the later fence to the store.
    HandedOn,
    /// The store was rolled back to before a grant in which a client still believed.
    RolledBack,
    /// A client named a fence of such a grant, and the store replied *not held*, although the client holds by a newer grant.
    OtherGrant,
    /// Two held at once.
    Together,
    /// A waiter that the holders would admit stood behind one that they would not.
    HeldBack,
    /// A lock stayed taken after its release.
    Kept,
    /// Two clients believed to hold the lock, one of them robbed by a break or a loss of data.
    RobbedBelieves,
}

/// One lock, and its rules.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub(super) apply: Apply,
    pub(super) name: LockName,
    pub(super) ttl: Ttl,
    /// How many ticks a claim window lasts.
    pub(super) window: u8,
    modes: Vec<Mode>,
    pub(super) owners: Owners,
}

pub(super) type LockModel = Framed<Lock>;
pub(super) type LockTurn<'a> = Turn<'a, Lock>;

impl Lock {
    pub(super) fn new(setup: &SetupOf<Self>, apply: Apply) -> Result<Self, Invalid> {
        let ttl = Ttl::new(TICK * u32::from(setup.ttl))?;
        let window = CLAIM_WINDOW.min(ttl.get()).as_secs() / TICK.as_secs();
        Ok(Self {
            apply,
            name: LockName::new("lab")?,
            ttl,
            window: u8::try_from(window).unwrap_or(u8::MAX),
            modes: setup
                .modes
                .iter()
                .map(|text| text.parse())
                .collect::<Result<_, _>>()?,
            owners: Owners::new(setup.clients)?,
        })
    }

    /// The mode in which a client asks.
    pub(super) fn mode(&self, client: u8) -> Mode {
        let mode = self.modes.get(usize::from(client));
        mode.copied().unwrap_or(Mode::Exclusive)
    }

    /// The store executes a step, by the rules alone.
    pub(super) fn execute(
        &self,
        world: &mut World,
        now: Now,
        step: &Step,
        who: &dyn Presence,
    ) -> Outcome {
        (self.apply)(world, now, &self.name, step, who)
    }
}
