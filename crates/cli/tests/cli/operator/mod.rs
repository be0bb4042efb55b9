//! The operator's verbs: `inspect`, `wait`, `watch` and `break`.

// `setsid`, `env --default-signal` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "one promise here is about real time"
)]

mod break_lock;
mod inspect;
mod json;
mod wait;
mod watch;

use crate::common::{Running, Store};

impl Store {
    /// Starts a waiter for "x", and returns when it is in the queue.
    fn queue_up(&self) -> Running {
        let waiter = self.run("--note next x true").start();
        waiter.until_it_says("1st in line");
        waiter
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.json("inspect", &[name], 0)["locks"][0]["state"] == "held"
    }
}
