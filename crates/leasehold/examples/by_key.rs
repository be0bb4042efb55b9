//! Requests of one account run one after the other, those of two accounts beside each other: an attribute on the handler.
//!
//! `cargo run --example by_key`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error, locked};

/// Each process of a service has one.
struct Bank {
    locks: Client,
    /// In place of a database.
    balances: Mutex<HashMap<u64, u32>>,
}

#[derive(Debug)]
enum Refused {
    Overdrawn(u32),
    Lock(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl Bank {
    /// The handler of a request. It reads, asks another service, and writes.
    #[locked("accounts:{account}", wait = "30s", note = "withdrawal", client = self.locks)]
    async fn withdraw(&self, account: u64, amount: u32) -> Result<u32, Refused> {
        let balance = self.balance(account);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let left = balance
            .checked_sub(amount)
            .ok_or(Refused::Overdrawn(balance))?;
        self.balances
            .lock()
            .expect("no panic")
            .insert(account, left);
        Ok(left)
    }

    fn balance(&self, account: u64) -> u32 {
        let balances = self.balances.lock().expect("no panic");
        balances.get(&account).copied().unwrap_or_default()
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = support::client().await?;
    let bank = Arc::new(Bank {
        locks: locks.clone(),
        balances: Mutex::new(HashMap::from([(1, 100), (2, 100)])),
    });
    let mut requests = Vec::new();
    for request in 0..30 {
        let (bank, account) = (bank.clone(), 1 + request % 2);
        requests.push(support::spawn(
            async move { bank.withdraw(account, 10).await },
        ));
    }
    let (mut served, mut overdrawn) = (0, 0);
    for request in requests {
        match request.await.expect("no panic") {
            Ok(_) => served += 1,
            Err(Refused::Overdrawn(left)) => {
                assert!(left < 10, "it was a refusal for {left}");
                overdrawn += 1;
            }
            Err(Refused::Lock(error)) => return Err(error),
        }
    }
    println!("{served} requests were served, {overdrawn} refused");
    println!("left: {} and {}", bank.balance(1), bank.balance(2));
    locks.close().await;
    Ok(())
}
