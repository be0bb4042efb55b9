//! Tests of this folder: whole clients on a paused clock, threads in random orders, and random histories.

mod schedules;
mod simulation;
mod virtual_time;
