//! The processes of the crash tests, which `bench/scale` kills. They print a word and CLOCK_MONOTONIC in nanoseconds.

use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::Mutex;
use leasehold_bench::{Args, line, now_ns};

use crate::hold;

async fn lock(args: &Args) -> Mutex {
    let name = args.text("name").expect("name=<lock>");
    let client = hold::connect(args).await;
    client.mutex(name).ttl(args.millis("ttl_ms", 1000.0))
}

/// Holds the lock until a line comes on stdin.
pub(crate) async fn hold(args: &Args) {
    let mutex = lock(args).await;
    let lease = mutex.acquire().await.expect("it is free");
    println!("HELD {}", now_ns());
    line().await;
    println!("RELEASE {}", now_ns());
    lease.release().await.expect("it is held");
}

/// Prints when it is in the queue and when it holds the lock.
pub(crate) async fn wait(args: &Args) {
    let said = AtomicBool::new(false);
    let mutex = lock(args).await.on_wait(move |_| {
        if !said.swap(true, Ordering::Relaxed) {
            println!("QUEUED {}", now_ns());
        }
    });
    let lease = mutex.acquire().await.expect("it gets its turn");
    println!("HELD {}", now_ns());
    lease.release().await.expect("it is held");
}
