//! The results for programs: `docs/reference/json.md` has the fields. A changed field requires a new number in the schema.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ladder::redis::Key;
use crate::ladder::trace::{LadderEvent, Line, Trace};
use crate::text::json_line;

use super::summary::{ModelOutcome, RungSummary};
use super::table::scripts;
use crate::ladder::words::{self, REJOINS, RESTARTS, client, comes_back, server, shown, typed};

/// A rung with its story, as a document of one line: `leasehold.lab-show/1`.
pub fn one(summary: &RungSummary) -> String {
    let story = match summary.outcome {
        ModelOutcome::Broken(trace) => Some(Story::of(trace)),
        ModelOutcome::Exhausted(_) | ModelOutcome::Unsettled(_) => None,
    };
    let show = JsonShow {
        rung: JsonRung::of(summary),
        story,
    };
    json_line("leasehold.lab-show/1", &show)
}

/// All rungs without their stories: `leasehold.lab/1`.
pub fn list(rungs: &[RungSummary]) -> String {
    let list = List {
        rungs: rungs.iter().map(JsonRung::of).collect(),
    };
    json_line("leasehold.lab/1", &list)
}

#[derive(Serialize)]
struct List<'a> {
    rungs: Vec<JsonRung<'a>>,
}

#[derive(Serialize)]
struct JsonShow<'a> {
    #[serde(flatten)]
    rung: JsonRung<'a>,
    story: Option<Story>,
}

#[derive(Serialize)]
struct JsonRung<'a> {
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

impl<'a> JsonRung<'a> {
    fn of(summary: &RungSummary<'a>) -> Self {
        let (verdict, trace, checked) = match summary.outcome {
            ModelOutcome::Broken(trace) => ("broken", Some(trace), None),
            ModelOutcome::Exhausted(checked) => ("exhausted", None, Some(checked)),
            ModelOutcome::Unsettled(checked) => ("unsettled", None, Some(checked)),
        };
        Self {
            name: summary.name,
            step: summary.step,
            recipe: summary.recipe,
            why: summary.why,
            next: summary.next,
            ahead_s: summary.ahead,
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
    /// The texts of the scripts by their names in the commands.
    scripts: BTreeMap<&'static str, &'static str>,
    lines: Vec<JsonStep>,
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
                .map(|(at, line)| JsonStep::of(at + 1, line))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct JsonStep {
    number: usize,
    time_s: i16,
    #[serde(flatten)]
    event: JsonEvent,
    note: String,
    keys: Vec<JsonKey>,
    holders: Vec<String>,
    wrong: Option<String>,
}

/// An event. Fields that do not apply are null.
#[derive(Serialize, Default)]
struct JsonEvent {
    event: &'static str,
    client: Option<String>,
    server: Option<String>,
    command: Option<String>,
    reply: Option<String>,
    /// The reply does not reach the client.
    lost: Option<bool>,
    /// The local step of a client, or of a server that does not only restart empty.
    what: Option<String>,
    jump_s: Option<i16>,
}

#[derive(Serialize)]
struct JsonKey {
    server: String,
    key: &'static str,
    value: String,
    /// Null for a key without a TTL.
    left_s: Option<i16>,
}

impl JsonStep {
    fn of(number: usize, line: &Line) -> Self {
        let keys = (0..).zip(&line.keys).flat_map(|(at, keys)| {
            let of = server(at);
            keys.iter().map(move |(key, value, left)| JsonKey {
                server: of.clone(),
                key: Key::name(*key),
                value: value.to_string(),
                left_s: *left,
            })
        });
        Self {
            number,
            time_s: line.time,
            event: JsonEvent::of(&line.event),
            note: line.note.clone(),
            keys: keys.collect(),
            holders: line.holders.iter().copied().map(client).collect(),
            wrong: line.wrong.clone(),
        }
    }
}

impl JsonEvent {
    fn of(event: &LadderEvent) -> Self {
        let of = |event, client: Option<&u8>, server: Option<&u8>| Self {
            event,
            client: client.copied().map(words::client),
            server: server.copied().map(words::server),
            ..Self::default()
        };
        match event {
            LadderEvent::Tick => of("tick", None, None),
            LadderEvent::Message(message) => {
                let name = match (message.reply, message.is_late) {
                    (None, _) => "sends",
                    (_, true) => "arrives",
                    (_, false) => "asks",
                };
                Self {
                    command: Some(typed(message.command).join(" ")),
                    reply: message.reply.map(|reply| shown(reply).join("\n")),
                    lost: message.reply.map(|_| message.is_lost),
                    ..of(name, Some(&message.client), Some(&message.server))
                }
            }
            LadderEvent::Does { client, what } => Self {
                what: Some((*what).to_owned()),
                ..of("does", Some(client), None)
            },
            LadderEvent::Crashes { client } => of("crashes", Some(client), None),
            LadderEvent::Restarts { server, first } => Self {
                what: (!first.is_empty()).then(|| comes_back(RESTARTS, first)),
                ..of("restarts", None, Some(server))
            },
            LadderEvent::Rejoins { server, last } => Self {
                what: Some(comes_back(REJOINS, last)),
                ..of("rejoins", None, Some(server))
            },
            LadderEvent::ClockJumps { server, by } => Self {
                jump_s: Some(*by),
                ..of("clock_jumps", None, Some(server))
            },
        }
    }
}
