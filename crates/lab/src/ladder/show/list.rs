//! All rungs on one page: what each is and what its model found. Must never tell a verdict that was not found just now.

use crate::text::{Paint, WIDTH, counted, gaps, grid, paragraph, widths};

use super::told::{Outcome, Told};

/// The rungs in this order, a paragraph for each recipe, in at most 100 columns.
pub fn list(rungs: &[Told], colour: bool) -> String {
    let rows: Vec<Vec<String>> = rungs.iter().map(row).collect();
    let taken: usize = widths(&rows).iter().take(2).sum();
    let lines = grid(&rows, &[], &[(2, WIDTH.saturating_sub(taken + gaps(3)))]);
    let mut page = String::new();
    let mut recipe = ("", "");
    for (told, lines) in rungs.iter().zip(lines) {
        if recipe != (told.step, told.recipe) {
            recipe = (told.step, told.recipe);
            if !page.is_empty() {
                page.push('\n');
            }
            let heading = paragraph(&format!("{}  {}", told.step, told.recipe), "");
            page.extend(
                heading
                    .lines()
                    .map(|line| Paint::Strong.on(line, colour) + "\n"),
            );
        }
        let verdict = verdict(told);
        let paint = match told.outcome {
            Outcome::Broken(_) | Outcome::Unsettled(_) => Paint::Wrong,
            Outcome::Exhausted(_) => Paint::Good,
        };
        for line in lines {
            page += &line.replacen(&verdict, &paint.on(&verdict, colour), 1);
            page.push('\n');
        }
    }
    page + &what_next(rungs)
}

fn row(told: &Told) -> Vec<String> {
    let seed = match told.outcome {
        Outcome::Broken(_) => told.why.to_owned(),
        Outcome::Exhausted(checked) | Outcome::Unsettled(checked) => format!(
            "within these bounds: {} ({})\n{}",
            counted(checked.states, "state"),
            checked.bounds,
            told.why
        ),
    };
    vec![
        format!("    {}", told.name),
        verdict(told),
        seed.trim_end().to_owned(),
    ]
}

fn verdict(told: &Told) -> String {
    match told.outcome {
        Outcome::Broken(trace) => format!("wrong in {}", counted(trace.lines.len(), "step")),
        Outcome::Exhausted(_) => "exhausted".into(),
        Outcome::Unsettled(_) => "not settled".into(),
    }
}

/// What to type about the first rung that goes wrong.
fn what_next(rungs: &[Told]) -> String {
    let broken = rungs
        .iter()
        .find(|told| matches!(told.outcome, Outcome::Broken(_)));
    let Some(Told { name, .. }) = broken else {
        return String::new();
    };
    let typed = [
        (
            format!("    leasehold lab show {name}"),
            "its story, command by command",
        ),
        (
            format!("    leasehold lab replay {name}"),
            "the same on a real redis-server",
        ),
        (
            "    leasehold lab check".into(),
            "all models, all properties",
        ),
    ];
    let rows = typed.map(|(typed, what)| vec![typed, what.to_owned()]);
    format!(
        "\nNext, type\n{}\n",
        grid(&rows, &[], &[]).concat().join("\n")
    )
}
