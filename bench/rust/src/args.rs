//! The `key=value` arguments of a driver.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

/// The parsed arguments.
pub struct Args(HashMap<String, String>);

impl Args {
    /// The arguments of this process.
    pub fn parse() -> Self {
        Self::of(std::env::args().skip(1))
    }

    /// The arguments among `words`; a word without `=` is ignored.
    pub fn of(words: impl Iterator<Item: AsRef<str>>) -> Self {
        let pairs = words.filter_map(|word| {
            let (key, value) = word.as_ref().split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        });
        Self(pairs.collect())
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The value of `key`, or `default`.
    pub fn get<T: FromStr<Err: Debug>>(&self, key: &str, default: T) -> T {
        self.text(key).map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|error| panic!("{key}={text}: {error:?}"))
        })
    }

    /// The port of the server on this host.
    pub fn port(&self) -> u16 {
        self.get("port", 6379)
    }

    /// The URL of the server on this host.
    pub fn url(&self) -> String {
        local(self.port())
    }

    /// A number of milliseconds, which may have a fraction.
    pub fn millis(&self, key: &str, default: f64) -> Duration {
        Duration::from_secs_f64(self.get(key, default) / 1000.0)
    }
}

fn local(port: impl Display) -> String {
    format!("redis://127.0.0.1:{port}/")
}

#[derive(Clone, Copy, PartialEq)]
pub enum Mode {
    /// Acquire, run the critical section, release; again and again.
    Loop,
    /// Take the one key for 120 s and let the workers wait for it.
    Idle,
    /// Only the workers that wait: another process holds the key.
    Wait,
}

/// What a worker takes in each cycle.
#[derive(Clone)]
pub enum Take {
    /// The key alone.
    Mutex,
    /// The key, together with other readers.
    Read,
    /// One of so many slots of the key.
    Slot(u16),
    /// In its n-th cycle, a name for each digit of the n-th number.
    Several(Vec<String>),
}

impl Take {
    fn of(text: &str) -> Self {
        match text.strip_prefix("slot/") {
            Some(slots) => Self::Slot(slots.parse().expect("slot/<how many>")),
            None if text == "mutex" => Self::Mutex,
            None if text == "read" => Self::Read,
            None => Self::Several(text.split(',').map(str::to_owned).collect()),
        }
    }
}

/// The task of a driver.
#[derive(Clone)]
pub struct Load {
    pub mode: Mode,
    pub take: Take,
    pub url: String,
    /// The servers of a quorum; without `ports`, the one of `url`.
    pub urls: Vec<String>,
    pub workers: usize,
    /// 1: tokio's current_thread runtime; more: multi_thread with this number of workers.
    pub threads: usize,
    one_key: bool,
    pub prefix: String,
    pub time: Duration,
    /// Length of the critical section.
    pub held: Duration,
    /// Mean pause between a release and the next request.
    pub think: Duration,
    pub ttl: Duration,
    /// Time for waiters to join the queue before READY.
    pub settle: Duration,
    pub log: Option<String>,
}

impl Load {
    pub fn new(args: &Args) -> Self {
        let url = args.text("url");
        let url = url.map_or_else(|| args.url(), str::to_owned);
        let urls = args.text("ports").map_or_else(
            || vec![url.clone()],
            |ports| ports.split(',').map(local).collect(),
        );
        Self {
            mode: match args.text("mode") {
                None | Some("loop") => Mode::Loop,
                Some("idle") => Mode::Idle,
                Some("wait") => Mode::Wait,
                Some(other) => panic!("mode={other}: loop, idle or wait"),
            },
            take: Take::of(args.text("take").unwrap_or("mutex")),
            url,
            urls,
            workers: args.get("workers", 1),
            threads: args.get("threads", 1),
            one_key: args.text("keys") == Some("one"),
            prefix: args.text("prefix").unwrap_or("bench").to_owned(),
            time: args.millis("secs", 5.0) * 1000,
            held: args.millis("cs_ms", 0.0),
            think: args.millis("think_ms", 0.0),
            ttl: args.millis("ttl_ms", 10_000.0),
            settle: args.millis("settle_ms", 3000.0),
            log: args.text("log").map(str::to_owned),
        }
    }

    fn one_key(&self) -> bool {
        self.one_key || self.mode != Mode::Loop
    }

    /// How many workers may be inside at once; None if they do not share a key.
    pub(crate) fn most(&self) -> Option<usize> {
        self.one_key().then(|| match self.take {
            Take::Mutex => 1,
            Take::Slot(slots) => slots.into(),
            Take::Read | Take::Several(_) => usize::MAX,
        })
    }

    pub fn key(&self, worker: usize) -> String {
        if self.one_key() {
            format!("{}:one", self.prefix)
        } else {
            format!("{}:{worker}", self.prefix)
        }
    }
}
