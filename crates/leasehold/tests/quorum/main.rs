//! A quorum of three real servers, with faults of one server and of two. Each test shows the results for a holder and for others, and the
//! votes that remain.

mod added;
#[path = "../common/mod.rs"]
mod common;
mod down;
mod forgetting;
mod hand_over;
mod network;
mod refused;
mod repair;
mod scene;
