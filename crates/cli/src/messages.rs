//! Messages on stderr (stdout belongs to the command), and the formatting of names, durations and passwords in
//! them. Control characters are escaped and passwords are removed. Colour is used on a terminal only, unless
//! requested, and never as the only sign of anything.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use leasehold::StoreUrl;
pub(crate) use leasehold_serve::documents::without_advice;

/// Prints a message. The first line begins with `leasehold:`; the caller indents the others.
pub(crate) fn say(text: &str) {
    // Callers escape what they insert. This is the last line of defence.
    write_raw(&format!("leasehold: {}\n", sanitized(text)));
}

/// Prints the final error message, in the form of [`say`].
pub(crate) fn say_error(text: &str) {
    write_raw(&format!("{}\n", coloured_error(&sanitized(text))));
}

/// The text without passwords and without terminal control characters, which a file name may contain.
fn sanitized(text: &str) -> String {
    let obeyed = |c: char| c != '\n' && (c.is_control() || is_direction(c));
    escaped(&without_passwords(text), obeyed)
}

/// The text with the characters escaped for which `is` is true.
pub(crate) fn escaped(text: &str, is: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// True for characters that change the text direction.
pub(crate) fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes with one call, so that the lines of several processes do not mix.
pub(crate) fn write_raw(text: &str) {
    // A closed or full stderr must not stop the program: the lock matters more.
    let _written: io::Result<()> = io::stderr().write_all(text.as_bytes());
}

/// A name in quotes, escaped for a terminal.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.escape_debug())
}

/// A word of the command line in quotes, escaped for a terminal.
pub(crate) fn shown(word: &OsStr) -> String {
    quoted(&word.to_string_lossy())
}

/// A word quoted for pasting into a shell.
pub(crate) fn pasteable(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('-') {
        return Cow::Borrowed(word);
    }
    let separator = if word.starts_with('-') { "-- " } else { "" };
    if word.chars().all(is_plain) {
        return Cow::Owned(format!("{separator}'{}'", word.replace('\'', r"'\''")));
    }
    // Control and direction characters are written as bytes in a form that bash, zsh and ksh know.
    let mut quoted = String::new();
    for c in word.chars() {
        if matches!(c, '\'' | '\\') {
            quoted.extend(['\\', c]);
        } else if is_plain(c) {
            quoted.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let hex = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
                quoted.extend(['\\', 'x', hex(byte >> 4), hex(byte & 15)]);
            }
        }
    }
    Cow::Owned(format!("{separator}$'{quoted}'"))
}

/// True if a terminal shows the character unchanged.
fn is_plain(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1
}

/// Replaces everything between `://` and `@` that looks like a password.
pub(crate) fn without_passwords(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("://").map(|at| at + 3) {
        let (before, after) = rest.split_at(start);
        shown.push_str(before);
        // The last `@` of the word: a password that is not encoded may contain another one.
        let word = after.split(char::is_whitespace).next().unwrap_or_default();
        rest = match word.rfind('@') {
            Some(end) => {
                shown.push_str("***");
                &after[end..]
            }
            None => after,
        };
    }
    shown + rest
}

/// Hides the secret of `word`, or of its part after an equals sign, where it looks like a URL with a password.
pub(crate) fn without_url(text: &str, word: &str) -> String {
    let values = [Some(word), word.split_once('=').map(|(_, value)| value)];
    let secret = |value: &&str| {
        let value = *value;
        value.contains(':')
            && (value.contains('@') || value.contains("pass") || value.contains("//"))
    };
    values
        .into_iter()
        .flatten()
        .filter(secret)
        .fold(text.to_owned(), |text, value| {
            let shown = StoreUrl::list(value).map(|urls| urls_shown(&urls));
            text.replace(value, &shown.unwrap_or_else(|invalid| invalid.input))
        })
}

/// URLs without users and passwords, with spaces between.
pub(crate) fn urls_shown(urls: &[StoreUrl]) -> String {
    let shown: Vec<String> = urls.iter().map(ToString::to_string).collect();
    shown.join(" ")
}

/// `0.4s`, `41s`, `3m12s`, `2h05m`, `3d04h`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The place in the queue: `1st in line` when no waiter is ahead.
pub(crate) fn place(ahead: u32) -> String {
    let place = u64::from(ahead) + 1;
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{place}{ending} in line")
}

/// True if stderr is a terminal that can rewrite a line.
pub(crate) fn can_rewrite() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns to the start of the line and clears it.
pub(crate) const CLEAR: &str = "\r\x1b[2K";

/// Rewrites the current line on a terminal of `columns` columns. A line that wraps could not be cleared, so
/// wrapping is turned off meanwhile.
pub(crate) fn rewritten(line: &str, columns: Option<usize>) -> String {
    format!("{CLEAR}\x1b[?7l{}\x1b[?7h", fit(line, columns))
}

/// Cuts a line to `columns`, with a mark at the cut. Counts one column for each character; the terminal cuts
/// wide ones.
pub(crate) fn fit(line: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if line.chars().count() > columns => {
            let kept = line.chars().take(columns.saturating_sub(1));
            kept.chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    // On a capable terminal, unless the environment says otherwise. No doc comment: it would become help.
    #[default]
    Auto,
    Always,
    Never,
}

/// The value of `--color`. Global, since every message needs it. Set once, before the first message.
static TYPED: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the value of `--color`.
pub(crate) fn choose_colour(when: ColorChoice) {
    TYPED.get_or_init(|| when);
}

/// True if output to `stream` is coloured.
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let when = TYPED.get().copied().unwrap_or_default();
    decide(when, stream.is_terminal(), |name| env::var_os(name))
}

fn decide(when: ColorChoice, terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    let is = |name, value: &str| variable(name).is_some_and(|set| set == value);
    match when {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        // <https://no-color.org>: whatever its value.
        ColorChoice::Auto if variable("NO_COLOR").is_some() => false,
        ColorChoice::Auto if variable("CLICOLOR_FORCE").is_some() && !is("CLICOLOR_FORCE", "0") => {
            true
        }
        ColorChoice::Auto => {
            terminal && variable("TERM").is_some() && !is("TERM", "dumb") && !is("CLICOLOR", "0")
        }
    }
}

/// An error message with the program name, the exit code and the row labels highlighted.
fn coloured_error(text: &str) -> String {
    if !is_coloured(&io::stderr()) {
        return format!("leasehold: {text}");
    }
    let name = paint(AnsiColor::Red.on_default().bold(), "leasehold:");
    let lines: Vec<String> = text.lines().map(emphasized).collect();
    format!("{name} {}", lines.join("\n"))
}

/// A line of an error message, with its highlights.
fn emphasized(line: &str) -> String {
    let strong = |word: &str| paint(Style::new().bold(), word);
    if let Some((before, rest)) = line.split_once("(exit ")
        && let Some((code, after)) = rest.split_once(')')
    {
        return format!("{before}{}{after}", strong(&format!("(exit {code})")));
    }
    // `    next    what to type`
    if let Some(rest) = line.strip_prefix("    ")
        && let Some((label, what)) = rest.split_once("  ")
        && !label.is_empty()
    {
        return format!("    {}  {what}", strong(label));
    }
    line.to_owned()
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use testkit::rows;

    use super::*;

    #[test]
    fn a_terminal_is_given_no_orders() {
        for (text, shown) in [
            ("a\n    b", "a\n    b"),
            ("/no\u{1b}[31m", "/no\\u{1b}[31m"),
            ("\u{9b}31m\u{202e}x\u{7f}", "\\u{9b}31m\\u{202e}x\\u{7f}"),
            ("Gr\u{fc}\u{df}e", "Gr\u{fc}\u{df}e"),
        ] {
            assert_eq!(sanitized(text), shown);
        }
    }

    #[test]
    fn passwords_are_left_out_wherever_they_stand() {
        let table = "
            redis://:S3CR3T@host/0                       | redis://***@host/0
            a redis://u:S3@CR3T@h/ b rediss://u:S3CR3T@h | a redis://***@h/ b rediss://***@h
            redis://host:6379/ mail me@home              | redis://host:6379/ mail me@home
            nothing                                      | nothing
        ";
        for [text, shown] in rows(table) {
            assert_eq!(without_passwords(text), shown);
        }
    }

    #[test]
    fn spans_have_two_units_at_most() {
        for (millis, text) in [
            (0, "0.0s"),
            (9_950, "9.9s"),
            (41_200, "41s"),
            (192_000, "3m12s"),
            (7_500_000, "2h05m"),
            (273_600_000, "3d04h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn places_have_their_endings() {
        let words = "1st 2nd 3rd 4th 11th 12th 13th 21st 101st 111th";
        let ahead = [0, 1, 2, 3, 10, 11, 12, 20, 100, 110];
        for (ahead, word) in ahead.into_iter().zip(words.split(' ')) {
            assert_eq!(place(ahead), format!("{word} in line"));
        }
    }

    #[test]
    fn names_can_be_pasted() {
        for (name, pasted) in [
            ("a:b", "a:b"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("-n", "-- '-n'"),
            ("jobs é", "'jobs é'"),
            ("a\u{202e}'\\b", r"$'a\xe2\x80\xae\'\\b'"),
        ] {
            assert_eq!(pasteable(name), pasted);
        }
    }

    #[test]
    fn a_line_is_cut_where_the_terminal_ends() {
        for (columns, shown) in [
            (None, "waiting"),
            (Some(7), "waiting"),
            (Some(5), "wait…"),
            (Some(0), "…"),
        ] {
            assert_eq!(fit("waiting", columns), shown);
        }
    }

    #[test]
    fn color_option_overrides_environment_which_overrides_terminal() {
        // The option, where it goes, the variables, and whether there are colours.
        let table = "
            auto   | terminal | TERM=xterm                     | yes
            auto   | pipe     | TERM=xterm                     | no
            auto   | terminal |                                | no
            auto   | terminal | TERM=dumb                      | no
            auto   | terminal | TERM=xterm NO_COLOR=1          | no
            auto   | terminal | TERM=xterm NO_COLOR=           | yes
            auto   | terminal | TERM=xterm CLICOLOR=0          | no
            auto   | pipe     | CLICOLOR_FORCE=1               | yes
            auto   | pipe     | CLICOLOR_FORCE=0               | no
            auto   | pipe     | CLICOLOR_FORCE=1 NO_COLOR=1    | no
            always | pipe     | NO_COLOR=1                     | yes
            never  | terminal | TERM=xterm CLICOLOR_FORCE=1    | no
        ";
        for [when, to, variables, colour] in rows(table) {
            let choice = ColorChoice::from_str(when, false).unwrap();
            let variable = |name: &str| {
                let mut set = variables.split(' ').filter_map(|set| set.split_once('='));
                set.find(|(set, _)| *set == name)
                    .map(|(_, value)| value.into())
            };
            let decided = decide(choice, to == "terminal", variable);
            assert_eq!(decided, colour == "yes", "{when} {to} {variables}");
        }
    }

    #[test]
    fn only_the_words_that_matter_stand_out() {
        assert_eq!(
            emphasized("\"x\" is busy (exit 75)"),
            "\"x\" is busy \x1b[1m(exit 75)\x1b[0m"
        );
        assert_eq!(
            emphasized("    next    leasehold run"),
            "    \x1b[1mnext\x1b[0m    leasehold run"
        );
        assert_eq!(
            emphasized("    The lock may be free."),
            "    The lock may be free."
        );
    }
}
