//! Locks of the processes of one host, in an SQLite file. Must never be used across hosts, nor over a fork.
//!
//! Each step is one transaction, in which `leasehold-core` decides on the rows of one name ([`db`]). Time is the clock that
//! counts from boot, the same for all processes of the host. That they share a kernel allows two things more: a lock whose
//! holder's process is gone is free at once ([`process`]), and a client that waits sees a grant by another process within
//! 5 ms, by looking whether the file has changed ([`waiters`]).
//!
//! # What is promised
//!
//! - A kill of any process at any point leaves the last committed step, and delays nobody.
//! - A process that is stopped in the middle of a transaction delays all others; they time out, without a verdict.
//! - A file on a network file system is not shared by two hosts, it is broken by them: each would judge it by its own clock.
//! - A file that is removed or replaced is a data loss: holders learn it when they extend their lease, fences keep rising.

#[cfg(feature = "cache")]
mod cache;
mod db;
#[cfg(feature = "doctor")]
mod examine;
mod fault;
mod file;
mod path;
mod process;
mod rows;
mod store;
#[cfg(test)]
mod tests;
mod waiters;

#[cfg(feature = "doctor")]
pub(super) use self::examine::examine;
pub(super) use self::store::LocalStore;
