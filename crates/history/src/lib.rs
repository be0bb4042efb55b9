//! Judges what a campaign wrote down. Must never depend on a crate that knows locks: what it checks must not be able to
//! share a mistake with it.
//!
//! A campaign lets many processes fight for a few locks while a nemesis stops and kills them, and each process writes what
//! it did, and when, to a file of its own ([`format`](mod@format)). [`read`] joins these files to a [`History`], [`judge`] compares it with what a
//! lock promises, and [`self_test`] shows that the judge can still say no.
//!
//! ```
//! # fn main() -> Result<(), Vec<String>> {
//! leasehold_history::self_test()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The invariants
//!
//! | | name | holds when |
//! |---|---|---|
//! | I1 | unique fence | no two leases of a lock got the same fence in one epoch, and where the resource asks for fences each lease has one |
//! | I2 | fence order | an acquire that completed before another was invoked has the lower fence; and of two valid leases the one with the lower fence is over when the acquire of the other completes |
//! | I3 | exclusion | the times in which two leases of a lock are valid do not overlap in one era |
//! | I4 | fenced resource | the resource accepts no fence below the highest that it has seen for that lock |
//! | I5 | no lost update | each accepted write was based on the version before it, versions count up by one, each accepted read answers the latest |
//! | I6 | own lock only | no release removes the lock of another owner |
//! | I7 | no late success | no acquire or extend is reported as done after the deadline that it names, and nothing succeeds for a lease that its holder knew to be over |
//! | I8 | unknown resolves | each refusal is explained by someone who may have held the lock; an acquire without an outcome explains for a TTL and a bound, no longer |
//! | I9 | told in time | a holder that was not stopped is told of its loss by its deadline |
//! | I10 | liveness | after the faults each acquire ends within the bound for each one ahead of it |
//! | I11 | real campaign | each planned fault happened, and leases were had and work was accepted |
//! | I12 | logs agree | what workers say of the resource is what the resource says of itself |
//!
//! [`Invariant`] has the precise statements, with what a history cannot show. All is decided by sorting and sweeping, in O(n log n).

#![forbid(unsafe_code)]

mod campaign;
pub mod format;
mod held;
mod history;
mod invariant;
mod judge;
mod lease;
mod read;
mod records;
mod report;
mod self_test;
mod verdict;

pub use campaign::{Bounds, Campaign, FaultKind, Resource};
pub use history::History;
pub use invariant::Invariant;
pub use judge::judge;
pub use read::{Unreadable, parse, read};
pub use self_test::self_test;
pub use verdict::{Counts, Moment, Status, Verdict, Violation};
