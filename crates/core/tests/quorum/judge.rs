//! Judges the leases of a history, knowing only real times and fences.

use leasehold_core::Owner;

/// A lease that a client relied on.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) owner: Owner,
    /// When the client sent its first request for it.
    pub(crate) sent: u64,
    /// When the client got it.
    pub(crate) began: u64,
    /// When the client released it, or no longer relied on it.
    pub(crate) ended: u64,
    /// It is a reader's.
    pub(crate) is_shared: bool,
    /// Its first and last fence. A reader has none: these are the numbers of its votes.
    pub(crate) fences: (u64, u64),
    /// An operator broke it on some node.
    pub(crate) is_broken: bool,
}

/// Two leases that contradict a theorem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) theorem: &'static str,
    pub(crate) leases: String,
}

/// The theorem that two leases contradict.
fn between(a: &Record, b: &Record) -> Option<&'static str> {
    if a.is_shared && b.is_shared {
        return None;
    }
    let is_broken = a.is_broken || b.is_broken;
    if a.began < b.ended && b.began < a.ended && !is_broken {
        return Some("QR1");
    }
    if a.is_shared || b.is_shared {
        return None;
    }
    if a.fences.0 <= b.fences.1 && b.fences.0 <= a.fences.1 {
        return Some("QR2");
    }
    let is_before = |a: &Record, b: &Record| a.began < b.sent || !is_broken && a.ended <= b.began;
    let wrong = |a: &Record, b: &Record| is_before(a, b) && a.fences.1 >= b.fences.0;
    (wrong(a, b) || wrong(b, a)).then_some("QR3")
}

/// All contradictions.
pub(crate) fn all(leases: &[Record]) -> impl Iterator<Item = Violation> + '_ {
    let pairs = leases.iter().enumerate();
    pairs.flat_map(|(at, a)| {
        leases[at + 1..].iter().filter_map(move |b| {
            let theorem = between(a, b)?;
            let leases = format!("{a:?} and {b:?}");
            Some(Violation { theorem, leases })
        })
    })
}

/// The first contradiction.
pub(crate) fn first(leases: &[Record]) -> Option<Violation> {
    all(leases).next()
}
