//! The command, as whoever types it sees it. One program, so that what waits for a lease to end does so beside the others.

#[cfg(feature = "cache")]
mod cache;
mod common;
mod configuration;
mod dev;
mod doctor;
mod error_advice;
mod hold;
mod lab;
mod operations;
mod operator;
mod pages;
mod resource_shortage;
mod run;
mod token;
mod tutorial;
mod verbose;
