//! The labels of an event: its command, its reply, its client's remark.

use super::super::steps::StoryStep;
use crate::ladder::trace::LadderEvent;
use crate::ladder::words::{REJOINS, client, in_short, shown};
use crate::text::{columns, wrap};

/// The width at which a remark is wrapped, in characters.
const REMARK: usize = 24;

/// The label above the arrow of a command.
pub(super) fn label(event: &LadderEvent) -> Vec<String> {
    match event {
        LadderEvent::Asks { command, .. } | LadderEvent::Sends { command, .. } => {
            in_short(*command)
        }
        LadderEvent::Arrives { command, .. } => {
            let mut lines = in_short(*command);
            if let Some(last) = lines.last_mut() {
                last.push_str(" arrives");
            }
            lines
        }
        _ => Vec::new(),
    }
}

/// The label below the arrow of a reply.
pub(super) fn reply_label(event: &LadderEvent) -> Vec<String> {
    match event {
        LadderEvent::Asks { reply, lost, .. } | LadderEvent::Arrives { reply, lost, .. } => {
            let late = matches!(event, LadderEvent::Arrives { .. });
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

/// The remark beside the lane of a client.
fn remark(step: &StoryStep) -> String {
    let own = match &step.line.event {
        LadderEvent::Does { what, .. } => what,
        LadderEvent::Crashes { .. } => "crashes",
        LadderEvent::Tick
        | LadderEvent::Restarts { .. }
        | LadderEvent::Rejoins { .. }
        | LadderEvent::ClockJumps { .. } => {
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

/// An event in words, without its client.
pub(super) fn event_in_words(event: &LadderEvent) -> String {
    let asked = label(event).join(" ");
    let answered = reply_label(event).join(" ");
    match event {
        LadderEvent::Tick => "time passes".into(),
        LadderEvent::Sends { .. } => format!("sends {asked}"),
        LadderEvent::Asks { .. } | LadderEvent::Arrives { .. } => {
            format!("{asked}, answered {answered}")
        }
        LadderEvent::Does { what, .. } => (*what).to_owned(),
        LadderEvent::Crashes { .. } => "crashes".into(),
        LadderEvent::Restarts { server, .. } => {
            format!("server {} restarts without its data", server + 1)
        }
        LadderEvent::Rejoins { server, .. } => {
            format!("server {} {REJOINS}", server + 1)
        }
        LadderEvent::ClockJumps { server, by } => {
            format!("the clock of server {} jumps {by} s ahead", server + 1)
        }
    }
}

/// The lines of the remark beside a client's lane.
pub(super) fn remark_lines(step: &StoryStep) -> Vec<String> {
    let text = remark(step);
    if text.is_empty() {
        Vec::new()
    } else {
        wrap(&text, REMARK)
    }
}
