//! Whole clients on a file in virtual time, where each step is taken on the thread that asks for it.

use super::*;
use crate::Client;

/// A wake is told by the step that grants the lock. The client it is told to answers with steps of its own.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs must not hang the test"
)]
fn who_hears_a_wake_in_virtual_time_may_take_a_step() {
    let (ended, end) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(breaks_for_who_went_away());
        ended.send(()).unwrap();
    });
    end.recv_timeout(SOON)
        .expect("a step takes no lock that its thread holds");
}

/// The first in line leaves, and the next has other terms: what the first is granted is given back, and the next asks for its own.
async fn breaks_for_who_went_away() {
    let host = Host::new(Clock::virtual_time());
    let url = format!("local:{}", host.file());
    let client = async || {
        let builder = Client::builder().clock(host.clock.clone());
        builder.connect(&url).await.unwrap()
    };
    let (holder, waiters) = (client().await, client().await);
    let lease = holder.mutex("m").acquire().await.unwrap();
    let waits = |ttl: u64| {
        let mutex = waiters.mutex("m").ttl(Duration::from_secs(ttl));
        tokio::runtime::Handle::current().spawn(async move { mutex.acquire().await.unwrap() })
    };
    let (first, second) = (waits(30), waits(10));
    tokio::task::yield_now().await;
    first.abort();
    tokio::task::yield_now().await;
    assert!(waiters.break_lock("m", lease.fence()).await.unwrap());
    let granted = second.await.unwrap();
    assert!(granted.fence() > lease.fence());
    granted.release().await.unwrap();
}
