//! One place of a script, and what stands there instead.

/// A script that is broken.
#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) name: &'static str,
    /// What is broken, in a sentence.
    pub(super) what: &'static str,
    /// What stands once in all of the scripts, and what stands there instead.
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
