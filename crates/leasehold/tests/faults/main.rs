//! Real faults on real servers: stopped, killed, emptied, full, refusing, unreachable, and somebody else's keys. Each test is
//! the story of one fault: what a holder, a waiter and a newcomer are told, and what is left behind.

mod access;
mod connections;
mod credentials;
mod executor;
mod failover;
mod foreign;
mod full;
mod network;
mod order;
mod outage;
mod refusing;
mod replaced;
mod restart;
mod scene;
mod tls;
mod updates;
