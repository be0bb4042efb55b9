//! The changes between two snapshots of the locks, and each as one line of text or JSON. Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::{HolderView, Snapshot};
use serde::Serialize;

use crate::messages::quoted;
use crate::output;
use crate::view::{HolderFields, LeaseFields, held_of, is_same_lease, never_expires, who};

/// The state of the locks by name. A missing lock is free.
pub(crate) type Snapshots = BTreeMap<String, Snapshot>;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// Was free, is held.
    Acquired,
    /// Was held, is free: released, expired, broken or deleted.
    Released,
    /// The holder or its fence changed, and no snapshot showed the lock free.
    HandedOver,
    /// The lease has no TTL.
    Immortal,
    /// Only the number of waiters changed.
    Queue,
    /// No change: a single watched lock is free at the first snapshot.
    Free,
}

/// A change of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockChange<'a> {
    pub(crate) name: &'a str,
    pub(crate) what: ChangeKind,
    /// The current holder.
    pub(crate) holder: Option<&'a HolderView>,
    /// The previous holder.
    pub(crate) before: Option<&'a HolderView>,
    /// The current number of waiters.
    pub(crate) queue: usize,
}

/// The changes from `before` to `now`, ordered by name.
pub(crate) fn compare<'a>(before: &'a Snapshots, now: &'a Snapshots) -> Vec<LockChange<'a>> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let change = |name: &'a String| of_one(name, before.get(name), now.get(name));
    names.into_iter().flat_map(change).collect()
}

fn of_one<'a>(
    name: &'a str,
    before: Option<&'a Snapshot>,
    now: Option<&'a Snapshot>,
) -> Vec<LockChange<'a>> {
    let holder = |seen: Option<&'a Snapshot>| seen.and_then(|seen| seen.holder.as_ref());
    let waiting = |seen: Option<&'a Snapshot>| seen.map_or(0, |seen| seen.queue.len());
    let (was, is, queue) = (holder(before), holder(now), waiting(now));

    let mut happened = Vec::new();
    match (was, is) {
        (None, Some(_)) => happened.push(ChangeKind::Acquired),
        (Some(_), None) => happened.push(ChangeKind::Released),
        (Some(was), Some(is)) if !is_same_lease(was, is) => happened.push(ChangeKind::HandedOver),
        _ => {}
    }
    let is_another = !happened.is_empty();
    if is.is_some_and(never_expires) && (is_another || !was.is_some_and(never_expires)) {
        happened.push(ChangeKind::Immortal);
    }
    if happened.is_empty() && queue != waiting(before) {
        happened.push(ChangeKind::Queue);
    }
    let event = |what| LockChange {
        name,
        what,
        holder: is,
        before: was,
        queue,
    };
    happened.into_iter().map(event).collect()
}

/// The fields of a line as JSON, after its schema and time.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.watch/1")]
struct ChangeDocument<'a> {
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
#[serde(tag = "schema", rename = "leasehold.watch/1")]
struct StoreDocument<'a> {
    time: &'a str,
    event: &'static str,
    error: Option<&'a str>,
}

/// An item that is written as one line.
pub(crate) enum Line<'a> {
    /// A change of a lock, or its state at the first snapshot.
    Lock {
        event: &'a LockChange<'a>,
        initial: bool,
    },
    /// The store stopped answering, with the error, or answers again.
    Store(Option<&'a str>),
}

impl Line<'_> {
    /// As text.
    pub(crate) fn text(&self, time: &str) -> String {
        let (event, initial) = match self {
            Self::Lock { event, initial } => (event, *initial),
            Self::Store(Some(error)) => {
                return format!("{time} {:<11} {}\n", "unanswered", error.escape_debug());
            }
            Self::Store(None) => {
                return format!("{time} {:<11} the store answers again\n", "answered");
            }
        };
        let word = match (event.what, initial) {
            (ChangeKind::Acquired, true) => "held",
            (what, _) => word(what),
        };
        let described = |before: &str, holder: Option<&HolderView>| {
            let described = holder.map(|holder| format!(", {before}{}", described(holder)));
            described.unwrap_or_default()
        };
        let (whom, from) = match event.what {
            ChangeKind::Released => (described("", event.before), String::new()),
            ChangeKind::HandedOver => (
                described("", event.holder),
                described("before that ", event.before),
            ),
            _ => (described("", event.holder), String::new()),
        };
        let queue = match (event.what, event.queue) {
            (ChangeKind::Queue, waiting) | (_, waiting @ 1..) => format!(", {waiting} waiting"),
            _ => String::new(),
        };
        let name = quoted(event.name);
        format!("{time} {word:<11} {name}{whom}{from}{queue}\n")
    }

    /// As JSON.
    pub(crate) fn json(&self, time: &str) -> String {
        match *self {
            Self::Lock { event, initial } => output::json(&ChangeDocument {
                time,
                event: word(event.what),
                initial,
                name: event.name,
                lease: LeaseFields::of(event.holder),
                queue: event.queue,
                before: event.before.map(|before| HolderFields::of(Some(before))),
            }),
            Self::Store(error) => {
                let is_answer = error.is_none();
                output::json(&StoreDocument {
                    time,
                    event: if is_answer { "answered" } else { "unanswered" },
                    error,
                })
            }
        }
    }
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
    let fence = holder.fence.map(|fence| format!("fence {fence}, "));
    let fence = fence.unwrap_or_default();
    format!("{fence}{}{}", who(holder), held_of(holder))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::view::samples::{foreign, free, held, with_queue};

    use super::*;

    fn happened(before: Option<Snapshot>, now: Option<Snapshot>) -> Vec<ChangeKind> {
        let picture = |seen: Option<Snapshot>| {
            seen.into_iter()
                .map(|seen| ("x".to_owned(), seen))
                .collect::<Snapshots>()
        };
        compare(&picture(before), &picture(now))
            .iter()
            .map(|event| event.what)
            .collect()
    }

    #[test]
    fn each_change_is_told_once() {
        use ChangeKind::{Acquired, HandedOver, Immortal, Queue, Released};
        let queued = |count: usize| with_queue(held(41), &vec![5; count]);
        let mut endless = held(41);
        if let Some(holder) = &mut endless.holder {
            holder.expires_in = None;
        }
        let mut renewed = held(41);
        if let Some(holder) = &mut renewed.holder {
            holder.expires_in = Some(Duration::from_secs(30));
        }
        for (before, now, events) in [
            (None, None, vec![]),
            (None, Some(free()), vec![]),
            (Some(free()), None, vec![]),
            (None, Some(held(41)), vec![Acquired]),
            (Some(free()), Some(held(41)), vec![Acquired]),
            (Some(held(41)), Some(renewed), vec![]),
            (Some(held(41)), None, vec![Released]),
            (Some(held(41)), Some(free()), vec![Released]),
            (Some(held(41)), Some(held(105)), vec![HandedOver]),
            (
                Some(queued(2)),
                Some(with_queue(held(105), &[5])),
                vec![HandedOver],
            ),
            (Some(queued(2)), Some(queued(1)), vec![Queue]),
            (Some(queued(2)), Some(queued(2)), vec![]),
            (Some(held(41)), Some(endless.clone()), vec![Immortal]),
            (Some(endless.clone()), Some(endless), vec![]),
            (None, Some(foreign("hash", b"")), vec![Acquired, Immortal]),
            (
                Some(foreign("string", b"one")),
                Some(foreign("string", b"two")),
                vec![HandedOver, Immortal],
            ),
            (
                Some(held(41)),
                Some(foreign("hash", b"")),
                vec![HandedOver, Immortal],
            ),
        ] {
            assert_eq!(
                happened(before.clone(), now.clone()),
                events,
                "{before:?} {now:?}"
            );
        }
    }

    #[test]
    fn events_come_in_the_order_of_names_and_say_who() {
        let before = Snapshots::from([("b".to_owned(), held(41))]);
        let now = Snapshots::from([
            ("a".to_owned(), held(7)),
            ("b".to_owned(), with_queue(held(105), &[5])),
        ]);
        let events = compare(&before, &now);
        let [a, b] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(
            (a.name, a.what, a.before),
            ("a", ChangeKind::Acquired, None)
        );
        assert_eq!((b.name, b.what, b.queue), ("b", ChangeKind::HandedOver, 1));
        assert_eq!(b.before, before["b"].holder.as_ref());
        assert_eq!(b.holder, now["b"].holder.as_ref());
    }

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
            let line = Line::Lock {
                event: &event,
                initial,
            };
            assert_eq!(line.text(TIME), format!("{TIME} {text}\n"));
            let json = line.json(TIME);
            assert!(
                json.starts_with("{\"schema\":\"leasehold.watch/1\",\"time\":\"2026-")
                    && json.matches('\n').count() == 1
                    && json.ends_with("}\n"),
                "{json}"
            );
        }
        assert_eq!(
            Line::Store(Some("gone")).text(TIME),
            format!("{TIME} unanswered  gone\n")
        );
    }
}
