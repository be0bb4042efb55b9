//! Locks on one Redis or Valkey. The only place that knows a Redis command; it must never decide a lock rule: the
//! scripts under `lua/` do, and they are compared with `leasehold-core` step by step.

mod address;
#[cfg(test)]
mod against_core;
#[cfg(feature = "cache")]
mod cache;
mod codec;
mod connection;
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
#[cfg(feature = "timestamp")]
mod timestamp;
#[cfg(test)]
mod vectors;
mod wake;

pub(crate) use self::address::Address;
pub(in crate::store) use self::doctor::examine;
pub(crate) use self::router::RedisStore;
