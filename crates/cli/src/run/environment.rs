//! What the command finds in its environment. Must never hold a password of ours.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use humantime::format_rfc3339_millis;
use leasehold::{Clock, Lease};

use crate::wait::CHAIN;

/// Variables to set, and variables to take away.
#[derive(Debug)]
pub(crate) struct Environment {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

/// What the command is told of the store. Read before the connection is made.
#[derive(Debug)]
pub(crate) struct Place {
    /// By which it finds the same store.
    pub(crate) store: [(&'static str, Option<OsString>); 3],
    pub(crate) namespace: Option<String>,
}

impl Environment {
    /// For a command under `lease`, acquired just now.
    pub(crate) fn of(lease: &Lease, ttl: Duration, waited: Duration, place: &Place) -> Self {
        let token = lease.owner().token();
        let chain = match env::var(CHAIN) {
            Ok(outer) if !outer.is_empty() => format!("{outer} {token}"),
            _ => token.to_owned(),
        };
        let mut set = [
            ("LEASEHOLD_LOCK", lease.name().to_owned()),
            ("LEASEHOLD_FENCE", lease.fence().to_string()),
            ("LEASEHOLD_TOKEN", token.to_owned()),
            (CHAIN, chain),
            ("LEASEHOLD_HOLDER", lease.owner().to_string()),
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
        // A password is for us: whatever the command prints or hands on, this is not in it.
        let mut removed = vec!["LEASEHOLD_PASSWORD"];
        for (name, value) in &place.store {
            match value {
                Some(value) => set.push((name, value.clone())),
                None => removed.push(name),
            }
        }
        if let Some(namespace) = &place.namespace {
            set.push(("LEASEHOLD_NAMESPACE", namespace.into()));
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
