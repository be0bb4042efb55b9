//! Where each step stands, and what is written beside it. Must never make a row too low for its labels.

use crate::ladder::trace::Event;
use crate::text::columns;

use super::super::steps::Step;
use super::lanes::remark_lines;
use super::length;
use crate::ladder::words::{client, in_short, shown};

/// Of a line of text.
pub(super) const LINE: f64 = 14.0;
const PAD: f64 = 7.0;
/// Between a command's arrow and its reply's.
const APART: f64 = 8.0;

/// The place of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Where its command goes out, or what else happens happens.
    pub(super) asked: f64,
    /// Where the reply comes in.
    pub(super) answered: f64,
}

/// The places of all steps.
#[derive(Debug)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    pub(super) fn of(steps: &[Step], top: f64) -> Self {
        let mut y = top;
        let rows = steps.iter().map(|step| {
            let row = Row::of(step, y);
            y = row.bottom;
            row
        });
        let mut rows: Vec<Row> = rows.collect();
        if let Some(last) = rows.last_mut() {
            // What begins with the last step needs some length to be seen.
            last.bottom += 12.0;
        }
        Self(rows)
    }

    pub(super) fn at(&self, step: usize) -> Row {
        self.0[step]
    }

    pub(super) fn all(&self) -> &[Row] {
        &self.0
    }

    pub(super) fn bottom(&self) -> f64 {
        self.0.last().map_or(0.0, |row| row.bottom)
    }
}

impl Row {
    fn of(step: &Step, top: f64) -> Self {
        let event = &step.line.event;
        let remarks = length(remark_lines(step).len()) * LINE;
        let above = length(label(event).len()) * LINE;
        let replies = reply_label(event).len();
        let asked = match event {
            Event::Tick => top + PAD + (remarks / 2.0).max(8.0),
            Event::Asks { .. } | Event::Sends { .. } | Event::Arrives { .. } => {
                top + PAD + above.max(remarks / 2.0 - 4.0)
            }
            _ => top + PAD + (remarks / 2.0).max(10.0),
        };
        let answered = if replies > 0 { asked + APART } else { asked };
        let below = answered + length(replies) * (LINE + 2.0) + PAD;
        Self {
            top,
            asked,
            answered,
            bottom: below.max(asked + remarks / 2.0 + PAD + 4.0),
        }
    }
}

/// What stands above the arrow of a command.
pub(super) fn label(event: &Event) -> Vec<String> {
    match event {
        Event::Asks { command, .. } | Event::Sends { command, .. } => in_short(*command),
        Event::Arrives { command, .. } => {
            let mut lines = in_short(*command);
            if let Some(last) = lines.last_mut() {
                last.push_str(" arrives");
            }
            lines
        }
        _ => Vec::new(),
    }
}

/// What stands below the arrow of a reply.
pub(super) fn reply_label(event: &Event) -> Vec<String> {
    match event {
        Event::Asks { reply, lost, .. } | Event::Arrives { reply, lost, .. } => {
            let late = matches!(event, Event::Arrives { .. });
            let lost = match (*lost, late) {
                (false, _) => "",
                (true, false) => ", lost",
                (true, true) => ", unheard",
            };
            vec![shown(*reply).join("  ") + lost]
        }
        _ => Vec::new(),
    }
}

/// What is said beside the lane of a client.
pub(super) fn remark(step: &Step) -> String {
    let own = match &step.line.event {
        Event::Does { what, .. } => what,
        Event::Crashes { .. } => "crashes",
        Event::Tick | Event::Restarts { .. } | Event::ClockJumps { .. } => {
            let stopped: Vec<_> = step.stopped().map(client).collect();
            return if stopped.is_empty() {
                String::new()
            } else {
                "time is up".into()
            };
        }
        _ => "",
    };
    let parts = [own, step.line.note.as_str()];
    let parts = parts.into_iter().filter(|part| columns(part) > 0);
    parts.collect::<Vec<_>>().join(": ")
}

/// An event in words, without who.
pub(super) fn event_in_words(event: &Event) -> String {
    let asked = label(event).join(" ");
    let answered = reply_label(event).join(" ");
    match event {
        Event::Tick => "time passes".into(),
        Event::Sends { .. } => format!("sends {asked}"),
        Event::Asks { .. } | Event::Arrives { .. } => format!("{asked}, answered {answered}"),
        Event::Does { what, .. } => (*what).to_owned(),
        Event::Crashes { .. } => "crashes".into(),
        Event::Restarts { server } => format!("server {} restarts without its data", server + 1),
        Event::ClockJumps { server, by } => {
            format!("the clock of server {} jumps {by} s ahead", server + 1)
        }
    }
}
