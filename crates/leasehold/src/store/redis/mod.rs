//! Locks on Redis or Valkey, on one server or on a quorum of them. No module outside this folder knows a Redis command
//! (`tests/structure/layers.rs`).
//!
//! The rules of locks are in the scripts under `lua/`, which are compared with `leasehold-core` step by step.
//!
//! | module | what it is for |
//! |---|---|
//! | [`quorum`] | opens a quorum of servers |
//! | [`router`] | chooses the server of a lock; today there is one |
//! | `cache`, `timestamp` | cache entries; locks whose value is their deadline |
//! | [`doctor`] | whether a server is fit for locks |
//! | [`init`] | marks the servers of a new quorum |
//! | [`node`] | one server: its connection, its scripts, the time limits of requests, and the index of names |
//! | [`connection`] | makes, keeps and replaces a connection; which thread does its work |
//! | [`queue`] | the submission queue: steps until a connection takes them, and until they are answered |
//! | [`wake`] | the messages of scripts on a client's channel |
//! | [`codec`] | steps as arguments of scripts, and answers as replies |
//! | [`scripts`] | the scripts, and how one is sent |
//! | [`fault`] | maps the errors of redis-rs to those of this library |
//! | `server_time` | an estimate of the server's clock |
//! | [`seats`] | the servers behind the nodes of a quorum: one node for each |
//! | [`address`] | the address of a server and the login, read from a URL |
//! | `tests` | the scripts do the same as core on real servers, and as `docs/reference/protocol.md` says |
//!
//! A module imports only those below it in the table. [`codec`] imports neither [`queue`] nor [`connection`]. [`queue`]
//! imports the forms of [`codec`], but not [`connection`], which imports both.

mod address;
#[cfg(feature = "entries")]
mod cache;
mod codec;
mod connection;
#[cfg(feature = "doctor")]
mod doctor;
mod fault;
mod init;
mod node;
mod queue;
mod quorum;
#[expect(dead_code, reason = "the connection will use it")]
mod resp;
mod router;
mod scripts;
mod seats;
#[cfg(feature = "entries")]
mod server_time;
#[cfg(test)]
mod tests;
#[cfg(feature = "timestamp")]
mod timestamp;
mod wake;

pub(crate) use self::address::Address;
pub(crate) use self::address::quorum::QuorumAddress;
#[cfg(feature = "doctor")]
pub(super) use self::doctor::{examine, examine_quorum};
pub(super) use self::init::init;
pub(super) use self::quorum::open_quorum;
pub(crate) use self::router::RedisStore;
