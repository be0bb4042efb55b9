//! 100 buyers want 10 items. Without the lock the shop sells too many; with the lock it sells exactly 10.
//!
//! `cargo run --example flash_sale`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Error};

const ITEMS: u32 = 10;
const BUYERS: u32 = 100;

/// A shop with its stock in a database: a sale sends two requests, a read and a write.
#[derive(Debug)]
struct Shop {
    stock: AtomicU32,
    sold: AtomicU32,
}

impl Shop {
    fn open() -> Arc<Self> {
        Arc::new(Self {
            stock: AtomicU32::new(ITEMS),
            sold: AtomicU32::new(0),
        })
    }

    /// This is the bug that the lock prevents: between the read and the write, other buyers buy too.
    async fn sell_one(&self) -> Result<(), Error> {
        let left = self.stock.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if left > 0 {
            self.stock.store(left - 1, Ordering::SeqCst);
            self.sold.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

async fn sale(client: Option<&Client>) -> Result<u32, Error> {
    let shop = Shop::open();
    let buyers: Vec<_> = (0..BUYERS)
        .map(|_| {
            let (shop, lock) = (
                shop.clone(),
                client.map(|client| client.mutex("flash-sale:item-1")),
            );
            let buy = async move {
                match lock {
                    None => shop.sell_one().await,
                    // Releases the lock also if the sale fails.
                    Some(lock) => lock.run(async |_| shop.sell_one().await).await,
                }
            };
            support::spawn(buy)
        })
        .collect();
    for buyer in buyers {
        buyer.await.expect("a buyer does not panic")?;
    }
    Ok(shop.sold.load(Ordering::SeqCst))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = support::client().await?;
    println!(
        "without the lock: {} of {ITEMS} items sold",
        sale(None).await?
    );
    println!(
        "with the lock:    {} of {ITEMS} items sold",
        sale(Some(&client)).await?
    );
    client.close().await;
    Ok(())
}
