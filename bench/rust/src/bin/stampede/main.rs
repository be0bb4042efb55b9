//! One process of a fleet that reads a hot entry through a cache. `bench/stampede` starts several and sends commands on standard
//! input; each command is answered by a line of JSON. `policy=` selects the guard against a stampede.
//!
//! The process runs tasks on a runtime with one thread, beside the library's own threads.
//!
//! A process is called as `stampede policy=... port=... folder=... lease_ms=...`, prints `READY`, then reads commands and answers
//! each with a line of JSON: `offer key=... t0=<CLOCK_MONOTONIC ns>` with `callers` at once and then a Poisson process of `rate`
//! a second for `secs`, under `fresh_ms`, `stale_ms`, `takes_ms` (of the source), `fails`, `back_off_ms`, `load_at_most_ms`; or
//! `invalidate key=...`.

mod guard;
mod offer;
mod plain;
#[cfg(feature = "peers")]
mod rivals;
mod source;

use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::time::Duration;

use leasehold_bench::Args;

use crate::guard::Guard;
use crate::plain::Plain;
use crate::source::Source;

/// The times of an entry and its load, in one command.
#[derive(Clone, Copy)]
struct Keep {
    fresh: Duration,
    stale: Duration,
    lease: Duration,
    /// Time limit for renewals of the lease.
    load_at_most: Duration,
    back_off: Duration,
}

impl Keep {
    fn of(order: &Args) -> Self {
        Self {
            fresh: order.millis("fresh_ms", 60_000.0),
            stale: order.millis("stale_ms", 60_000.0),
            lease: order.millis("lease_ms", 2000.0),
            load_at_most: order.millis("load_at_most_ms", 60_000.0),
            back_off: order.millis("back_off_ms", 1000.0),
        }
    }
}

/// The kind of an answer; `Got` if the library does not report it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Fresh,
    Stale,
    Loaded,
    Waited,
    #[cfg(feature = "peers")]
    Got,
}

impl How {
    const fn word(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Loaded => "loaded",
            Self::Waited => "waited",
            #[cfg(feature = "peers")]
            Self::Got => "got",
        }
    }
}

enum Policy {
    Plain(Plain),
    Guard(Guard),
    #[cfg(feature = "peers")]
    Amalgam(rivals::Amalgam),
    #[cfg(feature = "peers")]
    Cachekit(rivals::Cachekit),
}

impl Policy {
    async fn new(args: &Args, url: &str) -> Self {
        let lock = |millis| plain::Way::Lock(Duration::from_millis(millis));
        match args.text("policy").expect("policy=") {
            "none" => Self::Plain(Plain::connect(url, plain::Way::None).await),
            "process" => Self::Plain(Plain::connect(url, plain::Way::Process).await),
            "lock100" => Self::Plain(Plain::connect(url, lock(100)).await),
            "lock25" => Self::Plain(Plain::connect(url, lock(25)).await),
            "leasehold" => Self::Guard(Guard::connect(url, false).await),
            "leasehold-kept" => Self::Guard(Guard::connect(url, true).await),
            #[cfg(feature = "peers")]
            "amalgam-cache" => Self::Amalgam(rivals::Amalgam::connect(args, url).await),
            #[cfg(feature = "peers")]
            "cachekit-rs" => Self::Cachekit(rivals::Cachekit::connect(url).await),
            other => panic!("policy={other}: not known, or built without the feature `peers`"),
        }
    }

    /// The value of `key`, and its origin.
    async fn get(&self, key: &str, keep: Keep, source: Source) -> Result<(String, How), String> {
        match self {
            Self::Plain(plain) => plain.get(key, keep, source).await,
            Self::Guard(guard) => guard.get(key, keep, source).await,
            #[cfg(feature = "peers")]
            Self::Amalgam(amalgam) => amalgam.get(key, keep, source).await,
            #[cfg(feature = "peers")]
            Self::Cachekit(cachekit) => cachekit.get(key, keep, source).await,
        }
    }

    /// Invalidates the stored value.
    async fn invalidate(&self, key: &str) -> Result<(), String> {
        match self {
            Self::Plain(plain) => plain.invalidate(key).await,
            Self::Guard(guard) => guard.invalidate(key).await,
            #[cfg(feature = "peers")]
            Self::Amalgam(amalgam) => amalgam.invalidate(key).await,
            #[cfg(feature = "peers")]
            Self::Cachekit(cachekit) => cachekit.invalidate(key).await,
        }
    }
}

fn main() {
    let args = Args::parse();
    let url = args.url();
    let folder: Arc<str> = args.text("folder").expect("folder=").into();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let policy = Arc::new(runtime.block_on(Policy::new(&args, &url)));
    say("READY");
    for line in stdin().lines() {
        let line = line.expect("orders are text");
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default().to_owned();
        let order = Args::of(words);
        let (policy, folder) = (policy.clone(), folder.clone());
        // In a task, as in a program: `block_on` polls on another thread than the tasks.
        let work = async move {
            match word.as_str() {
                "offer" => offer::offer(policy, &order, &folder).await,
                "invalidate" => {
                    let key = order.text("key").expect("key=");
                    // Values read before this moment are outdated once the invalidation has ended.
                    let asked = leasehold_bench::now_ns();
                    let ended = policy.invalidate(key).await;
                    format!(
                        "{{\"asked\":{asked},\"errors\":{}}}",
                        u8::from(ended.is_err())
                    )
                }
                other => panic!("no such order: {other}"),
            }
        };
        say(&runtime
            .block_on(runtime.spawn(work))
            .expect("it does not panic"));
    }
    // Connections and background work end with the process.
    std::process::exit(0);
}

fn say(line: &str) {
    println!("{line}");
    stdout().flush().expect("somebody listens");
}
