//! Reads one configuration file. Unknown keys are errors, and messages never show a value.

use std::fs;
use std::io;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::setting::{KEYS, Layer, Origin, RELATIVE, URL, is_file};
use crate::exit::{CONFIG, Exit, exit};
use crate::messages;

/// The meaning of a missing file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    IsNone,
    IsAnError,
}

/// Reads the file at `path`.
pub(super) fn read(path: &Path, missing: Missing) -> Result<Layer, Exit> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if missing == Missing::IsNone && is_missing(&error) => {
            return Ok(Layer::new());
        }
        Err(error) => {
            let exit = exit!(
                CONFIG,
                "cannot read the configuration {}: {error} (exit {CONFIG})\n    Its settings may select another store, so nothing was done.",
                path.display()
            );
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            return Err(if denied && missing == Missing::IsNone {
                exit.adding("next    set HOME to the home of this user, or choose a configuration: --config FILE")
            } else {
                exit
            });
        }
    };
    parse(path, &text)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Parses the text of a file. Unknown settings are refused with their line, since the user relies on them.
fn parse(path: &Path, text: &str) -> Result<Layer, Exit> {
    let refuse = |at: usize, why: String| {
        let line = line_of(text, at);
        exit!(
            CONFIG,
            "{}, line {line}: {why} (exit {CONFIG})",
            path.display()
        )
    };
    // The message only: the full error quotes the line, which may hold a password.
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        refuse(at, format!("is not TOML: {}", error.message()))
    })?;
    let mut layer = Layer::new();
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        let Some((key, _)) = KEYS.into_iter().find(|(key, _)| *key == name.get_ref()) else {
            return Err(refuse(at, unknown(name.get_ref())));
        };
        let DeValue::String(value) = value.get_ref() else {
            return Err(refuse(at, format!("{key} must be text in quotes")));
        };
        if value.is_empty() {
            return Err(refuse(at, format!("{key} is empty; leave it out")));
        }
        if is_file(key) && !Path::new(value.as_ref()).is_absolute() {
            return Err(refuse(at, format!("{key} must be an absolute path")));
        }
        let local = value.strip_prefix("local:").filter(|_| key == URL);
        if local.is_some_and(|file| !file.is_empty() && !file.starts_with(['/', '?'])) {
            return Err(refuse(at, format!("{key}: {RELATIVE}")));
        }
        let origin = Origin::File {
            path: path.to_owned(),
            line: line_of(text, at),
            key,
        };
        layer.insert(key, (value.as_ref().into(), origin));
    }
    Ok(layer)
}

fn unknown(name: &str) -> String {
    let known = KEYS.map(|(key, _)| key).join(", ");
    let hint = if name == "password" {
        "; a password belongs in a file of its own: password_file"
    } else {
        ""
    };
    format!(
        "unknown key {}{hint}; known: {known}",
        messages::quoted(name)
    )
}

/// The line number of the byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.split(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let Err(exit) = parse(Path::new("/c.toml"), text) else {
            panic!("{text:?} was taken")
        };
        format!("{exit:?}")
    }

    #[test]
    fn a_fault_in_a_file_has_its_line_and_quotes_no_value() {
        for (text, says) in [
            ("ttl = \"5s\"\nurl = \"redis://:S3CR3T@h/\nx = 1", "line 2"),
            ("\nurl = redis://:S3CR3T@h/", "line 2"),
            ("url = \"redis://:S3CR3T@h/\"\nurl = \"x\"", "line 2"),
            ("\n\nuri = \"redis://:S3CR3T@h/\"", "line 3: unknown key"),
            ("[store]\nurl = \"redis://:S3CR3T@h/\"", "line 1: unknown"),
            ("password = \"S3CR3T\"", "password_file"),
            ("url = [\"redis://:S3CR3T@h/\"]", "line 1: url must be text"),
            ("ttl = 30", "line 1: ttl must be text in quotes"),
            ("namespace = \"\"", "line 1: namespace is empty"),
            ("url_file = \"S3CR3T\"", "must be an absolute path"),
            (
                "\nurl = \"local:S3CR3T.db\"",
                "line 2: url: a relative path",
            ),
            ("url = \"redis://:S3CR3T@h/\" \"", "line 1"),
            ("url = \"redis://:\\S3CR3T@h/\"", "line 1"),
        ] {
            let said = refused(text);
            assert!(said.contains(says) && said.contains("/c.toml"), "{said}");
            assert!(!said.contains("S3CR3T"), "{said}");
        }
    }
}
