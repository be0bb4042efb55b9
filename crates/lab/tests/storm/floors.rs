//! How often each fault must happen in the storm on a quorum of `tests/storm.rs`. The unit tests of `src/storm/schedule.rs` demand
//! as many of its plan, without servers.

/// Three nodes at once, and single ones: fewer would be faults of a minority only.
pub(crate) const FLOORS: &[(&str, u64)] = &[
    ("stop-server", 4),
    ("black-hole", 4),
    ("half-open", 4),
    ("black-hole-requests", 1),
    ("black-hole-replies", 1),
    ("slow", 1),
    ("memory", 1),
    ("kill-server", 1),
    ("restart-server", 1),
    ("rollback", 1),
    ("flush", 1),
    ("copy", 1),
    // One of each, and the other one at its end. I11 demands as many as are planned.
    #[cfg(target_os = "linux")]
    ("clock-forward", 2),
    #[cfg(target_os = "linux")]
    ("clock-back", 2),
    ("stop-worker", 1),
    ("kill-worker", 1),
];
