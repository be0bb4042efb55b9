//! What all handles of a client share. Must never forget an owner that may still hold or wait.
//!
//! # Invariants
//!
//! - **E1** Every owner of this client that the store may know is in the registry, or a task is on its way to settle it.
//! - **E2** A wake for an owner that is not in the registry is answered with a release: the lock was granted to
//!   someone who gave up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Owner, Ttl};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::Lease;
use super::hold::Hold;
use super::identity::Identity;
use super::keeper::Order;
use super::settle::{Settle, settle};
use super::wait::{Request, wait};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, StoreError};
use crate::runtime::Tasks;
use crate::store::{Listener, Notice, Store};

/// What a waiter was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The lock may be yours: claim it.
    Granted,
    /// Something may have been missed: ask.
    Ask,
}

/// One waiter's ear.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    granted: Mutex<bool>,
    bell: Notify,
}

impl Ear {
    /// Waits until something is heard.
    pub(crate) async fn hear(&self) -> Told {
        self.bell.notified().await;
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *granted) {
            Told::Granted
        } else {
            Told::Ask
        }
    }

    fn tell(&self, told: Told) {
        if told == Told::Granted {
            *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        self.bell.notify_one();
    }
}

/// The owners of a client that are on their way to a lock or hold one (E1).
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<Owner, Entry>>);

#[derive(Debug)]
enum Entry {
    Waiting(Arc<Ear>),
    Held(Arc<Hold>, Ttl),
}

impl Registry {
    /// Where the store delivers its notices.
    pub(crate) fn listener(self: &Arc<Self>, orders: &mpsc::UnboundedSender<Order>) -> Listener {
        // Weak, so that the store does not keep the keeper alive that keeps the store.
        let (registry, orders) = (self.clone(), orders.downgrade());
        Arc::new(move |notice| {
            let stray = registry.hear(notice);
            if let (Some(stray), Some(orders)) = (stray, orders.upgrade()) {
                // Fails only when the client is gone, and its connection with it.
                drop(orders.send(stray));
            }
        })
    }

    /// Passes a notice on; what was granted to someone who gave up is to be released (E2).
    fn hear(&self, notice: Notice) -> Option<Order> {
        let entries = self.lock();
        match notice {
            Notice::Granted { key, owner } => match entries.get(&owner) {
                Some(Entry::Waiting(ear)) => ear.tell(Told::Granted),
                // It found out by itself before the wake arrived.
                Some(Entry::Held(..)) => {}
                None => return Some(Order::Stray { key, owner }),
            },
            Notice::Reconnected => entries.values().for_each(|entry| {
                if let Entry::Waiting(ear) = entry {
                    ear.tell(Told::Ask);
                }
            }),
        }
        None
    }

    pub(crate) fn wait(&self, owner: &Owner) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        self.lock()
            .insert(owner.clone(), Entry::Waiting(ear.clone()));
        ear
    }

    fn hold(&self, hold: &Arc<Hold>, ttl: Ttl) {
        self.lock()
            .insert(hold.owner.clone(), Entry::Held(hold.clone(), ttl));
    }

    fn forget(&self, owner: &Owner) -> Option<Entry> {
        self.lock().remove(owner)
    }

    fn holds(&self) -> Vec<Arc<Hold>> {
        let held = |entry: &Entry| match entry {
            Entry::Held(hold, _) => Some(hold.clone()),
            Entry::Waiting(_) => None,
        };
        self.lock().values().filter_map(held).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Entry>> {
        // A map operation does not panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machinery behind a client.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) registry: Arc<Registry>,
    pub(crate) identity: Identity,
    /// How long a waiter in line puts up with a store that does not answer.
    pub(crate) patience: Duration,
    orders: mpsc::UnboundedSender<Order>,
    closing: watch::Sender<bool>,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        tasks: Tasks,
        orders: mpsc::UnboundedSender<Order>,
        registry: Arc<Registry>,
        identity: Identity,
        patience: Duration,
    ) -> Self {
        Self {
            store,
            clock,
            tasks,
            registry,
            identity,
            patience,
            orders,
            closing: watch::Sender::new(false),
        }
    }

    /// Starts an acquisition. Whatever becomes of the receiver, nothing is left behind.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        request: Request,
        reply: oneshot::Sender<Result<Option<Lease>, Error>>,
    ) {
        self.tasks.spawn(wait(self.clone(), request, reply));
    }

    /// Takes charge of a lock that was just acquired.
    pub(crate) fn keep(self: &Arc<Self>, hold: Hold, ttl: Ttl, auto_renew: bool) -> Lease {
        let hold = Arc::new(hold);
        self.registry.hold(&hold, ttl);
        self.order(Order::Keep {
            hold: hold.clone(),
            ttl,
            auto_renew,
        });
        Lease {
            hold,
            engine: self.clone(),
        }
    }

    /// Ends a lease, once: renewals stop before the release is sent, so that none can follow it.
    pub(crate) fn release(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        keep: Option<Ttl>,
        reply: Option<Reply>,
    ) {
        let Some(Entry::Held(_, ttl)) = self.registry.forget(&hold.owner) else {
            if let (Some(reply), Some(lost)) = (reply, hold.loss()) {
                // Closed meanwhile: the caller is told why, if it still listens.
                drop(reply.send(Err(lost.into())));
            }
            return;
        };
        let lost = hold.loss();
        // A lease extended by hand may have longer to go than it was taken for.
        let left = hold.valid_until().since(self.clock.now());
        let ttl = Ttl::new(left).map_or(ttl, |left| left.max(ttl));
        hold.retire();
        self.order(Order::Forget {
            owner: hold.owner.clone(),
        });
        // What was lost must not be kept from the one who may have it now.
        let keep = keep.filter(|_| lost.is_none());
        let owner = hold.owner.clone();
        let work = Settle {
            name: hold.name.clone(),
            owner,
            ttl,
            keep,
            unsettled_until: hold.unsettled_until,
            hold: Some((hold.clone(), lost)),
        };
        self.tasks.spawn(settle(self.clone(), work, reply));
    }

    /// Settles an acquisition that was given up: whatever reached the store is undone.
    pub(crate) async fn abandon(
        self: &Arc<Self>,
        request: &Request,
        unsettled_until: Option<Moment>,
    ) {
        self.registry.forget(&request.owner);
        let (name, owner) = (request.name.clone(), request.owner.clone());
        settle(
            self.clone(),
            Settle {
                name,
                owner,
                ttl: request.ttl,
                keep: None,
                unsettled_until,
                hold: None,
            },
            None,
        )
        .await;
    }

    /// Forgets an owner that the store does not know.
    pub(crate) fn forget(&self, owner: &Owner) {
        self.registry.forget(owner);
    }

    pub(crate) fn order(&self, order: Order) {
        // Fails only when the keeper is gone with its runtime; deadlines then end the leases.
        drop(self.orders.send(order));
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until the client is being closed.
    pub(crate) async fn closing(&self) -> StoreError {
        let mut closing = self.closing.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(closing.wait_for(|closing| *closing).await);
        StoreError::closed()
    }

    pub(crate) async fn close(self: &Arc<Self>) {
        self.closing.send_replace(true);
        for hold in self.registry.holds() {
            hold.lose(LossCause::Closed);
            self.release(&hold, None, None);
        }
        self.tasks.finished().await;
    }
}

/// Where the verdict of a release goes.
pub(crate) type Reply = oneshot::Sender<Result<(), Error>>;
