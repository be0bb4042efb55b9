//! Tests of this folder: blocks of fences, whole clients on a paused clock, threads in random orders, and random histories.

mod fences;
mod schedules;
mod simulation;
mod virtual_time;
