//! A hold, and the task behind it, which renews it (T6), watches its deadline, ends it. One request of a hold is under way at a time (T8),
//! and none is sent after its end (T9). A lock is not freed earlier than asked, and a hold whose deadline has passed is not touched.
//!
//! A foreign value in a key may be a secret, so it is never shown.

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::timestamp::{Content, Reply, Step, Unit};
use leasehold_core::{HolderIdentity, HolderView, Invalid, LockName, Owner, Ttl};
use tokio::sync::{mpsc, oneshot, watch};

use crate::backoff::Backoff;
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, Lost, Replaced, StoreError, StoreErrorKind};
use crate::lease::{Doubtful, Engine, EngineHandle, certain_until};
use crate::store::TimestampRequest;

/// The first pause after a renewal that failed.
const AGAIN: Duration = Duration::from_millis(100);

/// How much later than the estimate needs a deadline is written: the middle of the range that the server accepts (T5). The server's clock
/// may be ahead of the estimate by the extra duration of this request.
const AIM: Duration = Duration::from_millis(500);

/// How much less an extension asks for than it writes when it has to write a certain deadline: by so much the server's clock
/// may be ahead of, or behind, where it is thought to be (T5).
const SLACK: Duration = Duration::from_millis(500);

/// The longest pause between tries.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of a hold that its user sees.
#[derive(Debug)]
pub(super) struct HoldView {
    /// The deadline in the key.
    deadline: u64,
    valid_until: Moment,
    /// Why the last renewal failed, or how the server was replaced since.
    doubt: Option<String>,
    lost: Option<LossCause>,
    /// The server was replaced since the last renewal that was confirmed (T10).
    replaced: Option<Replaced>,
    /// The server was replaced, and the new one has not been asked yet.
    is_to_be_confirmed: bool,
}

impl HoldView {
    /// Why it is lost, if it is; judged by the clock as well.
    fn loss(&self, name: &LockName, clock: &Clock) -> Option<Lost> {
        let passed = || LossCause::Deadline(self.doubt.clone());
        let overdue = || (self.valid_until <= clock.now()).then(passed);
        let cause = self.lost.clone().or_else(overdue)?;
        Some(Lost {
            name: name.as_str().to_owned(),
            fence: None,
            cause,
            replaced: self.replaced,
        })
    }
}

/// For the keeper.
impl Doubtful for watch::Sender<HoldView> {
    fn valid_until(&self) -> Moment {
        self.borrow().valid_until
    }

    fn replaced(&self, how: Replaced, now: Moment) {
        self.send_if_modified(|state| {
            // The reported cause of a loss never changes (T9).
            let is_held = state.lost.is_none() && state.valid_until > now;
            if is_held {
                (state.doubt, state.replaced) = (Some(how.to_string()), Some(how));
                state.is_to_be_confirmed = true;
            }
            is_held
        });
    }
}

/// What the keeper does next.
pub(super) enum Order {
    /// The renewal is due, or the server was replaced.
    Renew,
    Extend(Ttl, OrderReply),
    /// Ends the hold: at once, or after this time and not before. Without a reply if the user dropped the hold.
    End(Option<Ttl>, Option<OrderReply>),
    /// The client was closed.
    Close,
}

pub(super) type OrderReply = oneshot::Sender<Result<(), Error>>;

/// A lock held by the timestamp protocol until a deadline. It is not a [`Lease`](crate::Lease): it has no fence and no owner, so the
/// resource cannot tell a late holder from the current one. [Foreign clients](crate::timestamp#what-it-cannot-promise) may end it, or
/// take the lock meanwhile.
///
/// It ends by [release](TimestampHold::release) or by loss. Dropping it releases the lock in the background.
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold {
    pub(super) name: LockName,
    pub(super) clock: Clock,
    pub(super) state: watch::Receiver<HoldView>,
    /// Without a sender, the keeper releases (T9).
    pub(super) orders: mpsc::UnboundedSender<Order>,
    /// Dropped last, since that may wait for the keeper. The user's hold has it.
    pub(super) _engine: Option<EngineHandle>,
}

impl TimestampHold {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The deadline in the key, as far as the client knows, in the lock's [`Unit`](super::Unit) since 1970, by the server's clock. For
    /// people: it is later than [`TimestampHold::valid_until`].
    pub fn deadline(&self) -> u64 {
        self.state.borrow().deadline
    }

    /// The deadline of the hold by the client's clock, unless it is renewed before.
    pub fn valid_until(&self) -> Moment {
        self.state.borrow().valid_until
    }

    /// The time from now to that deadline, by a clock that counts suspend. Zero when the hold is lost.
    pub fn valid_for(&self) -> Duration {
        let state = self.state.borrow();
        if state.lost.is_some() {
            return Duration::ZERO;
        }
        state.valid_until.since(self.clock.now())
    }

    /// Why the last renewal failed, or how the server was replaced since. `None` once the hold is lost.
    pub fn doubt(&self) -> Option<String> {
        let state = self.state.borrow();
        let lost = state.loss(&self.name, &self.clock).is_some();
        state.doubt.clone().filter(|_| !lost)
    }

    /// Whether the hold is lost: its deadline has passed, or the key holds another value.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the hold is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        // The clock is read under the mutex, so a lost hold stays lost (T9).
        self.state.borrow().loss(&self.name, &self.clock)
    }

    /// Waits until the hold is lost. Put it in a `select!` beside the work.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        let mut state = self.state.clone();
        loop {
            let loss = state.borrow_and_update().loss(&self.name, &self.clock);
            if let Some(lost) = loss {
                return lost;
            }
            if state.changed().await.is_err() {
                // The client's thread has ended: nothing renews it any more.
                self.clock.sleep_until(self.valid_until()).await;
            }
        }
    }

    /// Renews the hold now. It lasts for `ttl` from now, and later renewals use `ttl` too.
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold was lost. [`Error::Store`] when the store gave no verdict: the lock is held until its deadline.
    /// [`Error::Invalid`] for a TTL out of bounds.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the renewal.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = Ttl::new(ttl)?;
        self.order(|reply| Order::Extend(ttl, reply)).await
    }

    /// Frees the lock, if the key still has the value of this hold and its deadline lies ahead by the server's clock.
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold was lost before: work done under it may have been unprotected. [`Error::Store`] when the store
    /// did not confirm: its deadline ends it at the latest.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    pub async fn release(self) -> Result<(), Error> {
        self.order(|reply| Order::End(None, Some(reply))).await
    }

    /// Ends the hold, but the lock stays taken for `keep` from now. No client repeats the work until then. A hold that was lost cannot be
    /// kept. While the store gives no verdict, the client retries until the hold's deadline.
    ///
    /// # Errors
    /// [`Error::Lost`] as for [`TimestampHold::release`]. [`Error::Store`] when the store did not confirm before the hold's deadline, or
    /// when the client was closed: the lock ends after `keep` or by the TTL. [`Error::Invalid`] when `keep` is not 10 ms to 24 h: the lock
    /// is released at once.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the retries. Before the first poll, the future is a hold, and dropping it
    /// releases the lock.
    pub async fn release_after(self, keep: Duration) -> Result<(), Error> {
        let keep = Ttl::new(keep)?;
        self.order(|reply| Order::End(Some(keep), Some(reply)))
            .await
    }

    async fn order(&self, order: impl FnOnce(OrderReply) -> Order) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        // Fails when the hold is lost. Then the answer fails too.
        drop(self.orders.send(order(reply)));
        answer.await.unwrap_or_else(|_| {
            let lost = self.loss().map(Error::Lost);
            Err(lost.unwrap_or_else(|| StoreError::closed().into()))
        })
    }
}

impl fmt::Debug for TimestampHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimestampHold")
            .field("name", &self.name())
            .field("deadline", &self.deadline())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

/// The task behind a hold, and its state.
pub(super) struct Keeper {
    key: Key,
    ttl: Ttl,
    auto_renew: bool,
    /// All deadlines of this hold that the key may have (T7).
    mine: Vec<u64>,
    /// The server's time in the last answer, and when that request was sent.
    server: (u64, Moment),
    renew_at: Moment,
    backoff: Backoff,
    state: Arc<watch::Sender<HoldView>>,
    /// A receiver of the state, to wait for changes.
    seen: watch::Receiver<HoldView>,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl Keeper {
    /// The hold of a lock that was granted just now, with this deadline, in the answer at `at_us` to the request of `sent`.
    pub(super) fn begin(
        key: Key,
        (deadline, at_us): (u64, u64),
        sent: Moment,
        ttl: Ttl,
        auto_renew: bool,
    ) -> TimestampHold {
        let (state, seen) = watch::channel(HoldView {
            deadline,
            valid_until: certain_until(sent, ttl.get()),
            doubt: None,
            lost: None,
            replaced: None,
            is_to_be_confirmed: false,
        });
        let state = Arc::new(state);
        let (sender, orders) = mpsc::unbounded_channel();
        let engine = key.engine.clone();
        let hold = TimestampHold {
            name: key.name.clone(),
            clock: engine.clock.clone(),
            state: seen.clone(),
            orders: sender,
            _engine: None,
        };
        engine.beside.add(&state, sent);
        let mut keeper = Self {
            key,
            ttl,
            auto_renew,
            mine: vec![deadline],
            server: (at_us, sent),
            renew_at: sent,
            backoff: Backoff::new(AGAIN, AGAIN),
            state,
            seen,
            orders,
        };
        keeper.schedule(sent, ttl);
        engine.tasks.spawn(keeper.run());
        hold
    }

    async fn run(mut self) {
        while self.state.borrow().lost.is_none() {
            match self.next().await {
                Order::Renew => {
                    // A failure is reported as doubt, a loss as a loss.
                    let _told: Result<(), Error> = self.extend(self.asks_for()).await;
                }
                Order::Extend(ttl, reply) => {
                    let answer = self.extend(ttl).await;
                    if answer.is_ok() {
                        self.ttl = ttl;
                    }
                    drop(reply.send(answer));
                }
                Order::End(keep, reply) => return self.end(keep, reply).await,
                Order::Close => {
                    self.lose(LossCause::Closed);
                    return self.end(None, None).await;
                }
            }
        }
    }

    async fn next(&mut self) -> Order {
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
            // None: the hold was dropped.
            order = self.orders.recv() => order.unwrap_or(Order::End(None, None)),
            _ = engine.closing() => Order::Close,
            () = to_be_confirmed => Order::Renew,
            () = engine.clock.sleep_until(wake) => Order::Renew,
        }
    }

    /// The TTL of an automatic renewal. A request that is only a confirmation does not prolong the hold.
    fn asks_for(&self) -> Ttl {
        let left = self.valid_until().since(self.key.engine.clock.now());
        let left = Ttl::new(left.max(Ttl::MIN)).ok();
        left.filter(|_| !self.auto_renew).unwrap_or(self.ttl)
    }

    fn valid_until(&self) -> Moment {
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
            let key = self.key.clone();
            let mut asking = Box::pin(async move { key.asking(step, false).await });
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
    fn extension(&mut self, to: u64, ttl: Ttl) -> (Step, usize) {
        let known = self.mine.len();
        if !self.mine.contains(&to) {
            self.mine.push(to);
        }
        let mine = self.mine.clone();
        (Step::Extend { to, ttl, mine }, known)
    }

    /// The deadline to write, by the server's clock: what that said last, and what has passed here since the request was
    /// sent that it answered, and `aim`.
    fn deadline(&self, sent: Moment, aim: Duration, ttl: Ttl) -> u64 {
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

    fn not_held(&mut self, content: &Content, at_us: u64) -> Error {
        let is_ours = self.mine.iter().any(|mine| *content == Content::of(*mine));
        self.lose(if is_ours {
            LossCause::Deadline(self.state.borrow().doubt.clone())
        } else {
            LossCause::NotHeld(self.key.instead(content, at_us).map(Box::new))
        })
    }

    fn is_overdue(&self) -> bool {
        self.valid_until() <= self.key.engine.clock.now()
    }

    fn overdue(&mut self) -> Error {
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

    /// Ends the hold: now, or `keep` from now.
    ///
    /// A release that may have been executed is not repeated (T7), and its caller hears of the first failure. A lock that is to be kept is
    /// asked for as long as it is ours; after that it is left alone. Nobody works under it any more, so what cannot be written is no loss:
    /// the deadline that stands there holds.
    async fn end(mut self, keep: Option<Ttl>, mut reply: Option<OrderReply>) {
        let engine = self.key.engine.clone();
        let mut end = keep.map(|keep| engine.clock.now().after(keep.get()));
        let (mut failure, mut moved) = (None, false);
        let mut backoff = Backoff::new(AGAIN, PAUSE);
        let mut tell = |verdict| {
            if let Some(reply) = reply.take() {
                // Fails if the caller has gone.
                drop(reply.send(verdict));
            }
        };
        loop {
            if self.is_overdue() {
                return tell(Err(failure.unwrap_or_else(|| self.overdue())));
            }
            let left = end.and_then(|end| Ttl::new(end.since(engine.clock.now())).ok());
            if left.is_none() {
                // It was kept for as long as it should be, by the deadline that it had.
                (end, failure) = (None, None);
            }
            let answer = if let Some(left) = left {
                self.ask_to_end(left).await
            } else {
                let mine = self.mine.clone();
                self.key.asking(Step::Release { mine }, true).await
            };
            // At once, but only once in a row.
            moved = matches!(answer, Ok(Reply::Again { .. })) && !moved;
            match answer {
                Ok(Reply::Held { .. } | Reply::Released) => return tell(Ok(())),
                Ok(Reply::Again { .. }) if moved => continue,
                Ok(Reply::Again { .. }) => {}
                Ok(Reply::NotHeld { content, at_us }) => {
                    // The earlier request may have been executed, and its hold may have ended as intended: this is not known.
                    let unknown = failure.filter(may_have_taken_effect);
                    let lost = unknown.unwrap_or_else(|| self.not_held(&content, at_us));
                    return tell(Err(lost));
                }
                Ok(other) => return tell(Err(self.key.refused(&other))),
                Err(error) if left.is_none() => {
                    let was_refused = is_transient(&error) && !may_have_taken_effect(&error);
                    tell(Err(error));
                    if !was_refused {
                        return;
                    }
                }
                Err(error) => failure = Some(after(failure, error)),
            }
            if engine.is_closed() {
                return tell(Err(failure.unwrap_or_else(|| StoreError::closed().into())));
            }
            tokio::select! {
                biased;
                _ = engine.closing() => {}
                () = engine.clock.sleep(backoff.pause()) => {}
            }
        }
    }

    /// Asks once to let it end `rest` from now.
    async fn ask_to_end(&mut self, rest: Ttl) -> Result<Reply, Error> {
        let clock = self.key.engine.clock.clone();
        let (sent, until) = (clock.now(), self.valid_until());
        let to = self.deadline(sent, Duration::ZERO, rest);
        // Never more than the rest, which is a TTL already.
        let least = Ttl::new(rest.get().saturating_sub(SLACK).max(Ttl::MIN)).unwrap_or(rest);
        let (step, known) = self.extension(to, least);
        let answer = tokio::select! {
            biased;
            answer = self.key.asking(step, true) => answer,
            // It may be carried out yet, and then ends by its deadline, as it should.
            () = clock.sleep_until(until) => Err(self.key.unanswered()),
        };
        if let Ok(Reply::Again { at_us }) = answer {
            self.mine.truncate(known);
            self.server = (at_us, sent);
        }
        answer
    }
}

/// A key of the protocol.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) engine: Arc<Engine>,
    pub(super) name: LockName,
    pub(super) unit: Unit,
    pub(super) by_script: bool,
}

impl Key {
    /// Takes a step on the client's thread. The last step of a hold has no shorter limit, since no step has to follow it within the TTL.
    pub(super) async fn asking(&self, step: Step, is_last: bool) -> Result<Reply, Error> {
        let ask = TimestampRequest {
            unit: self.unit,
            step,
            by_script: self.by_script,
            is_last,
        };
        let Some(answer) = self.engine.store.timestamp(&self.name, &ask) else {
            let why = format!(
                "is for keys shared with other programs in a Redis, and {} is none: use a mutex",
                self.engine.store.label()
            );
            return Err(Invalid::new("protocol", "timestamp", why).into());
        };
        Ok(self.engine.telemetry.answered(answer.await)?)
    }

    /// The error of a request whose answer came too late.
    fn unanswered(&self) -> Error {
        let detail = "its deadline passed first";
        let error = StoreError::new(self.engine.store.label(), StoreErrorKind::TimedOut, detail);
        error.unknown().into()
    }

    /// The holder of a lock with this deadline, as far as a time tells.
    pub(super) fn holder(&self, deadline: u64, at_us: u64) -> HolderView {
        let value = deadline.to_string().into();
        view("string".into(), value, Some(self.left(deadline, at_us)))
    }

    /// The value in the key instead of this hold's deadline.
    fn instead(&self, content: &Content, at_us: u64) -> Option<HolderView> {
        let left = content
            .deadline(self.unit)
            .map(|deadline| self.left(deadline, at_us));
        match content {
            Content::Nothing => None,
            Content::Text(value) => Some(view("string".into(), value.clone(), left)),
            Content::Other(kind) => Some(view(kind.clone(), Vec::new(), left)),
        }
    }

    /// How long until another client may take over (T2).
    fn left(&self, deadline: u64, at_us: u64) -> Duration {
        let free_at = deadline
            .saturating_add(1)
            .saturating_mul(self.unit.micros());
        Duration::from_micros(free_at.saturating_sub(at_us))
    }

    /// An unexpected verdict.
    pub(super) fn refused(&self, reply: &Reply) -> Error {
        let detail = match reply {
            Reply::Foreign(content) => format!(
                "the key \"{}\" holds {}, which is no time in {}: it is left alone",
                self.name.key().escape_debug(),
                described(content),
                match self.unit {
                    Unit::Seconds => "seconds",
                    Unit::Millis => "milliseconds",
                }
            ),
            Reply::BadClock { at_us } => {
                format!("its clock says that {at_us} microseconds have passed since 1970")
            }
            Reply::Again { at_us } => format!(
                "its clock moved by more than half a second while it was asked twice for a deadline; now it says {at_us} microseconds since 1970"
            ),
            other => format!("{other:?}"),
        };
        StoreError::new(self.engine.store.label(), StoreErrorKind::Protocol, detail).into()
    }
}

/// Whether the same request may succeed a moment later.
pub(super) fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.kind.is_transient())
}

fn may_have_taken_effect(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.may_have_taken_effect)
}

/// The failure of a request that was sent `earlier` as well: what may have been carried out stays so.
pub(super) fn after(earlier: Option<Error>, error: Error) -> Error {
    match error {
        Error::Store(error) if earlier.is_some_and(|earlier| may_have_taken_effect(&earlier)) => {
            error.unknown().into()
        }
        error => error,
    }
}

fn view(kind: String, value: Vec<u8>, expires_in: Option<Duration>) -> HolderView {
    HolderView::new(
        HolderIdentity::Foreign { kind, value },
        None,
        None,
        expires_in,
    )
}

/// The content of a key, without a foreign value, which may be a secret.
fn described(content: &Content) -> String {
    match content {
        Content::Nothing => "nothing".into(),
        Content::Other(kind) => format!("a {kind}"),
        Content::Text(value) => {
            let owner = std::str::from_utf8(value).ok().and_then(Owner::parse);
            if let Some(owner) = owner {
                return format!("the token of a mutex, held by {owner}");
            }
            format!("a string of {} bytes", value.len())
        }
    }
}
