//! **Leases over HTTP**, for programs that cannot start a child process, and the JSON documents of locks.
//!
//! - [`documents`], [`look`] and [`changes`] are shared by the command and the server: the JSON of locks, requests for the state of many
//!   locks, and what has changed between two of them.
//! - [`LeaseApi`] has the routes of `/v1` as a [`Router`](axum::Router) that any axum service can mount.
//! - [`Page`] has the page of `leasehold ui`, which shows the locks of a store live.
//! - [`Guard`] and [`Server`] are the server of `leasehold serve`: a token, lists of hosts and origins, and limits.
//!
//! `docs/http.md` has the requests, `docs/reference/openapi.json` their form.

#![forbid(unsafe_code)]
// Docs.rs says which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod changes;
pub mod documents;
#[cfg(feature = "http")]
mod http;
pub mod look;

#[cfg(feature = "http")]
pub use http::{Address, Guard, LeaseApi, Limits, Listener, Metrics, Page, Refusal, Server, Token};

/// The page at the registry has a program, which is run as a test.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../README.md")]
struct RegistryPage;
