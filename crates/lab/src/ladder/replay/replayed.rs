//! The result of a replay on real servers, and its text for people. All differences are shown.

use std::fmt;

use serde::Serialize;

use crate::ladder::redis::Tick;
use crate::text::grid;

/// The column of the command.
const COMMAND: usize = 4;
/// The least width of a command in a narrow terminal.
const LEAST: usize = 22;

/// The result of a replay.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// The name of the rung.
    pub rung: &'static str,
    /// The servers, without passwords.
    pub servers: Vec<String>,
    /// The final length of a tick, in milliseconds.
    pub tick_ms: u128,
    /// The number of attempts until each step happened in its tick.
    pub attempts: u32,
    /// The steps that were executed in another way than in the model, and how.
    pub remarks: Vec<&'static str>,
    /// The steps.
    pub steps: Vec<ReplayStep>,
    /// Whether it agreed with the model.
    pub verdict: ReplayVerdict,
}

/// A step of the replay.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ReplayStep {
    /// Ticks since the beginning.
    pub time: Tick,
    /// The actor.
    pub who: String,
    /// The action: the command as it was sent, without the prefix of the keys.
    pub what: String,
    /// The model's reply, if it was a command.
    pub model: Option<String>,
    /// The server's reply.
    pub real: Option<String>,
    /// The client's conclusion in the model.
    pub note: String,
    /// Why a property is violated here.
    pub wrong: Option<String>,
    /// The difference; `None` if the reply, the keys and their remaining TTLs were the same.
    pub differs: Option<String>,
}

/// Whether a trace happened on real servers as in the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum ReplayVerdict {
    /// Every reply and every key was the same after each step.
    Reproduced,
    /// There was a difference, here for the first time.
    NotReproduced {
        /// The step, from 1.
        step: usize,
        /// The difference.
        differs: String,
    },
}

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
        let lines = grid(&rows, &[1, 2], &[(COMMAND, LEAST)]);
        writeln!(f, "{}\n", lines.concat().join("\n"))?;
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
