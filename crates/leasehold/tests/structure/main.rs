//! The structure of the workspace: layers, imports, unsafe code, and limits in real time. The tests read the sources. Pages are checked by
//! `scripts/pages`, matters of style by `scripts/style`.

#![allow(clippy::unwrap_used, reason = "a missing source fails the test")]

mod circles;
mod diagrams;
mod layers;
mod modules;
mod real_time;
