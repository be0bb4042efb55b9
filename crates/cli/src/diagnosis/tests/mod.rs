//! Tests of the rules on facts that were made for them.

mod cluster;
mod quorum;
mod rules;
