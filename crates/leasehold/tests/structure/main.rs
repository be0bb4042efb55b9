//! The structure of the workspace: layers, imports, names and pages. The tests read the sources.

#![allow(clippy::unwrap_used, reason = "a missing source fails the test")]

mod circles;
mod diagrams;
mod layers;
mod modules;
mod names;
mod pages;
mod real_time;
