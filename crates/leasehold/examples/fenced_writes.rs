//! A process stops for longer than its lease, and writes late. The resource has seen a newer fence and refuses the write.
//!
//! The resource is an SQLite table. It checks the fence **at the first access**, the read, and again at the write. A check at the write
//! alone is not enough. The next holder may have read already and not yet written, so the late write would pass.
//!
//! `cargo run --example fenced_writes`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::error::Error;
use std::time::Duration;

use leasehold::{Client, Fence, Lease};
use rusqlite::{Connection, OptionalExtension, named_params};

/// An account that stores the highest fence it has seen.
struct Account(Connection);

impl Account {
    fn open() -> rusqlite::Result<Self> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(
            "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
             INSERT INTO account VALUES (1, 100, 0);",
        )?;
        Ok(Self(database))
    }

    /// Returns the balance, or `None` if the fence is stale. The account refuses every older fence from now on.
    fn read(&self, fence: Fence) -> rusqlite::Result<Option<i64>> {
        let sql =
            "UPDATE account SET fence = :fence WHERE id = 1 AND fence <= :fence RETURNING balance";
        self.0
            .query_row(sql, named_params! { ":fence": i64::from(fence) }, |row| {
                row.get(0)
            })
            .optional()
    }

    /// Writes the balance. Returns false if the fence is stale.
    fn write(&self, fence: Fence, balance: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE account SET balance = :balance, fence = :fence WHERE id = 1 AND fence <= :fence";
        let changed = self.0.execute(
            sql,
            named_params! { ":fence": i64::from(fence), ":balance": balance },
        )?;
        Ok(changed == 1)
    }
}

/// The TTL of A. On a machine that stalls, A asks again until it has the lock, so only the end of its lease depends on time.
const EXPIRES_SOON: Duration = Duration::from_secs(1);

/// Takes the lock without renewals, like a process that stops right after.
async fn lock_for(client: &Client, ttl: Duration) -> Result<Lease, leasehold::Error> {
    client
        .mutex("account:1")
        .ttl(ttl)
        .auto_renew(false)
        .acquire()
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = support::client().await?;
    let account = Account::open()?;

    let paused = lock_for(&client, EXPIRES_SOON).await?;
    let seen = account
        .read(paused.fence())?
        .expect("the first fence is admitted");
    println!(
        "A holds fence {}, reads {seen}, and is paused for longer than its lease ...",
        paused.fence()
    );

    // The store gives the lock to B when A's lease has run out.
    let next = lock_for(&client, Duration::from_secs(30)).await?;
    let balance = account
        .read(next.fence())?
        .expect("a newer fence is admitted");
    println!("B holds fence {}, reads {balance}", next.fence());

    let late = account.write(paused.fence(), seen + 10)?;
    println!(
        "A wakes up and writes {}: {}",
        seen + 10,
        if late {
            "ACCEPTED"
        } else {
            "refused, its fence is stale"
        }
    );
    let accepted = account.write(next.fence(), balance + 1)?;
    println!(
        "B writes {}: {}",
        balance + 1,
        if accepted { "accepted" } else { "REFUSED" }
    );
    assert!(
        !late && accepted,
        "the fence must keep the late write out and let the right one in"
    );

    next.release().await?;
    println!(
        "A learns it from its lease, too: {}",
        paused.release().await.expect_err("the lease was lost")
    );
    client.close().await;
    Ok(())
}
