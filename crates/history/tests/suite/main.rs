//! Tests of the judge: histories broken by hand, all orders of small histories, and random sound histories with and without one
//! change.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod all_orders;
mod changed;
mod command;
mod hostile;
mod independent;
mod reading;
mod rng;
mod simulator;
mod speed;
mod text;

#[test]
fn broken_histories_are_rejected_for_the_right_reason() {
    if let Err(failures) = leasehold_history::self_test() {
        panic!("{}", failures.join("\n"));
    }
}
