//! How we know: experiments on the rules of Leasehold. Must never state a rule of its own: who holds a lock is asked of
//! [`leasehold_core`], and what the experiments assume of clients, servers and networks is said where it is set.
//!
//! | module | what it is for |
//! |---|---|
//! | [`ladder`] | what is wrong with the recipes that people are taught |
//! | [`rules`] | our own rules under every order of events, within bounds |
//! | [`cache`] | the rules of a guarded cache entry, likewise |
//! | [`storm`], [`parts`] | many processes, a few locks, faults of all kinds, and a judge who reads what they did |
//! | [`scale`] | ten to a million clients that want one lock, in virtual time, beside other ways to wait |
//! | [`report`], [`check_table`] | what checks of models found, and how it is told |
//! | [`host_time`], [`server`] | the clock of this host, and a redis-server of the lab's own that dies with it |
//! | [`command`] | all of it as a command line |

#![forbid(unsafe_code)]

pub mod cache;
pub mod check_table;
pub mod command;
mod explore;
pub mod host_time;
pub mod ladder;
mod output;
pub mod parts;
mod process;
pub mod report;
mod rng;
pub mod rules;
pub mod scale;
pub mod server;
pub mod storm;
mod svg;
mod text;
