//! A trace as a table that reads like a transcript of `redis-cli`, at most a page wide. The violation is marked not only by
//! colour.

use std::fmt::Write as _;

use crate::ladder::redis::Key;
use crate::ladder::trace::{LadderEvent, Trace};
use crate::ladder::words::{
    self, REJOINS, RESTARTS, Script, client, comes_back, script, server, shown, typed, value,
};
use crate::text::{Paint, WIDTH, counted, gaps, grid, paragraph, widths};

use super::steps::{StoryStep, entry, steps};
use super::summary::{ModelOutcome, RungSummary};

const COMMAND: usize = 3;
/// The least width of commands and remarks on a narrow page.
const LEAST: (usize, usize) = (19, 12);

/// A rung as a page of at most 100 columns, with or without colour.
pub fn table(summary: &RungSummary, colour: bool) -> String {
    let heading = format!("{}  {}: {}", summary.step, summary.name, summary.recipe);
    let mut page: String = paragraph(&heading, "")
        .lines()
        .map(|line| Paint::Strong.on(line, colour) + "\n")
        .collect();
    page.push('\n');
    match summary.outcome {
        ModelOutcome::Broken(trace) => page += &story(summary, trace, colour),
        ModelOutcome::Unsettled(checked) => {
            let found = "Not settled: what each property came to, says leasehold-lab check.";
            page += &Paint::Wrong.on(found, colour);
            page.push('\n');
            page += &paragraph(&format!("Bounds: {}", checked.bounds), "");
        }
        ModelOutcome::Exhausted(checked) => {
            let found = format!(
                "Exhausted within these bounds: no story goes wrong in {}, {} deep.",
                counted(checked.states, "state"),
                counted(checked.depth, "step")
            );
            page += &Paint::Good.on(&found, colour);
            page.push('\n');
            page += &paragraph(&format!("Bounds: {}", checked.bounds), "");
        }
    }
    for (label, text) in [("Why: ", summary.why), ("Next: ", summary.next)] {
        if !text.is_empty() {
            page.push('\n');
            page += &paragraph(&format!("{label}{text}"), "");
        }
    }
    page
}

/// The table, its meaning, and the scripts in it.
fn story(summary: &RungSummary, trace: &Trace, colour: bool) -> String {
    let keys = key_columns(trace);
    let steps = steps(trace);
    let mut rows = vec![head(trace, &keys)];
    rows.extend(steps.iter().map(|step| row(trace, &keys, step)));
    let mut page = String::new();
    for (at, lines) in laid(&rows).iter().enumerate() {
        let wrong = at
            .checked_sub(1)
            .and_then(|at| steps[at].line.wrong.as_deref());
        for line in lines {
            page += &match wrong {
                _ if at == 0 => Paint::Strong.on(line, colour),
                Some(_) => Paint::Wrong.on(line, colour),
                None => line.clone(),
            };
            page.push('\n');
        }
    }
    for step in &steps {
        if let Some(why) = &step.line.wrong {
            let text = format!("Step {} is wrong: {why}", step.number());
            let lines = paragraph(&text, "");
            page.push('\n');
            page.extend(
                lines
                    .lines()
                    .map(|line| Paint::Wrong.on(line, colour) + "\n"),
            );
        }
    }
    page.push('\n');
    page += &paragraph(
        "HOLDS: who believes to hold the lock, by its own clock. A key is shown with what is left of its TTL; without that it stays.",
        "",
    );
    for client in 0..trace.clients {
        if let Some(ahead) = summary.ahead_of(client) {
            // Writing to a String cannot fail, here and below.
            let _infallible = writeln!(
                page,
                "The clock of {} is {ahead} s ahead.",
                words::client(client)
            );
        }
    }
    for script in scripts(trace) {
        let _infallible = writeln!(page, "\n{} is the script", script.name);
        for line in script.text.lines() {
            page += &paragraph(line, "    ");
        }
    }
    page
}

/// The rows, with commands and remarks as wide as the page allows.
fn laid(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let widths = widths(rows);
    let remark = widths.len() - 1;
    let others: usize = widths.iter().sum::<usize>() - widths[COMMAND] - widths[remark];
    let room = WIDTH.saturating_sub(others + gaps(widths.len()));
    let command = widths[COMMAND].min(
        room.saturating_sub(widths[remark].min(LEAST.1))
            .max(LEAST.0),
    );
    let remarks = widths[remark].min(room.saturating_sub(command));
    grid(rows, &[0, 1], &[(COMMAND, command), (remark, remarks)])
}

fn head(trace: &Trace, keys: &[(u8, Key)]) -> Vec<String> {
    let mut cells = ["#", "TIME", "WHO", "COMMAND", "REPLY"]
        .map(str::to_owned)
        .to_vec();
    for (of, key) in keys {
        cells.push(match (trace.servers, key) {
            (..=1, key) => key.name().to_owned(),
            (_, key) if *of >= trace.lock_servers => key.name().to_owned(),
            (_, Key::Lock) => format!("{} lock", server(*of)),
            (_, key) => format!("{} {}", server(*of), key.name()),
        });
    }
    cells.extend(["HOLDS".into(), String::new()]);
    cells
}

fn row(trace: &Trace, keys: &[(u8, Key)], step: &StoryStep) -> Vec<String> {
    let (who, command, reply) = happened(trace, &step.line.event);
    let mut cells = vec![
        step.number(),
        format!("{} s", step.line.time),
        who,
        command,
        reply,
    ];
    for (server, key) in keys {
        cells.push(match entry(step.line, *server, *key) {
            Some((of, Some(left))) => format!("{of}, {left} s"),
            entry => value(entry.map(|(value, _)| value)),
        });
    }
    let holders: Vec<_> = step.line.holders.iter().copied().map(client).collect();
    cells.push(if holders.is_empty() {
        "-".into()
    } else {
        holders.join(" ")
    });
    let remarks = step.remarks().join(", ");
    cells.push(if step.line.wrong.is_some() {
        format!("<-- {}", if remarks.is_empty() { "here" } else { &remarks })
    } else {
        remarks
    });
    cells
}

/// The actor, the command and the reply.
fn happened(trace: &Trace, event: &LadderEvent) -> (String, String, String) {
    let prompt = |of: u8| {
        if trace.servers > 1 {
            format!("{}> ", server(of))
        } else {
            String::new()
        }
    };
    let (who, what) = match event {
        LadderEvent::Message(message) => {
            let late = if message.is_late { "(arrives) " } else { "" };
            let command = typed(message.command).join("\n");
            let lost = match (message.is_lost, message.is_late) {
                (true, true) => " (unheard)",
                (true, false) => " (lost)",
                (false, _) => "",
            };
            let reply = message.reply.map(|reply| shown(reply).join("\n") + lost);
            let reply = reply.unwrap_or_else(|| "(on its way)".into());
            let command = format!("{late}{}{command}", prompt(message.server));
            return (client(message.client), command, reply);
        }
        LadderEvent::Tick => (String::new(), "time passes".to_owned()),
        LadderEvent::Does { client: of, what } => (client(*of), (*what).to_owned()),
        LadderEvent::Crashes { client: of } => (client(*of), "crashes".to_owned()),
        LadderEvent::Restarts { server: of, first } => (server(*of), comes_back(RESTARTS, first)),
        LadderEvent::Rejoins { server: of, last } => (server(*of), comes_back(REJOINS, last)),
        LadderEvent::ClockJumps { server: of, by } => (server(*of), format!("clock jumps {by} s")),
    };
    (who, format!("({what})"), String::new())
}

/// The keys with a column: the lock in each server, and the protected data if it occurs in the trace. A fence is in the reply.
fn key_columns(trace: &Trace) -> Vec<(u8, Key)> {
    let servers = trace.servers.max(1);
    let seen = |server, key| {
        trace
            .lines
            .iter()
            .any(|line| entry(line, server, key).is_some())
    };
    let all =
        (0..servers).flat_map(|server| [Key::Lock, Key::Data, Key::Seen].map(|key| (server, key)));
    let has_lock = |server: u8| server < trace.lock_servers.max(1);
    all.filter(|(server, key)| (*key == Key::Lock && has_lock(*server)) || seen(*server, *key))
        .collect()
}

/// The scripts of a trace, each once.
pub(super) fn scripts(trace: &Trace) -> Vec<Script> {
    let mut scripts = Vec::new();
    for message in trace.lines.iter().filter_map(|line| line.event.message()) {
        scripts.extend(script(message.command).filter(|script| !scripts.contains(script)));
    }
    scripts
}
