//! A held lock of any kind: a lease, several of them (`--also`), a reader's (`--shared`), a slot (`--slots`), or a lock of the timestamp
//! protocol (`--protocol timestamp`). That one is shared with clients that store a deadline in the key, and is weaker than a mutex.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use humantime::format_rfc3339_millis;
use leasehold::kind::AnyKind;
use leasehold::{
    Clock, Fence, Lease, Leases, Lost, Mode, Moment, Owner, Permit, ReadLease, TimestampHold,
};
use serde::Serialize;
use serde_json::Value;

use crate::inherited_store::Variables;
use crate::messages::quoted;
use crate::session::Released;

/// The variable with the tokens of all outer runs, the outermost first.
pub(crate) const CHAIN: &str = "LEASEHOLD_CHAIN";

/// A held lock.
pub(crate) enum LockGuard {
    Lease(Lease),
    Reader(ReadLease),
    Permit(Permit),
    /// Several leases, all or none. Their deadline is the earliest one, and the loss of one is a loss.
    Several {
        leases: Leases,
        /// The name of the first lock.
        first: String,
    },
    /// A lock of the timestamp protocol. It has no fence and no owner.
    Timestamp {
        hold: TimestampHold,
        /// The entry of this lock in `LEASEHOLD_CHAIN`, by which nested runs recognize it.
        link: String,
    },
}

/// Asks the lock that the guard holds, of whichever kind it is.
macro_rules! of_either {
    ($guard:expr, $held:ident => $said:expr) => {
        match $guard {
            LockGuard::Lease($held) => $said,
            LockGuard::Reader($held) => $said,
            LockGuard::Permit($held) => $said,
            LockGuard::Several { leases: $held, .. } => $said,
            LockGuard::Timestamp { hold: $held, .. } => $said,
        }
    };
}

impl LockGuard {
    /// The name of the lock: of several, the first.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Lease(lease) => lease.name(),
            Self::Reader(lease) => lease.name(),
            Self::Permit(permit) => permit.name(),
            Self::Several { first, .. } => first,
            Self::Timestamp { hold, .. } => hold.name(),
        }
    }

    /// The token of the first lease, if that is held alone.
    pub(crate) fn token(&self) -> Option<String> {
        match self {
            Self::Lease(lease) => Some(lease.token()),
            Self::Several { leases, first } => leases.get(first)?.token(),
            Self::Reader(_) | Self::Permit(_) | Self::Timestamp { .. } => None,
        }
    }

    /// The owner of the first lease, if there is one.
    fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Lease(lease) => Some(lease.owner()),
            Self::Reader(lease) => Some(lease.owner()),
            Self::Permit(permit) => Some(permit.owner()),
            Self::Several { leases, first } => leases.get(first).map(Lease::owner),
            Self::Timestamp { .. } => None,
        }
    }

    /// How the lock is held. The timestamp protocol has no modes.
    pub(crate) fn mode(&self) -> Option<Mode> {
        match self {
            Self::Lease(lease) => Some(lease.mode()),
            Self::Reader(lease) => Some(lease.mode()),
            Self::Permit(permit) => Some(permit.mode()),
            Self::Several { leases, first } => leases.get(first).map(Lease::mode),
            Self::Timestamp { .. } => None,
        }
    }

    /// The number of the slot.
    pub(crate) fn slot(&self) -> Option<u16> {
        match self {
            Self::Permit(permit) => Some(permit.slot().number),
            _ => None,
        }
    }

    /// The name of the lock that is lost, or ends first.
    pub(crate) fn endangered(&self) -> &str {
        let Self::Several { leases, .. } = self else {
            return self.name();
        };
        let first = leases.iter().min_by_key(|lease| lease.valid_until());
        let lost = leases.iter().find(|lease| lease.is_lost());
        lost.or(first).map_or(self.name(), Lease::name)
    }

    /// The lock in messages: of several, the one that is lost or ends first.
    pub(crate) fn title(&self) -> String {
        let name = self.endangered();
        title(name, self.fence_of(name))
    }

    fn fence_of(&self, name: &str) -> Option<Fence> {
        match self {
            Self::Several { leases, .. } => leases.get(name).and_then(Lease::fence),
            one => one.fence(),
        }
    }

    /// All names, in quotes.
    pub(crate) fn names(&self) -> String {
        let others: Vec<String> = self.others().map(|lease| quoted(lease.name())).collect();
        let first = quoted(self.name());
        if others.is_empty() {
            return first;
        }
        format!("{first} (with {})", others.join(", "))
    }

    /// The fence of the first lock, if it has one; of a permit, that of its slot.
    pub(crate) fn fence(&self) -> Option<Fence> {
        match self {
            Self::Lease(lease) => Some(lease.fence()),
            Self::Reader(lease) => lease.fence(),
            Self::Permit(permit) => Some(permit.slot().fence),
            Self::Several { leases, first } => leases.get(first).and_then(Lease::fence),
            Self::Timestamp { .. } => None,
        }
    }

    /// The leases beside the first one.
    fn others(&self) -> impl Iterator<Item = &Lease<AnyKind>> {
        let leases = match self {
            Self::Several { leases, .. } => Some(leases.iter()),
            _ => None,
        };
        let is_other = |lease: &&Lease<AnyKind>| lease.name() != self.name();
        leases.into_iter().flatten().filter(is_other)
    }

    /// Several locks as JSON, the first one first.
    pub(crate) fn json(&self) -> Option<Value> {
        let Self::Several { leases, first } = self else {
            return None;
        };
        let all = leases.get(first).into_iter().chain(self.others());
        let all: Vec<HeldLock<'_>> = all.map(HeldLock::of).collect();
        serde_json::to_value(all).ok()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        of_either!(self, held => held.valid_until())
    }

    pub(crate) fn valid_for(&self) -> Duration {
        of_either!(self, held => held.valid_for())
    }

    pub(crate) fn is_lost(&self) -> bool {
        of_either!(self, held => held.is_lost())
    }

    pub(crate) fn loss(&self) -> Option<Lost> {
        of_either!(self, held => held.loss())
    }

    pub(crate) async fn lost(&self) -> Lost {
        of_either!(self, held => held.lost().await)
    }

    /// The reason of the last failed renewal, while the lock is not lost.
    pub(crate) fn doubt(&self) -> Option<String> {
        of_either!(self, held => held.doubt())
    }

    /// Releases the lock, now or after `keep`, and waits up to `limit` for the confirmation.
    pub(crate) async fn release(self, keep: Option<Duration>, limit: Duration) -> Released {
        let released = async {
            of_either!(self, held => match keep {
                Some(keep) => held.release_after(keep).await,
                None => held.release().await,
            })
        };
        Released::within(limit, released).await
    }

    /// The variables that tell a command about this lock and its store, `store`. They contain no password.
    pub(crate) fn variables(
        &self,
        ttl: Duration,
        waited: Duration,
        firing: Option<&str>,
        store: &Variables,
    ) -> Variables {
        // A timestamp lock has none of them. An outer run may have set them for another lock.
        let (owner, fence) = (self.owner(), self.fence());
        let slot_fence = fence.filter(|_| self.slot().is_some());
        let outer = env::var(CHAIN).ok().filter(|outer| !outer.is_empty());
        let mut chain: Vec<&str> = outer.as_deref().into_iter().collect();
        match self {
            Self::Timestamp { link, .. } => chain.push(link),
            Self::Lease(_) | Self::Reader(_) | Self::Permit(_) => {
                chain.extend(owner.map(Owner::token));
            }
            Self::Several { leases, .. } => {
                chain.extend(leases.iter().map(|lease| lease.owner().token()));
            }
        }
        let now = format_rfc3339_millis(Clock::system().wall());
        let ours = [
            ("LEASEHOLD_LOCK", Some(self.name().to_owned())),
            ("LEASEHOLD_TTL_MS", Some(ttl.as_millis().to_string())),
            ("LEASEHOLD_WAITED_MS", Some(waited.as_millis().to_string())),
            // For people and logs only.
            ("LEASEHOLD_ACQUIRED_AT", Some(now.to_string())),
            (CHAIN, Some(chain.join(" "))),
            (
                "LEASEHOLD_LOCKS",
                self.json().map(|locks| locks.to_string()),
            ),
            ("LEASEHOLD_FIRING", firing.map(str::to_owned)),
            // The fences of two slots say nothing about each other.
            (
                "LEASEHOLD_FENCE",
                fence.xor(slot_fence).map(|fence| fence.to_string()),
            ),
            (
                "LEASEHOLD_SLOT_FENCE",
                slot_fence.map(|fence| fence.to_string()),
            ),
            ("LEASEHOLD_SLOT", self.slot().map(|slot| slot.to_string())),
            ("LEASEHOLD_MODE", self.mode().map(|mode| mode.to_string())),
            ("LEASEHOLD_TOKEN", self.token()),
            ("LEASEHOLD_HOLDER", owner.map(ToString::to_string)),
        ];
        let ours = ours.map(|(name, value)| (name, value.map(OsString::from)));
        ours.into_iter().chain(store.iter().cloned()).collect()
    }
}

/// A lock in messages.
pub(crate) fn title(name: &str, fence: Option<Fence>) -> String {
    let name = quoted(name);
    match fence {
        Some(fence) => format!("the lease on {name} (fence {fence})"),
        None => format!("the lock {name} (timestamp protocol)"),
    }
}

/// One of several locks, as JSON.
#[derive(Serialize)]
struct HeldLock<'a> {
    name: &'a str,
    mode: String,
    fence: Option<u64>,
}

impl<'a> HeldLock<'a> {
    fn of(lease: &'a Lease<AnyKind>) -> Self {
        Self {
            name: lease.name(),
            mode: lease.mode().to_string(),
            fence: lease.fence().map(Fence::get),
        }
    }
}
