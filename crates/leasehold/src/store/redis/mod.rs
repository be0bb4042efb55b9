//! Locks on one Redis or Valkey. The only place that knows a Redis command; it must never decide a lock rule: the
//! scripts under `lua/` do, and they are compared with `leasehold-core` step by step.
//!
//! | module | what it is for |
//! |---|---|
//! | [`router`] | which server a lock is on; today all are on one |
//! | [`index`] | the names that an operator may want to see |
//! | `cache`, `timestamp` | cache entries; locks whose value is their deadline |
//! | [`doctor`] | whether a server is fit for locks |
//! | [`node`] | one server: its connection, the scripts it runs, and how long it may take |
//! | [`connection`] | makes a connection, keeps it, and gives it up; which thread does its work |
//! | [`queue`] | the submission queue: the steps until a connection takes them, and until they are answered |
//! | [`wake`] | what the scripts say to a client on its channel |
//! | [`codec`] | steps as the arguments of scripts, and answers as replies |
//! | [`scripts`], `mutation` | the scripts and how one is sent; broken on purpose, to try the tests |
//! | [`fault`] | what a failed request means |
//! | `server_time` | what time it is on the server |
//! | [`address`] | where a server is and who we are there: reads its URL |
//! | `against_core`, `vectors` | tests: real servers do what core does, and what `docs/reference/protocol.md` says |
//!
//! A module knows only those below it in the table. [`codec`] knows neither [`queue`] nor [`connection`]; [`queue`] knows the forms of [`codec`] and
//! not the [`connection`], which knows both.

mod address;
#[cfg(feature = "cache")]
mod cache;
mod codec;
mod connection;
#[cfg(feature = "doctor")]
mod doctor;
mod fault;
mod index;
#[cfg(all(leasehold_mutations, debug_assertions))]
mod mutation;
mod node;
mod queue;
mod router;
mod scripts;
#[cfg(feature = "cache")]
mod server_time;
#[cfg(test)]
mod tests;
#[cfg(feature = "timestamp")]
mod timestamp;
mod wake;

pub(crate) use self::address::Address;
#[cfg(feature = "doctor")]
pub(in crate::store) use self::doctor::examine;
pub(crate) use self::router::RedisStore;
