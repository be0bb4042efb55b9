//! What came of a story on real servers. Must never call one reproduced by itself.

use serde::Serialize;

use crate::ladder::redis::Tick;

/// What came of it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// The name of the rung.
    pub rung: &'static str,
    /// The servers, without passwords.
    pub servers: Vec<String>,
    /// How long a tick was in the end, in milliseconds.
    pub tick_ms: u128,
    /// How often it was tried until each step was done in its tick.
    pub attempts: u32,
    /// What was not done as the model does it, and how instead.
    pub remarks: Vec<&'static str>,
    /// What happened.
    pub steps: Vec<ReplayStep>,
    /// Whether it was the same.
    pub verdict: ReplayVerdict,
}

/// A step of the story.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ReplayStep {
    /// Ticks since the beginning.
    pub time: Tick,
    /// Who does it.
    pub who: String,
    /// What: the command as it was sent, but for the prefix of the keys.
    pub what: String,
    /// What the model answered, if it was a command.
    pub model: Option<String>,
    /// What the server answered.
    pub real: Option<String>,
    /// What the client concluded in the model.
    pub note: String,
    /// Why it goes wrong here.
    pub wrong: Option<String>,
    /// What was different; `None` if the reply, the keys and what was left of their TTLs were the same.
    pub differs: Option<String>,
}

/// Whether a story happened on real servers as in the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum ReplayVerdict {
    /// Every reply and every key, after each step, was the same.
    Reproduced,
    /// Something was different, here for the first time.
    NotReproduced {
        /// At which step, from 1.
        step: usize,
        /// What.
        differs: String,
    },
}
