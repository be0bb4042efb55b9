//! What a model is made of: how many clients, how long a lease, which faults. Must never say what a lock is.
//!
//! Times are whole ticks of [`TICK`]. With three seconds, a claim window is one tick, so that a lease of two ticks is longer
//! than a claim and one of one tick is not.

use std::time::Duration;

/// One tick.
pub(super) const TICK: Duration = Duration::from_secs(3);

/// How many acquisitions of a client the store and the network may know at once. Their numbers are used again.
pub(super) const NUMBERS: u8 = 8;

/// What may go wrong, besides that any client may do nothing for as long as it likes, which is what a pause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A request may stay in the network, and be carried out after its client gave up.
    LateRequest,
    /// A request that is under way may be carried out twice.
    Twice,
    /// The answer to a late request may come late.
    LateReply,
    /// An answer may be lost.
    LostReply,
    /// A wake may come late.
    LateWake,
    /// A wake may be lost.
    LostWake,
    /// A client may stop waiting.
    Cancel,
    /// A client may crash and start anew.
    Crash,
    /// The store knows whose connection is gone.
    SeenCrash,
    /// The connection of a client that waits may be cut for a while, and the store knows it.
    Away,
    /// An operator who saw a fence may break the lock.
    Break,
    /// A program of another kind may take a free lock, for a lease or for ever, and give it back.
    Foreign,
    /// The store may lose the counter of fences, once time has passed since the last one was drawn.
    LostCounter,
    /// The store may lose everything, under the same condition.
    Flush,
    /// The store may become what it was at some moment before, likewise: a replica stops following and takes over later.
    Failover,
    /// Not a fault: who waits may ask for several fences, and hand the lock on inside its process.
    Blocks,
    /// Nor this: a holder may let go of the lock, and others have it a lease later.
    Keep,
}

impl Fault {
    /// It, any number of times, for people.
    const fn words(self) -> &'static str {
        match self {
            Self::LateRequest => "requests that come late",
            Self::Twice => "requests that are carried out twice",
            Self::LateReply => "answers that come late",
            Self::LostReply => "answers that are lost",
            Self::LateWake => "wakes that come late",
            Self::LostWake => "wakes that are lost",
            Self::Cancel => "clients that stop waiting",
            Self::Crash => "crashes of clients",
            Self::SeenCrash => "a store that sees whose connection is gone",
            Self::Away => "connections that are cut for a while, which the store sees",
            Self::Break => "breaks by an operator who saw a fence",
            Self::Foreign => {
                "a program of another kind that takes the lock, for a time or for ever"
            }
            Self::LostCounter => {
                "losses of the counter of fences, some time after the last one was drawn"
            }
            Self::Flush => "losses of all that is stored, likewise",
            Self::Failover => "failovers to a replica that had stopped following, likewise",
            Self::Blocks => {
                "waiters that ask for several fences, and hand the lock on in their process"
            }
            Self::Keep => "holders that release the lock and keep it for a lease more",
        }
    }
}

/// One model: a name and its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) clients: u8,
    /// How many ticks a lease lasts.
    pub(super) ttl: u8,
    /// Whether the clients wait for a busy lock.
    pub(super) waits: bool,
    /// How many messages may be under way at once.
    pub(super) in_flight: usize,
    /// How many owners that are over may still be known to the store or the network when an acquisition begins.
    pub(super) left_over: usize,
    pub(super) faults: &'static [Fault],
    /// What has to be reached, or the model does not show what it is named after.
    pub(super) reaches: &'static [Situation],
}

impl Setup {
    pub(super) fn may(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The bounds, for people.
    pub(super) fn bounds(&self) -> String {
        let tick = TICK.as_secs();
        let faults = self.faults.iter().map(|fault| fault.words());
        let may_happen: Vec<_> = std::iter::once("pauses").chain(faults).collect();
        format!(
            "{} clients that {}; any number of acquisitions, retries and polls each, without an end; TTL {} s in ticks of \
             {tick} s; under way at most {}, and as many wakes; no acquisition begins {}; any number of times: {}",
            self.clients,
            if self.waits { "wait" } else { "try" },
            u64::from(self.ttl) * tick,
            counted(self.in_flight, "request or answer", "requests or answers"),
            match self.left_over {
                0 => "before all traces of those that are over are gone from store and network"
                    .into(),
                most =>
                    format!("while store and network have traces of more than {most} that are over"),
            },
            may_happen.join(", "),
        )
    }
}

fn counted(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// Something that a model is there to explore. That it was reached is counted, so that a model which explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A client was refused, or told to wait.
    Busy,
    /// Two waited at once.
    QueueOfTwo,
    /// A release handed the lock to a waiter.
    Granted,
    /// That waiter asked again within its claim window.
    Claimed,
    /// That waiter took the lock by hearing the wake, without asking.
    HeldByWake,
    /// It did neither, and the window passed.
    ClaimMissed,
    /// A lease was renewed.
    Renewed,
    /// A lease that was in use ended in the store by time.
    Expired,
    /// A client saw its own deadline pass.
    DeadlinePassed,
    /// An answer was lost.
    ReplyLost,
    /// An answer came when its lease was over already.
    ReplyTooLate,
    /// A request was carried out for a client that had given up or gone on.
    AppliedLate,
    /// A request was carried out twice.
    AppliedTwice,
    /// A wake was lost.
    WakeLost,
    /// A wake came when time had passed since the grant.
    WakeLate,
    /// A wake came for an owner that does not want the lock any more.
    WakeUnwanted,
    /// A client left the queue.
    Cancelled,
    /// A client crashed while it held the lock.
    CrashedHolding,
    /// A client crashed while it waited.
    CrashedWaiting,
    /// A waiter was passed over because it could not be told.
    GonePassed,
    /// Such a one came back in time and was granted the lock.
    CameBack,
    /// A waiter was passed over because nothing had been heard of it.
    SilentPassed,
    /// An operator broke the lock of a client that believed to hold it.
    Broken,
    /// An operator named a fence that was not the holder's any more.
    BreakTooLate,
    /// A program of another kind held the lock while a client waited.
    ForeignHeld,
    /// Its lock ended by time.
    ForeignExpired,
    /// A waiter heard that it was the first in line behind it now.
    ToldFirst,
    /// The counter of fences was lost while a client held the lock.
    CounterLost,
    /// Everything was lost while a client held the lock.
    Flushed,
    /// Several fences were drawn with a grant.
    BlockDrawn,
    /// A client handed the lock on in its process, and named the later fence to the store.
    HandedOn,
    /// The store became what it was before a client was granted the lock that it believed to hold.
    RolledBack,
    /// A client named a fence of such a grant. The store told it that it does not hold, though it does by a newer grant.
    OtherGrant,
    /// A lock stayed taken after its release.
    Kept,
    /// Two clients believed to hold it, one of them robbed by a break or a loss of data.
    RobbedBelieves,
}
