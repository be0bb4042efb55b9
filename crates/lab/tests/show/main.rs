//! Hand-made traces and those of the models, as tables, pictures and JSON.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod pictures;
mod rungs;
mod tables;
mod tale;
mod xml;
