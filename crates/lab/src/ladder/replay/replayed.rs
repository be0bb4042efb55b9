//! The result of a replay on real servers.

use serde::Serialize;

use crate::ladder::redis::Tick;

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
