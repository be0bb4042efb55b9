//! Real faults on real servers: stopped, killed, emptied, full, refusing, unreachable, and with keys of other programs. Each test shows one
//! fault: the results for a holder, a waiter and a new client, and the keys that remain.

mod access;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod credentials;
mod dialing;
mod executor;
mod failover;
mod foreign;
mod full;
mod looks;
mod network;
mod order;
mod outage;
mod refusing;
mod replaced;
mod resp2;
mod restart;
mod scene;
mod tls;
mod updates;
