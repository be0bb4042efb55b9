//! The ladder: the recipes for a lock on Redis that people are taught, each as a small program, checked in every interleaving.
//! Must never check a copy of our own rules: those have models of their own.

pub mod check;
pub mod model;
mod offence;
pub mod place;
pub mod program;
pub mod property;
pub mod race;
pub mod redis;
pub mod replay;
pub mod rungs;
pub mod shortest;
pub mod show;
pub mod state;
pub mod step;
pub mod trace;
pub mod wire;
mod words;
