//! The structure of the workspace: layers, imports and pages. The tests read the sources. Matters of style are in `scripts/style`.

#![allow(clippy::unwrap_used, reason = "a missing source fails the test")]

mod circles;
mod diagrams;
mod layers;
mod modules;
mod pages;
mod real_time;
