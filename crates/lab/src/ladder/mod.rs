//! The ladder: the well-known recipes for a lock on Redis, each as a small program, checked in every interleaving. Leasehold's
//! own rules have separate models.

pub mod check;
mod judge;
pub mod model;
pub mod program;
pub mod property;
pub mod redis;
pub mod replay;
pub mod rungs;
pub mod show;
pub mod state;
pub mod trace;
mod words;
