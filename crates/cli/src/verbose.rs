//! The log lines of `-v`: the events of the library, each on one line of stderr, without passwords.
//!
//! `-v` shows connection and lock events, `-vv` every renewal too. Times are UTC, for comparison with the logs
//! of other hosts and of the store.

use std::fmt;
use std::io;

use leasehold::Clock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use crate::messages::{escaped, quoted, without_passwords};

/// The target of the library's events.
const LIBRARY: &str = "leasehold";

/// Starts the log for the given number of `-v`. To be called once.
pub(crate) fn listen(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer()
        .event_format(EventFormatter)
        .with_writer(io::stderr)
        .with_filter(Targets::new().with_target(LIBRARY, level));
    // Fails only if a subscriber is already installed.
    let _installed: Result<(), _> = tracing_subscriber::registry().with(lines).try_init();
}

/// True if log lines may appear at any time, so that no line of the terminal can be rewritten.
pub(crate) fn is_on() -> bool {
    tracing::enabled!(target: "leasehold", Level::WARN)
}

/// `leasehold: 03:12:45.123Z lease lost, lock "x", fence 41, ...`
struct EventFormatter;

impl<S, N> FormatEvent<S, N> for EventFormatter
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = EventText::default();
        event.record(&mut line);
        let warning = if *event.metadata().level() <= Level::WARN {
            "WARNING "
        } else {
            ""
        };
        let EventText { message, fields } = line;
        let said = without_passwords(&format!("{message}{fields}"));
        writeln!(writer, "leasehold: {}{warning}{said}", time())
    }
}

/// The time of day in UTC with milliseconds.
fn time() -> String {
    // 2026-01-01T03:12:45.123Z
    let stamp = humantime::format_rfc3339_millis(Clock::system().wall()).to_string();
    stamp
        .split_once('T')
        .map_or_else(String::new, |(_, day)| format!("{day} "))
}

/// An event as text.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        // Notes and server messages come from others and must not control the terminal.
        self.add(field.name(), &escaped(&value, char::is_control));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "lock" {
            self.add("lock", &quoted(value));
        } else {
            self.add(field.name(), &escaped(value, char::is_control));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let name = field.name();
        match name.strip_suffix("_ms") {
            Some(name) => self.add(name, &format!("{value}ms")),
            None => self.add(name, &value.to_string()),
        }
    }
}

impl EventText {
    fn add(&mut self, name: &str, value: &str) {
        match name {
            "message" => self.message += value,
            "store" | "lock" => self.fields.extend([" ", value]),
            "error" | "cause" => self.fields.extend([": ", value]),
            _ => self.fields.extend([", ", name, " ", value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log lines of some events, without the time.
    fn shown(say: impl FnOnce()) -> Vec<String> {
        let page = Page::default();
        let written = page.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(EventFormatter)
            .with_writer(move || page.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), say);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| {
                let rest = line.strip_prefix("leasehold: ").expect("it is signed");
                let (time, rest) = rest.split_once(' ').expect("a time");
                assert!(time.len() == 13 && time.ends_with('Z'), "{line}");
                rest.to_owned()
            })
            .collect()
    }

    #[test]
    fn a_line_has_the_time_what_happened_and_to_what() {
        let lines = shown(|| {
            tracing::debug!(lock = "a b", fence = 41_u64, waited_ms = 12_u64, "acquired");
            let error = "no\nanswer";
            tracing::warn!(lock = "x", fence = 41_u64, %error, left_ms = 9_u64, "renewal failed");
        });
        assert_eq!(
            lines,
            [
                "acquired \"a b\", fence 41, waited 12ms",
                "WARNING renewal failed \"x\", fence 41: no\\nanswer, left 9ms"
            ]
        );
    }

    #[test]
    fn nothing_steers_the_terminal_or_tells_a_password() {
        let lines = shown(|| {
            let (store, holder) = ("redis://u:S3CR3T@h/", "me\x1b[2J\r");
            tracing::debug!(store, "connecting");
            tracing::debug!(lock = "x\x07", holder = %holder, "in line");
        });
        assert_eq!(
            lines,
            [
                "connecting redis://***@h/",
                "in line \"x\\u{7}\", holder me\\u{1b}[2J\\r"
            ]
        );
    }
}
