//! Clients whose primary is killed: many leases, and waiters for other locks. `bench/scale` kills it, says so, and knows since when the
//! new primary answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use leasehold::{Client, Lease};
use leasehold_bench::{Args, Load, line, nanos, now_ns};

const TTL: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(40);

/// `names=a,b,...`: all but the last `waiters` are held from the beginning to the end. Each of the last is held until the primary is dead, and
/// another client waits for it.
///
/// Prints READY, reads a line when the primary is dead, and prints one line of JSON, with moments in CLOCK_MONOTONIC nanoseconds.
pub(crate) async fn run(args: &Args) {
    let names = args.text("names").expect("names=<lock>,<lock>,...");
    let names: Vec<&str> = names.split(',').collect();
    let (kept, wanted) = names.split_at(names.len() - args.get("waiters", 50));
    let url = Load::new(args).url;
    let connect = async || Client::connect(&url).await.expect("the primary answers");
    let (owner, holder, waiter) = (connect().await, connect().await, connect().await);
    let kept = take(&owner, kept).await;
    let given = take(&holder, wanted).await;
    let (queued, served) = (
        Arc::<AtomicUsize>::default(),
        Arc::<Mutex<Vec<u64>>>::default(),
    );
    for name in wanted {
        let (told, queued, served) = (AtomicUsize::new(0), queued.clone(), served.clone());
        let mutex = waiter.mutex(*name).ttl(TTL).on_wait(move |_| {
            if told.fetch_add(1, Ordering::Relaxed) == 0 {
                queued.fetch_add(1, Ordering::Relaxed);
            }
        });
        tokio::spawn(async move {
            let lease = mutex.acquire().await.expect("it gets its turn");
            served.lock().expect("no panic").push(now_ns());
            drop(lease);
        });
    }
    while queued.load(Ordering::Relaxed) < wanted.len() {
        tokio::time::sleep(PAUSE).await;
    }
    let ends = |lease: &Lease| now_ns() + nanos(lease.valid_for());
    let before: Vec<u64> = kept.iter().map(ends).collect();
    println!("READY");
    line().await;

    let begun = now_ns();
    let releases = tokio::spawn(join_all(given.into_iter().map(Lease::release)));
    // Confirmed is what lasts for longer than before.
    let is_confirmed = |(lease, before): (&Lease, &u64)| ends(lease) > before + nanos(TTL) / 100;
    let (mut confirmed, mut lost) = (None, 0);
    while now_ns() < begun + nanos(LIMIT) {
        if confirmed.is_none() {
            lost = kept.iter().filter(|lease| lease.is_lost()).count();
            let are = kept.iter().zip(&before).filter(|each| is_confirmed(*each));
            if are.count() + lost == kept.len() {
                confirmed = Some(now_ns());
            }
        }
        if confirmed.is_some() && served.lock().expect("no panic").len() == wanted.len() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let releases = releases.await.expect("no panic");
    let refused = releases.iter().filter(|released| released.is_err()).count();
    let served = served.lock().expect("no panic").clone();
    let number = |at: Option<u64>| at.map_or_else(|| "null".to_owned(), |at| at.to_string());
    println!(
        "{{\"confirmed\":{},\"first\":{},\"last\":{},\"lost\":{lost},\"served\":{},\"unconfirmed_releases\":{refused}}}",
        number(confirmed),
        number(served.iter().min().copied()),
        number(served.iter().max().copied()),
        served.len(),
    );
    for client in [owner, holder, waiter] {
        client.close().await;
    }
}

async fn take(client: &Client, names: &[&str]) -> Vec<Lease> {
    let asks = names.iter().map(|name| {
        let mutex = client.mutex(*name).ttl(TTL);
        async move { mutex.acquire().await }
    });
    try_join_all(asks).await.expect("every lock is free")
}
