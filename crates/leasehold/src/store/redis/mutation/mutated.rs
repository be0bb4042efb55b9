//! One mutation: the text to find in a script, and the wrong text that replaces it.

/// A mutation of a script.
#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) name: &'static str,
    /// The mistake, in a sentence.
    pub(super) what: &'static str,
    /// A text that occurs once in all scripts, and its replacement.
    pub(super) needle: &'static str,
    pub(super) replacement: &'static str,
}

pub(super) const fn mutation(
    name: &'static str,
    what: &'static str,
    needle: &'static str,
    replacement: &'static str,
) -> Mutation {
    Mutation {
        name,
        what,
        needle,
        replacement,
    }
}
