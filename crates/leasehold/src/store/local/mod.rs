//! Locks of the processes of one host, in an SQLite file. It must not be used across hosts, nor over a fork.
//!
//! Each step is one transaction, in which `leasehold-core` decides on one lock ([`db`]). The file has each lock as one
//! value ([`lock`]). Time is the boot clock, which all processes of the host share. A shared kernel allows two more
//! things. A lock whose holder's process is gone is free at once ([`process`]). A waiting client notices a grant by
//! another process within 5 ms, since it checks whether the file has changed ([`waiters`]).
//!
//! # Guarantees
//!
//! - If a process is killed at any point, the last committed step remains, and no other process is delayed.
//! - If a process is stopped in the middle of a transaction, it delays all others; their steps time out without effect.
//! - A file on a network file system must not be shared by two hosts: each would judge it by its own clock.
//! - If the file is removed or replaced, or one that SQLite keeps beside it, its data may be lost. The next step of a
//!   client notices it ([`places`]); then the client asks for each of its leases. Fences keep rising.

#[cfg(feature = "entries")]
mod cache;
mod db;
mod fault;
mod file;
mod lock;
mod path;
mod process;
mod store;
#[cfg(test)]
mod tests;

pub(super) use self::store::LocalStore;
#[cfg(feature = "doctor")]
pub(super) use self::store::examine;
