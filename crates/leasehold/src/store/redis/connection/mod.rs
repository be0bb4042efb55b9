//! The connection to one server: makes it, keeps it alive and replaces it.
//!
//! | module | what it is for |
//! |---|---|
//! | [`handle`] | the connection, as its users see it |
//! | [`current`] | the current connection, for out-of-band requests |
//! | [`runner`] | connects, sends queued steps, delivers the answers, and reconnects |
//! | [`context`], [`batch_limit`] | the state that handle and runner share; how many batches are in flight |
//! | [`in_flight`], [`batch`] | the batches in flight, and in which order refused ones are sent again; sends one batch |
//! | [`dial`] | makes a connection, encrypted or not |
//! | [`login`] | the credentials of a connection |
//! | [`handshake`], [`server`] | the first requests over a connection; the identity of its server |
//! | [`refusal`] | the errors of a failed attempt to connect, with a hint |
//! | [`placement`] | which thread does the work of a connection |
//!
//! These modules know the form of a step, but not its meaning.

mod batch;
mod batch_limit;
mod context;
pub(super) mod current;
pub(super) mod dial;
pub(super) mod handle;
pub(super) mod handshake;
mod in_flight;
pub(super) mod login;
mod placement;
pub(super) mod refusal;
mod runner;
pub(super) mod server;
