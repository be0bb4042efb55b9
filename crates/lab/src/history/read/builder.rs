//! The history while it is read, shared by the readers of the files.

use std::collections::HashMap;

use crate::history::joined::History;

/// A history that is not complete yet.
pub(super) struct HistoryBuilder {
    pub(super) history: History,
    /// The process of each owner.
    pub(super) owners: HashMap<u32, u64>,
}

impl HistoryBuilder {
    /// The number of the file whose lines follow.
    pub(super) fn file(&mut self, name: &str) -> u32 {
        self.history.files.push(name.to_owned());
        u32::try_from(self.history.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// The number of a lock or an owner.
    pub(super) fn number(&mut self, name: String) -> u32 {
        self.history.names.number(name)
    }
}
