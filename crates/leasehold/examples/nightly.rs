//! A nightly job on three hosts, whose cron fires on each of them. Whatever their clocks say, one of them does the work of a day.
//!
//! `cargo run --example nightly`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use leasehold::{Client, Error, Fence, Turn};

/// The work, which fails on the first host.
fn report(host: &str, fence: Fence) -> Result<u32, Failed> {
    if host == "a" {
        return Err(Failed("the printer is out of paper".into()));
    }
    println!("{host}: prints the report under fence {fence}");
    Ok(7)
}

#[derive(Debug)]
struct Failed(String);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// What each host does when its cron fires. The date is an argument; a host would take it from `Mutex::store_time`.
async fn nightly(client: &Client, host: &str, date: &str) -> Result<(), Failed> {
    let job = client.mutex("nightly").note(host).once(date).tries(3);
    match job.run(async |lease| report(host, lease.fence())).await? {
        Turn::Mine(pages) => println!("{host}: {pages} pages"),
        Turn::Done(run) => println!(
            "{host}: {} has done it, in run {}",
            run.by.note(),
            run.number
        ),
        Turn::Spent(last) => println!("{host}: {} runs have failed", last.number),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = support::client().await?;
    for date in ["2026-11-27", "2026-11-28"] {
        println!("{date}");
        for host in ["a", "b", "c"] {
            if let Err(error) = nightly(&client, host, date).await {
                println!("{host}: {}", error.0);
            }
        }
    }
    client.close().await;
    Ok(())
}
