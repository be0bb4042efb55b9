//! Who asks the lab on a command line, and what is said to it. Must never write to stdout or end the process.

/// Who asked: what its terminal can show, and where it hears how far a long experiment is.
#[expect(missing_debug_implementations, reason = "it holds a function")]
pub struct Terminal<'a> {
    /// Whether there is to be colour.
    pub colour: bool,
    /// Hears a line now and then.
    pub progress: &'a dyn Fn(&str),
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// To be printed.
    pub text: String,
    /// Whether it is as it should be: no violation, no difference, no control that showed nothing.
    pub fine: bool,
}

impl CommandOutput {
    /// It is as it should be.
    pub(crate) fn fine(text: String) -> Self {
        Self { text, fine: true }
    }
}

/// Why nothing was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// The words make no sense; says what would.
    Usage(String),
    /// A server, file or process was not to be had.
    Failed(String),
}

impl From<String> for CommandError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}
