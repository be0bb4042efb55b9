//! The steps of a picture: arrows, labels, and remarks beside the lanes. Only messages that arrived get a whole arrow.

use crate::ladder::trace::LadderEvent;
use crate::ladder::words::{REJOINS, RESTARTS};
use crate::svg::Svg;

use super::super::steps::{StoryStep, actor};
use super::labels::{label, remark_lines, reply_label};
use super::lanes::{BESIDE, HALF, LaneOwner, Lanes, target};
use super::rows::{LINE, Row, Rows};
use super::style::{CODE, FAINT, INK, MONO, RULE, SENTENCE, WRONG, colour, length, wide};

/// Draws one step.
pub(super) fn draw(svg: &mut Svg, steps: &[StoryStep], at: usize, lanes: &Lanes, rows: &Rows) {
    let (step, row) = (&steps[at], rows.at(at));
    match &step.line.event {
        LadderEvent::Tick => time(svg, step, row, lanes),
        LadderEvent::Restarts { server, .. } => {
            badge(svg, lanes.x(LaneOwner::Lock(*server)), row, RESTARTS);
        }
        LadderEvent::Rejoins { server, .. } => {
            badge(svg, lanes.x(LaneOwner::Lock(*server)), row, REJOINS);
        }
        LadderEvent::ClockJumps { server, by } => {
            badge(
                svg,
                lanes.x(LaneOwner::Lock(*server)),
                row,
                &format!("clock + {by} s"),
            );
        }
        event => {
            if let (Some(client), Some(to)) = (actor(event), target(event)) {
                MessageArrow {
                    event,
                    row,
                    client,
                    from: lanes.x(LaneOwner::Client(client)),
                    to: lanes.x(to),
                    is_left: lanes.is_left(client),
                }
                .draw(svg, steps, at, rows);
            }
            own(svg, step, row, lanes);
        }
    }
}

/// A command, its reply, or both, as far as this step has them.
struct MessageArrow<'a> {
    event: &'a LadderEvent,
    row: Row,
    client: u8,
    /// The client's lane.
    from: f64,
    /// The server's.
    to: f64,
    is_left: bool,
}

impl MessageArrow<'_> {
    fn draw(&self, svg: &mut Svg, steps: &[StoryStep], at: usize, rows: &Rows) {
        let Row {
            asked, answered, ..
        } = self.row;
        let side = if self.is_left { 1.0 } else { -1.0 };
        let edge = self.to - side * HALF;
        let wait = edge - side * 12.0;
        let start = self.from + side * 7.0;
        let lines = label(self.event);
        let above = |nth: usize, count: usize| asked - 5.0 - length(count - 1 - nth) * LINE;
        for (nth, line) in lines.iter().enumerate() {
            self.label(svg, above(nth, lines.len()), line);
        }
        match self.event {
            LadderEvent::Asks { .. } => self.arrow(svg, (start, edge), asked, ""),
            LadderEvent::Sends { .. } => {
                self.plain(svg, (start, asked), (wait, asked));
                self.dot(svg, (wait, asked));
                let arrival = steps[at + 1..].iter().position(|later| {
                    matches!(later.line.event, LadderEvent::Arrives { client, .. } if client == self.client)
                });
                let until = arrival.map_or(rows.bottom(), |after| rows.at(at + 1 + after).asked);
                let style = format!(
                    r#"stroke="{}" stroke-width="1.6" stroke-dasharray="1.5 4" stroke-linecap="round""#,
                    colour(self.client)
                );
                svg.styled_line((wait, asked), (wait, until), &style);
            }
            _ => self.arrow(svg, (wait, edge), asked, ""),
        }
        for line in reply_label(self.event) {
            self.label(svg, answered + LINE - 1.0, &line);
            let dashes = r#"stroke-dasharray="5 3""#;
            if self.is_lost() {
                let middle = f64::midpoint(self.from, edge);
                self.plain(svg, (edge, answered), (middle, answered));
                cross(svg, (middle, answered), 4.5);
            } else {
                self.arrow(svg, (edge, start), answered, dashes);
            }
        }
    }

    fn is_lost(&self) -> bool {
        matches!(
            self.event,
            LadderEvent::Asks { lost: true, .. } | LadderEvent::Arrives { lost: true, .. }
        )
    }

    /// A text on the servers' side of the client's lane.
    fn label(&self, svg: &mut Svg, y: f64, text: &str) {
        let (side, anchor) = if self.is_left {
            (1.0, "start")
        } else {
            (-1.0, "end")
        };
        let style = format!(
            r#"text-anchor="{anchor}" font-family="{MONO}" font-size="{CODE}" fill="{INK}""#
        );
        svg.text((self.from + side * BESIDE, y), &style, text);
    }

    fn plain(&self, svg: &mut Svg, from: (f64, f64), to: (f64, f64)) {
        svg.styled_line(
            from,
            to,
            &format!(r#"stroke="{}" stroke-width="1.6""#, colour(self.client)),
        );
    }

    fn dot(&self, svg: &mut Svg, (x, y): (f64, f64)) {
        svg.add(&format!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{}"/>"#,
            colour(self.client)
        ));
    }

    fn arrow(&self, svg: &mut Svg, (from, to): (f64, f64), y: f64, style: &str) {
        let side = if to > from { 1.0 } else { -1.0 };
        let colour = colour(self.client);
        let line = format!(r#"stroke="{colour}" stroke-width="1.6" {style}"#);
        svg.styled_line((from, y), (to - side * 5.0, y), line.trim_end());
        let back = to - side * 8.0;
        svg.add(&format!(
            r#"<path d="M {to:.1} {y:.1} L {back:.1} {:.1} L {back:.1} {:.1} Z" fill="{colour}"/>"#,
            y - 3.6,
            y + 3.6
        ));
    }
}

/// A client's action or conclusion, beside its lane.
fn own(svg: &mut Svg, step: &StoryStep, row: Row, lanes: &Lanes) {
    let event = &step.line.event;
    let Some(client) = actor(event) else { return };
    let x = lanes.x(LaneOwner::Client(client));
    match event {
        LadderEvent::Crashes { .. } => cross(svg, (x, row.asked), 8.0),
        LadderEvent::Does { .. } => svg.add(&format!(
            r#"<circle cx="{x:.1}" cy="{:.1}" r="4" fill="white" stroke="{}" stroke-width="1.8"/>"#,
            row.asked,
            colour(client)
        )),
        _ => {}
    }
    beside(svg, step, client, row, lanes);
}

fn beside(svg: &mut Svg, step: &StoryStep, client: u8, row: Row, lanes: &Lanes) {
    let side = if lanes.is_left(client) { -1.0 } else { 1.0 };
    let anchor = if side < 0.0 { "end" } else { "start" };
    let style = format!(
        r#"text-anchor="{anchor}" font-size="{SENTENCE}" font-weight="600" fill="{}""#,
        colour(client)
    );
    let remarks = remark_lines(step);
    let middle = f64::midpoint(row.asked, row.answered);
    let first = middle + 4.0 - length(remarks.len().saturating_sub(1)) * LINE / 2.0;
    for (nth, text) in remarks.iter().enumerate() {
        let y = first + length(nth) * LINE;
        svg.text(
            (lanes.x(LaneOwner::Client(client)) + side * BESIDE, y),
            &style,
            text,
        );
    }
}

/// Passing time: a rule from side to side, and the locks that expire.
fn time(svg: &mut Svg, step: &StoryStep, row: Row, lanes: &Lanes) {
    let y = row.asked;
    let (_, last) = lanes.ends();
    svg.styled_line(
        (66.0, y),
        (last, y),
        &format!(r#"stroke="{RULE}" stroke-dasharray="3 3""#),
    );
    for (who, x) in &lanes.all {
        match who {
            LaneOwner::Lock(server) if step.expired().any(|of| of == usize::from(*server)) => {
                let style = format!(r#"font-size="10" font-style="italic" fill="{FAINT}""#);
                svg.text((x + HALF + 4.0, y - 3.0), &style, "expires");
                cross(svg, (*x, y), 4.0);
            }
            LaneOwner::Client(client) if step.stopped().any(|of| of == *client) => {
                beside(svg, step, *client, row, lanes);
            }
            _ => {}
        }
    }
}

/// An event of a server, on its lane.
fn badge(svg: &mut Svg, x: f64, row: Row, text: &str) {
    let half = wide(text, 10.5) / 2.0 + 6.0;
    let y = row.asked;
    let style = format!(r#"rx="9" fill="white" stroke="{WRONG}" stroke-width="1.5""#);
    svg.rect((x - half, y - 10.0), (2.0 * half, 19.0), &style);
    let style =
        format!(r#"text-anchor="middle" font-size="10.5" font-weight="600" fill="{WRONG}""#);
    svg.text((x, y + 3.5), &style, text);
}

/// A mark for the end of a lock.
pub(super) fn cross(svg: &mut Svg, (x, y): (f64, f64), r: f64) {
    svg.add(&format!(
        r#"<path d="M {:.1} {:.1} L {:.1} {:.1} M {:.1} {:.1} L {:.1} {:.1}" stroke="{WRONG}" stroke-width="2.2" stroke-linecap="round"/>"#,
        x - r, y - r, x + r, y + r, x - r, y + r, x + r, y - r
    ));
}
