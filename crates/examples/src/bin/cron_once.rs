//! A tokio-cron-scheduler on each of several hosts. One of them does the job of a tick.
//!
//! `HOST=a cargo run -p leasehold-examples --bin cron_once`

use std::env;
use std::time::UNIX_EPOCH;

use leasehold::{Client, Error, Lease, Turn};
use tokio_cron_scheduler::{Job, JobScheduler};

/// The job fires in the middle of a period, so the clocks of the hosts may differ from the store's by nearly half of one.
const PERIOD_S: u64 = 4;
const SCHEDULE: &str = "2/4 * * * * *";

/// What each host does at a tick.
async fn fire(client: &Client, host: &str) -> Result<(), Error> {
    let job = client.mutex("report").note(host);
    // The scheduler does not say which tick it is. The store's clock does, and alike on all hosts.
    let now = job.store_time().await?;
    let tick = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / PERIOD_S;
    // A host that comes while another one works waits for it, and does the job if that one fails or crashes.
    match job.once(tick.to_string()).tries(3).run(report).await? {
        Turn::Mine(pages) => println!("{tick}: {host} has printed {pages} pages"),
        Turn::Done(run) => println!(
            "{tick}: {host} leaves it, since {} has done it",
            run.by.note()
        ),
        Turn::Spent(last) => println!("{tick}: {host} gives up after {} runs", last.number),
    }
    Ok(())
}

async fn report(lease: &Lease) -> Result<u32, Error> {
    println!("printing under fence {}", lease.fence());
    Ok(7)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(&url).await?;
    let host = env::var("HOST").unwrap_or_else(|_| "a".into());

    let scheduler = JobScheduler::new().await?;
    let job = Job::new_async(SCHEDULE, move |_, _| {
        let (client, host) = (client.clone(), host.clone());
        Box::pin(async move {
            if let Err(error) = fire(&client, &host).await {
                eprintln!("{error}");
            }
        })
    })?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    std::future::pending().await
}
