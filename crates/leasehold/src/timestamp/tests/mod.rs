//! Tests of timestamp locks.

mod virtual_time;
