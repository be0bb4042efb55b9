//! The task behind a hold: renews it (T6), watches its deadline, ends it. One request of a hold is under way at a time (T8), and none is
//! sent after its end (T9).

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::timestamp::{Content, Reply, Step};
use tokio::sync::{mpsc, watch};

use super::hold::{HoldView, Order, Shown, TimestampHold};
use super::key::{Key, may_have_taken_effect};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause, StoreError};
use crate::lease::certain_until;

/// The first pause after a renewal that failed.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// How much later than the estimate needs a deadline is written: the middle of the range that the server accepts (T5). The server's clock
/// may be ahead of the estimate by the extra duration of this request.
const AIM: Duration = Duration::from_millis(500);

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

/// The task behind a hold, and its state.
pub(super) struct Keeper {
    pub(super) key: Key,
    ttl: Ttl,
    auto_renew: bool,
    /// All deadlines of this hold that the key may have (T7).
    pub(super) mine: Vec<u64>,
    /// The server's time in the last answer, and when that request was sent.
    pub(super) server: (u64, Moment),
    renew_at: Moment,
    backoff: Backoff,
    state: Arc<Shown>,
    /// A receiver of the state, to wait for changes.
    seen: watch::Receiver<HoldView>,
    orders: mpsc::UnboundedReceiver<Order>,
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

    pub(super) fn valid_until(&self) -> Moment {
        self.state.borrow().valid_until
    }

    /// Renews the hold for `ttl` from now.
    async fn extend(&mut self, ttl: Ttl) -> Result<(), Error> {
        let clock = self.key.engine.clock.clone();
        // Once more if the estimate of the server's clock was wrong.
        for _ in 0..2 {
            // A hold that is over is not taken again by an order that waited, or that came with the deadline.
            if self.is_overdue() {
                return Err(self.overdue());
            }
            let (sent, before) = (clock.now(), self.valid_until());
            let to = self.deadline(sent, AIM, ttl);
            let (step, known) = self.extension(to, ttl);
            // Sooner than before: it counts from here on, since it may stay unknown whether the request was executed (T6).
            let until = before.min(certain_until(sent, ttl.get()));
            self.state.send_modify(|state| {
                (state.valid_until, state.is_to_be_confirmed) = (until, false);
            });
            let mut asking = Box::pin(self.key.clone().asking(step, false));
            let answer = tokio::select! {
                biased;
                answer = &mut asking => answer,
                () = clock.sleep_until(until) => {
                    self.take_back(asking);
                    return Err(self.overdue());
                }
            };
            match answer {
                Ok(Reply::Held { deadline, at_us }) => {
                    self.server = (at_us, sent);
                    return self.renewed(deadline, sent, ttl);
                }
                Ok(Reply::Again { at_us }) => {
                    self.not_done(known, before);
                    self.server = (at_us, sent);
                }
                Ok(Reply::NotHeld { content, at_us }) => {
                    return Err(self.not_held(&content, at_us));
                }
                Ok(other) => return Err(self.doubt(self.key.refused(&other))),
                Err(error) => {
                    if !may_have_taken_effect(&error) {
                        self.not_done(known, before);
                    }
                    return Err(self.doubt(error));
                }
            }
        }
        let (at_us, _) = self.server;
        Err(self.doubt(self.key.refused(&Reply::Again { at_us })))
    }

    /// A request to write this deadline, which may be ours from here on; and how many there were before.
    pub(super) fn extension(&mut self, to: u64, ttl: Ttl) -> (Step, usize) {
        let known = self.mine.len();
        if !self.mine.contains(&to) {
            self.mine.push(to);
        }
        let mine = self.mine.clone();
        (Step::Extend { to, ttl, mine }, known)
    }

    /// The deadline to write, by the server's clock: what that said last, and what has passed here since the request was
    /// sent that it answered, and `aim`.
    pub(super) fn deadline(&self, sent: Moment, aim: Duration, ttl: Ttl) -> u64 {
        let (at_us, then) = self.server;
        let passed = u64::try_from((sent.since(then) + aim).as_micros()).unwrap_or(u64::MAX);
        let unit = self.key.unit;
        unit.deadline(unit.at(at_us.saturating_add(passed)), ttl)
    }

    fn renewed(&mut self, deadline: u64, sent: Moment, ttl: Ttl) -> Result<(), Error> {
        let clock = &self.key.engine.clock;
        let (mut in_time, mut is_old) = (false, false);
        self.state.send_if_modified(|state| {
            // Decided under the mutex: a reported loss is true (T9).
            in_time = state.valid_until > clock.now();
            is_old = state.is_to_be_confirmed;
            let counts = in_time && !is_old;
            if counts {
                state.deadline = deadline;
                state.valid_until = certain_until(sent, ttl.get());
                (state.doubt, state.replaced) = (None, None);
            }
            counts
        });
        if in_time && is_old {
            // By word of the server of before, perhaps (T10): whatever of `mine` stands there is ours.
            let replaced = StoreError::replaced_meanwhile(self.key.engine.store.label());
            return Err(self.doubt(replaced.into()));
        }
        self.mine = vec![deadline];
        self.schedule(sent, ttl);
        if !in_time {
            let (at_us, _) = self.server;
            self.take_back(ready(Ok(Reply::Held { deadline, at_us })));
        }
        // Its new end may have passed as well.
        if self.is_overdue() {
            return Err(self.overdue());
        }
        Ok(())
    }

    /// An extension was refused: it counts until `before` again, unless somebody may have seen it end meanwhile.
    fn not_done(&mut self, known: usize, before: Moment) {
        self.mine.truncate(known);
        let clock = &self.key.engine.clock;
        self.state.send_if_modified(|state| {
            let in_time = state.valid_until > clock.now();
            if in_time {
                state.valid_until = before;
            }
            in_time
        });
    }

    /// Frees what an extension has taken whose answer came when the hold was over: otherwise the lock would be nobody's for
    /// one more TTL. One try: its deadline ends it too.
    fn take_back(&self, asking: impl Future<Output = Result<Reply, Error>> + Send + 'static) {
        let key = self.key.clone();
        self.key.engine.tasks.spawn(async move {
            if let Ok(Reply::Held { deadline, .. }) = asking.await {
                let mine = vec![deadline];
                // Fails as any release may.
                drop(key.asking(Step::Release { mine }, true).await);
            }
        });
    }

    fn schedule(&mut self, sent: Moment, ttl: Ttl) {
        let third = ttl.get() / 3;
        self.renew_at = sent.after(third);
        // Some fifty tries at most; each may add a deadline that may belong to this hold.
        self.backoff = Backoff::new(AGAIN.min(third / 4), (ttl.get() / 50).max(AGAIN));
    }

    fn doubt(&mut self, error: Error) -> Error {
        self.renew_at = self.key.engine.clock.now().after(self.backoff.pause());
        self.state
            .send_modify(|state| state.doubt = Some(error.to_string()));
        error
    }

    pub(super) fn not_held(&mut self, content: &Content, at_us: u64) -> Error {
        let is_ours = self.mine.iter().any(|mine| *content == Content::of(*mine));
        self.lose(if is_ours {
            LossCause::Deadline(self.state.borrow().doubt.clone())
        } else {
            LossCause::NotHeld(self.key.instead(content, at_us).map(Box::new))
        })
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.valid_until() <= self.key.engine.clock.now()
    }

    pub(super) fn overdue(&mut self) -> Error {
        let cause = LossCause::Deadline(self.state.borrow().doubt.clone());
        self.lose(cause)
    }

    fn lose(&mut self, cause: LossCause) -> Error {
        self.state.send_modify(|state| {
            state.lost.get_or_insert(cause);
        });
        let state = self.state.borrow();
        match state.loss(&self.key.name, &self.key.engine.clock) {
            Some(lost) => lost.into(),
            None => StoreError::closed().into(),
        }
    }
}
