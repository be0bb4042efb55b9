//! The cost of a lock that the client still has from its last use: `cargo bench -p leasehold --bench hot`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold::Client;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .build()
        .expect("the system allows a runtime")
}

/// One task acquires and releases. In the first variant the client keeps the lock in between; in the second it gives the lock back to the
/// store.
fn alone(bench: &mut Criterion) {
    let runtime = runtime();
    let client = Client::embedded().expect("the system allows a thread");
    for (what, linger) in [
        ("kept", Duration::from_secs(3600)),
        ("given_back", Duration::ZERO),
    ] {
        let lock = client.mutex(what).linger(linger);
        bench.bench_function(&format!("acquire_release/{what}"), |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let lease = lock.acquire().await.expect("it is free");
                    lease.release().await.expect("it is held");
                });
            });
        });
    }
}

/// Two tasks of one client take turns. Each task is in the queue while the other holds the lock.
fn two_tasks(bench: &mut Criterion) {
    let runtime = runtime();
    let client = Client::embedded().expect("the system allows a thread");
    let lock = client.mutex("turns");
    bench.bench_function("hand_over/two_tasks", |bencher| {
        bencher.iter_custom(|turns| {
            let begun = client_clock().now();
            runtime.block_on(async {
                let task = async |turns: u64| {
                    for _ in 0..turns {
                        let lease = lock.acquire().await.expect("its turn");
                        // Lets the other task join the queue before the release.
                        tokio::task::yield_now().await;
                        lease.release().await.expect("it is held");
                    }
                };
                tokio::join!(task(turns / 2), task(turns - turns / 2));
            });
            client_clock().now().since(begun)
        });
    });
}

fn client_clock() -> leasehold::Clock {
    leasehold::Clock::system()
}

criterion_group!(benches, alone, two_tasks);
criterion_main!(benches);
