//! The command, as whoever types it sees it. One program, so that what waits for a lease to end does so beside the others.

#[cfg(feature = "cache")]
mod cache;
mod command;
mod common;
mod configuration;
mod dev;
mod doctor;
mod guardian;
mod hints;
mod hold;
mod lab;
mod lost;
mod operations;
mod pages;
mod processes;
mod reading;
mod recipes;
mod refusals;
mod running;
mod shortage;
mod signals;
mod terminal;
mod timestamp;
mod tokens;
mod verbose;
mod waiting;
