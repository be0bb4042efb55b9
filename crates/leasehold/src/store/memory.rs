//! Locks in this process only: for tests, examples and programs of one process. Must never be chosen silently.

pub(crate) mod faults;
mod faulty;
mod store;

pub use self::store::Memory;
#[cfg(test)]
pub(crate) use self::store::MemoryStore;
use crate::doctor::{Finding, Report, Server, State};

/// What there is to say of locks in memory.
pub(super) fn examine() -> Report {
    Report {
        store: "memory:".into(),
        server: Server {
            engine: "memory".into(),
            ..Server::default()
        },
        findings: vec![Finding {
            id: "scope.process",
            efficiency: State::Info,
            correctness: State::Info,
            text: "these locks are for one client; nobody else sees them".into(),
            remedy: "for the processes of this host: local:".into(),
        }],
        acl: None,
    }
}
