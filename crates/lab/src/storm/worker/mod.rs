//! One of the processes that want the locks. Must never keep a lock from the others but by holding it: what it does to the
//! resource, and how long it takes, is drawn from a seed.
//!
//! | module | what it is for |
//! |---|---|
//! | `ours`, `plain` | a lock of the library; a key that is set and deleted |
//! | `plan` | what is done under a lock, and for how long |
//! | `visit`, `log` | the resource; the history |
//! | `stalls` | when the worker could not run |

mod log;
mod ours;
mod plain;
mod plan;
pub(super) mod stalls;
mod visit;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::log::Log;
pub(super) use self::log::append;
use self::visit::Visit;
use crate::rng::Rng;

/// What locks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The library.
    Leasehold,
    /// `SET NX PX`, work, `DEL`: the rung P4, which is mostly written with `EX` and seconds.
    SetDel,
}

/// Who the worker is and what it works with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) proc: u64,
    pub(crate) seed: u64,
    pub(crate) system: System,
    pub(crate) url: String,
    /// What the names of the locks begin with, and how many there are.
    pub(crate) prefix: String,
    pub(crate) locks: u64,
    pub(crate) ttl_ms: u64,
    /// Each of them acquires and releases.
    pub(crate) tasks: u64,
    /// Of a hundred leases, how many are outlived on purpose.
    pub(crate) outlived: u64,
    /// Where the history is written.
    pub(crate) directory: PathBuf,
    /// Of the resource.
    pub(crate) socket: PathBuf,
    /// When it exists, no more locks are wanted.
    pub(crate) enough: PathBuf,
}

impl Orders {
    pub(crate) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Whether to come to an end.
    fn is_enough(&self) -> bool {
        self.enough.exists()
    }
}

/// What all tasks of a worker share.
#[derive(Debug)]
struct Worker {
    orders: Orders,
    log: Log,
}

/// Works until it is enough.
pub(crate) fn work(orders: Orders) -> Result<(), String> {
    let log = Log::create(&orders.directory, orders.proc)?;
    stalls::watch(&orders.directory, orders.proc)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(all(Arc::new(Worker { orders, log })))
}

async fn all(worker: Arc<Worker>) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    let client = match worker.orders.system {
        System::Leasehold => ours::connect(&worker.orders).await,
        System::SetDel => None,
    };
    for task in 0..worker.orders.tasks {
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
        () = stalls::tick(&worker.orders.directory, worker.orders.proc) => {}
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
    let orders = &worker.orders;
    let mut rng = Rng::new(orders.seed ^ orders.proc << 8 ^ task);
    let mut visit = Visit::begin(&orders.socket, orders.proc).await?;
    let mut plain = plain::Plain::new(&orders.url)?;
    while !orders.is_enough() {
        let lock = format!("{}m{}", orders.prefix, 1 + rng.below(orders.locks));
        let name = worker.log.name(lock);
        match (orders.system, client) {
            (System::Leasehold, Some(client)) => {
                ours::round(worker, client, &name, &mut visit, &mut rng).await?;
            }
            (System::Leasehold, None) => break,
            (System::SetDel, _) => plain.round(worker, &name, &mut visit, &mut rng).await?,
        }
        sleep(Duration::from_micros(rng.below(6_000))).await;
    }
    Ok(())
}
