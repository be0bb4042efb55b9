//! A story as a picture: a lane for each client and each server, time downwards. Must never let two labels meet, or show
//! anything by colour alone.

mod bars;
mod frame;
mod lanes;
mod messages;
mod rows;

use crate::svg::Svg;

use super::steps::{Step, actor, steps};
use super::{Outcome, Told};
use crate::ladder::words::client;

use frame::Frame;
use lanes::Lanes;
use rows::Rows;

/// Of a character of the fonts used, per unit of its size: monospace has it exactly, in sentences it is an upper estimate.
const EM: f64 = 0.6;
const CODE: f64 = 11.5;
const SENTENCE: f64 = 11.5;
const MONO: &str = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const INK: &str = "#1f2430";
const FAINT: &str = "#6b7280";
const RULE: &str = "#d4d8e0";
const WRONG: &str = "#c0182f";

/// The picture of a rung that goes wrong; `None` for one that does not within its bounds: there is no story.
pub fn svg(told: &Told) -> Option<String> {
    let Outcome::Broken(trace) = told.outcome else {
        return None;
    };
    let steps = steps(trace);
    let lanes = Lanes::of(trace, &steps);
    let frame = Frame::of(told, &steps, &lanes);
    let rows = Rows::of(&steps, frame.top());
    let title = format!("{}: how {} goes wrong", told.step, told.name);
    let size = (lanes.width(), frame.height(&rows));
    let mut svg = Svg::on_white(size, &title, &in_words(&steps));
    frame.behind(&mut svg, &rows);
    bars::draw(&mut svg, &steps, &lanes, &rows);
    for at in 0..steps.len() {
        messages::draw(&mut svg, &steps, at, &lanes, &rows);
    }
    frame.draw(&mut svg, &rows);
    Some(svg.end())
}

/// The same for who cannot see it.
fn in_words(steps: &[Step]) -> String {
    let sentences = steps.iter().map(|step| {
        let who = actor(&step.line.event).map(client).unwrap_or_default();
        let mut words = vec![who, rows::event_in_words(&step.line.event)];
        words.extend(step.remarks().iter().map(|remark| format!("({remark})")));
        words.extend(
            step.line
                .wrong
                .iter()
                .map(|why| format!("Here it goes wrong: {why}")),
        );
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        format!("{}. {}", step.number(), words.join(" "))
    });
    sentences.collect::<Vec<_>>().join("; ")
}

/// How wide a text is, at most.
fn wide(text: &str, size: f64) -> f64 {
    length(crate::text::columns(text)) * EM * size
}

fn length(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// The colour of a client: told apart by people who see few colours, and never the only sign.
fn colour(client: u8) -> &'static str {
    ["#0b65b0", "#8a3fa0", "#00755e", "#8a5a00"][usize::from(client) % 4]
}
