//! What is written beside an event: its command, its reply, what its client says. Must never say more than the story does.

use super::super::steps::Step;
use crate::ladder::trace::Event;
use crate::ladder::words::{client, in_short, shown};
use crate::text::{columns, wrap};

/// At which a remark is broken, in characters.
const REMARK: usize = 24;

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
fn remark(step: &Step) -> String {
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

/// The lines of what is said beside a client's lane.
pub(super) fn remark_lines(step: &Step) -> Vec<String> {
    let text = remark(step);
    if text.is_empty() {
        Vec::new()
    } else {
        wrap(&text, REMARK)
    }
}
