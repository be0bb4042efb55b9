//! The cache guard on a real server, among real processes. The tests check counts, which a busy machine does not change.
//!
//! The processes run this program too (see [`process`]). The source counts its reads in a file, outside of Redis. Limits for times are so
//! long that a busy machine keeps them: `bench/stampede` measures times.
#![allow(
    clippy::disallowed_methods,
    reason = "real processes, and times that several of them compare"
)]

#[path = "../../../leasehold/tests/common/mod.rs"]
mod common;
mod cost;
mod death;
mod fleet;
mod once;
mod outage;
mod process;
mod register;
mod source;

/// Runs a process of a fleet. In the test run itself, it only checks that this is no such process.
#[test]
fn a_process_of_the_fleet() {
    if !process::serve() {
        assert!(std::env::var_os(process::PLACE).is_none());
    }
}
