//! A change as one line of text or JSON. Pure: the time is an argument.

use leasehold::HolderView;
use serde::Serialize;

use super::compare::{ChangeKind, LockChange};
use crate::messages::quoted;
use crate::output;
use crate::view::{HolderFields, LeaseFields, held_of, who};

#[derive(Serialize)]
struct ChangeDocument<'a> {
    schema: &'static str,
    time: &'a str,
    event: &'static str,
    initial: bool,
    name: &'a str,
    #[serde(flatten)]
    lease: LeaseFields,
    queue: usize,
    /// The previous holder.
    before: Option<HolderFields>,
}

#[derive(Serialize)]
struct StoreDocument<'a> {
    schema: &'static str,
    time: &'a str,
    event: &'static str,
    error: Option<&'a str>,
}

/// The schema of each JSON line.
const SCHEMA: &str = "leasehold.watch/1";

/// An item that is written as one line.
pub(crate) trait OutputLine {
    /// As text.
    fn text(&self, time: &str) -> String;

    /// As JSON.
    fn json(&self, time: &str) -> serde_json::Result<String>;
}

/// A change of a lock, or its state at the first snapshot.
pub(crate) struct LockLine<'a> {
    pub(crate) event: &'a LockChange<'a>,
    pub(crate) initial: bool,
}

/// The store stopped answering, with the error, or answers again.
pub(crate) struct StoreLine<'a>(pub(crate) Option<&'a str>);

impl OutputLine for LockLine<'_> {
    fn text(&self, time: &str) -> String {
        let LockChange {
            name,
            what,
            holder,
            before,
            queue,
        } = self.event;
        let word = match (what, self.initial) {
            (ChangeKind::Acquired, true) => "held",
            (what, _) => word(*what),
        };
        let shown = match what {
            ChangeKind::Released => before,
            _ => holder,
        };
        let whom = shown
            .map(|holder| format!(", {}", described(holder)))
            .unwrap_or_default();
        let from = match (what, before) {
            (ChangeKind::HandedOver, Some(before)) => {
                format!(", before that {}", described(before))
            }
            _ => String::new(),
        };
        let queue = match (what, queue) {
            (ChangeKind::Queue, _) | (_, 1..) => format!(", {queue} waiting"),
            _ => String::new(),
        };
        format!("{time} {word:<11} {}{whom}{from}{queue}\n", quoted(name))
    }

    fn json(&self, time: &str) -> serde_json::Result<String> {
        let event = self.event;
        line(&ChangeDocument {
            schema: SCHEMA,
            time,
            event: word(event.what),
            initial: self.initial,
            name: event.name,
            lease: LeaseFields::of(event.holder),
            queue: event.queue,
            before: event.before.map(|before| HolderFields::of(Some(before))),
        })
    }
}

impl OutputLine for StoreLine<'_> {
    fn text(&self, time: &str) -> String {
        match self.0 {
            Some(error) => format!("{time} {:<11} {}\n", "unanswered", error.escape_debug()),
            None => format!("{time} {:<11} the store answers again\n", "answered"),
        }
    }

    fn json(&self, time: &str) -> serde_json::Result<String> {
        line(&StoreDocument {
            schema: SCHEMA,
            time,
            event: if self.0.is_some() {
                "unanswered"
            } else {
                "answered"
            },
            error: self.0,
        })
    }
}

fn line(document: &impl Serialize) -> serde_json::Result<String> {
    output::json(document).map(|line| line + "\n")
}

const fn word(what: ChangeKind) -> &'static str {
    match what {
        ChangeKind::Acquired => "acquired",
        ChangeKind::Released => "released",
        ChangeKind::HandedOver => "handed_over",
        ChangeKind::Immortal => "immortal",
        ChangeKind::Queue => "queue",
        ChangeKind::Free => "free",
    }
}

fn described(holder: &HolderView) -> String {
    let fence = holder
        .fence
        .map(|fence| format!("fence {fence}, "))
        .unwrap_or_default();
    format!("{fence}{}{}", who(holder), held_of(holder))
}

#[cfg(test)]
mod tests {
    use crate::view::samples::{foreign, held};

    use super::*;

    const TIME: &str = "2026-11-21T14:05:22.123Z";

    #[test]
    fn a_line_says_when_what_which_lock_and_who() {
        let (seen, next) = (held(41), foreign("hash", b""));
        let event = |what, holder, before, queue| LockChange {
            name: "a\nb",
            what,
            holder,
            before,
            queue,
        };
        let (one, other) = (seen.holder.as_ref(), next.holder.as_ref());
        for (event, initial, text) in [
            (
                event(ChangeKind::Acquired, one, None, 0),
                false,
                "acquired    \"a\\nb\", fence 41, deploy@web-3 (pid 4121: migrate.sh), held 3m12s",
            ),
            (
                event(ChangeKind::Acquired, one, None, 2),
                true,
                "held        \"a\\nb\", fence 41, deploy@web-3 (pid 4121: migrate.sh), held 3m12s, 2 waiting",
            ),
            (
                event(ChangeKind::Released, None, one, 0),
                false,
                "released    \"a\\nb\", fence 41, deploy@web-3 (pid 4121: migrate.sh), held 3m12s",
            ),
            (
                event(ChangeKind::HandedOver, other, one, 0),
                false,
                "handed_over \"a\\nb\", a foreign client (hash, looks like Redisson's), before that fence 41, deploy@web-3 (pid 4121: migrate.sh), held 3m12s",
            ),
            (
                event(ChangeKind::Free, None, None, 0),
                true,
                "free        \"a\\nb\"",
            ),
        ] {
            let line = LockLine {
                event: &event,
                initial,
            };
            assert_eq!(line.text(TIME), format!("{TIME} {text}\n"));
            let json = line.json(TIME).unwrap();
            assert!(
                json.starts_with("{\"schema\":\"leasehold.watch/1\",\"time\":\"2026-")
                    && json.matches('\n').count() == 1
                    && json.ends_with("}\n"),
                "{json}"
            );
        }
        assert_eq!(
            StoreLine(Some("gone")).text(TIME),
            format!("{TIME} unanswered  gone\n")
        );
    }
}
