//! The bars of a picture: when a client believes to hold the lock, and the values of the keys.

use crate::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};
use crate::ladder::trace::LadderEvent;
use crate::svg::Svg;

use super::super::steps::{StoryStep, actor, entry};
use super::lanes::{HALF, LaneOwner, Lanes};
use super::rows::Rows;
use super::style::{FAINT, INK, MONO, RULE, WRONG, colour};

/// Lanes, and the bars in them.
pub(super) fn draw(svg: &mut Svg, steps: &[StoryStep], lanes: &Lanes, rows: &Rows) {
    for (who, x) in &lanes.all {
        match who {
            LaneOwner::Client(client) => believer(svg, steps, rows, (*client, *x)),
            LaneOwner::Lock(server) => {
                boxes(svg, steps, rows, (usize::from(*server), *x), Key::Lock);
            }
            LaneOwner::Resource(server) => {
                boxes(svg, steps, rows, (usize::from(*server), *x), Key::Data);
            }
        }
    }
    for (at, step) in steps.iter().enumerate() {
        if step.line.wrong.is_some() && step.line.holders.len() > 1 {
            for client in &step.line.holders {
                let (x, row) = (lanes.x(LaneOwner::Client(*client)), rows.at(at));
                let style = format!(r#"rx="4" fill="none" stroke="{WRONG}" stroke-width="2.5""#);
                svg.rect(
                    (x - 8.0, row.answered),
                    (16.0, row.bottom - row.answered),
                    &style,
                );
            }
        }
    }
}

/// A client's lane, dotted after a crash, with a bar while it believes to hold the lock.
fn believer(svg: &mut Svg, steps: &[StoryStep], rows: &Rows, (client, x): (u8, f64)) {
    let top = rows.all().first().map_or(0.0, |row| row.top);
    let crash = steps
        .iter()
        .position(|step| step.line.event == LadderEvent::Crashes { client });
    let end = crash.map_or(rows.bottom(), |at| rows.at(at).asked);
    let line = format!(r#"stroke="{}" stroke-width="1.5""#, colour(client));
    svg.styled_line((x, top), (x, end), &line);
    svg.styled_line(
        (x, end),
        (x, rows.bottom()),
        &format!(r#"stroke="{RULE}" stroke-dasharray="2 4""#),
    );
    let mut since = None;
    for (at, step) in steps.iter().enumerate() {
        let row = rows.at(at);
        let holds = step.line.holders.contains(&client);
        match since {
            None if holds => since = Some(row.answered),
            Some(from) if !holds => {
                bar(svg, x, (from, row.answered), colour(client));
                since = None;
            }
            _ => {}
        }
    }
    if let Some(from) = since {
        bar(svg, x, (from, rows.bottom()), colour(client));
    }
}

fn bar(svg: &mut Svg, x: f64, (from, to): (f64, f64), colour: &str) {
    svg.rect(
        (x - 6.0, from),
        (12.0, to - from),
        &format!(r#"rx="3" fill="{colour}""#),
    );
}

/// The time in which a key has one value.
#[derive(Debug)]
struct Standing {
    value: Value,
    /// The client that wrote it.
    writer: Option<u8>,
    from: f64,
    to: f64,
    /// Where its TTL was set, its length, and its end.
    ttls: Vec<(f64, Tick, Tick)>,
}

/// A server's lane, with a box while the key has a value.
fn boxes(svg: &mut Svg, steps: &[StoryStep], rows: &Rows, (server, x): (usize, f64), key: Key) {
    let top = rows.all().first().map_or(0.0, |row| row.top);
    let line = format!(r#"stroke="{RULE}" stroke-width="1.5""#);
    svg.styled_line((x, top), (x, rows.bottom()), &line);
    for standing in standings(steps, rows, server, key) {
        standing.draw(svg, x);
    }
}

fn standings(steps: &[StoryStep], rows: &Rows, server: usize, key: Key) -> Vec<Standing> {
    let mut all: Vec<Standing> = Vec::new();
    let mut is_there = false;
    for (at, step) in steps.iter().enumerate() {
        let row = rows.at(at);
        let Some((value, left)) = entry(step.line, server, key) else {
            is_there = false;
            continue;
        };
        let is_same = all.last().is_some_and(|last| last.value == value);
        let goes_on = is_there && is_same && !overwrites(&step.line.event, server, key);
        if !goes_on {
            let writer = match value {
                Value::Owner(client, _) => Some(client),
                Value::Number(_) | Value::Nobody => actor(&step.line.event),
            };
            all.push(Standing {
                value,
                writer,
                from: row.asked,
                to: row.asked,
                ttls: Vec::new(),
            });
        }
        is_there = true;
        if let Some(last) = all.last_mut() {
            last.to = rows.all().get(at + 1).map_or(row.bottom, |next| next.asked);
            if let Some(left) = left {
                let expires = step.line.time + left;
                if last.ttls.last().is_none_or(|(.., until)| *until != expires) {
                    last.ttls.push((row.asked, left, expires));
                }
            }
        }
    }
    all
}

/// Whether a step sets the key, possibly to its current value.
fn overwrites(event: &LadderEvent, of: usize, key: Key) -> bool {
    let (LadderEvent::Asks {
        server,
        command,
        reply,
        ..
    }
    | LadderEvent::Arrives {
        server,
        command,
        reply,
        ..
    }) = event
    else {
        return false;
    };
    let sets = match command {
        RedisCommand::Set(set, _) | RedisCommand::GetSet(set, _) => *set == key,
        RedisCommand::WriteWithFence(..) => key == Key::Data && *reply == Reply::Ok,
        _ => false,
    };
    sets && usize::from(*server) == of
}

impl Standing {
    fn draw(&self, svg: &mut Svg, x: f64) {
        const VALUE: f64 = 15.0;
        const TTL: f64 = 12.0;
        let colour = self.writer.map_or(FAINT, colour);
        svg.rect(
            (x - HALF, self.from),
            (2.0 * HALF, self.to - self.from),
            &format!(r#"rx="3" fill="white" stroke="{colour}" stroke-width="1.5""#),
        );
        svg.rect(
            (x - HALF, self.from),
            (2.0 * HALF, self.to - self.from),
            &format!(r#"rx="3" fill="{colour}" fill-opacity="0.14""#),
        );
        let style = format!(
            r#"text-anchor="middle" font-family="{MONO}" font-size="11.5" font-weight="600" fill="{INK}""#
        );
        svg.text((x, self.from + VALUE), &style, &self.value.to_string());
        let style = format!(r#"text-anchor="middle" font-size="9.5" fill="{INK}""#);
        for (at, (y, left, _)) in self.ttls.iter().enumerate() {
            let y = y + if at == 0 { VALUE + TTL } else { TTL };
            if y + 4.0 < self.to {
                svg.text((x, y), &style, &format!("{left} s left"));
            }
        }
    }
}
