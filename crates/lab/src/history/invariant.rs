//! The thirteen invariants that a history must satisfy.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An invariant of a history.
///
/// Two terms recur. A lease is *valid* from the end of its acquire until the first of these: its release is invoked, its holder
/// is told that it is lost, an extend returns that it is lost, or the latest deadline known to its holder passes. Without a
/// deadline, it is valid until its last use. An ok extend shows that the lock was held all along. An *epoch* ends when the
/// store loses its data; an *era* ends then and when the store's clock jumps forward. An operation in progress at that time
/// belongs to no epoch or era for certain and is never blamed. This also applies to a deadline that may have been requested up
/// to a TTL before the jump.
///
/// A lease is *exclusive*, a *reader's*, or has a *slot*. Two leases of a lock *exclude* each other, except two readers, and two slots with
/// different numbers. Readers that hold together are a *phase*. A *broken* lease is valid until its break, and so is each later one of its
/// grant: for no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// I1: no two leases of a lock got the same fence in one epoch, except readers of one phase: each asked for the lock before all those with
    /// its fence had left, as far as anybody knows. Where the resource asks for fences, each lease has one, except a reader's on a quorum.
    #[serde(rename = "I1")]
    UniqueFence,
    /// I2: if an acquire completed before another that it excludes was invoked, it has the lower fence, across epochs too. Within
    /// an era, of two such leases the one with the lower fence is no longer valid when the acquire of the other completes. The same is true
    /// of readers of different phases; those of one phase have one fence. (With I1 and I3 this is the complete promise of a fenced
    /// mutex: there is an order of all leases in which each is over before the next, fences rise, and real time is respected. A test
    /// tries all orders and compares.)
    ///
    /// Not compared are: leases that were handed on after their grant was broken; and readers of a phase that began in an earlier epoch,
    /// which the store may still have without the leases after it.
    #[serde(rename = "I2")]
    FenceOrder,
    /// I3: no two leases that exclude each other are valid at the same time in one era. A slot has a number from 1 to the number of slots
    /// that was asked for. So at most k leases are valid at a time that asked for k slots or fewer, whatever others ask for.
    #[serde(rename = "I3")]
    Exclusion,
    /// I4: a fenced resource accepts nothing without a fence, and no fence below the highest presented before for that lock, or for that
    /// slot.
    /// Judged on writes if it is write-fenced, on reads as well if it is fenced, otherwise not at all.
    #[serde(rename = "I4")]
    FencedResource,
    /// I5: the base of each accepted write is the version before it, the version after it is one more, and an accepted read
    /// returns the version of its time. Each slot has its own versions. All reads of one reader's lease return one version; a
    /// write-fenced resource does not protect those.
    #[serde(rename = "I5")]
    NoLostUpdate,
    /// I6: no release of an owner removes the lock of another. Judged where `removed` lines name the remover and the owner.
    #[serde(rename = "I6")]
    OwnLockOnly,
    /// I7: no ok acquire or extend completes later than the deadline that it reports, except for the scheduling tolerance and
    /// unless its process was stopped in it. No extend or release is ok that was invoked after its holder knew that the lease was
    /// over: by the loss report, or by the answer to a release or an extend. Reads and writes past the deadline do not concern
    /// the lock: the resource decides (I4, I5).
    #[serde(rename = "I7")]
    NoLateSuccess,
    /// I8: during each refused acquire another owner that excludes it may have held the lock, or as many others may have had a slot as
    /// there are, or as a request for fewer slots waited for, which was ahead. Possible holders are: another acquire in progress;
    /// a lease that was not released; an acquire without outcome, for up to a TTL and the orphan bound after its end, or after
    /// the end of the outage of the server or its network at that time. If the server's clock was set back meanwhile, the time
    /// is longer by that amount. A lock that was released or refused while a replica did not follow may be held again for as
    /// long after the failover to it. An acquire that waited is hard to refute: any short hold explains it.
    #[serde(rename = "I8")]
    UnknownResolves,
    /// I9: a holder whose process was not stopped since its acquire is told of a loss no later than its deadline and the
    /// scheduling tolerance. No holder begins to extend, read or write later than that after the deadline that it names itself,
    /// without having been told. A history cannot show a holder that is never told and does nothing.
    #[serde(rename = "I9")]
    ToldInTime,
    /// I10: an acquire invoked after the calm ends within the bound times one plus the number of acquires ahead of it: others of
    /// this lock that were invoked before and have not ended, or have not released. A lock that is requested after the
    /// calm is granted within that time of the first request. Killed processes do not count.
    #[serde(rename = "I10")]
    Liveness,
    /// I11: each planned fault happened as often as planned, to a target that could fail; no worker wrote a line after it was
    /// killed, or while it was stopped (except for 5 ms at both ends); the planned number of workers ran; a lease was acquired
    /// and a write accepted; and if liveness is judged, there was a calm and no fault after it.
    #[serde(rename = "I11")]
    RealCampaign,
    /// I12: each ok (refused) read or write of a worker is an accepted (refused) decision of the resource within its time; each
    /// decision is an operation of that worker. Each operation under a lease has an acquired lease and its fence; so has
    /// each ok release, unless the acquire had no outcome.
    #[serde(rename = "I12")]
    LogsAgree,
    /// I13: a quorum serves while a majority is in reach. A node is *unwell* from the beginning of its fault until the nemesis has
    /// seen it well and the recovery bound has passed. A majority is *in reach* while so few nodes are unwell that the others are a
    /// majority. A holder is *healthy* if its process was not stopped, nor shortly before: in the tolerance, or half a TTL if that
    /// is shorter.
    ///
    /// After a majority has been in reach for two TTLs, no healthy holder learns of the loss of a lease that renews itself, or of
    /// another one before its deadline: by a loss report, or by the answer to an extend or a release. If one is in reach during the
    /// whole request, it has an answer. While one is in reach, nobody whose process is not stopped waits longer than the idle bound
    /// for a lock that nobody holds: from the end of each lease, as its holder or its death tells, to the next grant. Votes that are left behind are no holder: the bound allows for them.
    ///
    /// If a process may be late by more than half a TTL, that explains a loss or a missing answer: both are counted then, no more.
    #[serde(rename = "I13")]
    Available,
}

impl Invariant {
    /// All invariants, by number.
    pub const ALL: [Self; 13] = [
        Self::UniqueFence,
        Self::FenceOrder,
        Self::Exclusion,
        Self::FencedResource,
        Self::NoLostUpdate,
        Self::OwnLockOnly,
        Self::NoLateSuccess,
        Self::UnknownResolves,
        Self::ToldInTime,
        Self::Liveness,
        Self::RealCampaign,
        Self::LogsAgree,
        Self::Available,
    ];

    /// The names, by number.
    const NAMES: [(&'static str, &'static str); 13] = [
        ("I1", "unique fence"),
        ("I2", "fence order"),
        ("I3", "exclusion"),
        ("I4", "fenced resource"),
        ("I5", "no lost update"),
        ("I6", "own lock only"),
        ("I7", "no late success"),
        ("I8", "unknown resolves"),
        ("I9", "told in time"),
        ("I10", "liveness"),
        ("I11", "real campaign"),
        ("I12", "logs agree"),
        ("I13", "available"),
    ];

    /// The number: `I1` to `I13`.
    pub fn id(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// A short name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.name())
    }
}
