//! A case of the self-test: a sound history, what is changed in it, and what must be said of it then. Must never hold a history.

use crate::invariant::Invariant;

/// A sound history, broken in one way.
pub(super) struct Broken {
    pub(super) name: &'static str,
    /// What it must be rejected for.
    pub(super) by: Invariant,
    pub(super) edits: &'static [Edit],
}

/// A sound history, changed in a way that must not have it rejected, or only as a control.
pub(super) struct Harmless {
    pub(super) name: &'static str,
    pub(super) expected: Expected,
    pub(super) edits: &'static [Edit],
}

/// In a file, a text that occurs once in it becomes another. An empty one stands for the end of the file.
#[derive(Clone, Copy)]
pub(super) struct Edit(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// What must be said of a history.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// Clean.
    Sound,
    /// Violated, by this and nothing else; or invalid, if it is that which makes it so.
    Rejected(Invariant),
    /// A control, clean because it shows this and nothing else.
    Shows(Invariant),
    /// A control, invalid because it shows only this, which it was not to show.
    Forgiven(Invariant),
    /// A control, invalid because it shows nothing.
    Hollow,
}
