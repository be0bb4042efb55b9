//! The results of model checks, as a table and as JSON. A property without a violation is reported as exhausted within its
//! bounds, not as proved.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::report::{Checked, Judged, Verdict};
use crate::text::{
    Paint, columns, counted, counted_as, json_line, paragraph, paragraph_after, thousands, took,
};

/// A block for each model: its bounds, and a line for each verdict with the properties that have it. Then the meanings of the
/// properties, and the totals. At most 100 columns. With `traces` also the steps that lead to each violation.
pub fn table(checked: &[Checked], traces: bool, colour: bool) -> String {
    let mut page = String::new();
    for model in checked {
        page += &block(model, colour);
        if traces {
            page += &steps(model);
        }
        page.push('\n');
    }
    page + &legend(checked) + "\n" + &sum(checked)
}

fn block(model: &Checked, colour: bool) -> String {
    let name = Paint::Strong.on(&model.model, colour);
    let mut block = format!(
        "{name}  {}, {} deep, {}\n",
        counted(model.states, "state"),
        counted(model.depth, "step"),
        took(model.took)
    );
    block += &paragraph(&model.bounds, "    ");
    for (verdict, names) in verdicts(model) {
        let words = words(verdict);
        let lines = paragraph_after(&format!("    {words:<EXHAUSTED$}  "), &names.join(", "));
        let paint = match verdict {
            Verdict::Exhausted => Paint::Good,
            Verdict::Violated { .. } | Verdict::Cut => Paint::Wrong,
        };
        block += &lines.replacen(&words, &paint.on(&words, colour), 1);
    }
    block
}

/// The verdicts: violated ones by number of steps, then cut ones, then exhausted ones; each with the names of its properties.
fn verdicts(model: &Checked) -> Vec<(&Verdict, Vec<&'static str>)> {
    let place = |verdict: &Verdict| match verdict {
        Verdict::Violated { steps, .. } => (0, *steps),
        Verdict::Cut => (1, 0),
        Verdict::Exhausted => (2, 0),
    };
    let mut properties: Vec<&Judged> = model.properties.iter().collect();
    properties.sort_by_key(|judged| place(&judged.verdict));
    let mut verdicts: Vec<(&Verdict, Vec<&'static str>)> = Vec::new();
    for judged in properties {
        match verdicts.last_mut() {
            Some((verdict, names)) if place(verdict) == place(&judged.verdict) => {
                names.push(judged.name);
            }
            _ => verdicts.push((&judged.verdict, vec![judged.name])),
        }
    }
    verdicts
}

/// The longest of [`words`]: `exhausted within these bounds`.
const EXHAUSTED: usize = 29;

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Exhausted => "exhausted within these bounds".into(),
        Verdict::Violated { steps, .. } => format!("wrong in {}", counted(*steps, "step")),
        Verdict::Cut => "cut short: not all was seen".into(),
    }
}

/// The meaning of each property, in the order of their first occurrence.
fn legend(checked: &[Checked]) -> String {
    let mut output: Vec<(&str, &str)> = Vec::new();
    for judged in checked.iter().flat_map(|model| &model.properties) {
        if !output.iter().any(|(name, _)| *name == judged.name) {
            output.push((judged.name, judged.says));
        }
    }
    let width = output.iter().map(|(name, _)| columns(name)).max();
    let width = width.unwrap_or_default();
    output
        .iter()
        .map(|(name, says)| paragraph_after(&format!("{name:<width$}  "), says))
        .collect()
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
    let (mut exhausted, mut wrong, mut cut) = (0, 0, 0);
    for judged in checked.iter().flat_map(|model| &model.properties) {
        match judged.verdict {
            Verdict::Exhausted => exhausted += 1,
            Verdict::Violated { .. } => wrong += 1,
            Verdict::Cut => cut += 1,
        }
    }
    let time: Duration = checked.iter().map(|model| model.took).sum();
    let states = checked.iter().map(|model| model.states).sum();
    let mut text = format!(
        "{}, {} in {}: {} exhausted within these bounds",
        counted(checked.len(), "model"),
        counted(states, "state"),
        took(time),
        counted_as(exhausted, "property", "properties"),
    );
    for (number, what) in [(wrong, "wrong"), (cut, "cut short")] {
        if number > 0 {
            let _infallible = write!(text, ", {} {what}", thousands(number));
        }
    }
    text + "\n"
}

/// The results for programs: `leasehold.lab-check/1`, one document on one line.
pub fn json(checked: &[Checked]) -> String {
    let models = checked.iter().map(|model| JsonModel {
        name: &model.model,
        bounds: &model.bounds,
        states: model.states,
        depth: model.depth,
        took_ms: model.took.as_millis(),
        properties: model.properties.iter().map(JsonProperty::of).collect(),
    });
    let models = models.collect();
    json_line("leasehold.lab-check/1", &Models { models })
}

#[derive(Serialize)]
struct Models<'a> {
    models: Vec<JsonModel<'a>>,
}

#[derive(Serialize)]
struct JsonModel<'a> {
    #[serde(rename = "model")]
    name: &'a str,
    bounds: &'a str,
    states: usize,
    depth: usize,
    took_ms: u128,
    properties: Vec<JsonProperty<'a>>,
}

#[derive(Serialize)]
struct JsonProperty<'a> {
    name: &'static str,
    says: &'static str,
    /// `exhausted`, `violated` or `cut`.
    verdict: &'static str,
    steps: Option<usize>,
    trace: &'a [String],
}

impl<'a> JsonProperty<'a> {
    fn of(judged: &'a Judged) -> Self {
        let (verdict, steps, trace) = match &judged.verdict {
            Verdict::Exhausted => ("exhausted", None, [].as_slice()),
            Verdict::Violated { steps, trace } => ("violated", Some(*steps), trace.as_slice()),
            Verdict::Cut => ("cut", None, [].as_slice()),
        };
        Self {
            name: judged.name,
            says: judged.says,
            verdict,
            steps,
            trace,
        }
    }
}
