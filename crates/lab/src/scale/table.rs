//! Figures as text. Must never round what `--json` gives.

use super::Figures;
use crate::columns::markdown;

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

/// One object for each experiment, a list of them.
pub fn json(figures: &[Figures]) -> String {
    let objects: Vec<_> = figures.iter().map(object).collect();
    format!("[\n  {}\n]\n", objects.join(",\n  "))
}

fn object(of: &Figures) -> String {
    let fairness = of.fairness.as_ref().map_or("null".into(), |fairness| {
        format!(
            r#"{{"max_over_mean": {}, "jain": {}, "starved": {}}}"#,
            fairness.max_over_mean, fairness.jain, fairness.starved
        )
    });
    // No text in it needs to be escaped.
    let Figures {
        way,
        clients,
        hand_overs,
        seconds,
        ..
    } = of;
    let (p50, p99, max) = (of.gap_p50_ms, of.gap_p99_ms, of.gap_max_ms);
    let Figures {
        commands,
        server,
        lock,
        jumped,
        again,
        lapsed,
        ..
    } = of;
    format!(
        "{{\"way\": \"{way}\", \"clients\": {clients}, \"hand_overs\": {hand_overs}, \"seconds\": {seconds}, \
         \"gap_p50_ms\": {p50}, \"gap_p99_ms\": {p99}, \"gap_max_ms\": {max}, \"commands\": {commands}, \
         \"server\": {server}, \"lock\": {lock}, \"jumped\": {jumped}, \"again\": {again}, \"lapsed\": {lapsed}, \
         \"fairness\": {fairness}}}"
    )
}

/// Three digits that count.
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
