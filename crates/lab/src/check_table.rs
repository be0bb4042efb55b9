//! What checks of models found, as a table and as JSON. Must never say of a property that was not violated more than that
//! its bounds were exhausted.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::report::{Checked, Judged, Verdict};
use crate::text::{Paint, WIDTH, counted, gaps, grid, thousands, took, widths};

const HEAD: [&str; 6] = ["MODEL", "STATES", "DEPTH", "TIME", "PROPERTY", "VERDICT"];

/// A line for each property, the bounds of each model below it, and the sum, in at most 100 columns. With `traces` also
/// the steps that lead to each violation.
pub fn table(checked: &[Checked], traces: bool, colour: bool) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut paints = vec![Some(Paint::Strong)];
    for model in checked {
        for (at, judged) in model.properties.iter().enumerate() {
            rows.push(row(model, at, judged));
            paints.push(match judged.verdict {
                Verdict::Exhausted => None,
                Verdict::Violated { .. } | Verdict::Cut => Some(Paint::Wrong),
            });
        }
    }
    let taken: usize = widths(&rows).iter().take(5).sum();
    let last = WIDTH.saturating_sub(taken + gaps(6));
    let mut laid = grid(&rows, &[1, 2, 3], &[(5, last)])
        .into_iter()
        .zip(paints);
    let mut page = String::new();
    let mut add = |page: &mut String| {
        if let Some((lines, paint)) = laid.next() {
            for line in lines {
                *page += &paint.map_or(line.clone(), |paint| paint.on(&line, colour));
                page.push('\n');
            }
        }
    };
    add(&mut page);
    for model in checked {
        for _ in &model.properties {
            add(&mut page);
        }
        page += &crate::text::paragraph(&format!("bounds: {}", model.bounds), "    ");
        if traces {
            page += &steps(model);
        }
    }
    page.push('\n');
    page += &sum(checked);
    page
}

fn row(model: &Checked, at: usize, judged: &Judged) -> Vec<String> {
    let verdict = match &judged.verdict {
        Verdict::Exhausted => "exhausted within these bounds".into(),
        Verdict::Violated { steps, .. } => format!("wrong in {}", counted(*steps, "step")),
        Verdict::Cut => "cut short: not all was seen".into(),
    };
    let mut cells = if at == 0 {
        vec![
            model.model.clone(),
            thousands(model.states),
            thousands(model.depth),
            took(model.took),
        ]
    } else {
        vec![String::new(); 4]
    };
    cells.extend([judged.name.to_owned(), verdict]);
    cells
}

fn steps(model: &Checked) -> String {
    let mut text = String::new();
    for judged in &model.properties {
        if let Verdict::Violated { trace, .. } = &judged.verdict {
            // Writing to a String cannot fail, here and below.
            let _infallible = writeln!(text, "    how {} goes wrong:", judged.name);
            for line in trace {
                let _infallible = writeln!(text, "      {line}");
            }
        }
    }
    text
}

fn sum(checked: &[Checked]) -> String {
    let count = |is: fn(&Verdict) -> bool| {
        let properties = checked.iter().flat_map(|model| &model.properties);
        properties.filter(|judged| is(&judged.verdict)).count()
    };
    let time: Duration = checked.iter().map(|model| model.took).sum();
    let states = checked.iter().map(|model| model.states).sum();
    let mut text = format!(
        "{}, {} in {}: {} exhausted within these bounds",
        counted(checked.len(), "model"),
        counted(states, "state"),
        took(time),
        counted_properties(count(|verdict| *verdict == Verdict::Exhausted)),
    );
    for (number, what) in [
        (
            count(|verdict| matches!(verdict, Verdict::Violated { .. })),
            "wrong",
        ),
        (count(|verdict| *verdict == Verdict::Cut), "cut short"),
    ] {
        if number > 0 {
            let _infallible = write!(text, ", {} {what}", thousands(number));
        }
    }
    text + "\n"
}

fn counted_properties(number: usize) -> String {
    if number == 1 {
        "1 property".into()
    } else {
        format!("{} properties", thousands(number))
    }
}

/// The same for programs: `leasehold.lab-check/1`, one document on one line.
pub fn json(checked: &[Checked]) -> String {
    let models = checked.iter().map(Model::of).collect();
    crate::text::json_line(&Document {
        schema: "leasehold.lab-check/1",
        models,
    })
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    models: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    #[serde(rename = "model")]
    name: &'a str,
    bounds: &'a str,
    states: usize,
    depth: usize,
    took_ms: u128,
    properties: Vec<Property<'a>>,
}

#[derive(Serialize)]
struct Property<'a> {
    name: &'static str,
    /// `exhausted`, `violated` or `cut`.
    verdict: &'static str,
    steps: Option<usize>,
    trace: &'a [String],
}

impl<'a> Model<'a> {
    fn of(checked: &'a Checked) -> Self {
        Self {
            name: &checked.model,
            bounds: &checked.bounds,
            states: checked.states,
            depth: checked.depth,
            took_ms: checked.took.as_millis(),
            properties: checked.properties.iter().map(Property::of).collect(),
        }
    }
}

impl<'a> Property<'a> {
    fn of(judged: &'a Judged) -> Self {
        let (verdict, steps, trace) = match &judged.verdict {
            Verdict::Exhausted => ("exhausted", None, [].as_slice()),
            Verdict::Violated { steps, trace } => ("violated", Some(*steps), trace.as_slice()),
            Verdict::Cut => ("cut", None, [].as_slice()),
        };
        Self {
            name: judged.name,
            verdict,
            steps,
            trace,
        }
    }
}
