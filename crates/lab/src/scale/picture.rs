//! Figures as a picture: three charts side by side, over the number of clients, both axes logarithmic. Only measured points are
//! drawn.

use std::fmt::Write as _;

use crate::svg::Svg;

use super::figures::{Figures, float};
use super::settings::WaitMethod;

const WIDTH: f64 = 1_080.0;
const HEIGHT: f64 = 430.0;
/// The plot area in each of the three charts.
const PLOT: (f64, f64) = (262.0, 220.0);
const LEFT: [f64; 3] = [76.0, 433.0, 790.0];
const TOP: f64 = 132.0;
/// Distinct for colour-blind readers and in print; the shapes of the points differ as well.
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#7a7a7a"];

/// One of the three charts.
struct Panel {
    title: &'static str,
    under: &'static str,
    value: fn(&Figures) -> Option<f64>,
    label: fn(i32) -> String,
    /// Decades that are always shown.
    decades: (i32, i32),
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "The lock stands idle",
        under: "release at the store \u{2192} next holder knows, p99",
        value: |of| Some(of.gap_p99_ms * 1e3),
        label: micros,
        decades: (1, 7),
    },
    Panel {
        title: "Work for the server",
        under: "commands per hand-over",
        value: |of| Some(of.commands),
        label: plain,
        decades: (0, 6),
    },
    Panel {
        title: "Unfairness",
        under: "longest wait / mean wait; 1 is a perfect line",
        value: |of| of.fairness.as_ref().map(|fairness| fairness.max_over_mean),
        label: plain,
        decades: (0, 2),
    },
];

/// The picture as SVG, on a white background.
pub fn picture(figures: &[Figures]) -> String {
    let mut svg = Svg::on_white(
        (WIDTH, HEIGHT),
        "Hand-over gap, commands and fairness over the number of clients that want one lock",
        "Three ways to wait side by side, from 10 clients on; docs/how-we-know/scale.md has the figures.",
    );
    svg.text(
        (24.0, 34.0),
        r##"font-size="18" font-weight="600" fill="#1a1a1a""##,
        "One lock, and ever more clients that want it",
    );
    legend(&mut svg);
    for (panel, left) in PANELS.iter().zip(LEFT) {
        panel.draw(&mut svg, left, figures);
    }
    svg.text(
        (24.0, HEIGHT - 14.0),
        r##"font-size="11.5" fill="#5a5a5a""##,
        "Simulated; docs/how-we-know/scale.md says what is assumed. Hollow: the server is busy all the time. Unfairness ends where ten turns for each client were too many to simulate.",
    );
    svg.end()
}

fn legend(svg: &mut Svg) {
    const TEXTS: [&str; 3] = [
        "Leasehold: a line; a release tells the next",
        "poller: SET NX every 50 ms",
        "broadcast: a release wakes all",
    ];
    for ((at, text), x) in TEXTS.iter().enumerate().zip([24.0, 350.0, 590.0]) {
        let y = 62.0;
        let colour = COLOURS[at];
        svg.add(&format!(
            r#"<line x1="{x}" y1="{y}" x2="{}" y2="{y}" stroke="{colour}" stroke-width="2.2"/>"#,
            x + 28.0
        ));
        mark(svg, at, (x + 14.0, y), false);
        svg.text(
            (x + 36.0, y + 4.5),
            r##"font-size="13" fill="#1a1a1a""##,
            text,
        );
    }
}

impl Panel {
    fn draw(&self, svg: &mut Svg, left: f64, figures: &[Figures]) {
        let (wide, high) = PLOT;
        let bottom = TOP + high;
        svg.text(
            (left, TOP - 30.0),
            r##"font-size="14" font-weight="600" fill="#1a1a1a""##,
            self.title,
        );
        svg.text(
            (left, TOP - 13.0),
            r##"font-size="11" fill="#5a5a5a""##,
            self.under,
        );
        let most = figures.iter().map(|of| of.clients).max().unwrap_or(1);
        let across = Axis::over(
            (1, 6),
            std::iter::once(f64::from(most)),
            (left, left + wide),
        );
        let values = figures.iter().filter_map(self.value);
        let up = Axis::over(self.decades, values, (bottom, TOP));
        for decade in across.decades() {
            let x = across.at_decade(decade);
            svg.line((x, TOP), (x, bottom), "#ececec");
            let attributes = r##"font-size="11" fill="#444" text-anchor="middle""##;
            svg.text((x, bottom + 16.0), attributes, &plain(decade));
        }
        for decade in up.decades() {
            let y = up.at_decade(decade);
            svg.line((left, y), (left + wide, y), "#e2e2e2");
            let attributes = r##"font-size="11" fill="#444" text-anchor="end""##;
            svg.text((left - 7.0, y + 4.0), attributes, &(self.label)(decade));
        }
        svg.line((left, bottom), (left + wide, bottom), "#8a8a8a");
        svg.line((left, TOP), (left, bottom), "#8a8a8a");
        let attributes = r##"font-size="12" fill="#444" text-anchor="middle""##;
        svg.text((left + wide / 2.0, bottom + 35.0), attributes, "clients");
        // Leasehold last, on top of the others.
        for (at, way) in WaitMethod::ALL.iter().enumerate().rev() {
            let points: Vec<_> = figures
                .iter()
                .filter(|of| of.way == way.name())
                .filter_map(|of| {
                    let x = across.at(f64::from(of.clients));
                    let y = up.at((self.value)(of)?);
                    Some(((x, y), of.server > 0.99))
                })
                .collect();
            curve(svg, at, &points);
        }
    }
}

/// A logarithmic axis between two coordinates.
struct Axis {
    from: i32,
    to: i32,
    ends: (f64, f64),
}

impl Axis {
    /// An axis with room for these decades and all values.
    fn over(decades: (i32, i32), values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Self {
        let (mut from, mut to) = decades;
        for value in values {
            while ten(to) < value {
                to += 1;
            }
            while value > 0.0 && ten(from) > value {
                from -= 1;
            }
        }
        Self { from, to, ends }
    }

    fn decades(&self) -> impl Iterator<Item = i32> {
        self.from..=self.to
    }

    fn at_decade(&self, decade: i32) -> f64 {
        self.at(ten(decade))
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        self.ends.0 + part * (self.ends.1 - self.ends.0)
    }
}

fn ten(decade: i32) -> f64 {
    10f64.powi(decade)
}

/// 1, 10, 100, 1k, ... as on all axes of counts.
fn plain(decade: i32) -> String {
    unit(decade, &["", "k", "M", "G"])
}

/// A duration in microseconds as an axis label.
fn micros(decade: i32) -> String {
    unit(decade, &[" \u{b5}s", " ms", " s", " ks"])
}

fn unit(decade: i32, units: &[&str]) -> String {
    let index = usize::try_from(decade.div_euclid(3)).unwrap_or_default();
    let zeros = usize::try_from(decade.rem_euclid(3)).unwrap_or_default();
    let unit = units.get(index).copied().unwrap_or("?");
    format!("1{}{unit}", "0".repeat(zeros))
}

/// Points and the line through them; hollow where the flag is set.
fn curve(svg: &mut Svg, way: usize, points: &[((f64, f64), bool)]) {
    let mut path = String::new();
    for ((x, y), _) in points {
        // Writing to a String cannot fail.
        let _infallible = write!(path, "{x:.1},{y:.1} ");
    }
    svg.add(&format!(
        r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="2.2" stroke-linejoin="round"/>"#,
        path.trim_end(),
        COLOURS[way]
    ));
    for (at, hollow) in points {
        mark(svg, way, *at, *hollow);
    }
}

/// A point: a circle, a square or a triangle.
fn mark(svg: &mut Svg, way: usize, (x, y): (f64, f64), hollow: bool) {
    let colour = COLOURS[way];
    let fill = if hollow { "white" } else { colour };
    let style = format!(r#"fill="{fill}" stroke="{colour}" stroke-width="1.8""#);
    let r = 4.0 + float(way as u64) * 0.2;
    svg.add(&match way {
        0 => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{r}" {style}/>"#),
        1 => format!(
            r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" {style}/>"#,
            x - r,
            y - r,
            2.0 * r,
            2.0 * r
        ),
        _ => format!(
            r#"<path d="M {:.1} {:.1} L {:.1} {:.1} L {x:.1} {:.1} Z" {style}/>"#,
            x - r - 1.0,
            y + r,
            x + r + 1.0,
            y + r,
            y - r - 1.5
        ),
    });
}
