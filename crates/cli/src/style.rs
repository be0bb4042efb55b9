//! The colour of messages. Used on a terminal only, unless requested, and never as the only sign of anything.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};

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
pub(crate) fn choose(when: ColorChoice) {
    TYPED.get_or_init(|| when);
}

/// True if output to `stream` is coloured.
pub(crate) fn applies_to(stream: &impl IsTerminal) -> bool {
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
pub(crate) fn error(text: &str) -> String {
    if !applies_to(&io::stderr()) {
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
    use super::*;

    #[test]
    fn color_option_overrides_environment_which_overrides_terminal() {
        let xterm = ("TERM", "xterm");
        for (when, terminal, variables, colour) in [
            (ColorChoice::Auto, true, [xterm].as_slice(), true),
            (ColorChoice::Auto, false, &[xterm], false),
            (ColorChoice::Auto, true, &[], false),
            (ColorChoice::Auto, true, &[("TERM", "dumb")], false),
            (ColorChoice::Auto, true, &[xterm, ("NO_COLOR", "1")], false),
            (ColorChoice::Auto, true, &[xterm, ("NO_COLOR", "")], true),
            (ColorChoice::Auto, true, &[xterm, ("CLICOLOR", "0")], false),
            (ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (
                ColorChoice::Auto,
                false,
                &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
                false,
            ),
            (ColorChoice::Always, false, &[("NO_COLOR", "1")], true),
            (
                ColorChoice::Never,
                true,
                &[xterm, ("CLICOLOR_FORCE", "1")],
                false,
            ),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| value.into())
            };
            let decided = decide(when, terminal, variable);
            assert_eq!(decided, colour, "{when:?} {terminal} {variables:?}");
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
