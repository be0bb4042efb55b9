//! Pages of at most 100 columns, with or without colour: all rungs with recipe and fresh verdict; and one rung with its trace as a
//! table that reads like a transcript of `redis-cli`. The violation is marked not only by colour.

use std::fmt::Write as _;

use super::steps::{StoryStep, entry, scripts, steps};
use crate::ladder::check::RungResult;
use crate::ladder::redis::Key;
use crate::ladder::rungs::Rung;
use crate::ladder::trace::{LadderEvent, Trace};
use crate::ladder::words::{REJOINS, RESTARTS, client, comes_back, server, typed};
use crate::report::Checked;
use crate::text::{Paint, counted, grid, paragraph};

const COMMAND: usize = 3;
/// The least width of a command.
const LEAST: usize = 19;

/// The rungs in this order, a paragraph for each recipe.
pub fn list(rungs: &[(&Rung, RungResult)], colour: bool) -> String {
    let rows: Vec<Vec<String>> = rungs
        .iter()
        .map(|(rung, found)| listed(rung, found))
        .collect();
    let mut page = String::new();
    let mut recipe = ("", "");
    for ((rung, found), lines) in rungs.iter().zip(grid(&rows, &[], &[(2, 0)])) {
        if recipe != (rung.number, rung.recipe) {
            recipe = (rung.number, rung.recipe);
            if !page.is_empty() {
                page.push('\n');
            }
            let heading = format!("{}  {}", rung.number, rung.recipe);
            page += &Paint::Strong.paragraph(&heading, colour);
        }
        let (verdict, paint) = verdict(found);
        for line in lines {
            page += &line.replacen(&verdict, &paint.on(&verdict, colour), 1);
            page.push('\n');
        }
    }
    page + &what_next(rungs)
}

fn listed(rung: &Rung, found: &RungResult) -> Vec<String> {
    let seed = match found {
        RungResult::Broken(_) => rung.why.to_owned(),
        RungResult::Explored(checked) => format!(
            "within these bounds: {} ({})\n{}",
            counted(checked.states, "state"),
            checked.bounds,
            rung.why
        ),
    };
    let name = format!("    {}", rung.name);
    vec![name, verdict(found).0, seed.trim_end().to_owned()]
}

fn verdict(found: &RungResult) -> (String, Paint) {
    match found {
        RungResult::Broken(trace) => {
            let steps = counted(trace.lines.len(), "step");
            (format!("wrong in {steps}"), Paint::Wrong)
        }
        RungResult::Explored(checked) if checked.is_exhausted() => {
            ("exhausted".into(), Paint::Good)
        }
        RungResult::Explored(_) => ("not settled".into(), Paint::Wrong),
    }
}

/// The command that shows the first violated rung.
fn what_next(rungs: &[(&Rung, RungResult)]) -> String {
    let is_broken = |(_, found): &&(&Rung, RungResult)| matches!(found, RungResult::Broken(_));
    let Some((Rung { name, .. }, _)) = rungs.iter().find(is_broken) else {
        return String::new();
    };
    let rows = [
        (format!("show {name}"), "its story, command by command"),
        (format!("replay {name}"), "the same on a real redis-server"),
        ("check".into(), "all models, all properties"),
    ]
    .map(|(typed, what)| vec![format!("    leasehold-lab {typed}"), what.to_owned()]);
    let lines = grid(&rows, &[], &[]).concat();
    format!("\nNext, type\n{}\n", lines.join("\n"))
}

/// A rung with what its model found.
pub fn table(rung: &Rung, found: &RungResult, colour: bool) -> String {
    let heading = format!("{}  {}: {}", rung.number, rung.name, rung.recipe);
    let mut page = Paint::Strong.paragraph(&heading, colour) + "\n";
    page += &match found {
        RungResult::Broken(trace) => story(trace, colour),
        RungResult::Explored(checked) => explored(checked, colour),
    };
    for (label, text) in [("Why: ", rung.why), ("Next: ", rung.next)] {
        if !text.is_empty() {
            page.push('\n');
            page += &paragraph(&format!("{label}{text}"), "");
        }
    }
    page
}

fn explored(checked: &Checked, colour: bool) -> String {
    let found = if checked.is_exhausted() {
        let found = format!(
            "Exhausted within these bounds: no story goes wrong in {}, {} deep.",
            counted(checked.states, "state"),
            counted(checked.depth, "step")
        );
        Paint::Good.on(&found, colour)
    } else {
        let found = "Not settled: what each property came to, says leasehold-lab check.";
        Paint::Wrong.on(found, colour)
    };
    format!(
        "{found}\n{}",
        paragraph(&format!("Bounds: {}", checked.bounds), "")
    )
}

/// The table, its meaning, and the scripts in it.
fn story(trace: &Trace, colour: bool) -> String {
    let keys = key_columns(trace);
    let steps = steps(trace);
    let mut rows = vec![head(trace, &keys)];
    rows.extend(steps.iter().map(|step| row(trace, &keys, step)));
    let remark = rows[0].len() - 1;
    let lines = grid(&rows, &[0, 1], &[(COMMAND, LEAST), (remark, 0)]);
    let mut page = String::new();
    let heads = lines[0].iter().map(|line| (line, Some(Paint::Strong)));
    let told = steps.iter().zip(&lines[1..]).flat_map(|(step, lines)| {
        let paint = step.line.wrong.as_ref().map(|_| Paint::Wrong);
        lines.iter().map(move |line| (line, paint))
    });
    for (line, paint) in heads.chain(told) {
        page += &paint.map_or_else(|| line.clone(), |paint| paint.on(line, colour));
        page.push('\n');
    }
    for step in &steps {
        if let Some(why) = &step.line.wrong {
            let text = format!("Step {} is wrong: {why}", step.number());
            page.push('\n');
            page += &Paint::Wrong.paragraph(&text, colour);
        }
    }
    page.push('\n');
    page += &paragraph(
        "HOLDS: who believes to hold the lock, by its own clock. A key is shown with what is left of its TTL; without that it stays.",
        "",
    );
    // Writing to a String cannot fail, here and below.
    for of in 0..trace.clients {
        if let Some(ahead) = trace.rung.ahead(of) {
            let _infallible = writeln!(page, "The clock of {} is {ahead} s ahead.", client(of));
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

fn head(trace: &Trace, keys: &[(u8, Key)]) -> Vec<String> {
    let columns = keys.iter().map(|&(of, key)| {
        let has_own_name = trace.rung.servers <= 1 || of >= trace.rung.lock_servers();
        match key.name() {
            name if has_own_name => name.to_owned(),
            name => format!("{} {name}", server(of)),
        }
    });
    let before = ["#", "TIME", "WHO", "COMMAND", "REPLY"].map(str::to_owned);
    let after = ["HOLDS".to_owned(), String::new()];
    before.into_iter().chain(columns).chain(after).collect()
}

fn row(trace: &Trace, keys: &[(u8, Key)], step: &StoryStep) -> Vec<String> {
    let (who, command, reply) = happened(trace, &step.line.event);
    let time = format!("{} s", step.line.time);
    let mut cells = vec![step.number(), time, who, command, reply];
    cells.extend(
        keys.iter()
            .map(|&(server, key)| match entry(step.line, server, key) {
                Some((value, Some(left))) => format!("{value}, {left} s"),
                Some((value, None)) => value.to_string(),
                None => "-".into(),
            }),
    );
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
    let (who, what) = match event {
        LadderEvent::Message(message) => {
            let late = if message.is_late { "(arrives) " } else { "" };
            let prompt = match trace.rung.servers {
                0..=1 => String::new(),
                _ => format!("{}> ", server(message.server)),
            };
            let lost = match (message.is_lost, message.is_late) {
                (true, true) => " (unheard)",
                (true, false) => " (lost)",
                (false, _) => "",
            };
            let reply = message.reply.map(|reply| format!("{reply}{lost}"));
            let reply = reply.unwrap_or_else(|| "(on its way)".into());
            let command = format!("{late}{prompt}{}", typed(message.command));
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
    let occurs = |server, key| {
        let mut lines = trace.lines.iter();
        lines.any(|line| entry(line, server, key).is_some())
    };
    let keys = [Key::Lock, Key::Data, Key::Seen];
    let all = (0..trace.rung.servers).flat_map(|server| keys.map(|key| (server, key)));
    let is_lock = |server, key| key == Key::Lock && server < trace.rung.lock_servers();
    all.filter(|&(server, key)| is_lock(server, key) || occurs(server, key))
        .collect()
}
