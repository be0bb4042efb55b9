//! The properties of a lock that the ladder checks.

/// A promise of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LadderProperty {
    /// At most one client holds the lock, each by its own clock.
    Exclusion,
    /// No client is refused because of a client that died more than a TTL ago.
    Recovery,
    /// No client removes a lock that another client holds.
    Ownership,
    /// The resource accepts no write of an earlier holder after one of a later holder.
    StaleWrite,
    /// A holder that asked for the lock after another one had got it has a higher fence.
    FenceOrder,
    /// No write is accepted that was computed from a version other than the one it replaces.
    LostUpdate,
    /// No child writes while its wrapper has lost the lock and another client has it.
    Child,
}

/// The name of each property, and its meaning in a sentence.
const WORDS: [(&str, &str); 7] = [
    (
        "exclusion",
        "at most one client holds the lock, each by its own clock",
    ),
    (
        "recovery",
        "nobody is refused by the lock of a client that died more than a TTL ago",
    ),
    (
        "ownership",
        "nobody removes a lock that another client holds",
    ),
    (
        "stale write",
        "the resource takes no write of an earlier holder after one of a later holder",
    ),
    (
        "fence order",
        "who asks for the lock after another has got it gets a higher fence",
    ),
    (
        "lost update",
        "no write is taken that was computed from another version than the one it replaces",
    ),
    (
        "child",
        "no child writes while its wrapper has lost the lock and another client has it",
    ),
];

impl LadderProperty {
    /// Its name.
    pub const fn name(self) -> &'static str {
        WORDS[self as usize].0
    }

    /// Its meaning, in a sentence.
    pub const fn says(self) -> &'static str {
        WORDS[self as usize].1
    }

    /// Its bit in `LadderState::wrong`.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}
