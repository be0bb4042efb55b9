//! The cache guard on a real server, among real processes: what is promised for a fleet, by counts that no noise changes.
//!
//! The processes are this program once more (see [`process`]); the source counts its reads in a file, outside of Redis. Times
//! are only held against bounds that a busy machine keeps: `bench/stampede` measures them.
#![cfg(feature = "cache")]
#![allow(
    clippy::disallowed_methods,
    reason = "real processes, and times that several of them compare"
)]

mod cost;
mod death;
mod failing;
mod fleet;
mod once;
mod outage;
mod process;
mod register;
mod slow;
mod source;

/// What the other processes of a fleet run; in the test run itself, which is none of them, it only says so.
#[test]
fn a_process_of_the_fleet() {
    if !process::serve() {
        assert!(std::env::var_os(process::PLACE).is_none());
    }
}
