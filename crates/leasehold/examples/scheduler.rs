//! A scheduler on three hosts, of which one leads. A leader that steps down is followed at once, and each term has a higher number.
//!
//! `cargo run --example scheduler`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::{Client, Error, Fence, LossWatch};
use tokio::time::sleep;

/// Plans the jobs of its term. It is cancelled when the term is lost.
async fn plan(host: &str, term: LossWatch) -> ControlFlow<Fence> {
    for job in 1..=2 {
        println!("{host} plans job {job} in term {}", term.fence());
        sleep(Duration::from_millis(2)).await;
    }
    // This host goes down for maintenance.
    ControlFlow::Break(term.fence())
}

async fn host(client: Client, name: &'static str) -> Result<Fence, Error> {
    let election = client.election("scheduler").note(name);
    election.lead(|term| plan(name, term)).await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = support::client().await?;
    let start = |name| support::spawn(host(client.clone(), name));
    let hosts = ["a", "b", "c"].map(start);
    let mut terms = Vec::new();
    for host in hosts {
        terms.push(host.await.expect("no panic")?);
    }
    terms.sort();
    terms.dedup();
    println!("{} terms", terms.len());
    let leader = client.election("scheduler").leader().await?;
    println!("leader now: {}", leader.map_or("none", |_| "another host"));
    client.close().await;
    Ok(())
}
