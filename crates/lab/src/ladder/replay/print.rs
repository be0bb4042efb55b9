//! A replay as text for people; all differences are shown.

use std::fmt;

use super::replayed::{ReplayStep, ReplayVerdict, Replayed};
use crate::text::{WIDTH, gaps, grid, widths};

const COMMAND: usize = 4;
/// The least width of a command in a narrow terminal.
const LEAST: usize = 22;

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {}, a tick is {} ms\n",
            self.rung,
            self.servers.join(", "),
            self.tick_ms
        )?;
        let head = [
            "",
            "#",
            "time",
            "who",
            "command",
            "model",
            "real",
            "",
            "concludes",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend((1..).zip(&self.steps).map(|(nth, step)| row(nth, step)));
        let others: usize = widths(&rows).iter().sum::<usize>() - widths(&rows)[COMMAND];
        let room = WIDTH.saturating_sub(others + gaps(head.len()));
        let lines = grid(&rows, &[1, 2], &[(COMMAND, room.max(LEAST))]);
        writeln!(f, "{}", lines.concat().join("\n"))?;
        writeln!(f)?;
        for (nth, step) in (1_usize..).zip(&self.steps) {
            if let Some(why) = &step.wrong {
                writeln!(f, "{nth}: {why}")?;
            }
        }
        for remark in &self.remarks {
            writeln!(f, "- {remark}")?;
        }
        if self.attempts > 1 {
            writeln!(
                f,
                "- It took {} attempts, each with longer ticks.",
                self.attempts
            )?;
        }
        match &self.verdict {
            ReplayVerdict::Reproduced => writeln!(
                f,
                "\nreproduced: every reply and every key was what the model says"
            ),
            ReplayVerdict::NotReproduced { step, differs } => {
                writeln!(f, "\nnot reproduced: step {step} differs in {differs}")
            }
        }
    }
}

fn row(nth: usize, step: &ReplayStep) -> Vec<String> {
    let text = |reply: &Option<String>| reply.clone().unwrap_or_default();
    let mark = if step.wrong.is_some() { ">>" } else { "" };
    let same = match (&step.differs, &step.real) {
        (Some(_), _) => "DIFFERS",
        (None, Some(_)) => "same",
        (None, None) => "",
    };
    vec![
        mark.into(),
        nth.to_string(),
        step.time.to_string(),
        step.who.clone(),
        step.what.clone(),
        text(&step.model),
        text(&step.real),
        same.into(),
        step.note.clone(),
    ]
}
