//! Tests of the command as its users see it. One test program, so that tests that wait for a lease run in
//! parallel with the others.

#[cfg(feature = "cache")]
mod cache;
mod common;
mod configuration;
mod dev;
mod doctor;
#[cfg(target_os = "linux")]
mod elect;
mod error_advice;
mod hold;
mod operations;
mod operator;
mod pages;
mod quorum;
mod resource_shortage;
mod run;
mod serve;
mod token;
mod tutorial;
mod verbose;
