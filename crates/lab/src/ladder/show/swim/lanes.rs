//! The lanes of a picture and their places: the first client to the left of the servers, the others to the right. Lanes are far
//! enough apart for the labels between them.

use super::super::steps::{StoryStep, actor};
use super::labels::{label, remark_lines, reply_label};
use super::style::{CODE, SENTENCE, wide};
use crate::ladder::trace::{LadderEvent, Trace};
use crate::ladder::words::is_for_resource;

/// Half the width of a server's lane.
pub(super) const HALF: f64 = 25.0;
/// The distance between a lane and its text.
pub(super) const BESIDE: f64 = 14.0;
/// The width of the margin with step numbers and times.
const MARGIN: f64 = 92.0;
const NARROWEST: f64 = 700.0;

/// The subject of a lane. All are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneOwner {
    Client(u8),
    /// The lock in a server.
    Lock(u8),
    /// The protected resource in a server.
    Resource(u8),
}

/// All lanes, from left to right.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) all: Vec<(LaneOwner, f64)>,
    width: f64,
}

impl Lanes {
    pub(super) fn of(trace: &Trace, steps: &[StoryStep]) -> Self {
        let clients: Vec<u8> = (0..trace.clients)
            .filter(|client| {
                steps.iter().any(|step| {
                    actor(&step.line.event) == Some(*client) || step.line.holders.contains(client)
                })
            })
            .collect();
        let (left, right) = clients.split_at(clients.len().min(1));
        let labels = |of: &[u8]| -> f64 {
            let widths = steps.iter().filter(|step| is_of(step, of)).map(label_width);
            widths.fold(96.0, f64::max) + BESIDE + HALF + 24.0
        };
        let remarks = |of: &[u8]| {
            let widths = steps
                .iter()
                .filter(|step| is_of(step, of))
                .flat_map(remark_lines);
            widths
                .map(|line| wide(&line, SENTENCE))
                .fold(40.0, f64::max)
                + BESIDE
        };
        let mut all = Vec::new();
        let mut x = MARGIN + remarks(left);
        for client in left {
            all.push((LaneOwner::Client(*client), x));
        }
        x += labels(left);
        for (at, server) in servers(trace).into_iter().enumerate() {
            x += if at == 0 { 0.0 } else { 4.8 * HALF };
            all.push((server, x));
        }
        x += labels(right);
        for (at, client) in right.iter().enumerate() {
            if at > 0 {
                // The remarks of the left neighbour, or the labels of this lane's messages, in different rows.
                x += remarks(&right[at - 1..at]).max(labels(&right[at..=at]) - HALF) + BESIDE;
            }
            all.push((LaneOwner::Client(*client), x));
        }
        let last = right.len().saturating_sub(1);
        let width = x + remarks(&right[last..]) + 24.0;
        // A small trace is centred on its page.
        let spare = (NARROWEST - width).max(0.0);
        for (_, lane) in &mut all {
            *lane += spare / 2.0;
        }
        Self {
            all,
            width: width + spare,
        }
    }

    /// The width of the whole picture.
    pub(super) fn width(&self) -> f64 {
        self.width
    }

    /// The place of a lane; the left edge for an absent one.
    pub(super) fn x(&self, who: LaneOwner) -> f64 {
        let lane = self.all.iter().find(|(of, _)| *of == who);
        lane.map_or(0.0, |(_, x)| *x)
    }

    /// Whether this client is to the left of the servers.
    pub(super) fn is_left(&self, client: u8) -> bool {
        self.all
            .first()
            .is_some_and(|(who, _)| *who == LaneOwner::Client(client))
    }

    /// The span from the first lane to the last.
    pub(super) fn ends(&self) -> (f64, f64) {
        let first = self.all.first().map_or(0.0, |(_, x)| *x);
        (first, self.all.last().map_or(0.0, |(_, x)| *x))
    }
}

/// The lane that a command is for.
pub(super) fn target(event: &LadderEvent) -> Option<LaneOwner> {
    match event {
        LadderEvent::Asks {
            server, command, ..
        }
        | LadderEvent::Sends {
            server, command, ..
        }
        | LadderEvent::Arrives {
            server, command, ..
        } => Some(if is_for_resource(*command) {
            LaneOwner::Resource(*server)
        } else {
            LaneOwner::Lock(*server)
        }),
        _ => None,
    }
}

fn servers(trace: &Trace) -> Vec<LaneOwner> {
    let mut lanes: Vec<LaneOwner> = (0..trace.lock_servers.max(1))
        .map(LaneOwner::Lock)
        .collect();
    for line in &trace.lines {
        if let Some(resource @ LaneOwner::Resource(_)) = target(&line.event)
            && !lanes.contains(&resource)
        {
            lanes.push(resource);
        }
    }
    lanes
}

fn is_of(step: &StoryStep, clients: &[u8]) -> bool {
    match actor(&step.line.event) {
        Some(client) => clients.contains(&client),
        // A lock that expires is described beside the lane.
        None => step.stopped().any(|client| clients.contains(&client)),
    }
}

fn label_width(step: &StoryStep) -> f64 {
    let event = &step.line.event;
    let lines = label(event).into_iter().chain(reply_label(event));
    lines.map(|line| wide(&line, CODE)).fold(0.0, f64::max)
}
