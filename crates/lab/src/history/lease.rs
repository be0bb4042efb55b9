//! One lease of a history: its deadlines and its end. Only deadlines that its holder wrote down are used.

use std::fmt;

use crate::history::format::{LeaseMode, Source};

/// One lease, from its ok acquire on.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    pub(crate) proc: u64,
    pub(crate) lock: String,
    pub(crate) owner: String,
    pub(crate) mode: LeaseMode,
    /// The number of its slot, if it has one.
    pub(crate) slot: Option<u16>,
    pub(crate) fence: Option<u64>,
    /// Since when it may be broken, if it ever was.
    pub(crate) broken_ns: Option<u64>,
    /// Invocation and completion of its acquire.
    pub(crate) invoked_ns: u64,
    pub(crate) acquired_ns: u64,
    pub(crate) acquired: Source,
    /// The deadlines that its holder knew, in the order of the file.
    pub(crate) claims: Vec<Claim>,
    /// The first of: its holder released it, was told that it is lost, or learned so from an extend.
    pub(crate) over: Option<(u64, Source)>,
    pub(crate) is_told: bool,
    pub(crate) renews: bool,
    /// When its holder first knew for certain that it is over: by a loss report, or by the answer to a release or an extend.
    pub(crate) known_over_ns: Option<u64>,
    /// The latest deadline known to its holder.
    pub(crate) deadline_ns: Option<u64>,
    /// The index of its release.
    pub(crate) release: Option<usize>,
    /// Its last use: its last line other than the release.
    pub(crate) used_ns: u64,
}

/// A deadline on which the holder relied from a time on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: Option<u64>,
    /// The era in which the store granted it, if that is certain.
    pub(crate) era: Option<u32>,
}

/// What a lease takes of its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    All,
    Readers,
    Slots,
    Slot(u16),
}

/// A time in which a lease was valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) era: u32,
}

impl LeaseMode {
    /// What a lease in this mode, and in this slot, takes of its lock.
    pub(crate) fn takes(self, slot: Option<u16>) -> impl Iterator<Item = Scope> {
        let [one, other] = match self {
            Self::Exclusive => [Some(Scope::All), None],
            Self::Shared => [Some(Scope::Readers), None],
            Self::Slot(_) => [Some(Scope::Slots), slot.map(Scope::Slot)],
        };
        one.into_iter().chain(other)
    }

    /// What another lease must not have at that time.
    pub(crate) fn excludes(self, slot: Option<u16>) -> impl Iterator<Item = Scope> {
        let [one, other] = match self {
            Self::Exclusive => [Some(Scope::Readers), Some(Scope::Slots)],
            Self::Shared => [Some(Scope::Slots), None],
            Self::Slot(_) => [Some(Scope::Readers), slot.map(Scope::Slot)],
        };
        [Scope::All].into_iter().chain(one).chain(other)
    }
}

impl Lease {
    /// What it takes of its lock.
    pub(crate) fn takes(&self) -> impl Iterator<Item = Scope> {
        self.mode.takes(self.slot)
    }

    /// What another lease must not have while it is valid.
    pub(crate) fn excludes(&self) -> impl Iterator<Item = Scope> {
        self.mode.excludes(self.slot)
    }

    /// Whether it is a reader's.
    pub(crate) fn is_shared(&self) -> bool {
        self.mode == LeaseMode::Shared
    }

    /// Adds a deadline on which the holder relies from now on.
    pub(crate) fn claim(&mut self, claim: Claim) {
        self.deadline_ns = self.deadline_ns.max(claim.until_ns);
        self.claims.push(claim);
    }

    /// Records its end. A later one does not count: the lines of a process are in order of time.
    pub(crate) fn end(&mut self, at_ns: u64, source: Source) {
        self.over.get_or_insert((at_ns, source));
    }

    /// Records that the holder knows that the lease is over.
    pub(crate) fn known_over(&mut self, at_ns: u64) {
        self.known_over_ns.get_or_insert(at_ns);
    }

    /// The times in which it was valid. A later deadline of the same era shows that the lock was held all along, since an expired
    /// lease never comes back. It counts only until that deadline, which may have passed before a stopped process wrote it down.
    /// Claims without a certain era are left out.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let over = self.over.map_or(u64::MAX, |(at, _)| at);
        let over = over.min(self.broken_ns.unwrap_or(u64::MAX));
        self.claims
            .iter()
            .enumerate()
            .filter_map(move |(at, claim)| {
                let era = claim.era?;
                let until = claim.until_ns.unwrap_or(self.used_ns);
                let until = match self.claims.get(at + 1) {
                    Some(next) if next.era == claim.era => until
                        .max(next.until_ns.unwrap_or(next.from_ns))
                        .min(next.from_ns),
                    Some(next) => until.min(next.from_ns),
                    None => until,
                };
                let to_ns = until.min(over);
                (claim.from_ns < to_ns).then_some(Span {
                    from_ns: claim.from_ns,
                    to_ns,
                    era,
                })
            })
    }

    /// The era of its acquire, if certain, and the end of its validity in that era: 0 if the reply was too late.
    pub(crate) fn end_in_first_era(&self) -> Option<(u32, u64)> {
        let era = self.claims.first()?.era?;
        let ends = self.spans().filter(|span| span.era == era);
        Some((era, ends.map(|span| span.to_ns).max().unwrap_or(0)))
    }
}

/// `worker 3's lease 9f3c`
impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}'s lease {}", self.proc, self.owner)
    }
}
