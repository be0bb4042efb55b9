//! The error for input that is refused before any I/O.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Input that was refused before any I/O. It names the input, its fault, and a valid input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Which input: `"lock name"`, `"TTL"`, `"store URL"`.
    pub what: &'static str,
    /// The input, escaped and shortened so that it can be printed anywhere. Never a secret.
    pub input: String,
    /// The fault, and a valid input.
    pub why: Cow<'static, str>,
}

/// Longest input quoted back, in characters.
const QUOTED: usize = 80;

impl Invalid {
    /// Refuses `input`. The caller makes sure that `input` holds no secret.
    pub fn new(what: &'static str, input: &str, why: impl Into<Cow<'static, str>>) -> Self {
        let mut quoted: String = input
            .chars()
            .take(QUOTED)
            .flat_map(char::escape_debug)
            .collect();
        if input.chars().nth(QUOTED).is_some() {
            quoted.push('…');
        }
        Self {
            what,
            input: quoted,
            why: why.into(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {} \"{}\": {}", self.what, self.input, self.why)
    }
}

impl Error for Invalid {}
