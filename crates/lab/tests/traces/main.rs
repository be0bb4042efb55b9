//! Traces, hand-made ones and those of the models: as tables, pictures and JSON, and replayed on real servers.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod model_redis;
mod pages;
mod pictures;
mod replay;
mod tale;
mod xml;

use std::sync::LazyLock;

use leasehold_lab::ladder::check::{RungResult, find_out};
use leasehold_lab::ladder::rungs::{Rung, all};

/// The violated rungs with their traces: computed once for all tests.
static BROKEN: LazyLock<Vec<(&Rung, RungResult)>> = LazyLock::new(|| {
    let broken = all().iter().filter(|rung| rung.breaks.is_some());
    let found: Vec<_> = broken.map(|rung| (*rung, find_out(rung))).collect();
    assert!(found.len() >= 14, "the ladder has lost some of its rungs");
    found
});
