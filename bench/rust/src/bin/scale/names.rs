//! The time of an acquire and release as the number of names in use grows.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Client, Mutex};
use leasehold_bench::{Args, Histogram, Part, nanos, now_ns, seconds_since};

use crate::hold;

pub(crate) async fn run(args: &Args) {
    let most: u64 = args.get("names", 1_000_000);
    let time = args.millis("secs", 5.0) * 1000;
    let client = hold::connect(args).await;
    let mut used = 0;
    let mut names = 1;
    while names <= most {
        // Each name is used once before the first measurement.
        use_all(&client, used..names).await;
        used = names;
        report(&client, names, time).await;
        names *= 10;
    }
    client.close().await;
}

async fn use_all(client: &Client, names: std::ops::Range<u64>) {
    for first in names.clone().step_by(hold::BATCH) {
        let last = names.end.min(first + hold::BATCH as u64);
        let batch = (first..last).map(|name| async move { hold::pair(&mutex(client, name)).await });
        join_all(batch).await;
    }
}

fn mutex(client: &Client, name: u64) -> Mutex {
    client.mutex(format!("name:{name}"))
}

async fn report(client: &Client, names: u64, time: Duration) {
    let mut times = Histogram::default();
    let start = now_ns();
    let mut name = 0_u64;
    while now_ns() - start < nanos(time) {
        times.add(hold::pair(&mutex(client, name % names)).await);
        // A stride without a factor of 10 visits all of them, far apart.
        name = name.wrapping_add(7_919);
    }
    let part = format!("names.{names}");
    let part = Part(&part);
    part.quantiles("pair", &times);
    part.figure("ops_s", times.total() as f64 / seconds_since(start));
}
