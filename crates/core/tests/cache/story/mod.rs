//! What the rules say, a story each.

mod failing;
mod loading;
mod truth;
