//! The rules of a quorum, by stories of single votes and rounds.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod stories;
