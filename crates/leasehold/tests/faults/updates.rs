//! The purpose of the lock: tasks read, compute and write, and no update is lost. Meanwhile the test cuts connections and deletes scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold::{Client, Error, Lease};
use testkit::RedisServer;

use crate::scene::{LONG, Nemesis, beside, is_free, kill_connections, millis, now, within};

const TASKS: u64 = 8;
/// Enough for some hundred cuts of all connections, 50 ms apart.
const CYCLES: u64 = 400;

/// The data that the lock protects.
#[derive(Default)]
struct Guarded {
    value: AtomicU64,
    inside: AtomicBool,
    last_fence: AtomicU64,
}

impl Guarded {
    /// Not atomic on purpose: without a lock, another task would overwrite the update.
    async fn update(&self, lease: &Lease) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two are inside");
        let fence = lease.fence().get();
        assert!(self.last_fence.swap(fence, Ordering::SeqCst) < fence);
        let value = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.value.store(value + 1, Ordering::SeqCst);
        assert!(!lease.is_lost());
        self.inside.store(false, Ordering::SeqCst);
    }
}

/// Makes all updates under the lock. Returns the number of requests without a verdict.
async fn work(client: Client, guarded: Arc<Guarded>) -> u64 {
    let lock = client.mutex("stock").ttl(LONG);
    let mut no_verdict = 0;
    for _ in 0..CYCLES {
        let lease = loop {
            match lock.acquire().await {
                Ok(lease) => break lease,
                Err(Error::Store(_)) => no_verdict += 1,
                Err(other) => panic!("{other}"),
            }
        };
        guarded.update(&lease).await;
        match lease.release().await {
            Ok(()) => {}
            // On a busy machine, a waiter may not claim its grant in time. It has made its update before the grant ended.
            Err(Error::Store(_) | Error::Lost(_)) => no_verdict += 1,
            Err(other) => panic!("{other}"),
        }
    }
    no_verdict
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_while_connections_and_scripts_are() {
    let server = Arc::new(RedisServer::start());
    let guarded = Arc::new(Guarded::default());
    // The clients connect before the faults begin, since a cut during the first connection is an error.
    let mut clients = Vec::new();
    for _ in 0..TASKS / 2 {
        // With the default limits: a request may be lost, and then it ends without a verdict.
        let connected = within("a connection", Client::connect(&server.url())).await;
        clients.push(connected.expect("the server can be used"));
    }
    let nemesis = Nemesis::start(&server, millis(50), |server| {
        server.cli(&["SCRIPT", "FLUSH"]);
        kill_connections(server);
    });
    let began = now();
    let mut tasks = Vec::new();
    for client in clients {
        tasks.push(beside(work(client.clone(), guarded.clone())));
        tasks.push(beside(work(client, guarded.clone())));
    }
    let mut no_verdict = 0;
    for task in tasks {
        no_verdict += task.await.expect("it did its work");
    }
    let took = now().since(began);
    let strikes = nemesis.end().await;
    println!("{took:?}, connections killed {strikes} times, {no_verdict} times no verdict");
    assert_eq!(guarded.value.load(Ordering::SeqCst), TASKS * CYCLES);
    assert!(strikes > 3, "{strikes}");
    assert!(is_free(&server, "stock"));
}
