//! Transfers between accounts, in both directions at once. Each takes the locks of two accounts, and none waits for ever.
//!
//! `cargo run --example transfer`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold::{Client, Error};
use tokio::task::yield_now;

const ACCOUNTS: [&str; 3] = ["ann", "bob", "cid"];

type Balances = Arc<[AtomicI64; 3]>;

async fn transfer(
    client: &Client,
    balances: &Balances,
    from: usize,
    to: usize,
) -> Result<(), Error> {
    let [giver, taker] = [from, to].map(|at| client.mutex(format!("account:{}", ACCOUNTS[at])));
    let both = client.all([&giver, &taker]).acquire().await?;
    let [old, new] = [from, to].map(|at| balances[at].load(Ordering::SeqCst));
    // Without both locks, another transfer could write in between.
    yield_now().await;
    balances[from].store(old - 1, Ordering::SeqCst);
    balances[to].store(new + 1, Ordering::SeqCst);
    both.release().await
}

async fn rounds(client: Client, balances: Balances, from: usize, to: usize) -> Result<(), Error> {
    for _ in 0..20 {
        transfer(&client, &balances, from, to).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = support::client().await?;
    let balances = Balances::new([100, 100, 100].map(AtomicI64::new));
    let pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)];
    let clerk = |(from, to)| support::spawn(rounds(client.clone(), balances.clone(), from, to));
    let clerks: Vec<_> = pairs.into_iter().map(clerk).collect();
    for clerk in clerks {
        clerk.await.expect("no panic")?;
    }
    for (name, balance) in ACCOUNTS.iter().zip(&*balances) {
        println!("{name} has {}", balance.load(Ordering::SeqCst));
    }
    client.close().await;
    Ok(())
}
