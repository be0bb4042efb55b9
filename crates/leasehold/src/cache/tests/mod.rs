//! Tests of the cache and its guard.

mod client_ends;
mod lost_messages;
mod schedules;
