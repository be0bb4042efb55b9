//! The lines of a file with their places, and the error for a line that is not understood.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::history::records::Source;

/// The reason why a history cannot be judged: the file, the line (0 for the whole file) and the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1; 0 for the whole file.
    pub line: u32,
    /// The error.
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

/// Parses a line.
pub(super) fn line_of<T: DeserializeOwned>(
    file: &str,
    source: Source,
    text: &str,
) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| at(file, source, &error.to_string()))
}

/// An error in one line.
pub(super) fn at(file: &str, source: Source, why: &str) -> Unreadable {
    Unreadable {
        file: file.to_owned(),
        line: source.line,
        why: why.to_owned(),
    }
}

/// An error of the whole file.
pub(super) fn whole(file: &str, why: &str) -> Unreadable {
    Unreadable {
        file: file.to_owned(),
        line: 0,
        why: why.to_owned(),
    }
}
