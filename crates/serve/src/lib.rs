//! The JSON documents of locks, and requests for the state of many locks.

#![forbid(unsafe_code)]
// Docs.rs says which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod documents;
pub mod look;
