//! Tests of the guard.

mod stage;
