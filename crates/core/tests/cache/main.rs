//! The rules of a guarded cache entry: as stories, as invariants in random sequences, and as seen through a register that is
//! written, invalidated and read. The numbers are those of `leasehold_core::cache`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod events;
mod play;
mod register;
mod run;
mod sequences;
mod story;
