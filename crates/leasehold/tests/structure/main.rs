//! The structure of the workspace: layers, imports, and unsafe code. The tests read the sources. Pages, and limits in real time, are
//! checked by `scripts/pages`, matters of style by `scripts/style`.

#![allow(clippy::unwrap_used, reason = "a missing source fails the test")]

mod circles;
mod diagrams;
mod layers;
mod modules;
