//! One connection to one server: how it is made, kept and given up. Must never know what the steps are that it carries, but for their
//! form.
//!
//! | module | what it is for |
//! |---|---|
//! | [`link`] | the connection, for whoever sends over it |
//! | [`mod@line`] | the present connection, for requests that are no steps |
//! | [`runner`] | dials, sends what waits in the submission queue, hears the answers, and dials again |
//! | [`plan`], [`pace`] | what the runner works with; how many batches it has on their way |
//! | [`flights`], [`batch`] | batches on their way, and sent again where they were refused; how one is sent |
//! | [`dial`], `tls` | makes a connection, encrypted or not |
//! | [`login`] | the credentials that a connection begins with |
//! | [`greet`], [`server`] | the first words over it; which server it leads to |
//! | [`refusal`] | why there is none, with what may help |
//! | [`placement`] | which thread does the work of a connection |

mod batch;
mod batch_limit;
mod context;
pub(super) mod current;
pub(super) mod dial;
pub(super) mod handle;
mod handshake;
mod in_flight;
pub(super) mod login;
mod placement;
pub(super) mod refusal;
mod runner;
mod server;
#[cfg(feature = "tls")]
mod tls;
