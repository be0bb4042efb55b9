//! What those who watch this program are told: spans and events for `tracing`, numbers for `metrics`. Must never cost more
//! than a look when nobody listens, never be called while a lock of ours is held, and never tell a secret.
//!
//! All of it goes to whoever listened where the client was built: its own thread, which renews, has no listener of its own.
//! A listener that panics costs its own event and nothing else: on that thread it would end all renewals.

mod asked;
#[cfg(all(feature = "cache", feature = "metrics"))]
mod cache_meters;
#[cfg(feature = "cache")]
mod cache_outcome;
#[cfg(feature = "cache")]
mod cached;
#[cfg(feature = "metrics")]
mod counting;
mod listener;
#[cfg_attr(not(feature = "metrics"), path = "no_meters.rs")]
mod meters;
mod outcome;
mod shield;
mod watched;

pub(crate) use self::asked::Asked;
#[cfg(feature = "cache")]
pub(crate) use self::cache_outcome::{LeaseLost, Load, Read};
#[cfg(feature = "cache")]
pub(crate) use self::cached::{Held, Loading, Reading};
pub(crate) use self::listener::{Telemetry, hears_details};
pub(crate) use self::outcome::Said;
pub(crate) use self::watched::{Ended, How, Watched};
