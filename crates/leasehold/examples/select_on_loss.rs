//! Work that stops when its lease is lost: a future beside the work, in a `select!`.
//!
//! `cargo run --example select_on_loss`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::time::Duration;

use leasehold::{Error, Lease};

/// A long piece of work in steps. The data are consistent after each step.
async fn work(done: &mut u32) {
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        *done += 1;
    }
}

async fn lead(lease: Lease) {
    let mut done = 0;
    tokio::select! {
        lost = lease.lost() => println!("stopped after {done} steps: {lost}"),
        () = work(&mut done) => unreachable!("this work has no end"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = support::client().await?;
    // The client renews the lease each two seconds. If only the store knows of a loss, the next renewal finds it.
    let leader = client
        .mutex("leader")
        .ttl(Duration::from_secs(6))
        .note("example");
    let lease = leader.acquire().await?;
    let fence = lease.fence();
    println!("leading with fence {fence}");
    let leading = support::spawn(lead(lease));

    tokio::time::sleep(Duration::from_millis(500)).await;
    println!(
        "an operator breaks the lock of fence {fence}: {}",
        client.break_lock("leader", fence).await?
    );
    leading.await.expect("the work does not panic");

    let next = leader.acquire().await?;
    println!("the next leader has fence {}", next.fence());
    next.release().await?;
    client.close().await;
    Ok(())
}
