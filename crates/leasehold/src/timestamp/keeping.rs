//! The task behind a hold: renews it, watches its deadline, ends it. One request of a hold is under way at a time (T8), and none is sent
//! after its end (T9).

use std::sync::Arc;

use leasehold_core::Ttl;
use tokio::sync::{mpsc, watch};

use super::hold::{Order, TimestampHold};
use super::keeper::{AGAIN, Keeper};
use super::key::Key;
use super::state::{HoldView, Shown};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::lease::certain_until;

/// A grant, and when it was asked for.
pub(super) struct Grant {
    pub(super) deadline: u64,
    pub(super) at_us: u64,
    pub(super) sent: Moment,
    pub(super) ttl: Ttl,
}

/// The next event.
enum KeeperEvent {
    Order(Order),
    Dropped,
    Closed,
    Due,
}

impl Keeper {
    /// The hold of a lock that was granted just now.
    pub(super) fn begin(key: Key, grant: &Grant, auto_renew: bool) -> TimestampHold {
        let state = HoldView {
            deadline: grant.deadline,
            valid_until: certain_until(grant.sent, grant.ttl.get()),
            doubt: None,
            lost: None,
            replaced: None,
            is_to_be_confirmed: false,
        };
        let (state, seen) = watch::channel(state);
        let state = Arc::new(Shown::new(state));
        let (sender, orders) = mpsc::unbounded_channel();
        let hold = TimestampHold {
            name: key.name.clone(),
            clock: key.engine.clock.clone(),
            state: seen.clone(),
            orders: sender,
            _engine: None,
        };
        let tasks = key.engine.tasks.clone();
        let mut keeper = Self {
            key,
            ttl: grant.ttl,
            auto_renew,
            mine: vec![grant.deadline],
            server: (grant.at_us, grant.sent),
            renew_at: grant.sent,
            backoff: Backoff::new(AGAIN, AGAIN),
            state,
            seen,
            orders,
        };
        keeper.schedule(grant.sent, grant.ttl);
        let engine = &keeper.key.engine;
        engine.beside.add(&keeper.state, grant.sent);
        tasks.spawn(keeper.run());
        hold
    }

    async fn run(mut self) {
        while self.state.borrow().lost.is_none() {
            match self.next().await {
                KeeperEvent::Due => {
                    // A failure is reported as doubt, a loss as a loss.
                    let _told: Result<(), Error> = self.extend(self.asks_for()).await;
                }
                KeeperEvent::Order(Order::Extend(ttl, reply)) => {
                    let answer = self.extend(ttl).await;
                    if answer.is_ok() {
                        self.ttl = ttl;
                    }
                    drop(reply.send(answer));
                }
                KeeperEvent::Order(Order::Release(reply)) => {
                    return self.release(Some(reply)).await;
                }
                KeeperEvent::Order(Order::Keep(keep, reply)) => {
                    return self.keep(keep, reply).await;
                }
                KeeperEvent::Dropped => return self.release(None).await,
                KeeperEvent::Closed => {
                    self.lose(LossCause::Closed);
                    return self.release(None).await;
                }
            }
        }
    }

    async fn next(&mut self) -> KeeperEvent {
        let valid_until = self.valid_until();
        let renews = self.auto_renew || self.state.borrow().replaced.is_some();
        let wake = if renews {
            self.renew_at.min(valid_until)
        } else {
            valid_until
        };
        let engine = &self.key.engine;
        let to_be_confirmed = async {
            // An error would mean that the sender, and so this keeper, is gone.
            drop(self.seen.wait_for(|state| state.is_to_be_confirmed).await);
        };
        tokio::select! {
            biased;
            order = self.orders.recv() => order.map_or(KeeperEvent::Dropped, KeeperEvent::Order),
            _ = engine.closing() => KeeperEvent::Closed,
            () = to_be_confirmed => KeeperEvent::Due,
            () = engine.clock.sleep_until(wake) => KeeperEvent::Due,
        }
    }

    /// The TTL of an automatic renewal. A request that is only a confirmation does not prolong the hold.
    fn asks_for(&self) -> Ttl {
        let left = self.valid_until().since(self.key.engine.clock.now());
        let left = Ttl::new(left.max(Ttl::MIN)).ok();
        left.filter(|_| !self.auto_renew).unwrap_or(self.ttl)
    }
}
