//! A process of a fleet: it reads through the cache as the orders on its standard input say, and replies with one line. Only the test
//! judges the results.

use std::collections::BTreeMap;
use std::env;
use std::io::stdin;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::Client;
use leasehold_cache::{Cache, Error, Origin, Policy};
use serde_json::json;
use tokio::time::interval;

use crate::common::LONG;
use crate::fleet::Told;
use crate::source::Source;

/// The folder of the fleet. A process without this variable belongs to no fleet.
pub(crate) const PLACE: &str = "LEASEHOLD_FLEET";

/// The first characters of a line for the test, since Rust's test harness prints lines too.
pub(crate) const ANSWER: &str = "@ ";

/// An order of the test: a word and `key=value` pairs.
pub(crate) struct Order {
    pub(crate) word: String,
    settings: BTreeMap<String, String>,
}

impl Order {
    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default().to_owned();
        let settings = words.filter_map(|word| word.split_once('='));
        Self {
            word,
            settings: settings
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    fn key(&self) -> String {
        self.settings
            .get("key")
            .expect("every order has a key")
            .clone()
    }

    pub(crate) fn number(&self, key: &str, default: u64) -> u64 {
        let number = |text: &String| text.parse().unwrap_or_else(|_| panic!("{key}={text}"));
        self.settings.get(key).map_or(default, number)
    }

    fn millis(&self, key: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(key, default))
    }

    fn policy(&self) -> Policy {
        let lease = self.millis("lease", 10_000);
        Policy::default()
            .jitter(0.0)
            .eagerness(0.0)
            .fresh_for(self.millis("fresh", 60_000))
            .stale_for(self.millis("stale", 60_000))
            .must_be_fresh(self.number("must_be_fresh", 0) == 1)
            .wait_at_most(self.millis("wait", 60_000))
            .load_at_most(self.millis("load_at_most", 60_000))
            .lease(lease)
    }
}

/// One answered call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) how: &'static str,
    /// The value was invalid before the call began, and the call did not mark it as stale.
    pub(crate) outlived: bool,
}

struct Process {
    cache: Cache,
    source: Source,
    /// Set after the process has printed its first error. The other errors are usually equal.
    first_error: OnceLock<()>,
}

/// Executes orders until its input ends. Returns `false` if this is no process of a fleet.
pub(crate) fn serve() -> bool {
    let Ok(place) = env::var(PLACE) else {
        return false;
    };
    let url = env::var("LEASEHOLD_FLEET_URL").expect("the address of the server");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let client = runtime
        .block_on(Client::builder().request_timeout(LONG).connect(&url))
        .expect("the server answers");
    let process = Arc::new(Process {
        cache: Cache::new(&client),
        source: Source::new(Path::new(&place)),
        first_error: OnceLock::new(),
    });
    println!("\n{ANSWER}{{}}");
    for line in stdin().lines() {
        let order = Order::parse(&line.expect("orders are text"));
        // The order runs as a task of the runtime, as in any program. `block_on` would poll it on this thread, which does nothing else.
        let told = runtime.block_on(runtime.spawn(process.clone().obey(order)));
        let told = told.expect("an order does not panic");
        println!("\n{ANSWER}{}", json!(told));
    }
    true
}

impl Process {
    async fn obey(self: Arc<Self>, order: Order) -> Told {
        match order.word.as_str() {
            "offer" => summary(&self.offer(order).await),
            "write" => self.write(&order).await,
            other => panic!("no such order: {other}"),
        }
    }

    /// Makes `callers` calls at once, and then one each `every` microseconds: as many as `calls`, and with `endless=1` until the test has
    /// had enough. A slow machine makes them later, and not fewer.
    async fn offer(self: &Arc<Self>, order: Order) -> Vec<Answered> {
        let order = Arc::new(order);
        let (key, endless) = (order.key(), order.number("endless", 0) == 1);
        let mut left = order.number("calls", 0);
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..order.number("callers", 0) {
            calls.spawn(self.clone().call(order.clone()));
        }
        let mut next = interval(Duration::from_micros(order.number("every", 4000)));
        while left > 0 || (endless && !self.source.is_signed("enough", &key)) {
            next.tick().await;
            left = left.saturating_sub(1);
            calls.spawn(self.clone().call(order.clone()));
        }
        calls.join_all().await
    }

    async fn call(self: Arc<Self>, order: Arc<Order>) -> Answered {
        let key = order.key();
        let (source, takes) = (self.source.clone(), order.millis("takes", 20));
        let read = key.clone();
        let closed = order.number("closed", 0) == 1;
        let floor = self.source.floor(&key);
        let call = self
            .cache
            .get_or_refresh(&key, move || source.read(read, takes, closed))
            .policy(order.policy());
        let answer = call.await;
        let (how, outlived) = match &answer {
            Ok(got) if got.origin() == Origin::Stale => ("stale", false),
            Ok(got) => {
                let how = match got.origin() {
                    Origin::Fresh => "fresh",
                    Origin::Loaded => "loaded",
                    _ => "waited",
                };
                (how, **got < floor)
            }
            Err(Error::Busy { .. }) => ("busy", false),
            Err(error) => {
                self.first_error.get_or_init(|| eprintln!("{error}"));
                self.source.note("refused", &key);
                ("error", false)
            }
        };
        Answered { how, outlived }
    }

    /// Changes the register, and then invalidates or removes the entry. After that, no older value may count as fresh.
    async fn write(&self, order: &Order) -> Told {
        let (key, value) = (order.key(), order.number("value", 0));
        self.source.write_register(&key, value);
        let end = if order.number("remove", 0) == 1 {
            self.cache.remove(&key).await
        } else {
            self.cache.invalidate(&key).await
        };
        end.expect("it is invalidated");
        self.source.raise_floor(&key, value);
        Told::new()
    }
}

/// Counts the calls by result.
fn summary(answers: &[Answered]) -> Told {
    let mut told = Told::new();
    for answer in answers {
        *told.entry(answer.how.to_owned()).or_default() += 1;
        *told.entry("outlived".to_owned()).or_default() += u64::from(answer.outlived);
    }
    told
}
