//! The lines of a file with their places, and the error for a line that is not understood.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::history::format::Source;

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

/// Reads a text line by line. `take` gets each line with its place, or refuses it with the reason. The last line may be torn if
/// its process was killed.
pub(super) fn each_line<T: DeserializeOwned>(
    name: &str,
    file: u32,
    text: &str,
    killed: bool,
    mut take: impl FnMut(Source, T) -> Result<(), &'static str>,
) -> Result<(), Unreadable> {
    let mut lines = text.lines().zip(1..).peekable();
    while let Some((content, line)) = lines.next() {
        let unreadable = |why: String| Unreadable {
            file: name.to_owned(),
            line,
            why,
        };
        let torn = killed && lines.peek().is_none() && !text.ends_with('\n');
        match serde_json::from_str(content) {
            Ok(read) => take(Source { file, line }, read).map_err(|why| unreadable(why.into()))?,
            Err(_) if torn => {}
            Err(error) => return Err(unreadable(error.to_string())),
        }
    }
    Ok(())
}

/// An error of the whole file.
pub(super) fn whole(file: &str, why: &str) -> Unreadable {
    Unreadable {
        file: file.to_owned(),
        line: 0,
        why: why.to_owned(),
    }
}
