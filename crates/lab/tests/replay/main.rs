//! The ladder's models compared with real servers.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod counterexamples;
mod model_redis;
mod stories;
