//! The rules of an entry, one story each.

mod failing;
mod loading;
mod truth;
