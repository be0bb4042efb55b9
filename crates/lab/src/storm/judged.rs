//! The judge as a process of its own, which gets nothing but the name of a directory. Must never pass on anything that the
//! campaign knows and did not write down.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use leasehold_history::Verdict;
use serde::{Deserialize, Serialize};

use crate::parts::Part;

/// What it judges, and where its verdict goes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    history: PathBuf,
    verdict: PathBuf,
}

/// Reads and judges, and writes down what came of it.
pub(crate) fn judge(orders: &Orders) -> Result<(), String> {
    let history = leasehold_history::read(&orders.history);
    let verdict: Result<Verdict, String> = history
        .map(|history| leasehold_history::judge(&history))
        .map_err(|unreadable| unreadable.to_string());
    let text = serde_json::to_string(&verdict).map_err(|error| error.to_string())?;
    fs::write(&orders.verdict, text)
        .map_err(|error| format!("{}: {error}", orders.verdict.display()))
}

/// Has a history judged. The verdict stays beside it.
pub(super) fn verdict(directory: &Path) -> Result<Verdict, String> {
    let verdict = directory.join("verdict.json");
    let orders = Orders {
        history: directory.to_owned(),
        verdict: verdict.clone(),
    };
    let mut judge = Part::Judge(orders).start()?;
    let ended = loop {
        if let Some(status) = judge.ended().map_err(|error| error.to_string())? {
            break status;
        }
        thread::sleep(Duration::from_millis(2));
    };
    if !ended.success() {
        return Err(format!("the judge has failed: {ended}"));
    }
    let text = fs::read_to_string(&verdict);
    let text = text.map_err(|error| format!("{}: {error}", verdict.display()))?;
    serde_json::from_str::<Result<Verdict, String>>(&text).map_err(|error| error.to_string())?
}
