//! The steps of a trace, as shown: lines in which only time passes are joined to one.

use crate::ladder::redis::{Key, Tick, Value};
use crate::ladder::trace::{LadderEvent, Line, Trace};
use crate::ladder::words::{Script, client, script};

/// One or several lines of a trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoryStep<'a> {
    /// The number of its first line, from 1.
    first: usize,
    /// The number of its last line.
    last: usize,
    /// Its last line.
    pub(super) line: &'a Line,
    /// The line before it, unless it is the first.
    before: Option<&'a Line>,
}

/// The steps of a trace.
pub(super) fn steps(trace: &Trace) -> Vec<StoryStep<'_>> {
    let mut steps: Vec<StoryStep<'_>> = Vec::new();
    let mut before = None;
    for (number, line) in (1..).zip(&trace.lines) {
        match steps.last_mut() {
            Some(last) if last.is_quiet() && line.event == LadderEvent::Tick => {
                last.last = number;
                last.line = line;
            }
            _ => steps.push(StoryStep {
                first: number,
                last: number,
                line,
                before,
            }),
        }
        before = Some(line);
    }
    steps
}

impl StoryStep<'_> {
    /// Whether only time passes.
    fn is_quiet(&self) -> bool {
        self.line.event == LadderEvent::Tick
            && self.remarks().is_empty()
            && self.line.wrong.is_none()
    }

    /// `3`, or `3-5`.
    pub(super) fn number(&self) -> String {
        if self.first == self.last {
            self.first.to_string()
        } else {
            format!("{}-{}", self.first, self.last)
        }
    }

    /// Its description; for passing time, the locks that it ended.
    pub(super) fn remarks(&self) -> Vec<String> {
        if !self.line.note.is_empty() {
            return vec![self.line.note.clone()];
        }
        if self.line.event != LadderEvent::Tick {
            return Vec::new();
        }
        let expired = self.expired().take(1).map(|_| "key expires".into());
        let stopped = self.stopped();
        let stopped = stopped.map(|of| format!("{}'s time is up", client(of)));
        expired.chain(stopped).collect()
    }

    /// The servers whose lock existed before and does not after.
    pub(super) fn expired(&self) -> impl Iterator<Item = u8> {
        let servers = (0u8..).zip(&self.line.keys).map(|(server, _)| server);
        servers.filter(|&server| {
            let before = self.before.and_then(|line| entry(line, server, Key::Lock));
            before.is_some() && entry(self.line, server, Key::Lock).is_none()
        })
    }

    /// The clients that held before and do not after.
    pub(super) fn stopped(&self) -> impl Iterator<Item = u8> {
        let before = self.before.map_or([].as_slice(), |line| &line.holders);
        before
            .iter()
            .copied()
            .filter(|client| !self.line.holders.contains(client))
    }
}

/// The value of a key after a line, and its remaining TTL.
pub(super) fn entry(line: &Line, server: u8, key: Key) -> Option<(Value, Option<Tick>)> {
    let keys = line.keys.get(usize::from(server))?;
    let found = keys.iter().find(|(name, ..)| *name == key)?;
    Some((found.1, found.2))
}

/// The scripts of a trace, each once.
pub(super) fn scripts(trace: &Trace) -> Vec<Script> {
    let mut scripts: Vec<Script> = Vec::new();
    for message in trace.lines.iter().filter_map(|line| line.event.message()) {
        let is_new = |new: &Script| scripts.iter().all(|script| script.name != new.name);
        let new = script(message.command).filter(is_new);
        scripts.extend(new);
    }
    scripts
}
