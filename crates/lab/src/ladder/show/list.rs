//! All rungs on one page: recipe and fresh verdict of each.

use crate::text::{Paint, WIDTH, counted, gaps, grid, paragraph, widths};

use super::summary::{ModelOutcome, RungSummary};

/// The rungs in this order, a paragraph for each recipe, in at most 100 columns.
pub fn list(rungs: &[RungSummary], colour: bool) -> String {
    let rows: Vec<Vec<String>> = rungs.iter().map(row).collect();
    let taken: usize = widths(&rows).iter().take(2).sum();
    let lines = grid(&rows, &[], &[(2, WIDTH.saturating_sub(taken + gaps(3)))]);
    let mut page = String::new();
    let mut recipe = ("", "");
    for (summary, lines) in rungs.iter().zip(lines) {
        if recipe != (summary.step, summary.recipe) {
            recipe = (summary.step, summary.recipe);
            if !page.is_empty() {
                page.push('\n');
            }
            let heading = paragraph(&format!("{}  {}", summary.step, summary.recipe), "");
            page.extend(
                heading
                    .lines()
                    .map(|line| Paint::Strong.on(line, colour) + "\n"),
            );
        }
        let verdict = verdict(summary);
        let paint = match summary.outcome {
            ModelOutcome::Broken(_) | ModelOutcome::Unsettled(_) => Paint::Wrong,
            ModelOutcome::Exhausted(_) => Paint::Good,
        };
        for line in lines {
            page += &line.replacen(&verdict, &paint.on(&verdict, colour), 1);
            page.push('\n');
        }
    }
    page + &what_next(rungs)
}

fn row(summary: &RungSummary) -> Vec<String> {
    let seed = match summary.outcome {
        ModelOutcome::Broken(_) => summary.why.to_owned(),
        ModelOutcome::Exhausted(checked) | ModelOutcome::Unsettled(checked) => format!(
            "within these bounds: {} ({})\n{}",
            counted(checked.states, "state"),
            checked.bounds,
            summary.why
        ),
    };
    vec![
        format!("    {}", summary.name),
        verdict(summary),
        seed.trim_end().to_owned(),
    ]
}

fn verdict(summary: &RungSummary) -> String {
    match summary.outcome {
        ModelOutcome::Broken(trace) => format!("wrong in {}", counted(trace.lines.len(), "step")),
        ModelOutcome::Exhausted(_) => "exhausted".into(),
        ModelOutcome::Unsettled(_) => "not settled".into(),
    }
}

/// The command that shows the first violated rung.
fn what_next(rungs: &[RungSummary]) -> String {
    let broken = rungs
        .iter()
        .find(|summary| matches!(summary.outcome, ModelOutcome::Broken(_)));
    let Some(RungSummary { name, .. }) = broken else {
        return String::new();
    };
    let typed = [
        (
            format!("    leasehold-lab show {name}"),
            "its story, command by command",
        ),
        (
            format!("    leasehold-lab replay {name}"),
            "the same on a real redis-server",
        ),
        (
            "    leasehold-lab check".into(),
            "all models, all properties",
        ),
    ];
    let rows = typed.map(|(typed, what)| vec![typed, what.to_owned()]);
    format!(
        "\nNext, type\n{}\n",
        grid(&rows, &[], &[]).concat().join("\n")
    )
}
