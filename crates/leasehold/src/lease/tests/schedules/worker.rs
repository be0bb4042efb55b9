//! The tasks of a client in a schedule.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use leasehold_core::Mode;
use shuttle::future::{spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};

use super::server::{self, Server};
use super::{LINGER, MS, Side, TTL};
use crate::Mutex;
use crate::clock::Clock;
use crate::error::Error;
use crate::lease::Lease;

/// An action of a task.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// Acquires, works, and releases or drops the lease.
    Work,
    /// Like `Work`, but with another TTL than all other tasks.
    WorkLonger,
    /// Acquires, extends, and drops the lease. If the lease is lost, keeps it until the end.
    Extend,
    /// Tries once, and works if it gets the lock.
    Try,
    /// Like `Work`, but waits only for a limited time.
    Limit,
    /// Acquires and extends a lease. As soon as the lease is lost, tries again.
    Anew,
    /// Asks for the lock and leaves: while it waits, just after the grant, or with the lease.
    Leave,
}

pub(super) struct Worker {
    pub(super) side: Side,
    pub(super) server: Arc<Server>,
    pub(super) clock: Clock,
    pub(super) lossy: bool,
}

impl Worker {
    pub(super) async fn does(&self, what: What) {
        let mutex = |ttl| {
            let mode = Ok(Mode::Exclusive);
            let mutex = Mutex::new(self.side.engine.clone(), Ok(server::name()), mode);
            mutex.ttl(ttl).linger(LINGER)
        };
        let usual = mutex(TTL);
        match what {
            What::Work => self.works(self.in_line(usual.acquire()).await).await,
            What::WorkLonger => {
                self.works(self.in_line(mutex(TTL * 2).acquire()).await)
                    .await;
            }
            What::Try => {
                if let Ok(Some(lease)) = usual.try_acquire().await {
                    self.works(Ok(lease)).await;
                }
            }
            What::Limit => self.works(usual.acquire_within(MS * 40).await).await,
            What::Extend => {
                if let Ok(lease) = self.in_line(usual.acquire()).await {
                    self.server.enter(&lease.hold);
                    let renewed = lease.extend(TTL * 2).await;
                    assert!(renewed.is_ok() || lease.is_lost());
                    self.server.leave(&lease.hold);
                    if lease.is_lost() {
                        self.side.lost.lock().unwrap().push(lease);
                    }
                }
            }
            What::Anew => {
                let Ok(lease) = usual.acquire().await.map(Arc::new) else {
                    return;
                };
                let renewed = lease.clone();
                let renewal = spawn(async move { drop(renewed.extend(TTL).await) });
                for _ in 0..10 {
                    if lease.is_lost() {
                        let anew = usual.try_acquire().await;
                        assert!(matches!(anew, Ok(Some(_))), "Q6: {anew:?}");
                        break;
                    }
                    yield_now().await;
                }
                renewal.await.unwrap();
            }
            What::Leave => {
                let mut asking = pin!(usual.acquire());
                for _ in 0..thread_rng().gen_range(0..6) {
                    if (&mut asking).now_or_never().is_some() {
                        return;
                    }
                    yield_now().await;
                }
            }
        }
    }

    /// Checks that callers that certainly came earlier get the lock earlier.
    async fn in_line(
        &self,
        asking: impl Future<Output = Result<Lease, Error>>,
    ) -> Result<Lease, Error> {
        let waiting = || self.side.waiting.lock().unwrap();
        let ahead = waiting().0.clone();
        let mut asking = pin!(asking);
        let lease = if let Some(lease) = (&mut asking).now_or_never() {
            lease
        } else {
            let me = waiting().1;
            waiting().1 += 1;
            waiting().0.push(me);
            let lease = asking.await;
            waiting().0.retain(|id| *id != me);
            lease
        };
        if lease.is_ok() && !self.lossy {
            let passed = |id| waiting().0.contains(id);
            assert!(!ahead.iter().any(passed), "served before who was in line");
        }
        lease
    }

    async fn works(&self, lease: Result<Lease, Error>) {
        let Ok(lease) = lease else { return };
        self.server.enter(&lease.hold);
        for _ in 0..thread_rng().gen_range(0..2) {
            yield_now().await;
        }
        if thread_rng().gen_bool(0.3) {
            self.clock.advance(MS * 20);
        }
        self.server.leave(&lease.hold);
        if thread_rng().gen_bool(0.5) {
            let released = lease.release().await;
            assert!(self.lossy || released.is_ok(), "{released:?}");
        }
    }
}
