//! The vertical places of the steps, with enough room for their labels.

use super::super::steps::StoryStep;
use super::labels::{label, remark_lines, reply_label};
use super::style::length;
use crate::ladder::trace::LadderEvent;

/// The height of a line of text.
pub(super) const LINE: f64 = 14.0;
const PAD: f64 = 7.0;
/// The distance between a command's arrow and its reply's.
const APART: f64 = 8.0;

/// The place of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// The place of its command, or of another event.
    pub(super) asked: f64,
    /// The place of the reply's arrival.
    pub(super) answered: f64,
}

/// The places of all steps.
#[derive(Debug)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    pub(super) fn of(steps: &[StoryStep], top: f64) -> Self {
        let mut y = top;
        let rows = steps.iter().map(|step| {
            let row = Row::of(step, y);
            y = row.bottom;
            row
        });
        let mut rows: Vec<Row> = rows.collect();
        if let Some(last) = rows.last_mut() {
            // A bar that begins with the last step needs some length to be visible.
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
    fn of(step: &StoryStep, top: f64) -> Self {
        let event = &step.line.event;
        let remarks = length(remark_lines(step).len()) * LINE;
        let above = length(label(event).len()) * LINE;
        let replies = reply_label(event).len();
        let asked = match event {
            LadderEvent::Tick => top + PAD + (remarks / 2.0).max(8.0),
            LadderEvent::Asks { .. } | LadderEvent::Sends { .. } | LadderEvent::Arrives { .. } => {
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
