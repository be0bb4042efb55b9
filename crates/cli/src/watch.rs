//! `leasehold watch`: polls locks and prints each change as a line. What compares, matches and formats is pure: the time is
//! an argument.

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error, HolderView, Mode};
use leasehold_core::LockName;
use leasehold_serve::changes::{
    ChangeDocument, ChangeKind, LockChange, Picture, Snapshots, StoreDocument, compare,
};

use crate::config::at_least;
use crate::exit::Exit;
use crate::look::{PollTime, Polled, hidden_names, poll};
use crate::messages::{quoted, say};
use crate::output::{self, json};
use crate::session::with_client;
use crate::store::StoreArgs;
use crate::view::{held_of, several, who};

/// The minimal interval: each poll requests every known lock.
pub(crate) const LEAST: Duration = Duration::from_millis(50);

/// Show changes of locks, until interrupted
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Watch {
    #[command(flatten)]
    store: StoreArgs,

    /// One lock, or a pattern: * matches any text, ? any character, \ makes the next character literal
    #[arg(value_name = "PATTERN", default_value = "*")]
    pattern: String,

    /// Polling interval (1s, 250ms; a bare number is seconds), at least 50ms
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = |text: &str| at_least(LEAST, text))]
    interval: Duration,

    /// Print one JSON document in each line (leasehold.watch/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
Polls the locks and prints a line for each change:
  acquired     was free, is held                  released   was held, is free
  handed_over  the holder changed                 queue      the number of waiters changed
  holders      the number of readers or permits    immortal   the lock has no TTL and will not expire
  unanswered   the store does not answer; polling continues until it does (`answered`)
The first lines show the initial state: `held` is a lock that was already held.
  leasehold watch 'jobs:*'

Changes between two polls are not seen: a lock that is taken and released meanwhile prints no line,
and one that changed its holder several times prints one. `released` may be a release, the end of a
lease, or a break. A pattern matches the locks in the store's index: on Redis a lock enters it when
its lease is first renewed or when a client waits for it. A single name is always polled.

Exit codes: 130 by Ctrl-C, 128+n by signal n; 0 when the output is closed; 64 wrong usage or an
invalid name; 69 the store never answered; 77 it refuses user, password or permission; 78 no store,
or a key beside the single watched lock has another type";

/// Runs the verb.
pub(crate) fn watch(args: &Watch) -> Result<Exit, Exit> {
    let pattern = Pattern::new(&args.pattern);
    if let Pattern::Name(name) = &pattern {
        LockName::new(name)?;
    }
    with_client(&args.store.target()?, async |client, signals| {
        let watcher = Watcher {
            client,
            pattern,
            args,
            clock: Clock::system(),
            last: None,
            told_hidden: 0,
        };
        // Only a signal ends it, or a failure that does not pass.
        poll(watcher, None, (Duration::MAX, args.interval), signals).await
    })
}

struct Watcher<'a> {
    client: &'a Client,
    pattern: Pattern,
    args: &'a Watch,
    clock: Clock,
    /// The locks at the last poll, if there was one.
    last: Option<Picture>,
    /// The number of hidden names in the last message about them.
    told_hidden: usize,
}

impl Polled<Picture> for Watcher<'_> {
    async fn ask(&self) -> Result<Picture, Error> {
        match &self.pattern {
            // An error of the only watched lock ends the watch: continuing would report it as free.
            Pattern::Name(name) => {
                let snapshot = self.client.inspect(name).await?;
                let is_seen = snapshot.holder.is_some() || !snapshot.queue.is_empty();
                let locks = is_seen.then(|| (name.clone(), snapshot));
                Ok(Picture {
                    locks: locks.into_iter().collect(),
                    ..Picture::default()
                })
            }
            Pattern::Any(_) => {
                let wanted = |name: &str| self.pattern.matches(name);
                Picture::take(self.client, wanted, self.last.as_ref()).await
            }
        }
    }

    fn hear(&mut self, picture: Picture, at: PollTime) -> Result<Duration, Exit> {
        if picture.hidden > self.told_hidden {
            say(&hidden_names(picture.hidden));
            self.told_hidden = picture.hidden;
        }
        if at.after_outage {
            self.write(&Line::Store(None))?;
        }
        self.tell(&picture.locks)?;
        self.last = Some(picture);
        Ok(self.args.interval)
    }

    fn miss(&mut self, error: &Error) -> Result<(), Exit> {
        self.write(&Line::Store(Some(&error.to_string())))
    }
}

impl Watcher<'_> {
    /// Prints the changes, or the initial state.
    fn tell(&self, now: &Snapshots) -> Result<(), Exit> {
        let (initial, none) = (self.last.is_none(), Snapshots::new());
        let before = self.last.as_ref().map_or(&none, |last| &last.locks);
        for event in &compare(before, now) {
            self.write(&Line::Lock { event, initial })?;
        }
        match &self.pattern {
            Pattern::Name(name) if initial && now.is_empty() => {
                let event = &LockChange {
                    name,
                    what: ChangeKind::Free,
                    holder: None,
                    before: None,
                    seen: None,
                    queue: 0,
                };
                self.write(&Line::Lock { event, initial })
            }
            _ => Ok(()),
        }
    }

    fn write(&self, line: &Line<'_>) -> Result<(), Exit> {
        let time = humantime::format_rfc3339_millis(self.clock.wall()).to_string();
        output::print(&if self.args.json {
            line.json(&time)
        } else {
            line.text(&time)
        })
    }
}

/// An item that is written as one line.
enum Line<'a> {
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
    fn text(&self, time: &str) -> String {
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
            (what, _) => what.word(),
        };
        let described = |before: &str, holder: Option<&HolderView>| {
            let described = holder.map(|holder| {
                let one = holder.mode == Mode::Exclusive;
                let several = event.seen.and_then(several).filter(|_| !one);
                let described = several.unwrap_or_else(|| described(holder));
                format!(", {before}{described}")
            });
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
    fn json(&self, time: &str) -> String {
        match *self {
            Self::Lock { event, initial } => json(&ChangeDocument::of(event, initial, time)),
            Self::Store(error) => json(&StoreDocument::of(error, time)),
        }
    }
}

fn described(holder: &HolderView) -> String {
    let fence = holder.fence.map(|fence| format!("fence {fence}, "));
    let fence = fence.unwrap_or_default();
    format!("{fence}{}{}", who(holder), held_of(holder))
}

/// A pattern of lock names: `*` matches any text, `?` any one character, `\` makes the next one literal. Matching takes at
/// most time proportional to the product of both lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// A single name.
    Name(String),
    /// A pattern with wildcards.
    Any(Vec<Part>),
}

/// An element of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Is(char),
    One,
    Many,
}

impl Pattern {
    /// Parses a pattern. A final backslash is literal.
    fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' => Part::Many,
                '?' => Part::One,
                '\\' => Part::Is(rest.next().unwrap_or('\\')),
                c => Part::Is(c),
            });
        }
        let literal = parts.iter().map(|part| match part {
            Part::Is(c) => Some(*c),
            Part::One | Part::Many => None,
        });
        match literal.collect::<Option<String>>() {
            Some(name) => Self::Name(name),
            None => Self::Any(parts),
        }
    }

    /// True if the pattern matches `name`.
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(only) => only == name,
            Self::Any(parts) => {
                let name: Vec<char> = name.chars().collect();
                is_match(parts, &name)
            }
        }
    }
}

/// Matches greedily: the last `*` takes as little as possible, and one character more after each failure.
fn is_match(parts: &[Part], name: &[char]) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut retry = None;
    while at < name.len() {
        match parts.get(part) {
            Some(Part::Many) => {
                part += 1;
                retry = Some((part, at));
            }
            Some(Part::One) => (part, at) = (part + 1, at + 1),
            Some(Part::Is(c)) if *c == name[at] => (part, at) = (part + 1, at + 1),
            _ => match retry {
                Some((after, taken)) => {
                    (part, at) = (after, taken + 1);
                    retry = Some((after, taken + 1));
                }
                None => return false,
            },
        }
    }
    parts[part..].iter().all(|part| *part == Part::Many)
}

#[cfg(test)]
mod tests {
    use leasehold::Snapshot;

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
            seen: None,
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

    #[test]
    fn stars_and_question_marks_match() {
        for (pattern, name, matches) in [
            ("*", "", true),
            ("*", "any:thing/at all", true),
            ("cart:*", "cart:9", true),
            ("cart:*", "cart", false),
            ("*:9", "cart:9", true),
            ("*:9", "cart:99", false),
            ("c*t*9", "cart:cat:9", true),
            ("c*t*9", "cart:cat:", false),
            ("c?rt", "cart", true),
            ("c?rt", "cärt", true),
            ("c?rt", "crt", false),
            ("?", "", false),
            ("**a**", "bab", true),
            (r"a\*?", "a*b", true),
            (r"a\*?", "axb", false),
            ("x", "x", true),
            ("x", "xy", false),
            (r"a\*", "a*", true),
            (r"a\", r"a\", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(name),
                matches,
                "{pattern} {name}"
            );
        }
        assert_eq!(Pattern::new(r"a\?"), Pattern::Name("a?".into()));
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        let name = "a".repeat(512);
        assert!(
            !Pattern::new(&"a*".repeat(200)).matches(&(name.clone() + "b")[1..].replace('a', "c"))
        );
        assert!(!Pattern::new(&("*a".repeat(200) + "b")).matches(&name));
    }
}
