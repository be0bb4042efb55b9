//! The same for programs: `docs/reference/json.md` has the fields. Must never change one without a new number in its schema.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ladder::redis::Key;
use crate::ladder::trace::{Event, Line, Trace};
use crate::text::json_line;

use super::table::scripts;
use super::told::{Outcome, Told};
use crate::ladder::words::{self, client, server, shown, typed};

/// A rung with its story, as a document of one line: `leasehold.lab-show/1`.
pub fn one(told: &Told) -> String {
    let story = match told.outcome {
        Outcome::Broken(trace) => Some(Story::of(trace)),
        Outcome::Exhausted(_) | Outcome::Unsettled(_) => None,
    };
    let show = Show {
        rung: Rung::of(told),
        story,
    };
    json_line("leasehold.lab-show/1", &show)
}

/// All rungs without their stories: `leasehold.lab/1`.
pub fn list(rungs: &[Told]) -> String {
    let list = List {
        rungs: rungs.iter().map(Rung::of).collect(),
    };
    json_line("leasehold.lab/1", &list)
}

#[derive(Serialize)]
struct List<'a> {
    rungs: Vec<Rung<'a>>,
}

#[derive(Serialize)]
struct Show<'a> {
    #[serde(flatten)]
    rung: Rung<'a>,
    story: Option<Story>,
}

#[derive(Serialize)]
struct Rung<'a> {
    name: &'a str,
    step: &'a str,
    recipe: &'a str,
    why: &'a str,
    next: &'a str,
    /// How far the clock of each client is ahead.
    ahead_s: &'a [i16],
    /// `broken`, `exhausted` within the bounds, or `unsettled`.
    verdict: &'static str,
    /// Of the shortest story that goes wrong.
    steps: Option<usize>,
    bounds: Option<&'a str>,
    states: Option<usize>,
    depth: Option<usize>,
}

impl<'a> Rung<'a> {
    fn of(told: &Told<'a>) -> Self {
        let (verdict, trace, checked) = match told.outcome {
            Outcome::Broken(trace) => ("broken", Some(trace), None),
            Outcome::Exhausted(checked) => ("exhausted", None, Some(checked)),
            Outcome::Unsettled(checked) => ("unsettled", None, Some(checked)),
        };
        Self {
            name: told.name,
            step: told.step,
            recipe: told.recipe,
            why: told.why,
            next: told.next,
            ahead_s: told.ahead,
            verdict,
            steps: trace.map(|trace| trace.lines.len()),
            bounds: checked.map(|checked| checked.bounds.as_str()),
            states: checked.map(|checked| checked.states),
            depth: checked.map(|checked| checked.depth),
        }
    }
}

#[derive(Serialize)]
struct Story {
    clients: u8,
    servers: u8,
    /// The texts of the scripts by the names that stand in the commands.
    scripts: BTreeMap<&'static str, &'static str>,
    lines: Vec<Step>,
}

impl Story {
    fn of(trace: &Trace) -> Self {
        Self {
            clients: trace.clients,
            servers: trace.servers,
            scripts: scripts(trace)
                .into_iter()
                .map(|script| (script.name, script.text))
                .collect(),
            lines: trace
                .lines
                .iter()
                .enumerate()
                .map(|(at, line)| Step::of(at + 1, line))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct Step {
    number: usize,
    time_s: i16,
    #[serde(flatten)]
    event: Happened,
    note: String,
    keys: Vec<Entry>,
    holders: Vec<String>,
    wrong: Option<String>,
}

/// What happened. What does not apply is null.
#[derive(Serialize, Default)]
struct Happened {
    event: &'static str,
    client: Option<String>,
    server: Option<String>,
    command: Option<String>,
    reply: Option<String>,
    /// The client does not hear the reply.
    lost: Option<bool>,
    /// What a client does of its own.
    what: Option<&'static str>,
    jump_s: Option<i16>,
}

#[derive(Serialize)]
struct Entry {
    server: String,
    key: &'static str,
    value: String,
    /// Null for a key that stays.
    left_s: Option<i16>,
}

impl Step {
    fn of(number: usize, line: &Line) -> Self {
        let keys = line.keys.iter().enumerate().flat_map(|(at, keys)| {
            let of = u8::try_from(at).map(server).unwrap_or_default();
            keys.iter().map(move |(key, value, left)| Entry {
                server: of.clone(),
                key: Key::name(*key),
                value: value.to_string(),
                left_s: *left,
            })
        });
        Self {
            number,
            time_s: line.time,
            event: Happened::of(&line.event),
            note: line.note.clone(),
            keys: keys.collect(),
            holders: line.holders.iter().copied().map(client).collect(),
            wrong: line.wrong.clone(),
        }
    }
}

impl Happened {
    fn of(event: &Event) -> Self {
        let of = |event, client: Option<&u8>, server: Option<&u8>| Self {
            event,
            client: client.copied().map(words::client),
            server: server.copied().map(words::server),
            ..Self::default()
        };
        match event {
            Event::Tick => of("tick", None, None),
            Event::Asks {
                client,
                server,
                command,
                reply,
                lost,
            }
            | Event::Arrives {
                client,
                server,
                command,
                reply,
                lost,
            } => {
                let asks = matches!(event, Event::Asks { .. });
                Self {
                    command: Some(typed(*command).join(" ")),
                    reply: Some(shown(*reply).join("\n")),
                    lost: Some(*lost),
                    ..of(
                        if asks { "asks" } else { "arrives" },
                        Some(client),
                        Some(server),
                    )
                }
            }
            Event::Sends {
                client,
                server,
                command,
            } => Self {
                command: Some(typed(*command).join(" ")),
                ..of("sends", Some(client), Some(server))
            },
            Event::Does { client, what } => Self {
                what: Some(what),
                ..of("does", Some(client), None)
            },
            Event::Crashes { client } => of("crashes", Some(client), None),
            Event::Restarts { server } => of("restarts", None, Some(server)),
            Event::ClockJumps { server, by } => Self {
                jump_s: Some(*by),
                ..of("clock_jumps", None, Some(server))
            },
        }
    }
}
