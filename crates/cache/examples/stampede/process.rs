//! One of the processes: starts readers at a fixed rate, and measures the duration of each read.

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::path::Path;
use std::time::Duration;

use leasehold::{Client, Clock};
use leasehold_cache::{Cache, Cached};
use tokio::task::JoinSet;

use crate::LENGTH;
use crate::site::{FRESH, Site};

/// The pause between two readers of a process.
const EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run(guarded: bool, folder: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let site = Site::new(Path::new(folder));
    // The key contains the unique name of the folder, since other programs may use the server too.
    let key = format!("stampede:{folder}");
    let client = runtime.block_on(Client::connect(url))?;
    println!("ready");
    stdout().flush()?;
    stdin().read_line(&mut String::new())?;
    let cache = guarded.then(|| Cache::new(&client));
    let took = runtime.block_on(runtime.spawn(async move { read(site, cache, key).await }))?;
    let took: Vec<String> = took.iter().map(u128::to_string).collect();
    println!("{}", took.join(" "));
    runtime.block_on(client.close());
    Ok(())
}

/// Returns the duration of each read, in microseconds.
async fn read(site: Site, cache: Option<Cache>, key: String) -> Vec<u128> {
    let (clock, mut reads) = (Clock::system(), JoinSet::new());
    let begun = clock.now();
    let mut next = Duration::ZERO;
    while next < LENGTH {
        let (site, cache, key) = (site.clone(), cache.clone(), key.clone());
        let reader = clock.clone();
        reads.spawn(async move {
            let asked = reader.now();
            let page = match cache {
                None => site.unguarded().await.map_err(|error| error.to_string()),
                Some(cache) => guarded(&cache, &key, site).await,
            };
            if let Err(error) = page {
                eprintln!("{error}");
            }
            reader.now().since(asked).as_micros()
        });
        next += EVERY;
        // After a delay, those that are late come at once.
        tokio::time::sleep(next.saturating_sub(clock.now().since(begun))).await;
    }
    reads.join_all().await
}

/// Reads the page through the guard.
async fn guarded(cache: &Cache, key: &str, site: Site) -> Result<String, String> {
    let page = cache
        .get_or_refresh(key, || async move { site.render().await })
        .fresh_for(FRESH)
        .stale_for(Duration::from_secs(60))
        .await;
    page.map(Cached::into_inner)
        .map_err(|error| error.to_string())
}
