//! One of the processes that want the locks. Must never keep a lock from the others but by holding it: what it does to the
//! resource, and how long it takes, is drawn from a seed.
//!
//! | module | what it is for |
//! |---|---|
//! | `ours`, `plain` | a lock of the library; a key that is set and deleted |
//! | `orders`, `shared` | who it is; what its tasks share |
//! | `plan` | what is done under a lock, and for how long |
//! | `visit`, `log` | the resource; the history |
//! | `stalls` | when the worker could not run |

mod log;
mod orders;
mod ours;
mod plain;
mod plan;
mod shared;
pub(super) mod stalls;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::log::Log;
pub(super) use self::log::append;
pub(crate) use self::orders::{Orders, System};
use self::shared::Worker;
use self::visit::Visit;
use crate::rng::Rng;

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
