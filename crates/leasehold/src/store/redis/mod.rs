//! Locks on one Redis or Valkey. The only place that knows a Redis command; it must never decide a lock rule: the
//! scripts under `lua/` do, and they are compared with `leasehold-core` step by step.

mod address;
#[cfg(test)]
mod against_core;
mod batch;
#[cfg(feature = "cache")]
mod cache;
mod codec;
mod dial;
mod doctor;
mod fault;
mod flights;
mod greet;
mod inbox;
mod index;
mod line;
mod link;
#[cfg(all(leasehold_mutations, debug_assertions))]
mod mutation;
mod node;
mod placement;
mod refusal;
mod router;
mod runner;
mod scripts;
mod server;
#[cfg(feature = "cache")]
mod server_time;
#[cfg(feature = "timestamp")]
mod timestamp;
#[cfg(feature = "tls")]
mod tls;
mod url;
#[cfg(test)]
mod vectors;
mod vigil;
mod wake;

pub(crate) use self::address::Address;
pub(in crate::store) use self::doctor::examine;
pub(crate) use self::router::RedisStore;
