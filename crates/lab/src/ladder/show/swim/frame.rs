//! The frame of a picture: title, heads of the lanes, step numbers and times, the violation, and a legend of the signs in use.

use crate::ladder::trace::LadderEvent;
use crate::svg::Svg;
use crate::text::{counted, wrap};

use super::super::steps::StoryStep;
use super::super::summary::RungSummary;
use super::lanes::{HALF, LaneOwner, Lanes};
use super::messages::cross;
use super::rows::{Row, Rows};
use super::style::{EM, FAINT, INK, MONO, RULE, WRONG, colour, length, wide};
use crate::ladder::words::{client, server};

const LEFT: f64 = 24.0;
const RECIPE: f64 = 12.5;
const WHY: f64 = 13.0;
const LEGEND: f64 = 11.0;

/// Everything but the trace.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    summary: &'a RungSummary<'a>,
    steps: &'a [StoryStep<'a>],
    lanes: &'a Lanes,
    recipe: Vec<String>,
    /// A paragraph for each violating step.
    wrong: Vec<Vec<String>>,
}

impl<'a> Frame<'a> {
    pub(super) fn of(
        summary: &'a RungSummary<'a>,
        steps: &'a [StoryStep<'a>],
        lanes: &'a Lanes,
    ) -> Self {
        let room = lanes.width() - 2.0 * LEFT;
        let recipe = wrap(summary.recipe, fitting(room, RECIPE));
        let wrong = steps.iter().filter_map(|step| {
            let why = step.line.wrong.as_ref()?;
            Some(wrap(
                &format!("Step {}: {why}", step.number()),
                fitting(room - 24.0, WHY),
            ))
        });
        Self {
            summary,
            steps,
            lanes,
            recipe,
            wrong: wrong.collect(),
        }
    }

    /// The top of the trace.
    pub(super) fn top(&self) -> f64 {
        self.heads() + 36.0
    }

    /// The top of the heads of the lanes.
    fn heads(&self) -> f64 {
        56.0 + length(self.recipe.len()) * 17.0
    }

    /// The bottom of the violation's text.
    fn summary(&self, rows: &Rows) -> f64 {
        let paragraphs = self
            .wrong
            .iter()
            .map(|lines| length(lines.len()) * 18.0 + 26.0);
        rows.bottom() + 8.0 + paragraphs.sum::<f64>()
    }

    pub(super) fn height(&self, rows: &Rows) -> f64 {
        let legend = self.legend(self.summary(rows) + 22.0);
        legend.last().map_or(0.0, |(.., (_, y))| *y) + 40.0
    }

    /// Draws the background of the lanes.
    pub(super) fn behind(&self, svg: &mut Svg, rows: &Rows) {
        for (step, row) in self.steps.iter().zip(rows.all()) {
            if step.line.wrong.is_some() {
                let high = row.bottom - row.top;
                svg.rect(
                    (0.0, row.top),
                    (self.lanes.width(), high),
                    r##"fill="#fdeaec""##,
                );
                svg.rect((0.0, row.top), (6.0, high), &format!(r#"fill="{WRONG}""#));
            }
        }
    }

    /// Draws the parts above, beside and below the lanes.
    pub(super) fn draw(&self, svg: &mut Svg, rows: &Rows) {
        let steps = self.steps.last().map_or(0, |step| step.last);
        let wrong = counted(steps, "step");
        let title = format!(
            "{}  {} goes wrong in {wrong}",
            self.summary.step, self.summary.name
        );
        svg.text(
            (LEFT, 36.0),
            &format!(r#"font-size="18" font-weight="700" fill="{INK}""#),
            &title,
        );
        let code = format!(r#"font-family="{MONO}" font-size="{RECIPE}" fill="{FAINT}""#);
        for (nth, line) in self.recipe.iter().enumerate() {
            svg.text((LEFT, 58.0 + length(nth) * 17.0), &code, line);
        }
        for (who, x) in &self.lanes.all {
            self.head(svg, *who, *x);
        }
        for (at, (step, row)) in self.steps.iter().zip(rows.all()).enumerate() {
            margin(svg, step, *row, at == 0);
        }
        self.wrong(svg, rows.bottom() + 14.0);
        for (sign, text, at) in self.legend(self.summary(rows) + 22.0) {
            sign.draw(svg, at);
            svg.text(
                (at.0 + SIGN, at.1 + 4.0),
                &format!(r#"font-size="{LEGEND}" fill="{FAINT}""#),
                text,
            );
        }
        let table = format!(
            "The same as a table: leasehold lab show {}",
            self.summary.name
        );
        let y = self.height(rows) - 16.0;
        svg.text(
            (LEFT, y),
            &format!(r#"font-size="{LEGEND}" fill="{FAINT}""#),
            &table,
        );
    }

    fn head(&self, svg: &mut Svg, who: LaneOwner, x: f64) {
        let several = self
            .lanes
            .all
            .iter()
            .filter(|(of, _)| matches!(of, LaneOwner::Lock(_)))
            .count()
            > 1;
        let (text, colour) = match who {
            LaneOwner::Client(of) => {
                let ahead = self.summary.ahead_of(of.into());
                let ahead = ahead.map_or_else(String::new, |ahead| format!(", clock {ahead:+} s"));
                (format!("client {}{ahead}", client(of)), colour(of))
            }
            LaneOwner::Lock(of) if several => (server(of), INK),
            LaneOwner::Lock(_) => ("lock".into(), INK),
            LaneOwner::Resource(_) => ("data".into(), INK),
        };
        let half = (wide(&text, 12.5) / 2.0 + 8.0).max(HALF);
        let rx = if matches!(who, LaneOwner::Client(_)) {
            11
        } else {
            3
        };
        svg.rect(
            (x - half, self.heads()),
            (2.0 * half, 24.0),
            &format!(r#"rx="{rx}" fill="{colour}""#),
        );
        let style = r#"text-anchor="middle" font-size="12.5" font-weight="600" fill="white""#;
        svg.text((x, self.heads() + 16.5), style, &text);
    }

    fn wrong(&self, svg: &mut Svg, top: f64) {
        let mut y = top;
        for lines in &self.wrong {
            let high = length(lines.len()) * 18.0 + 14.0;
            let style = format!(r#"rx="5" fill="white" stroke="{WRONG}" stroke-width="1.5""#);
            svg.rect((LEFT, y), (self.lanes.width() - 2.0 * LEFT, high), &style);
            let style = format!(r#"font-size="{WHY}" font-weight="600" fill="{WRONG}""#);
            for (nth, line) in lines.iter().enumerate() {
                svg.text((LEFT + 12.0, y + 20.0 + length(nth) * 18.0), &style, line);
            }
            y += high + 12.0;
        }
    }

    /// The signs in the picture, their meanings, and their places in the legend.
    fn legend(&self, top: f64) -> Vec<(Sign, &'static str, (f64, f64))> {
        let any = |is: fn(&StoryStep) -> bool| self.steps.iter().any(is);
        let signs = [
            (
                Sign::Bar,
                "believes to hold the lock",
                any(|step| !step.line.holders.is_empty()),
            ),
            (
                Sign::Box,
                "stands in the key; in the colour of who wrote it",
                any(|step| step.line.keys.iter().any(|keys| !keys.is_empty())),
            ),
            (
                Sign::Way,
                "a command on its way",
                any(|step| matches!(step.line.event, LadderEvent::Sends { .. })),
            ),
            (Sign::Cross, "crash, expiry, or lost reply", any(is_crossed)),
        ];
        let (mut x, mut y) = (LEFT, top);
        let mut placed = Vec::new();
        for (sign, text, _) in signs.into_iter().filter(|(.., is_there)| *is_there) {
            let wide = SIGN + wide(text, LEGEND);
            if x > LEFT && x + wide > self.lanes.width() - LEFT {
                (x, y) = (LEFT, y + 20.0);
            }
            placed.push((sign, text, (x, y)));
            x += wide + 18.0;
        }
        placed
    }
}

/// The width of a sign in the legend.
const SIGN: f64 = 26.0;

#[derive(Debug, Clone, Copy)]
enum Sign {
    Bar,
    Box,
    Way,
    Cross,
}

impl Sign {
    fn draw(self, svg: &mut Svg, (x, y): (f64, f64)) {
        match self {
            Self::Bar => svg.rect(
                (x + 4.0, y - 7.0),
                (10.0, 14.0),
                &format!(r#"rx="3" fill="{FAINT}""#),
            ),
            Self::Box => {
                let style = format!(
                    r#"rx="3" fill="{RULE}" fill-opacity="0.5" stroke="{FAINT}" stroke-width="1.5""#
                );
                svg.rect((x, y - 6.0), (20.0, 12.0), &style);
            }
            Self::Way => {
                let style = format!(
                    r#"stroke="{FAINT}" stroke-width="1.6" stroke-dasharray="1.5 4" stroke-linecap="round""#
                );
                svg.styled_line((x, y), (x + 20.0, y), &style);
            }
            Self::Cross => cross(svg, (x + 10.0, y), 4.5),
        }
    }
}

fn is_crossed(step: &StoryStep) -> bool {
    let lost = matches!(
        step.line.event,
        LadderEvent::Crashes { .. }
            | LadderEvent::Asks { lost: true, .. }
            | LadderEvent::Arrives { lost: true, .. }
    );
    lost || (step.line.event == LadderEvent::Tick && step.expired().next().is_some())
}

/// The number of a step, and the time once it has passed.
fn margin(svg: &mut Svg, step: &StoryStep, row: Row, is_first: bool) {
    let y = row.asked + 3.5;
    let style = format!(r#"font-size="10" fill="{FAINT}""#);
    svg.text((16.0, y), &style, &step.number());
    if is_first || step.line.event == LadderEvent::Tick {
        let style = format!(r#"text-anchor="end" font-size="11.5" font-weight="600" fill="{INK}""#);
        svg.text((82.0, y), &style, &format!("{} s", step.line.time));
    }
}

/// How many characters of a size fit.
fn fitting(room: f64, size: f64) -> usize {
    let mut count = 1;
    while length(count + 1) * EM * size <= room {
        count += 1;
    }
    count
}
