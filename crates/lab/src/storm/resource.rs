//! The resource that the locks protect: a version number for each, and for each slot of a semaphore, in a separate process. It does not
//! use the store of the locks, and judges by the presented fences only.
//!
//! Readers of a lock read what its writers write: their common fence lets them in beside each other, and shuts out earlier writers. Fences of
//! different slots say nothing about each other, so each slot has its own datum, as a port or a directory would be.
//!
//! The protocol is lines of JSON over a Unix socket: an [`Access`], then its [`Answer`]. A write is not compared with its base: the
//! judge does that.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::host_time;

/// Which operations require a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fencing {
    /// None.
    Unfenced,
    /// Each write.
    WriteFenced,
    /// Each read and each write.
    Fenced,
}

/// The socket, and the file for the decisions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResourceConfig {
    pub(crate) socket: PathBuf,
    pub(crate) history: PathBuf,
    pub(crate) fencing: Fencing,
}

/// Serves until it is killed.
pub(crate) fn serve(config: &ResourceConfig) -> Result<(), String> {
    let refused = |error: std::io::Error| format!("the resource: {error}");
    let resource = Mutex::new(Resource {
        fencing: config.fencing,
        data: HashMap::new(),
        decisions: 0,
        history: File::create(&config.history).map_err(refused)?,
    });
    let listener = UnixListener::bind(&config.socket).map_err(refused)?;
    thread::scope(|scope| {
        for visitor in listener.incoming().map_while(Result::ok) {
            scope.spawn(|| {
                // An error ends the connection.
                let _end: std::io::Result<()> = attend(&visitor, &resource);
                drop(visitor);
            });
        }
    });
    Ok(())
}

fn attend(visitor: &UnixStream, resource: &Mutex<Resource>) -> std::io::Result<()> {
    let mut answers = visitor;
    for line in BufReader::new(visitor).lines() {
        let access = serde_json::from_str(&line?)?;
        // One at a time, including the writing, so the file has the order of the decisions.
        let mut resource = resource.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = resource.decide(&access)?;
        drop(resource);
        answers.write_all(format!("{}\n", json!(answer)).as_bytes())?;
    }
    Ok(())
}

/// A read or a write.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) lock: String,
    /// The slot whose datum it concerns; without it, that of the lock.
    pub(crate) slot: Option<u16>,
    pub(crate) proc: u64,
    pub(crate) fence: Option<u64>,
    /// For a write: the version that it is based on.
    pub(crate) base: Option<u64>,
}

/// Whether an access was accepted, and the version of the datum after it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) accepted: bool,
    pub(crate) version: u64,
}

#[derive(Debug, Default)]
struct Datum {
    version: u64,
    highest: Option<u64>,
}

#[derive(Debug)]
struct Resource {
    fencing: Fencing,
    /// By lock, and by slot if it is a semaphore.
    data: HashMap<(String, Option<u16>), Datum>,
    decisions: u64,
    history: File,
}

impl Resource {
    fn decide(&mut self, request: &Access) -> std::io::Result<Answer> {
        let of = (request.lock.clone(), request.slot);
        let datum = self.data.entry(of).or_default();
        let checked = match self.fencing {
            Fencing::Unfenced => false,
            Fencing::WriteFenced => request.base.is_some(),
            Fencing::Fenced => true,
        };
        let accepted = !checked || request.fence.is_some() && request.fence >= datum.highest;
        if checked {
            datum.highest = datum.highest.max(request.fence);
        }
        if accepted && request.base.is_some() {
            datum.version += 1;
        }
        self.decisions += 1;
        let mut line = json!({
            "ev": "decision", "seq": self.decisions, "lock": request.lock, "slot": request.slot, "proc": request.proc,
            "what": if request.base.is_some() { "write" } else { "read" },
            "fence": request.fence.filter(|_| checked), "base": request.base, "value": datum.version,
            "accepted": accepted, "highest": datum.highest, "at_ns": host_time::up_ns(),
        })
        .to_string();
        line.push('\n');
        self.history.write_all(line.as_bytes())?;
        Ok(Answer {
            accepted,
            version: datum.version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version after an access, if it was accepted. A slot follows the name of its lock.
    fn ask(
        resource: &mut Resource,
        name: &str,
        fence: Option<u64>,
        base: Option<u64>,
    ) -> Option<u64> {
        let (lock, slot) = name.split_once('/').unwrap_or((name, ""));
        let access = Access {
            lock: lock.to_owned(),
            slot: slot.parse().ok(),
            proc: 1,
            fence,
            base,
        };
        let answer = resource.decide(&access).unwrap();
        answer.accepted.then_some(answer.version)
    }

    fn resource(fencing: Fencing) -> Resource {
        Resource {
            fencing,
            data: HashMap::new(),
            decisions: 0,
            history: tempfile::tempfile().unwrap(),
        }
    }

    #[test]
    fn a_fence_is_worthless_after_a_higher_one_was_read_with() {
        let mut fenced = resource(Fencing::Fenced);
        assert_eq!(ask(&mut fenced, "a", Some(10), None), Some(0));
        assert_eq!(ask(&mut fenced, "a", Some(20), None), Some(0));
        assert_eq!(ask(&mut fenced, "a", Some(10), Some(0)), None);
        assert_eq!(ask(&mut fenced, "a", None, None), None);
        assert_eq!(ask(&mut fenced, "a", Some(20), Some(0)), Some(1));
        assert_eq!(ask(&mut fenced, "b", Some(10), Some(0)), Some(1));
    }

    #[test]
    fn readers_of_one_fence_read_until_a_writer_comes() {
        let mut fenced = resource(Fencing::Fenced);
        for _ in 0..2 {
            assert_eq!(ask(&mut fenced, "a", Some(10), None), Some(0));
        }
        assert_eq!(ask(&mut fenced, "a", Some(20), Some(0)), Some(1));
        assert_eq!(ask(&mut fenced, "a", Some(10), None), None);
    }

    #[test]
    fn a_slot_has_its_own_version_and_fences() {
        let mut fenced = resource(Fencing::Fenced);
        assert_eq!(ask(&mut fenced, "a/1", Some(20), Some(0)), Some(1));
        assert_eq!(ask(&mut fenced, "a/2", Some(10), None), Some(0));
        assert_eq!(ask(&mut fenced, "a/2", Some(10), Some(0)), Some(1));
        assert_eq!(ask(&mut fenced, "a", Some(5), None), Some(0));
        assert_eq!(ask(&mut fenced, "a/1", Some(19), Some(1)), None);
    }

    #[test]
    fn a_write_fenced_resource_looks_at_writes_only() {
        let mut fenced = resource(Fencing::WriteFenced);
        assert_eq!(ask(&mut fenced, "a", Some(20), None), Some(0));
        assert_eq!(ask(&mut fenced, "a", Some(10), Some(0)), Some(1));
        assert_eq!(ask(&mut fenced, "a", Some(20), Some(0)), Some(2));
        assert_eq!(ask(&mut fenced, "a", Some(10), Some(1)), None);
    }

    #[test]
    fn an_unfenced_resource_takes_everything() {
        let mut open = resource(Fencing::Unfenced);
        assert_eq!(ask(&mut open, "a", None, Some(0)), Some(1));
        assert_eq!(ask(&mut open, "a", Some(10), Some(0)), Some(2));
    }
}
