//! Tests of the rules on facts that were made for them.

mod quorum;
mod rules;
