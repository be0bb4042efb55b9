//! Renews all leases of a client and watches their deadlines. Must never renew a lease that is over.
//!
//! One task: it waits for the next thing to do, for orders, and for the answers of renewals under way, which do not
//! wait for each other.
//!
//! # Invariants
//!
//! - **K1** A lease has at most one renewal under way, so its answers cannot overtake each other.
//! - **K2** Every lease in `leases` stands in `agenda` once, at the time of its next event; its deadline is never
//!   later than that, so that loss is told on time even when a renewal hangs.
//! - **K3** An answer to a lease that is over changes nothing. If it says *held*, the lock is released: the renewal was
//!   carried out after we had given up.
//! - **K4** While a request without an answer may still be carried out, no deadline is later than its TTL allows: carried
//!   out after a longer renewal, it would shorten the lease without a word.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{LockName, Owner, Reply, Step, Ttl};
use tokio::sync::{mpsc, oneshot};

use super::hold::{Hold, deadline};
use super::kept::{Caller, Kept};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, StoreError};
use crate::store::Store;

/// What the keeper is asked to do.
pub(crate) enum Order {
    /// Look after a new lease.
    Keep {
        hold: Arc<Hold>,
        ttl: Ttl,
        auto_renew: bool,
    },
    /// Renew now, with this TTL from now on.
    Extend {
        owner: Owner,
        ttl: Ttl,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    /// The lease is being released.
    Forget { owner: Owner },
    /// The store granted a lock to an owner that gave up.
    Stray { key: String, owner: Owner },
}

/// The keeper of a client.
pub(crate) struct Keeper {
    store: Arc<dyn Store>,
    clock: Clock,
    inbox: mpsc::UnboundedReceiver<Order>,
    leases: HashMap<Owner, Kept>,
    agenda: BTreeSet<(Moment, Owner)>,
    answers: FuturesUnordered<BoxFuture<'static, Option<Answer>>>,
}

/// The answer to a renewal.
struct Answer {
    hold: Arc<Hold>,
    sent: Moment,
    ttl: Ttl,
    result: Result<Reply, StoreError>,
    callers: Vec<Caller>,
}

impl Keeper {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        inbox: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        let (leases, agenda, answers) = (HashMap::new(), BTreeSet::new(), FuturesUnordered::new());
        Self {
            store,
            clock,
            inbox,
            leases,
            agenda,
            answers,
        }
    }

    /// Works until nobody is left who could give an order.
    pub(crate) async fn run(mut self) {
        loop {
            let next = self.agenda.first().map(|(at, _)| *at);
            tokio::select! {
                order = self.inbox.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => {
                    if let Some(answer) = answer {
                        self.account(answer);
                    }
                }
                () = sleep_until(&self.clock, next) => self.attend(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Keep {
                hold,
                ttl,
                auto_renew,
            } => self.keep(hold, ttl, auto_renew),
            Order::Extend { owner, ttl, reply } => {
                // Dropping the reply says that the lease is over; its hold knows why.
                let Some(kept) = self.leases.get_mut(&owner) else {
                    return;
                };
                kept.ask_for(ttl);
                kept.by_hand.push(reply);
                if !kept.under_way {
                    self.renew(&owner);
                }
            }
            Order::Forget { owner } => drop(self.remove(&owner)),
            Order::Stray { key, owner } => self.let_go(LockName::from_key(&key), owner),
        }
    }

    fn keep(&mut self, hold: Arc<Hold>, ttl: Ttl, auto_renew: bool) {
        if hold.is_over() {
            return;
        }
        let owner = hold.owner.clone();
        let kept = Kept::new(hold, ttl, auto_renew, self.clock.now());
        self.agenda.insert((kept.next, owner.clone()));
        self.leases.insert(owner.clone(), kept);
        self.schedule(&owner);
    }

    /// Does what is due.
    fn attend(&mut self) {
        let now = self.clock.now();
        while let Some((at, owner)) = self.agenda.first().cloned() {
            if at > now {
                return;
            }
            let Some(kept) = self.leases.get(&owner) else {
                self.agenda.pop_first();
                continue;
            };
            if let Some(cause) = kept.hold.overdue(now) {
                kept.hold.lose(cause);
                self.remove(&owner);
            } else if kept.is_due(now) {
                self.renew(&owner);
            } else {
                self.schedule(&owner);
            }
        }
    }

    /// Sends a renewal.
    fn renew(&mut self, owner: &Owner) {
        let Some(kept) = self.leases.get_mut(owner) else {
            return;
        };
        let (hold, ttl, callers) = (
            kept.hold.clone(),
            kept.ttl,
            std::mem::take(&mut kept.by_hand),
        );
        if hold.is_over() || hold.is_past() {
            // Ended a moment ago, by another thread or by time. Left in the agenda, it would be due for ever (K2).
            let verdict = match hold.loss() {
                Some(lost) => {
                    hold.lose(lost.cause.clone());
                    lost.into()
                }
                None => StoreError::closed().into(),
            };
            self.remove(owner);
            tell(callers, &Err(verdict));
            return;
        }
        let sent = self.clock.now();
        if kept.is_to_be_indexed(sent) {
            let (store, name) = (self.store.clone(), hold.name.clone());
            // Best effort: the index holds hints.
            self.answers.push(Box::pin(async move {
                drop(store.index(Some(name)).await);
                None
            }));
        }
        hold.before_renewal(deadline(sent, ttl));
        kept.under_way = true;
        let store = self.store.clone();
        self.answers.push(Box::pin(async move {
            let result = store
                .apply(
                    &hold.name,
                    Step::Extend {
                        owner: hold.owner.clone(),
                        ttl,
                    },
                )
                .await;
            Some(Answer {
                hold,
                sent,
                ttl,
                result,
                callers,
            })
        }));
        self.schedule(owner);
    }

    /// Takes the answer to a renewal into account.
    fn account(&mut self, answer: Answer) {
        let Answer {
            hold,
            sent,
            ttl,
            result,
            callers,
        } = answer;
        let owner = hold.owner.clone();
        let verdict = match (self.leases.get_mut(&owner), result) {
            (None, result) => {
                // Over while the renewal was under way (K3). What was released is settled already, and may be kept on purpose.
                if matches!(result, Ok(Reply::Held(_))) && hold.loss().is_some() {
                    self.let_go(hold.name.clone(), owner.clone());
                }
                Err(hold
                    .loss()
                    .map_or_else(|| StoreError::closed().into(), Error::Lost))
            }
            (Some(kept), Ok(Reply::Held(_))) => {
                kept.renewed(sent, ttl, self.clock.now());
                Ok(())
            }
            (Some(kept), Err(error)) => {
                kept.failed(ttl, &error, self.clock.now());
                Err(error.into())
            }
            (Some(_), Ok(reply)) => {
                let holder = if let Reply::NotHeld(holder) = reply {
                    holder
                } else {
                    None
                };
                let cause = LossCause::NotHeld(holder.map(Box::new));
                hold.lose(cause.clone());
                self.remove(&owner);
                Err(hold.lost(cause).into())
            }
        };
        tell(callers, &verdict);
        if self
            .leases
            .get(&owner)
            .is_some_and(|kept| !kept.by_hand.is_empty())
        {
            self.renew(&owner);
        } else {
            self.schedule(&owner);
        }
    }

    /// Puts a lease where it belongs in the agenda (K2).
    fn schedule(&mut self, owner: &Owner) {
        let Some(kept) = self.leases.get_mut(owner) else {
            return;
        };
        let next = kept.next_event();
        self.agenda.remove(&(kept.next, owner.clone()));
        kept.next = next;
        self.agenda.insert((next, owner.clone()));
    }

    fn remove(&mut self, owner: &Owner) -> Option<Kept> {
        let kept = self.leases.remove(owner)?;
        self.agenda.remove(&(kept.next, owner.clone()));
        Some(kept)
    }

    /// Releases what nobody wants, once: if the answer is lost, its TTL ends it.
    fn let_go(&mut self, name: LockName, owner: Owner) {
        let store = self.store.clone();
        let step = Step::Release { owner, keep: None };
        self.answers.push(Box::pin(async move {
            drop(store.apply(&name, step).await);
            None
        }));
    }
}

/// Tells those who renewed by hand, as far as they still listen.
fn tell(callers: Vec<Caller>, verdict: &Result<(), Error>) {
    for caller in callers {
        drop(caller.send(verdict.clone()));
    }
}

async fn sleep_until(clock: &Clock, at: Option<Moment>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
