//! Whole clients on a file in virtual time, where each step is executed on the thread that asks for it.

use super::*;
use crate::Client;

/// The step that grants the lock delivers the wake. The woken client takes steps itself.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs must not hang the test"
)]
fn woken_client_in_virtual_time_may_take_a_step() {
    let (ended, end) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(breaks_for_waiter_that_left());
        ended.send(()).unwrap();
    });
    end.recv_timeout(SOON)
        .expect("a step takes no lock that its thread holds");
}

/// The first waiter leaves, and the next has other terms: the grant to the first is given back, and the next asks for
/// its own.
async fn breaks_for_waiter_that_left() {
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
