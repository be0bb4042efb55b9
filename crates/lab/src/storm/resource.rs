//! The resource that the locks protect: a version number for each, in a separate process. It does not use the store of the
//! locks, and judges by the presented fences only.
//!
//! The protocol is lines over a Unix socket: `read LOCK PROC FENCE` and `write LOCK PROC FENCE BASE`, where FENCE is `-` for
//! none. The reply is `ok VERSION` or `stale VERSION`. A write is not compared with its base: the judge does that.

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
        let line = line?;
        let request = ResourceRequest::parse(&line)
            .ok_or_else(|| std::io::Error::other("an unknown question"))?;
        // One at a time, including the writing, so the file has the order of the decisions.
        let mut resource = resource.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = resource.decide(&request)?;
        drop(resource);
        answers.write_all(answer.as_bytes())?;
    }
    Ok(())
}

#[derive(Debug)]
struct ResourceRequest<'a> {
    lock: &'a str,
    proc: u64,
    fence: Option<u64>,
    /// For a write: the version that it is based on.
    base: Option<u64>,
}

impl<'a> ResourceRequest<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let (lock, proc, fence, base) = match *words.as_slice() {
            ["read", lock, proc, fence] => (lock, proc, fence, None),
            ["write", lock, proc, fence, base] => (lock, proc, fence, Some(base.parse().ok()?)),
            _ => return None,
        };
        let fence = match fence {
            "-" => None,
            fence => Some(fence.parse().ok()?),
        };
        Some(Self {
            lock,
            proc: proc.parse().ok()?,
            fence,
            base,
        })
    }
}

#[derive(Debug, Default)]
struct Datum {
    version: u64,
    highest: Option<u64>,
}

#[derive(Debug)]
struct Resource {
    fencing: Fencing,
    data: HashMap<String, Datum>,
    decisions: u64,
    history: File,
}

impl Resource {
    fn decide(&mut self, request: &ResourceRequest<'_>) -> std::io::Result<String> {
        let datum = self.data.entry(request.lock.to_owned()).or_default();
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
            "ev": "decision", "seq": self.decisions, "lock": request.lock, "proc": request.proc,
            "what": if request.base.is_some() { "write" } else { "read" },
            "fence": request.fence.filter(|_| checked), "base": request.base, "value": datum.version,
            "accepted": accepted, "highest": datum.highest, "at_ns": host_time::up_ns(),
        })
        .to_string();
        line.push('\n');
        self.history.write_all(line.as_bytes())?;
        let word = if accepted { "ok" } else { "stale" };
        Ok(format!("{word} {}\n", datum.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(resource: &mut Resource, line: &str) -> String {
        resource
            .decide(&ResourceRequest::parse(line).unwrap())
            .unwrap()
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
        assert_eq!(ask(&mut fenced, "read a 1 10"), "ok 0\n");
        assert_eq!(ask(&mut fenced, "read a 2 20"), "ok 0\n");
        assert_eq!(ask(&mut fenced, "write a 1 10 0"), "stale 0\n");
        assert_eq!(ask(&mut fenced, "read a 1 -"), "stale 0\n");
        assert_eq!(ask(&mut fenced, "write a 2 20 0"), "ok 1\n");
        assert_eq!(ask(&mut fenced, "write b 1 10 0"), "ok 1\n");
    }

    #[test]
    fn a_write_fenced_resource_looks_at_writes_only() {
        let mut fenced = resource(Fencing::WriteFenced);
        assert_eq!(ask(&mut fenced, "read a 2 20"), "ok 0\n");
        assert_eq!(ask(&mut fenced, "write a 1 10 0"), "ok 1\n");
        assert_eq!(ask(&mut fenced, "write a 2 20 0"), "ok 2\n");
        assert_eq!(ask(&mut fenced, "write a 1 10 1"), "stale 2\n");
    }

    #[test]
    fn an_unfenced_resource_takes_everything() {
        let mut open = resource(Fencing::Unfenced);
        assert_eq!(ask(&mut open, "write a 2 - 0"), "ok 1\n");
        assert_eq!(ask(&mut open, "write a 1 10 0"), "ok 2\n");
        assert!(ResourceRequest::parse("write a 1 10").is_none());
        assert!(ResourceRequest::parse("erase a 1 10").is_none());
    }
}
