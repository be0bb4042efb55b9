//! Telemetry: spans and events for `tracing`, and numbers for `metrics`. Without a subscriber it costs one check. It is not called while a
//! mutex of the client is held, and it reports no secret.
//!
//! All of it goes to the subscriber of the place where the client was built, since the client's thread has none. A subscriber that panics
//! loses only its own event; otherwise it would end all renewals of that thread.

mod asked;
mod listener;
#[cfg_attr(not(feature = "metrics"), path = "no_meters.rs")]
mod meters;
mod outcome;
mod shield;
mod watched;

pub(crate) use self::asked::Asked;
pub(crate) use self::listener::{Telemetry, hears_details};
pub(crate) use self::outcome::Said;
pub(crate) use self::watched::{Ended, How, Watched};
