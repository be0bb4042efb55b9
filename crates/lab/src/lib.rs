//! The lab: experiments on the rules of Leasehold. The rules come from [`leasehold_core`]; each experiment lists its
//! assumptions on clients, servers and networks.
//!
//! | module | purpose |
//! |---|---|
//! | [`ladder`] | the well-known lock recipes, and their failures |
//! | [`rules`] | model of the lock: every order of events, within bounds |
//! | [`cache`] | model of a guarded cache entry: every order of events, within bounds |
//! | [`quorum`] | model of a quorum: every order of events, within bounds |
//! | [`history`] | judges what a storm has recorded; knows no locks |
//! | [`storm`] | soak test: many processes, a few locks, faults of all kinds, and a judge |
//! | [`report`], [`check_table`] | the results of model checks, and their output |
//! | [`host_time`] | the clock of this host |
//! | [`command`] | the command line |

#![forbid(unsafe_code)]

pub mod cache;
pub mod check_table;
pub mod command;
mod frame;
pub mod history;
pub mod host_time;
pub mod ladder;
mod output;
pub mod quorum;
pub mod report;
pub mod rules;
mod server;
pub mod storm;
mod text;
