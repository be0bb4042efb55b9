//! A trace as a picture: a lane for each client and each server, time downwards, a row for each step. The texts of a lane are in
//! the column at its right, and a row is as high as its texts, so they do not overlap. Colour is never the only sign.

use std::fmt::Write as _;

use super::steps::{StoryStep, entry, steps};
use crate::ladder::redis::Key;
use crate::ladder::trace::{LadderEvent, LadderMessage, Trace};
use crate::ladder::words::{self, REJOINS, RESTARTS, in_short};
use crate::text::{counted, wrap};

/// The place of the first lane. The numbers and times of the steps are at its left.
const FIRST: f64 = 120.0;
/// The distance between two lanes.
const COLUMN: f64 = 190.0;
/// How many letters fit between two lanes; one is at most 0.6 em wide. A delayed command waits in the rest.
const LETTERS: usize = 23;
/// The height of a line of text in a step.
const LINE: f64 = 14.0;

const STRONG: &str = r#"font-size="13" font-weight="600""#;
const WRONG: &str = r##"font-size="13" font-weight="600" fill="#c0182f""##;
const PLAIN: &str = r#"font-size="11""#;
const COMMAND: &str = r#"stroke="black" marker-end="url(#head)""#;
const WAITS: &str = r#"stroke="black" stroke-dasharray="2 4""#;
const REPLY: &str = r#"stroke="black" stroke-dasharray="5 3" marker-end="url(#head)""#;
const LOST: &str = r#"stroke="black" stroke-dasharray="5 3" marker-end="url(#cross)""#;

/// The picture of a trace.
pub fn svg(trace: &Trace) -> String {
    let (rung, steps) = (trace.rung, steps(trace));
    let lanes = lanes(trace, &steps).into_iter();
    let mut picture = Picture {
        width: FIRST + COLUMN * length(lanes.len()),
        lanes: lanes.map(|of| (of, head(trace, of))).collect(),
        ..Picture::default()
    };
    let (name, count) = (rung.name, counted(trace.lines.len(), "step"));
    let title = format!("{}: how {name} goes wrong in {count}", rung.number);
    picture.paragraph(STRONG, &title);
    picture.paragraph(PLAIN, rung.recipe);
    picture.y += 40.0;
    for (of, head) in picture.lanes.clone() {
        picture.text((picture.lane(of).0 - 6.0, picture.y - 8.0), STRONG, &head);
    }
    for step in &steps {
        picture.step(step);
    }
    // A bar that begins with the last step needs some length to be visible.
    picture.lanes(3.0 * LINE);
    for step in &steps {
        if let Some(why) = &step.line.wrong {
            picture.paragraph(WRONG, &format!("Step {}: {why}", step.number()));
        }
    }
    picture.paragraph(PLAIN, "Bar: the client believes to hold the lock.");
    let table = format!("The same as a table: leasehold-lab show {name}");
    picture.paragraph(PLAIN, &table);
    picture.page(&title)
}

/// The subject of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Client(u8),
    /// A server's lock, or the protected data in it.
    Server(u8, Key),
}

/// The lanes from left to right: the clients in the story, the locks, and the data if a command is for it.
fn lanes(trace: &Trace, steps: &[StoryStep]) -> Vec<Lane> {
    let is_in_story = |client: &u8| {
        let mut lines = steps.iter().map(|step| step.line);
        lines.any(|line| line.event.actor() == Some(*client) || line.holders.contains(client))
    };
    let clients = (0..trace.clients).filter(is_in_story).map(Lane::Client);
    let locks = (0..trace.rung.lock_servers()).map(|server| Lane::Server(server, Key::Lock));
    let mut all: Vec<Lane> = clients.chain(locks).collect();
    for step in steps {
        let to = step.line.event.message().map(target);
        all.extend(to.filter(|to| !all.contains(to)));
    }
    all
}

fn head(trace: &Trace, of: Lane) -> String {
    match of {
        Lane::Client(client) => match trace.rung.ahead(client) {
            Some(ahead) => format!("client {}, clock {ahead:+} s", words::client(client)),
            None => format!("client {}", words::client(client)),
        },
        Lane::Server(server, Key::Lock) if trace.rung.lock_servers() > 1 => words::server(server),
        Lane::Server(_, key) => key.name().to_owned(),
    }
}

/// The lane of the server that gets a command.
fn target(message: LadderMessage) -> Lane {
    Lane::Server(message.server, message.command.subject())
}

/// The text of a command and its reply.
fn said(message: LadderMessage) -> String {
    let reply = message
        .reply
        .map_or_else(|| "on its way".to_owned(), |reply| format!("reply {reply}"));
    let late = if message.is_late { " arrives" } else { "" };
    let lost = match (message.is_lost, message.is_late) {
        (true, true) => ", unheard",
        (true, false) => ", lost",
        (false, _) => "",
    };
    format!("{}{late}\n{reply}{lost}", in_short(message.command))
}

/// The texts of a step, each for its lane.
fn texts(step: &StoryStep) -> Vec<(Lane, String)> {
    let of_client = |client: u8, what: &str| {
        let text = format!("{what}\n{}", step.line.note);
        (Lane::Client(client), text.trim_end().to_owned())
    };
    let of_server = |server: u8, key: Key, what: &str| {
        let value = match entry(step.line, server, key) {
            Some((value, Some(left))) => format!("value {value}, {left} s left"),
            Some((value, None)) => format!("value {value}"),
            None => "no value".to_owned(),
        };
        (Lane::Server(server, key), format!("{what}{value}"))
    };
    let of_lock = |server: &u8, what: &str| of_server(*server, Key::Lock, &format!("{what}\n"));
    match &step.line.event {
        LadderEvent::Tick => {
            let stopped = step.stopped().map(|of| of_client(of, "time is up"));
            let expired = step.expired().map(|of| of_lock(&of, "key expires"));
            stopped.chain(expired).collect()
        }
        LadderEvent::Message(message) => {
            let sent = of_client(message.client, &said(*message));
            let (server, key) = (message.server, message.command.subject());
            let arrived = message.reply.map(|_| of_server(server, key, ""));
            std::iter::once(sent).chain(arrived).collect()
        }
        LadderEvent::Does { client, what } => vec![of_client(*client, what)],
        LadderEvent::Crashes { client } => vec![of_client(*client, "crashes")],
        LadderEvent::Restarts { server, .. } => vec![of_lock(server, RESTARTS)],
        LadderEvent::Rejoins { server, .. } => vec![of_lock(server, REJOINS)],
        LadderEvent::ClockJumps { server, by } => vec![of_lock(server, &format!("clock + {by} s"))],
    }
}

/// The picture as far as it is drawn, down to `y`.
#[derive(Debug, Default)]
struct Picture {
    /// The lanes with their heads.
    lanes: Vec<(Lane, String)>,
    /// The clients that held the lock before the step.
    holders: Vec<u8>,
    /// The clients of delayed commands, and where their waiting begins.
    sent: Vec<(u8, f64)>,
    width: f64,
    y: f64,
    svg: String,
    /// The steps for screen readers.
    words: String,
}

impl Picture {
    fn paragraph(&mut self, style: &str, text: &str) {
        for part in wrap(text, LETTERS * self.lanes.len()) {
            self.y += 20.0;
            self.text((LINE, self.y), style, &part);
        }
    }

    fn step(&mut self, step: &StoryStep) {
        let texts = texts(step);
        let most = texts.iter().map(|(_, it)| wrap(it, LETTERS).len()).max();
        let height = 24.0 + LINE * length(most.unwrap_or(1));
        let (y, middle) = (self.y, self.y + height / 2.0);
        if step.line.wrong.is_some() {
            let band = format!(r##"stroke="#fdeaec" stroke-width="{height}""##);
            self.line((0.0, middle), (self.width, middle), &band);
            self.text((LINE, y + 34.0), WRONG, "wrong");
        }
        self.lanes(height);
        self.arrows(&step.line.event, y + 8.0, self.y - 8.0);
        let number = format!("{}, at {} s", step.number(), step.line.time);
        self.text((LINE, y + 20.0), PLAIN, &number);
        self.words += &number;
        for (of, text) in &texts {
            let (x, head) = self.lane(*of);
            let _infallible = write!(self.words, "; {head}: {}", text.replace('\n', ", "));
            for (nth, part) in wrap(text, LETTERS).iter().enumerate() {
                self.text((x + 12.0, y + 20.0 + LINE * length(nth)), PLAIN, part);
            }
        }
        if texts.is_empty() {
            self.words += "; time passes";
        }
        if let Some(why) = &step.line.wrong {
            let _infallible = write!(self.words, "; here it goes wrong: {why}");
        }
        self.words += ". ";
        self.holders.clone_from(&step.line.holders);
    }

    /// Draws the lanes further down, with bars for the holders.
    fn lanes(&mut self, height: f64) {
        for (of, _) in self.lanes.clone() {
            let x = self.lane(of).0;
            let (top, bottom) = ((x, self.y), (x, self.y + height));
            self.line(top, bottom, r##"stroke="#b8bec9""##);
            if self.holders.iter().any(|it| of == Lane::Client(*it)) {
                self.line(top, bottom, r##"stroke="#7aa9dd" stroke-width="10""##);
            }
        }
        self.y += height;
    }

    /// Draws a command at `y` and its reply at `end`, or a crash.
    fn arrows(&mut self, event: &LadderEvent, y: f64, end: f64) {
        if let LadderEvent::Crashes { client } = event {
            let x = self.lane(Lane::Client(*client)).0;
            self.line((x, end), (x, end + 8.0), LOST);
        }
        let Some(message) = event.message() else {
            return;
        };
        let client = message.client;
        let from = self.lane(Lane::Client(client)).0 + 6.0;
        let to = self.lane(target(message)).0;
        let wait = to - 16.0;
        if message.reply.is_none() {
            self.line((from, y), (wait, y), WAITS);
            self.sent.push((client, y));
            return;
        }
        if message.is_late {
            let since = self.sent.iter().rfind(|(of, _)| *of == client);
            let since = since.map_or(y, |(_, since)| *since);
            self.line((wait, since), (wait, y), WAITS);
            self.line((wait, y), (to, y), COMMAND);
        } else {
            self.line((from, y), (to, y), COMMAND);
        }
        if message.is_lost {
            self.line((to, end), (f64::midpoint(from, to), end), LOST);
        } else {
            self.line((to, end), (from, end), REPLY);
        }
    }

    fn page(&self, title: &str) -> String {
        let (width, height) = (self.width, self.y + LINE);
        let (title, words, drawn) = (escaped(title), escaped(&self.words), &self.svg);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace">
<title>{title}</title>
<desc>{words}</desc>
<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto"><path d="M 0 0 L 8 4 L 0 8 Z"/></marker>
<marker id="cross" markerWidth="12" markerHeight="12" refX="6" refY="6"><path d="M 1 1 L 11 11 M 1 11 L 11 1" stroke="#c0182f" stroke-width="2.5"/></marker></defs>
<rect width="{width}" height="{height}" fill="white"/>
{drawn}</svg>
"##
        )
    }

    /// The place of a lane, and its head.
    fn lane(&self, of: Lane) -> (f64, String) {
        let nth = self.lanes.iter().position(|it| it.0 == of).unwrap_or(0);
        (FIRST + COLUMN * length(nth), self.lanes[nth].1.clone())
    }

    fn line(&mut self, (a, b): (f64, f64), (c, d): (f64, f64), style: &str) {
        let _infallible = writeln!(self.svg, r#"<path d="M {a} {b} L {c} {d}" {style}/>"#);
    }

    fn text(&mut self, (x, y): (f64, f64), style: &str, text: &str) {
        let text = escaped(text);
        let _infallible = writeln!(self.svg, r#"<text x="{x}" y="{y}" {style}>{text}</text>"#);
    }
}

fn length(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// Escapes a text for an element. XML has no control characters, not even escaped.
fn escaped(text: &str) -> String {
    let visible = text.replace(char::is_control, "?").replace('&', "&amp;");
    visible.replace('<', "&lt;").replace('>', "&gt;")
}
