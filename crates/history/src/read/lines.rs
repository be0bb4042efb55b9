//! The lines of a file with their places, and why one is not understood. Must never skip a line.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::records::Source;

/// Why a history cannot be judged: the file, the line (0 for the whole file) and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1; 0 for the whole file.
    pub line: u32,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.why),
            line => write!(f, "{}:{line}: {}", self.file, self.why),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The lines of a text with their places.
pub(super) fn lines(file: u32, text: &str) -> impl Iterator<Item = (Source, &str)> {
    text.lines()
        .zip(1..)
        .map(move |(text, line)| (Source { file, line }, text))
}

/// What a line says.
pub(super) fn line_of<T: DeserializeOwned>(
    file: &str,
    source: Source,
    text: &str,
) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| at(file, source, &error.to_string()))
}

/// What is wrong with one line.
pub(super) fn at(file: &str, source: Source, why: &str) -> Unreadable {
    Unreadable {
        file: file.to_owned(),
        line: source.line,
        why: why.to_owned(),
    }
}

/// What is wrong with the whole of a file.
pub(super) fn whole(file: &str, why: &str) -> Unreadable {
    Unreadable {
        file: file.to_owned(),
        line: 0,
        why: why.to_owned(),
    }
}
