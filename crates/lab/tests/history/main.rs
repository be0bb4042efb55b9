//! Tests of the judge: histories broken by hand, all orders of small histories, and random sound histories with and without one
//! change.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod all_orders;
mod changed;
mod command;
mod hostile;
mod independent;
mod reading;
mod self_test;
mod simulator;
mod speed;
mod text;
