//! What a lease came to. Must never use a deadline that its holder did not write down.

use crate::records::Source;

/// One lease: from an ok acquire on.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) proc: u64,
    pub(crate) lock: u32,
    pub(crate) owner: u32,
    pub(crate) fence: Option<u64>,
    /// Its acquire: invoked, completed.
    pub(crate) invoked_ns: u64,
    pub(crate) acquired_ns: u64,
    pub(crate) acquired: Source,
    /// What its holder knew of its deadline, in the order of the file.
    pub(crate) claims: Vec<Claim>,
    /// When its holder gave it up, was told that it is lost or heard so from an extend, whichever was first.
    pub(crate) over: Option<(u64, Source)>,
    pub(crate) told_ns: Option<u64>,
    /// When its holder first knew for certain that it is over: told so, or by the answer to a release or an extend.
    pub(crate) known_over_ns: Option<u64>,
    /// The latest deadline that its holder is known to have had.
    pub(crate) deadline_ns: Option<u64>,
    /// The index of its release.
    pub(crate) release: Option<usize>,
    /// When it was last relied on: the last line of it but for its release.
    pub(crate) used_ns: u64,
}

/// From a time on the holder relied on a deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: Option<u64>,
    /// The era that the store gave it in, if that is certain.
    pub(crate) era: Option<u32>,
}

/// A time in which a lease was valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) era: u32,
}

impl Lease {
    /// From here on its holder relies on this.
    pub(crate) fn claim(&mut self, claim: Claim) {
        self.deadline_ns = self.deadline_ns.max(claim.until_ns);
        self.claims.push(claim);
    }

    /// Its holder knows that it is over.
    pub(crate) fn known_over(&mut self, at_ns: u64) {
        let known = self.known_over_ns.unwrap_or(at_ns);
        self.known_over_ns = Some(known.min(at_ns));
    }

    /// When it was valid. A later deadline of the same era shows that the lock was held all along, since no lease comes back once
    /// its lock has lapsed; but no longer than until that deadline, which may have passed before a stopped process came to write it
    /// down. Claims of no certain era are left out.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let over = self.over.map_or(u64::MAX, |(at, _)| at);
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

    /// The era in which it was acquired, if that is certain, and the end of its validity in it: 0 if it came too late to be valid.
    pub(crate) fn end_in_first_era(&self) -> Option<(u32, u64)> {
        let era = self.claims.first()?.era?;
        let ends = self.spans().filter(|span| span.era == era);
        Some((era, ends.map(|span| span.to_ns).max().unwrap_or(0)))
    }
}
