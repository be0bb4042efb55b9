//! The environment variables of the command. They contain no password.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use humantime::format_rfc3339_millis;
use leasehold::{Clock, Lease};

use super::lock_guard::LockGuard;
use crate::acquire_ui::CHAIN;
use crate::inherited_store::Variables;

/// Variables to set and variables to remove.
#[derive(Debug)]
pub(crate) struct Environment {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

/// The variables that describe the store to the command. Read before the connection is made.
#[derive(Debug)]
pub(crate) struct StoreEnvironment {
    /// Select the same store.
    pub(crate) store: Variables,
    /// Select the same key names.
    pub(crate) naming: Vec<(&'static str, String)>,
}

impl Environment {
    /// The environment of a command under the lock `held`.
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
            // For people and logs only.
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
            // An outer run may have set these for another lock.
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

/// The variables that only a mutex lease has.
fn of_lease(lease: &Lease) -> [(&'static str, OsString); 4] {
    [
        ("LEASEHOLD_FENCE", lease.fence().to_string().into()),
        ("LEASEHOLD_TOKEN", lease.token().into()),
        (CHAIN, chained(lease.owner().token()).into()),
        ("LEASEHOLD_HOLDER", lease.owner().to_string().into()),
    ]
}

/// The chain of the outer runs' locks, followed by this lock.
fn chained(link: &str) -> String {
    match env::var(CHAIN) {
        Ok(outer) if !outer.is_empty() => format!("{outer} {link}"),
        _ => link.to_owned(),
    }
}
