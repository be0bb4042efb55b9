//! Tests of the local wait queues.

mod spent;
