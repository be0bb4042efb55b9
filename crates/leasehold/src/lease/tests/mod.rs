//! Tests of this folder: whole clients on a paused clock, threads in random orders, and random histories.

mod schedules;
pub(crate) mod simulation;
mod virtual_time;
