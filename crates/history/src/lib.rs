//! Judges what a campaign wrote down. Must never depend on a crate that knows locks: what it checks must not be able to
//! share a mistake with it.

#![forbid(unsafe_code)]
