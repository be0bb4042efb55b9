//! A real cluster: slots that move, replicas that take over, and what URLs may say.

#[path = "../common/mod.rs"]
mod common;
mod failover;
mod moves;
mod scene;
mod urls;
