//! What the ladder's models say, beside what a real server says.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod counterexamples;
mod model_redis;
mod races;
mod stories;
