//! The input and output of a command of the lab. The caller prints the output and ends the process.

/// The abilities of the caller's terminal, and its progress display.
#[expect(missing_debug_implementations, reason = "it holds a function")]
pub struct Terminal<'a> {
    /// Whether to use colour.
    pub colour: bool,
    /// Shows a progress line.
    pub progress: &'a dyn Fn(&str),
}

/// The output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The text to print.
    pub text: String,
    /// Whether all is as expected: no violation, no difference, no control without a violation.
    pub fine: bool,
}

impl CommandOutput {
    /// An output that is as expected.
    pub(crate) fn fine(text: String) -> Self {
        Self { text, fine: true }
    }
}

/// The error of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// The arguments are wrong; the text names valid ones.
    Usage(String),
    /// A server, file or process could not be used.
    Failed(String),
}

impl From<String> for CommandError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}
