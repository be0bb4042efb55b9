//! Figures as text, rounded; `--json` has the exact numbers.

use serde::Serialize;

use super::figures::Figures;
use crate::text::{json_line, markdown};

/// A table in Markdown, which is also readable in a terminal.
pub fn table(figures: &[Figures]) -> String {
    const HEAD: [&str; 14] = [
        "way",
        "clients",
        "hand-overs",
        "gap p50",
        "gap p99",
        "gap max",
        "commands",
        "server",
        "lock",
        "again",
        "jumped",
        "lapsed",
        "max/mean",
        "Jain, starved",
    ];
    let head = HEAD.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head)
        .chain(figures.iter().map(|of| row(of).to_vec()))
        .collect();
    markdown(&rows)
}

fn row(of: &Figures) -> [String; 14] {
    let fairness = of.fairness.as_ref();
    [
        of.way.to_owned(),
        of.clients.to_string(),
        of.hand_overs.to_string(),
        time(of.gap_p50_ms),
        time(of.gap_p99_ms),
        time(of.gap_max_ms),
        number(of.commands),
        percent(of.server),
        percent(of.lock),
        percent(of.again),
        percent(of.jumped),
        of.lapsed.to_string(),
        fairness.map_or("-".into(), |fairness| number(fairness.max_over_mean)),
        fairness.map_or("-".into(), |fairness| {
            format!("{:.2}, {}", fairness.jain, fairness.starved)
        }),
    ]
}

/// The figures for programs: `leasehold.lab-scale/1`, one document on one line.
pub fn json(figures: &[Figures]) -> String {
    #[derive(Serialize)]
    struct Experiments<'a> {
        figures: &'a [Figures],
    }
    json_line("leasehold.lab-scale/1", &Experiments { figures })
}

/// Three significant digits.
pub(super) fn number(number: f64) -> String {
    match number {
        0.0 => "0".into(),
        ..0.1 => format!("{number:.3}"),
        ..10.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 10.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

fn time(millis: f64) -> String {
    if millis < 1_000.0 {
        format!("{} ms", number(millis))
    } else {
        format!("{} s", number(millis / 1_000.0))
    }
}
