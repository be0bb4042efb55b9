//! A history that is being put together, for the readers of each file. Must never judge.

use std::collections::HashMap;

use crate::history::History;

/// A history that is being put together.
pub(super) struct Reading {
    pub(super) history: History,
    /// The process that an owner is of.
    pub(super) owners: HashMap<u32, u64>,
}

impl Reading {
    /// The number of the file that is read from here on.
    pub(super) fn file(&mut self, name: &str) -> u32 {
        self.history.files.push(name.to_owned());
        u32::try_from(self.history.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// The number of a lock or an owner.
    pub(super) fn number(&mut self, name: String) -> u32 {
        self.history.names.number(name)
    }
}
