//! What the command finds in its environment. Must never hold a password of ours.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use humantime::format_rfc3339_millis;
use leasehold::{Clock, Lease};

use super::lock_guard::LockGuard;
use crate::acquire_ui::CHAIN;
use crate::inherited_store::Variables;

/// Variables to set, and variables to take away.
#[derive(Debug)]
pub(crate) struct Environment {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

/// What the command is told of the store. Read before the connection is made.
#[derive(Debug)]
pub(crate) struct StoreEnvironment {
    /// By which it finds the same store.
    pub(crate) store: Variables,
    /// By which it makes the same keys of names.
    pub(crate) naming: Vec<(&'static str, String)>,
}

impl Environment {
    /// For a command under what was acquired just now.
    pub(crate) fn of(
        held: &LockGuard,
        ttl: Duration,
        waited: Duration,
        place: &StoreEnvironment,
    ) -> Self {
        let mut set = [
            ("LEASEHOLD_LOCK", held.name().to_owned()),
            ("LEASEHOLD_TTL_MS", ttl.as_millis().to_string()),
            ("LEASEHOLD_WAITED_MS", waited.as_millis().to_string()),
            // For people and logs: nothing is decided by it.
            (
                "LEASEHOLD_ACQUIRED_AT",
                format_rfc3339_millis(Clock::system().wall()).to_string(),
            ),
        ]
        .map(|(name, value)| (name, OsString::from(value)))
        .to_vec();
        let mut removed = Vec::new();
        match held {
            LockGuard::Lease(lease) => set.extend(of_lease(lease)),
            // Those of a run around this one are not this lock's.
            LockGuard::Timestamp { link, .. } => {
                set.push((CHAIN, chained(link).into()));
                removed.extend(["LEASEHOLD_FENCE", "LEASEHOLD_TOKEN", "LEASEHOLD_HOLDER"]);
            }
        }
        for (name, value) in &place.store {
            match value {
                Some(value) => set.push((name, value.clone())),
                None => removed.push(name),
            }
        }
        for (name, value) in &place.naming {
            set.push((name, value.into()));
        }
        Self { set, removed }
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }
}

/// What a lease says of itself, and no weaker lock can.
fn of_lease(lease: &Lease) -> [(&'static str, OsString); 4] {
    [
        ("LEASEHOLD_FENCE", lease.fence().to_string().into()),
        ("LEASEHOLD_TOKEN", lease.token().into()),
        (CHAIN, chained(lease.owner().token()).into()),
        ("LEASEHOLD_HOLDER", lease.owner().to_string().into()),
    ]
}

/// The locks of all the runs around the command, and this one.
fn chained(link: &str) -> String {
    match env::var(CHAIN) {
        Ok(outer) if !outer.is_empty() => format!("{outer} {link}"),
        _ => link.to_owned(),
    }
}
