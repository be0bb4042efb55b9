//! A process of a fleet: it reads through the cache as the orders on its standard input say, and replies with one line. Only the test
//! judges the results.

use std::collections::BTreeMap;
use std::env;
use std::io::stdin;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::Client;
use leasehold::cache::{Cache, Error, Origin, Policy};

use crate::source::{Source, monotonic};

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
            .wait_at_most(self.millis("wait", 30_000))
            .back_off(self.millis("back_off", 1000))
            .load_at_most(self.millis("load_at_most", 60_000))
            .lease(lease)
    }
}

/// One answered call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) how: &'static str,
    pub(crate) asked: Duration,
    pub(crate) took: Duration,
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
        .block_on(Client::connect(&url))
        .expect("the server answers");
    let process = Arc::new(Process {
        cache: client.cache(),
        source: Source::new(Path::new(&place)),
        first_error: OnceLock::new(),
    });
    println!("\n{ANSWER}ready");
    for line in stdin().lines() {
        let order = Order::parse(&line.expect("orders are text"));
        // The order runs as a task of the runtime, as in any program. `block_on` would poll it on this thread, which does nothing else.
        let told = runtime.block_on(runtime.spawn(process.clone().obey(order)));
        println!("\n{ANSWER}{}", told.expect("an order does not panic"));
    }
    true
}

impl Process {
    async fn obey(self: Arc<Self>, order: Order) -> String {
        match order.word.as_str() {
            "offer" => summary(&self.offer(order).await),
            "invalidate" => ended(self.cache.invalidate(order.key()).await),
            "remove" => ended(self.cache.remove(order.key()).await),
            "write" => self.write(&order).await,
            other => panic!("no such order: {other}"),
        }
    }

    /// Makes `callers` calls at once, then one each `every` microseconds for `ms` milliseconds.
    async fn offer(self: &Arc<Self>, order: Order) -> Vec<Answered> {
        let order = Arc::new(order);
        let until = monotonic() + order.millis("ms", 0);
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..order.number("callers", 0) {
            calls.spawn(self.clone().call(order.clone()));
        }
        let every = Duration::from_micros(order.number("every", 4000));
        let mut next = monotonic();
        while monotonic() < until {
            calls.spawn(self.clone().call(order.clone()));
            next += every;
            tokio::time::sleep(next.saturating_sub(monotonic())).await;
        }
        calls.join_all().await
    }

    async fn call(self: Arc<Self>, order: Arc<Order>) -> Answered {
        let key = order.key();
        let (source, takes) = (self.source.clone(), order.millis("takes", 20));
        let (read, fails) = (key.clone(), order.number("fails", 0) == 1);
        let floor = self.source.floor(&key);
        let asked = monotonic();
        let call = self
            .cache
            .get_or_refresh(&key, move || source.read(read, takes, fails))
            .policy(order.policy());
        let answer = call.await;
        let took = monotonic().saturating_sub(asked);
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
            Err(Error::Load(failed)) if failed.text.contains("is down") => ("failed", false),
            Err(error) => {
                self.first_error.get_or_init(|| eprintln!("{error}"));
                ("error", false)
            }
        };
        Answered {
            how,
            asked,
            took,
            outlived,
        }
    }

    /// Changes the register, and then invalidates or removes the entry. After that, no older value may count as fresh.
    async fn write(&self, order: &Order) -> String {
        let (key, value) = (order.key(), order.number("value", 0));
        self.source.write_register(&key, value);
        let end = if order.number("remove", 0) == 1 {
            self.cache.remove(&key).await
        } else {
            self.cache.invalidate(&key).await
        };
        if end.is_ok() {
            self.source.raise_floor(&key, value);
        }
        ended(end)
    }
}

fn ended(end: Result<(), Error>) -> String {
    end.map_or_else(|error| format!("error={error:?}"), |()| "ok=1".to_owned())
}

/// Counts the calls by result, with the median and the 99th percentile of their durations in microseconds. `waited_until` is the time at
/// which 99 % of the waiters had their value.
fn summary(answers: &[Answered]) -> String {
    let mut by: BTreeMap<&str, Vec<u128>> = BTreeMap::new();
    for answer in answers {
        by.entry(answer.how)
            .or_default()
            .push(answer.took.as_micros());
    }
    let mut words = vec![format!(
        "outlived={}",
        answers.iter().filter(|answer| answer.outlived).count()
    )];
    for (how, mut times) in by {
        times.sort_unstable();
        let last = times.len() - 1;
        words.push(format!(
            "{how}={} {how}_p50={} {how}_p99={}",
            times.len(),
            times[last / 2],
            times[last * 99 / 100]
        ));
    }
    let waited = answers.iter().filter(|answer| answer.how == "waited");
    let mut ends: Vec<_> = waited
        .map(|answer| (answer.asked + answer.took).as_nanos())
        .collect();
    ends.sort_unstable();
    if let Some(last) = ends.len().checked_sub(1) {
        words.push(format!("waited_until={}", ends[last * 99 / 100]));
    }
    words.join(" ")
}
