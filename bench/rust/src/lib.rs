//! Shared code of the benchmark drivers: the protocol of `lockbench/runner.py`, the workers, their reports.
//! A driver adds only the acquire and release of its library.

mod args;
mod clock;
mod drive;
mod histogram;
mod report;
mod section;
mod wire;

pub use args::{Args, Load, Take};
pub use clock::{cpu_used, nanos, now_ns, resident_bytes, seconds_since, sleep_until_async};
pub use drive::{Peer, Random, drive, join, line, runtime, text};
pub use histogram::Histogram;
pub use report::Part;
pub use section::Section;
pub use wire::{Connection, RELEASE, encode};
