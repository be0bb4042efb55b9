//! The judge as a separate process. It gets only the name of a directory, so it knows only the recorded history.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::history::Verdict;

/// The history to judge, and the file for the verdict.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JudgeConfig {
    pub(super) history: PathBuf,
    pub(super) verdict: PathBuf,
}

/// Reads and judges, and writes the verdict.
pub(crate) fn judge(config: &JudgeConfig) -> Result<(), String> {
    let history = crate::history::read(&config.history);
    let verdict: Result<Verdict, String> = history
        .map(|history| crate::history::judge(&history))
        .map_err(|unreadable| unreadable.to_string());
    let text = serde_json::to_string(&verdict).map_err(|error| error.to_string())?;
    fs::write(&config.verdict, text)
        .map_err(|error| format!("{}: {error}", config.verdict.display()))
}
