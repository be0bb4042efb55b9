//! Chooses the form in which a step is sent. A short form that does not fit has changed nothing, and the long form
//! follows.

use std::collections::HashSet;

use leasehold_core::{LockName, Reply, Step};

/// The most steps in one batch: long enough for the request to cost little beside its steps, short enough (half a
/// millisecond) not to delay other clients of the server.
pub(in crate::store::redis) const MOST: usize = 32;

/// Which steps may share a batch: those of one script, which a full server treats alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Kind {
    /// Extends or releases. A full server executes them too.
    Settle,
    /// Extends or releases, for locks that may have other waiters.
    SettleLong,
    /// Acquires. A full server refuses them.
    Acquire,
    /// Acquires, for locks that may have another holder or waiters.
    AcquireLong,
    /// Breaks or inspects: rare, and always alone.
    Alone,
}

impl Kind {
    /// In the order of sending: steps that free a lock go before steps that take one.
    pub(in crate::store::redis) const ALL: [Self; 5] = [
        Self::Settle,
        Self::SettleLong,
        Self::Acquire,
        Self::AcquireLong,
        Self::Alone,
    ];

    /// True for kinds that extend or release.
    pub(in crate::store::redis) const fn settles(self) -> bool {
        matches!(self, Self::Settle | Self::SettleLong)
    }

    /// How many steps of this kind may share a batch.
    pub(in crate::store::redis) const fn most(self) -> usize {
        match self {
            Self::Alone => 1,
            _ => MOST,
        }
    }

    /// True if no other form follows.
    pub(in crate::store::redis) fn is_long(self) -> bool {
        self == self.long()
    }

    /// The form that follows where this one does not fit.
    pub(in crate::store::redis) const fn long(self) -> Self {
        match self {
            Self::Settle | Self::SettleLong => Self::SettleLong,
            Self::Acquire | Self::AcquireLong => Self::AcquireLong,
            Self::Alone => Self::Alone,
        }
    }
}

/// Steps to be sent together.
pub(in crate::store::redis) struct Batch {
    pub(in crate::store::redis) id: u64,
    pub(in crate::store::redis) kind: Kind,
    pub(in crate::store::redis) steps: Vec<(LockName, Step)>,
}

/// How many contended locks are remembered: enough for all locks that a client uses at once. A forgotten lock only
/// costs a second request.
const KNOWN: usize = 1_024;

/// The locks that had another holder or waiters when the client last heard of them.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Contended(HashSet<String>);

impl Contended {
    /// The kind of a step.
    pub(in crate::store::redis) fn kind(&self, name: &LockName, step: &Step) -> Kind {
        let kind = match step {
            Step::Acquire { .. } | Step::Propose(_) => Kind::Acquire,
            // The short form compares the whole value, which contains the fence.
            Step::Extend { fence: None, .. } | Step::Release { fence: None, .. } => {
                Kind::SettleLong
            }
            Step::Extend { .. } | Step::Release { .. } | Step::GiveBack { .. } => Kind::Settle,
            Step::Break { .. } | Step::Inspect => Kind::Alone,
        };
        if !self.0.is_empty() && self.0.contains(name.key()) {
            kind.long()
        } else {
            kind
        }
    }

    /// Learns from a reply whether the lock is contended.
    pub(in crate::store::redis) fn learn(&mut self, name: &LockName, reply: &Reply) {
        match reply {
            Reply::Held(held) => self.is(name.key(), held.queued > 0),
            Reply::Busy(_) => self.is(name.key(), true),
            Reply::NotHeld(holder) => self.is(name.key(), holder.is_some()),
            Reply::NoVote(_) | Reply::Released | Reply::Seen(_) => {}
        }
    }

    /// Records whether the lock with this key has another holder or waiters.
    pub(in crate::store::redis) fn is(&mut self, key: &str, contended: bool) {
        if !contended {
            if !self.0.is_empty() {
                self.0.remove(key);
            }
        } else if !self.0.contains(key) {
            if self.0.len() >= KNOWN {
                self.0.clear();
            }
            self.0.insert(key.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Block, ClientId, Fence, Held, Owner, Ttl};

    use super::*;

    #[test]
    fn contended_lock_uses_long_form_until_others_are_gone() {
        let name = LockName::new("orders:42").unwrap();
        let extend = |fence| Step::Extend {
            owner: Owner::new(1, ClientId::new(1), "h", 1, "").unwrap(),
            ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
            fence,
        };
        let known = extend(Some(Fence::new(7)));
        let held = |queued| {
            Reply::Held(Held {
                fence: None,
                block: Block::ONE,
                queued,
            })
        };
        let mut contended = Contended::default();
        assert_eq!(contended.kind(&name, &known), Kind::Settle);
        assert_eq!(contended.kind(&name, &extend(None)), Kind::SettleLong);
        contended.learn(&name, &held(1));
        assert_eq!(contended.kind(&name, &known), Kind::SettleLong);
        contended.learn(&name, &held(0));
        assert_eq!(contended.kind(&name, &known), Kind::Settle);
        for number in 0..=KNOWN {
            contended.is(&format!("n{number}"), true);
        }
        assert!(contended.0.len() <= KNOWN, "it forgets");
    }
}
