//! Races as text. A value that was not counted is not shown as zero.

use super::raced::Raced;
use crate::text::markdown;

/// A table in Markdown, a row for each race.
pub fn table(races: &[Raced]) -> String {
    let head = [
        "rung",
        "breaks in its model",
        "acquisitions",
        "seconds",
        "overlaps",
        "per 100k",
        "first after",
        "stuck",
        "stale writes",
        "low fences",
        "lost updates",
        "orphan writes",
        "as the model says",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(races.iter().map(row));
    markdown(&rows)
}

fn row(raced: &Raced) -> Vec<String> {
    let first = raced.first_overlap_s.map(|after| format!("{after:.2} s"));
    let counted = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
    let stuck = match (raced.stuck, raced.acquisitions_per_stuck) {
        (Some(stuck), Some(each)) => format!("{stuck}, each after {each:.0}"),
        (stuck, _) => counted(stuck),
    };
    vec![
        raced.rung.into(),
        raced.breaks.unwrap_or("nothing").into(),
        raced.acquisitions.to_string(),
        format!("{:.0}", raced.took_s),
        raced.overlaps.to_string(),
        format!("{:.1}", raced.overlaps_per_100k),
        first.unwrap_or_else(|| "-".into()),
        stuck,
        counted(raced.stale_writes),
        counted(raced.low_fences),
        counted(raced.lost_updates),
        counted(raced.orphan_writes),
        match raced.as_the_model_says {
            true => "yes",
            false if raced.contradicts_the_model() => "NO",
            false => "not seen",
        }
        .into(),
    ]
}
