//! Judges the history of a campaign. This module uses nothing of Leasehold and nothing else of the lab, so it cannot share a
//! mistake with the code that it checks; a test enforces this.
//!
//! In a campaign, many processes contend for a few locks while a nemesis stops and kills them. Each process appends its
//! operations with their times to its own file ([`format`](mod@format)). [`read`] joins the files to a [`History`], and [`judge`]
//! compares it with the promises of a lock. `tests/history/self_test.rs` shows that the judge rejects broken histories.
//!
//! # The invariants
//!
//! | | name | holds when |
//! |---|---|---|
//! | I1 | unique fence | no two leases of a lock got the same fence in one epoch, except readers that hold together, and where the resource asks for fences each lease has one |
//! | I2 | fence order | of leases that exclude each other, an acquire that completed before another was invoked has the lower fence; and of two valid leases the one with the lower fence is over when the acquire of the other completes |
//! | I3 | exclusion | the times in which two leases of a lock are valid do not overlap in one era, except those of readers, and of different slots |
//! | I4 | fenced resource | the resource accepts no fence below the highest that it has seen for that lock or slot |
//! | I5 | no lost update | each accepted write was based on the version before it, versions count up by one, each accepted read returns the latest, and a reader reads one version |
//! | I6 | own lock only | no release removes the lock of another owner |
//! | I7 | no late success | no acquire or extend is reported as done after the deadline that it names, and nothing succeeds for a lease that its holder knew to be over |
//! | I8 | unknown resolves | each refusal is explained by a possible holder that excludes it; an acquire without an outcome explains for a TTL and a bound, no longer |
//! | I9 | told in time | a holder that was not stopped is told of its loss by its deadline |
//! | I10 | liveness | after the faults each acquire ends within the bound for each acquire ahead of it |
//! | I11 | real campaign | each planned fault happened, leases were acquired, and work was accepted |
//! | I12 | logs agree | the workers' log of the resource agrees with the resource's own log |
//! | I13 | available | while a majority of a quorum is in reach, no healthy holder loses a lease, each request has an answer, and a free lock is granted within the bound |
//!
//! [`Invariant`] has the precise statements, and the limits of a history. All are decided by sorting and sweeping, in
//! O(n log n).

mod campaign;
pub mod format;
mod invariant;
mod joined;
mod judge;
mod lease;
mod read;
mod verdict;

pub use campaign::{Bounds, Campaign, FaultKind, Resource};
pub use invariant::Invariant;
pub use joined::History;
pub use judge::judge;
pub use read::{Unreadable, parse, read};
pub use verdict::{Counts, Modes, Moment, Reach, Status, Verdict, Violation};
