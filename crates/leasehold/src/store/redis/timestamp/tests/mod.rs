//! Tests of the timestamp protocol on a real server.

mod against_core;
