//! An apalis worker with a cron schedule on each of several hosts. One of them does the job of a tick.
//!
//! `HOST=a cargo run -p leasehold-examples --bin apalis_once`

use std::env;
use std::str::FromStr;

use apalis::prelude::{BoxDynError, Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use cron::Schedule;
use leasehold::{Client, Error, Lease, Turn};

/// Each host has its own schedule, so each worker fires at each tick.
const SCHEDULE: &str = "*/2 * * * * *";

/// The handler. apalis tells the time for which the tick was planned: a name that all hosts use, even if their clocks differ. An error goes
/// back to apalis, and leaves the tick open for the next host.
async fn fire(tick: Tick, client: Data<Client>, host: Data<String>) -> Result<(), BoxDynError> {
    let (tick, host) = (tick.get_timestamp(), host.as_str());
    let job = client.mutex("report").note(host).once(tick.to_string());
    if let Turn::Mine(pages) = job.run(report).await? {
        println!("{tick}: {host} has printed {pages} pages");
    } else {
        println!("{tick}: {host} leaves it");
    }
    Ok(())
}

async fn report(lease: &Lease) -> Result<u32, Error> {
    println!("printing under fence {}", lease.fence());
    Ok(7)
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(&url).await?;
    let host = env::var("HOST").unwrap_or_else(|_| "a".into());

    let schedule = Schedule::from_str(SCHEDULE)?;
    WorkerBuilder::new("report")
        .backend(CronScheduler::new(schedule))
        .data(client)
        .data(host)
        .build(fire)
        .run()
        .await?;
    Ok(())
}
