//! Two clients that want one lock all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::LONG;
use crate::scene::{Nodes, lock};

/// How often each client takes the lock.
const TURNS: u32 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_strictly_over_200_hand_overs() {
    let nodes = Nodes::start();
    let (is_used, last) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut users = JoinSet::new();
    // They stay open, since a client that goes may leave its last release of a late vote undone.
    let clients = [nodes.client().await, nodes.client().await];
    for (user, client) in clients.iter().enumerate() {
        let mutex = lock(client);
        let (is_used, last) = (is_used.clone(), last.clone());
        users.spawn(async move {
            for turn in 0..TURNS {
                let lease = mutex.acquire().await.expect("the servers answer");
                let fence = lease.fence().get();
                assert!(!is_used.swap(true, Ordering::SeqCst), "{user} {turn}");
                let before = last.swap(fence, Ordering::SeqCst);
                assert!(before < fence, "{user} {turn}: {fence} after {before}");
                is_used.store(false, Ordering::SeqCst);
                lease.release().await.expect("it is held");
            }
        });
    }
    while let Some(user) = timeout(LONG, users.join_next()).await.expect("in time") {
        user.expect("no panic");
    }
    nodes.are_clean().await;
}
