//! The results for programs: `docs/reference/json.md` has the fields. A changed field requires a new number in the schema.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::steps::scripts;
use crate::ladder::check::RungResult;
use crate::ladder::rungs::Rung;
use crate::ladder::trace::{LadderEvent, Line, Trace};
use crate::ladder::words::{REJOINS, RESTARTS, client, comes_back, on_one_line, server, typed};
use crate::text::json_line;

/// A rung with its story, as a document of one line: `leasehold.lab-show/1`.
pub fn one(rung: &Rung, found: &RungResult) -> String {
    let mut document = summary(rung, found);
    document["story"] = match found {
        RungResult::Broken(trace) => story(trace),
        RungResult::Explored(_) => Value::Null,
    };
    json_line("leasehold.lab-show/1", &document)
}

/// All rungs without their stories: `leasehold.lab/1`.
pub fn list(rungs: &[(&Rung, RungResult)]) -> String {
    let rungs: Vec<Value> = rungs
        .iter()
        .map(|(rung, found)| summary(rung, found))
        .collect();
    json_line("leasehold.lab/1", &json!({ "rungs": rungs }))
}

fn summary(rung: &Rung, found: &RungResult) -> Value {
    let (verdict, trace, checked) = match found {
        RungResult::Broken(trace) => ("broken", Some(trace), None),
        RungResult::Explored(checked) if checked.is_exhausted() => {
            ("exhausted", None, Some(checked))
        }
        RungResult::Explored(checked) => ("unsettled", None, Some(checked)),
    };
    json!({
        "name": rung.name,
        "step": rung.number,
        "recipe": rung.recipe,
        "why": rung.why,
        "next": rung.next,
        "ahead_s": rung.skew,
        "verdict": verdict,
        "steps": trace.map(|trace| trace.lines.len()),
        "bounds": checked.map(|checked| &checked.bounds),
        "states": checked.map(|checked| checked.states),
        "depth": checked.map(|checked| checked.depth),
    })
}

fn story(trace: &Trace) -> Value {
    let scripts = scripts(trace)
        .into_iter()
        .map(|script| (script.name, script.text));
    let lines = (1..)
        .zip(&trace.lines)
        .map(|(number, line)| step(number, line));
    json!({
        "clients": trace.clients,
        "servers": trace.rung.servers,
        "scripts": scripts.collect::<BTreeMap<_, _>>(),
        "lines": lines.collect::<Vec<_>>(),
    })
}

fn step(number: usize, line: &Line) -> Value {
    let keys = (0..).zip(&line.keys).flat_map(|(at, keys)| {
        keys.iter().map(move |(key, value, left)| {
            json!({
                "server": server(at),
                "key": key.name(),
                "value": value.to_string(),
                "left_s": left,
            })
        })
    });
    let holders = line.holders.iter().copied().map(client);
    let mut step = json!({
        "number": number,
        "time_s": line.time,
        "note": line.note,
        "keys": keys.collect::<Vec<_>>(),
        "holders": holders.collect::<Vec<_>>(),
        "wrong": line.wrong,
        "client": line.event.actor().map(client),
        // What follows is null where the event has no such thing.
        "server": null,
        "command": null,
        "reply": null,
        "lost": null,
        "what": null,
        "jump_s": null,
    });
    let name = match &line.event {
        LadderEvent::Tick => "tick",
        LadderEvent::Message(message) => {
            step["server"] = server(message.server).into();
            step["command"] = on_one_line(&typed(message.command)).into();
            if let Some(reply) = message.reply {
                step["reply"] = reply.to_string().into();
                step["lost"] = message.is_lost.into();
            }
            match (message.reply, message.is_late) {
                (None, _) => "sends",
                (_, true) => "arrives",
                (_, false) => "asks",
            }
        }
        LadderEvent::Does { what, .. } => {
            step["what"] = (*what).into();
            "does"
        }
        LadderEvent::Crashes { .. } => "crashes",
        LadderEvent::Restarts { server: of, first } => {
            step["server"] = server(*of).into();
            if !first.is_empty() {
                step["what"] = comes_back(RESTARTS, first).into();
            }
            "restarts"
        }
        LadderEvent::Rejoins { server: of, last } => {
            step["server"] = server(*of).into();
            step["what"] = comes_back(REJOINS, last).into();
            "rejoins"
        }
        LadderEvent::ClockJumps { server: of, by } => {
            step["server"] = server(*of).into();
            step["jump_s"] = (*by).into();
            "clock_jumps"
        }
    };
    step["event"] = name.into();
    step
}
