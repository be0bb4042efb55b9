//! The protocol: warm up, `READY`, `GO <t0>`, work, report, `BYE`.

use std::fmt::Display;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::args::{Args, Load, Mode};
use crate::clock::{nanos, now_ns, sleep_until_async};
use crate::report::{self, Record, Tally};
use crate::section::{Section, Shared};

/// The use of one library.
pub trait Peer: Clone + Send + Sync + 'static {
    /// The object that a worker creates once for its key.
    type Lock: Send + 'static;

    fn lock(&self, key: &str) -> Self::Lock;

    /// Acquires, runs `section` while holding the lock, releases. Err: the acquire or the release failed.
    fn cycle(
        &self,
        lock: &mut Self::Lock,
        section: &mut Section,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Takes `key` for 120 s and keeps it, in the workloads of `mode=idle`. Not all peers take part in those.
    fn hold(&self, key: &str) -> impl Future<Output = ()> + Send {
        async move { panic!("mode=idle: this peer does not hold {key:?} for others") }
    }

    /// Ends the background work of the library.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Builds the kind of runtime that every library runs on.
pub fn runtime(threads: usize) -> Runtime {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().expect("a runtime")
}

/// Runs a driver with the peer that `make` connects.
pub fn drive<P: Peer>(make: impl AsyncFnOnce(&Args, &Load) -> P) {
    let args = Args::parse();
    let load = Load::new(&args);
    runtime(load.threads).block_on(async {
        let peer = make(&args, &load).await;
        match load.mode {
            Mode::Loop => cycles(&load, &peer).await,
            Mode::Idle | Mode::Wait => wait(&load, &peer).await,
        }
        line().await; // BYE
        if load.mode == Mode::Loop {
            peer.close().await;
        }
    });
    // Waiters never get the lock.
    std::process::exit(0);
}

/// The text of an error.
pub fn text(error: impl Display) -> String {
    error.to_string()
}

/// Waits for all tasks.
pub async fn join<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.expect("no task panics"));
    }
    done
}

/// The next line of standard input.
pub async fn line() -> String {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut line)
            .expect("a line on stdin");
        line
    });
    read.await.expect("stdin is read")
}

/// Prints READY and waits for GO. Returns the start time.
async fn ready() -> u64 {
    println!("READY");
    std::io::stdout().flush().expect("stdout is open");
    let go = line().await;
    let start = go.split_whitespace().nth(1);
    start.map_or_else(now_ns, |start| start.parse().expect("GO <nanoseconds>"))
}

async fn wait<P: Peer>(load: &Load, peer: &P) {
    let shared = Shared::new(Some(1));
    let errors = Arc::new(AtomicU64::new(0));
    let key = load.key(0);
    if load.mode == Mode::Idle {
        peer.hold(&key).await;
    }
    for worker in 0..load.workers {
        let (peer, key) = (peer.clone(), key.clone());
        let (shared, errors) = (shared.clone(), errors.clone());
        let mut section = Section::new(worker, &shared, load.held);
        tokio::spawn(async move {
            let mut lock = peer.lock(&key);
            loop {
                // The lock stays held, so each acquisition is a violation.
                let count = match peer.cycle(&mut lock, &mut section).await {
                    Ok(()) => &shared.violations,
                    Err(_) => &*errors,
                };
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    tokio::time::sleep(load.settle).await;
    let start = ready().await;
    sleep_until_async(start + nanos(load.time)).await;
    let mut tally = Tally::default();
    tally.errors = errors.load(Ordering::SeqCst);
    report::write_log(load, &[]);
    report::print(load, &[tally], &shared);
}

async fn cycles<P: Peer>(load: &Load, peer: &P) {
    warm_up(load, peer).await;
    let start = ready().await;
    let end = start + nanos(load.time);
    let shared = Shared::new(load.most());
    shared.end_at(end);
    let workers = (0..load.workers)
        .map(|worker| {
            let (peer, load, shared) = (peer.clone(), load.clone(), shared.clone());
            tokio::spawn(async move {
                sleep_until_async(start).await;
                work(&peer, &load, worker, &shared, end).await
            })
        })
        .collect();
    let tallies = join(workers).await;
    report::write_log(load, &tallies);
    report::print(load, &tallies, &shared);
}

/// Opens connections and loads scripts: 20 acquisitions of a private key per worker.
async fn warm_up<P: Peer>(load: &Load, peer: &P) {
    let shared = Shared::new(None);
    let workers = (0..load.workers)
        .map(|worker| {
            let key = format!("{}:warm:{}:{worker}", load.prefix, std::process::id());
            let (peer, mut section) = (peer.clone(), Section::new(worker, &shared, Duration::ZERO));
            tokio::spawn(async move {
                let mut lock = peer.lock(&key);
                for _ in 0..20 {
                    if let Err(error) = peer.cycle(&mut lock, &mut section).await {
                        eprintln!("warm-up: {error}");
                    }
                }
            })
        })
        .collect();
    join(workers).await;
}

async fn work<P: Peer>(
    peer: &P,
    load: &Load,
    worker: usize,
    shared: &Arc<Shared>,
    end: u64,
) -> Tally {
    let mut tally = Tally::default();
    let mut section = Section::new(worker, shared, load.held);
    let mut random = Random::new(worker as u64);
    let mut lock = peer.lock(&load.key(worker));
    let mut requested = now_ns();
    // A failed acquisition is repeated; its wait runs from the first request.
    while now_ns() < end {
        match peer.cycle(&mut lock, &mut section).await {
            Ok(()) => {
                let record = Record {
                    requested,
                    acquired: section.acquired,
                    release_called: section.left,
                    release_returned: now_ns(),
                };
                tally.add(record, end, load.log.is_some());
                if !load.think.is_zero() {
                    // 0.5 to 1.5 times the mean.
                    tokio::time::sleep(load.think.mul_f64(0.5 + random.share())).await;
                }
                requested = now_ns();
            }
            Err(error) => {
                if tally.errors == 0 {
                    eprintln!("worker {worker}: {error}");
                }
                tally.errors += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    tally
}

/// A linear congruential generator: good enough for pauses.
pub struct Random(u64);

impl Random {
    /// Differs by process and by `number`.
    pub fn new(number: u64) -> Self {
        Self(now_ns() ^ (number << 32) ^ u64::from(std::process::id()))
    }

    /// At least 0, below 1.
    pub fn share(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
