//! A licence with four seats, for ten programs. Each seat has a number, which may name a port or a directory.
//!
//! `cargo run --example seats`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Client, Error};
use tokio::time::sleep;

async fn work(client: Client, program: usize, used: Arc<AtomicUsize>) -> Result<usize, Error> {
    let permit = client.semaphore("licence:cad", 4).acquire().await?;
    let at_once = used.fetch_add(1, Ordering::SeqCst) + 1;
    println!("program {program} has seat {}", permit.slot().number);
    sleep(Duration::from_millis(5)).await;
    used.fetch_sub(1, Ordering::SeqCst);
    permit.release().await?;
    Ok(at_once)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = support::client().await?;
    let used = Arc::new(AtomicUsize::new(0));
    let program = |number| support::spawn(work(client.clone(), number, used.clone()));
    let programs: Vec<_> = (1..=10).map(program).collect();
    let mut most = 0;
    for program in programs {
        most = most.max(program.await.expect("no panic")?);
    }
    println!("at most {most} seats were used at once");
    client.close().await;
    Ok(())
}
