//! What a history is held to, by number. Must never depend on how it is checked.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A promise that a history keeps or breaks.
///
/// Two words recur. A lease is *valid* from the end of its acquire until its release is invoked, it is told lost, an extend
/// answers that it is lost, or the latest deadline that its holder is known to have had passes, whichever is first; without a
/// deadline, until it was last used. An ok extend shows that the lock was held all along. An *epoch* ends when the store
/// loses its data, an *era* then and when its clock jumps forward; what was going on while that happened belongs to no epoch or era for
/// certain and is never blamed for it. Nor does a deadline that may have been asked for before the jump, a TTL before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// I1: no two leases of a lock got the same fence in one epoch. Where the resource asks for fences, each lease has one.
    UniqueFence,
    /// I2: if an acquire completed before another of the same lock was invoked, it has the lower fence, across epochs too. And within an
    /// era, of two leases the one with the lower fence is no longer valid when the acquire of the other completes.
    /// (With I1 and I3 that is all that a fenced mutex promises: there is then an order of all leases in which each
    /// is over before the next, fences rise, and real time is respected. A test tries all orders and compares.)
    FenceOrder,
    /// I3: no two leases of a lock are valid at the same time in one era.
    Exclusion,
    /// I4: a fenced resource accepts nothing without a fence and no fence below the highest presented for that lock before.
    /// Judged on writes if it is write-fenced, on reads as well if it is fenced, else not at all.
    FencedResource,
    /// I5: the base of each accepted write is the version before it, the version after it is one more, and an accepted read answers
    /// the version of then.
    NoLostUpdate,
    /// I6: no release of an owner removes the lock of another. Judged where `removed` lines say who removed what.
    OwnLockOnly,
    /// I7: no ok acquire or extend completes later than the deadline that it reports, but for the tolerance in scheduling,
    /// unless its process was stopped in it; and no extend or release is ok that was invoked after its holder knew that the lease is over: told
    /// lost, or by the answer to a release or an extend. Reads and writes past
    /// the deadline are no matter of the lock: the resource is what decides there (I4, I5).
    NoLateSuccess,
    /// I8: for each refused acquire someone may have held the lock while it was under way: another acquire under way,
    /// a lease that was not given back, or an acquire without outcome, for up to a TTL and the orphan bound after its end, or after the
    /// end of what kept the server, or the way to it, from working meanwhile; if the server's clock was set back meanwhile, so much longer. What was given back, or refused, while a replica did not
    /// follow may be there again for as long after the failover to it. An acquire that waited is hard to refute: anyone who may have held the lock for a moment explains it.
    UnknownResolves,
    /// I9: a holder whose process was not stopped since it acquired is told of a loss no later than the tolerance in scheduling after its
    /// deadline; and none begins to extend, read or write that much later than the deadline that it names itself, without having been
    /// told. A holder that is never told and does nothing cannot be seen in a history.
    ToldInTime,
    /// I10: an acquire invoked after the calm ends within the bound times one plus the number of those ahead: others of this lock that were
    /// invoked before and have not ended, or have not given back what they got. And a lock that is asked for after the calm is
    /// had by someone within that time of the first such acquire. Processes that were killed are left out.
    Liveness,
    /// I11: each planned fault happened as often as planned, to something that could fail; no worker wrote a line after it was killed, or
    /// while it was stopped but for 5 ms at both ends; as many workers ran as were to; a lease was
    /// had and a write accepted; and if liveness was to be judged, there was a calm and no fault after it.
    RealCampaign,
    /// I12: each ok (refused) read or write of a worker is an accepted (refused) decision of the resource within its time, each
    /// decision is an operation of that worker, and what was done under a lease has one that was acquired,
    /// and its fence; as has a release that is ok, unless the acquire had no outcome.
    LogsAgree,
}

impl Invariant {
    /// All of them, by number.
    pub const ALL: [Self; 12] = [
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
    ];

    /// `I1` and so on.
    pub fn id(self) -> &'static str {
        match self {
            Self::UniqueFence => "I1",
            Self::FenceOrder => "I2",
            Self::Exclusion => "I3",
            Self::FencedResource => "I4",
            Self::NoLostUpdate => "I5",
            Self::OwnLockOnly => "I6",
            Self::NoLateSuccess => "I7",
            Self::UnknownResolves => "I8",
            Self::ToldInTime => "I9",
            Self::Liveness => "I10",
            Self::RealCampaign => "I11",
            Self::LogsAgree => "I12",
        }
    }

    /// A few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::UniqueFence => "unique fence",
            Self::FenceOrder => "fence order",
            Self::Exclusion => "exclusion",
            Self::FencedResource => "fenced resource",
            Self::NoLostUpdate => "no lost update",
            Self::OwnLockOnly => "own lock only",
            Self::NoLateSuccess => "no late success",
            Self::UnknownResolves => "unknown resolves",
            Self::ToldInTime => "told in time",
            Self::Liveness => "liveness",
            Self::RealCampaign => "real campaign",
            Self::LogsAgree => "logs agree",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.name())
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl<'de> Deserialize<'de> for Invariant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        let known = Self::ALL.into_iter().find(|known| known.id() == id);
        known.ok_or_else(|| D::Error::custom(format!("no invariant {id:?}")))
    }
}
