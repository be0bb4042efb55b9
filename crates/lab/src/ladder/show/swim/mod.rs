//! A trace as a picture: a lane for each client and each server, time downwards. Labels do not overlap, and colour is never the
//! only sign.

mod bars;
mod frame;
mod labels;
mod lanes;
mod messages;
mod rows;
mod style;

use self::frame::Frame;
use self::labels::event_in_words;
use self::lanes::Lanes;
use self::rows::Rows;
use super::steps::{StoryStep, actor, steps};
use super::summary::{ModelOutcome, RungSummary};
use crate::ladder::words::client;
use crate::svg::Svg;

/// The picture of a rung with a violation; `None` without one, since there is no trace.
pub fn svg(summary: &RungSummary) -> Option<String> {
    let ModelOutcome::Broken(trace) = summary.outcome else {
        return None;
    };
    let steps = steps(trace);
    let lanes = Lanes::of(trace, &steps);
    let frame = Frame::of(summary, &steps, &lanes);
    let rows = Rows::of(&steps, frame.top());
    let title = format!("{}: how {} goes wrong", summary.step, summary.name);
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

/// A description in words, for screen readers.
fn in_words(steps: &[StoryStep]) -> String {
    let sentences = steps.iter().map(|step| {
        let who = actor(&step.line.event).map(client).unwrap_or_default();
        let mut words = vec![who, event_in_words(&step.line.event)];
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
