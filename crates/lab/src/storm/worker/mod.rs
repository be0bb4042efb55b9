//! A worker process, which contends for the locks. The seed determines its operations on the resource and their durations.
//!
//! | module | purpose |
//! |---|---|
//! | `leasehold_tasks`, `set_del` | a lock of the library; a key that is set and deleted |
//! | `work` | the work under a lock: accesses of the resource, and its duration |
//! | `log` | the history |
//! | `stalls` | when the worker could not run |

mod leasehold_tasks;
mod log;
mod set_del;
pub(super) mod stalls;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::log::HistoryLog;
pub(super) use self::log::{append, session};
use self::work::Visit;
use super::kinds::LockKind;

/// The lock implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The library.
    Leasehold,
    /// `SET NX PX`, work, `DEL`: the rung P4, which is mostly written with `EX` and seconds.
    SetDel,
}

/// The configuration of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerConfig {
    pub(crate) proc: u64,
    pub(crate) seed: u64,
    pub(crate) system: System,
    /// The URLs of the stores. Each worker uses one of them.
    pub(crate) urls: Vec<String>,
    /// The prefix of the lock names.
    pub(crate) prefix: String,
    /// The kind of each lock, in the order of their numbers.
    pub(crate) kinds: Vec<LockKind>,
    pub(crate) ttl_ms: u64,
    /// The number of tasks; each acquires and releases.
    pub(crate) tasks: u64,
    /// The percentage of leases that are outlived on purpose.
    pub(crate) outlived: u64,
    /// Half of all leases are held for long, and no access begins after the deadline.
    pub(crate) punctual: bool,
    /// The directory of the history.
    pub(crate) directory: PathBuf,
    /// The socket of the resource.
    pub(crate) socket: PathBuf,
    /// A file; when it exists, workers stop acquiring.
    pub(crate) enough: PathBuf,
}

impl WorkerConfig {
    const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// The URL of its store.
    fn url(&self) -> &str {
        let turn = usize::try_from(self.proc).unwrap_or_default();
        self.urls
            .iter()
            .cycle()
            .nth(turn)
            .map_or("", String::as_str)
    }

    /// The name of a lock, by its number from 0 on.
    pub(super) fn lock(&self, number: usize) -> String {
        format!("{}m{}", self.prefix, 1 + number)
    }

    /// The name of a worker, as its locks note it.
    pub(super) fn worker(proc: u64) -> String {
        format!("worker-{proc}")
    }

    /// The number of the worker of this name.
    pub(super) fn proc_of(worker: &str) -> Option<u64> {
        worker.strip_prefix("worker-")?.parse().ok()
    }

    /// Whether to stop acquiring.
    fn is_enough(&self) -> bool {
        self.enough.exists()
    }
}

/// The state that all tasks of a worker share.
#[derive(Debug)]
struct Worker {
    config: WorkerConfig,
    log: HistoryLog,
}

/// Works until the campaign ends.
pub(crate) fn work(config: WorkerConfig) -> Result<(), String> {
    let log = HistoryLog::create(&config.directory, config.proc)?;
    stalls::watch(&config.directory, config.proc)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(all(Arc::new(Worker { config, log })))
}

async fn all(worker: Arc<Worker>) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    let client = match worker.config.system {
        System::Leasehold => leasehold_tasks::connect(&worker.config).await,
        System::SetDel => None,
    };
    for task in 0..worker.config.tasks {
        let (worker, client) = (Arc::clone(&worker), client.clone());
        tasks.spawn(async move { rounds(&worker, client.as_ref(), task).await });
    }
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| error.to_string())??;
        }
        Ok::<(), String>(())
    };
    tokio::select! {
        ended = ended => ended?,
        () = stalls::tick(&worker.config.directory, worker.config.proc) => {}
    }
    if let Some(client) = client {
        client.close().await;
    }
    Ok(())
}

async fn rounds(
    worker: &Worker,
    client: Option<&leasehold::Client>,
    task: u64,
) -> Result<(), String> {
    let config = &worker.config;
    let mut rng = Rng::with_seed(config.seed ^ config.proc << 8 ^ task);
    let mut visit = Visit::begin(&config.socket, config.proc).await?;
    let mut set_del = match config.system {
        System::SetDel => Some(set_del::Plain::new(config.url())?),
        System::Leasehold => None,
    };
    while !config.is_enough() {
        let Some((number, kind)) = rng.choice(config.kinds.iter().enumerate()) else {
            break;
        };
        let name = worker.log.name(config.lock(number), kind.draw(&mut rng));
        match (&mut set_del, client) {
            (Some(set_del), _) => set_del.round(worker, &name, &mut visit, &mut rng).await?,
            (None, Some(client)) => {
                leasehold_tasks::round(worker, client, &name, &mut visit, &mut rng).await?;
            }
            (None, None) => break,
        }
        sleep(Duration::from_micros(rng.u64(..6_000))).await;
    }
    Ok(())
}
