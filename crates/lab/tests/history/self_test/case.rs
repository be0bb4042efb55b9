//! A case of the self-test: edits of a sound history, and the expected verdict.

use leasehold_lab::history::Invariant;

/// A sound history, broken in one way.
pub(super) struct Broken {
    pub(super) name: &'static str,
    /// The invariant that must reject it.
    pub(super) by: Invariant,
    pub(super) edits: &'static [Edit],
}

/// A sound history with a change that must not lead to rejection, or only as a control.
pub(super) struct Harmless {
    pub(super) name: &'static str,
    pub(super) expected: Expected,
    pub(super) edits: &'static [Edit],
}

/// Replaces a text that occurs once in a file. An empty text stands for the end of the file.
#[derive(Clone, Copy)]
pub(super) struct Edit(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// The expected verdict.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// Clean.
    Sound,
    /// Violated by this invariant and no other; or invalid, if the invariant has that effect.
    Rejected(Invariant),
    /// A control, clean because it shows this violation and no other.
    Shows(Invariant),
    /// A control, invalid because it shows only this violation, which was not the expected one.
    Forgiven(Invariant),
    /// A control, invalid because it shows no violation.
    Hollow,
}
