//! A hold, and the task behind it, which renews it (T6), watches its deadline, ends it. When it is renewed, and until when it is certain, is up
//! to the keeper of leases. One request of a hold is under way at a time (T8), and none is sent after its end (T9). A lock is not freed
//! earlier than asked, and a hold whose deadline has passed is not touched.
//!
//! A foreign value in a key may be a secret, so it is never shown.

use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::timestamp::{Content, Reply, Step, Unit};
use leasehold_core::{HolderIdentity, HolderView, Invalid, Label, LockName, Mode, Owner, Ttl};
use tokio::sync::{mpsc, oneshot};

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause, Lost, StoreError, StoreErrorKind};
use crate::lease::{
    Engine, EngineHandle, ExtendReply, Hold, Kept, NO_FENCE, Start, certain_until, tell,
};
use crate::store::TimestampRequest;

/// How much later than the estimate needs a deadline is written: the middle of the range that the server accepts (T5). The server's clock
/// may be ahead of the estimate by the extra duration of this request.
const AIM: Duration = Duration::from_millis(500);

/// How much less an extension asks for than it writes when it has to write a certain deadline: by so much the server's clock
/// may be ahead of, or behind, where it is thought to be (T5).
const SLACK: Duration = Duration::from_millis(500);

/// The first and the longest pause between tries to end a hold.
const AGAIN: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(1);

/// What the user wants of the keeper.
pub(super) enum Order {
    Extend(Ttl, ExtendReply),
    /// Ends the hold: at once, or after this time and not before.
    End(Option<Ttl>, ExtendReply),
}

/// A lock held by the timestamp protocol until a deadline. It is not a [`Lease`](crate::Lease): it has no fence and no owner, so the
/// resource cannot tell a late holder from the current one. [Foreign clients](crate::timestamp#what-it-cannot-promise) may end it, or
/// take the lock meanwhile.
///
/// It ends by [release](TimestampHold::release) or by loss. Dropping it releases the lock in the background.
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold {
    pub(super) hold: Arc<Hold>,
    /// The deadline in the key.
    pub(super) deadline: Arc<AtomicU64>,
    /// Without a sender, the keeper releases (T9).
    pub(super) orders: mpsc::UnboundedSender<Order>,
    /// Dropped last, since that may wait for the keeper. The user's hold has it.
    pub(super) _engine: Option<EngineHandle>,
}

impl TimestampHold {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// The deadline in the key, as far as the client knows, in the lock's [`Unit`](super::Unit) since 1970, by the server's clock. For
    /// people: it is later than [`TimestampHold::valid_until`].
    pub fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// The deadline of the hold by the client's clock, unless it is renewed before.
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }

    /// The time from now to that deadline, by a clock that counts suspend. Zero when the hold is lost.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// Why the last renewal failed, or how the server was replaced since. `None` once the hold is lost.
    pub fn doubt(&self) -> Option<String> {
        self.hold.doubted().filter(|_| !self.is_lost())
    }

    /// Whether the hold is lost: its deadline has passed, or the key holds another value.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the hold is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        self.hold.loss()
    }

    /// Waits until the hold is lost. Put it in a `select!` beside the work.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        self.hold.wait_lost().await
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
        self.order(|reply| Order::End(None, reply)).await
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
        self.order(|reply| Order::End(Some(keep), reply)).await
    }

    async fn order(&self, order: impl FnOnce(ExtendReply) -> Order) -> Result<(), Error> {
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

/// The task behind a hold.
pub(super) struct Keeper {
    hold: Arc<Hold>,
    /// The plan of its renewals.
    kept: Arc<Kept>,
    values: Values,
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
        let engine = key.engine.clone();
        let start = Start {
            name: key.name.clone(),
            owner: engine.identity.owner(&Label::default(), &mut String::new()),
            fence: NO_FENCE,
            grant: NO_FENCE,
            asked_at: sent,
            until: certain_until(sent, ttl.get()),
            unsettled_until: None,
            max_hold: None,
            linger: Duration::ZERO,
            auto_renew,
            ttl,
            lasts: ttl,
            mode: Mode::Exclusive,
            slot: None,
            stay: None,
        };
        let hold = Arc::new(Hold::new(engine.clock.clone(), start, sent));
        let values = Values {
            key,
            mine: vec![deadline],
            server: (at_us, sent),
            deadline: Arc::new(deadline.into()),
        };
        let (sender, orders) = mpsc::unbounded_channel();
        let taken = TimestampHold {
            hold: hold.clone(),
            deadline: values.deadline.clone(),
            orders: sender,
            _engine: None,
        };
        let keeper = Self {
            kept: engine.beside.keep(&hold),
            hold,
            values,
            orders,
        };
        engine.tasks.spawn(keeper.run());
        taken
    }

    async fn run(mut self) {
        let engine = self.values.key.engine.clone();
        while !self.hold.is_lost() {
            let order = tokio::select! {
                biased;
                order = self.orders.recv() => order,
                _ = engine.closing() => {
                    lose(&self.hold, Some(LossCause::Closed));
                    None
                }
                () = self.kept.due(&engine.clock) => {
                    self.renew(None).await;
                    continue;
                }
            };
            match order {
                Some(Order::Extend(ttl, caller)) => self.renew(Some((ttl, caller))).await,
                Some(Order::End(keep, caller)) => return self.end(keep, Some(caller)).await,
                // The hold was dropped, or the client closed.
                None => return self.end(None, None).await,
            }
        }
    }

    /// Renews the hold, for a caller of `extend` or by itself. A caller that is dropped is told of the loss.
    async fn renew(&mut self, by_hand: Option<(Ttl, ExtendReply)>) {
        let clock = self.values.key.engine.clock.clone();
        // A hold that is over is not taken again by an order that waited, or that came with the deadline.
        if self.hold.is_past() {
            lose(&self.hold, None);
            return;
        }
        let before = self.hold.deadline();
        let (ttl, usual) = {
            let mut keeper = self.kept.keeper();
            let usual = keeper.ttl;
            if let Some((ttl, caller)) = by_hand {
                keeper.ask_for(ttl);
                keeper.callers.push(caller);
            }
            (keeper.begin(clock.now()), usual)
        };
        let answer = {
            let mut asking = pin!(self.values.extend(ttl));
            tokio::select! {
                biased;
                answer = &mut asking => answer,
                () = clock.sleep_until(self.hold.deadline()) => {
                    lose(&self.hold, None);
                    // All callers are told now, however late the answer.
                    self.kept.keeper().under_way = None;
                    self.kept.keeper().callers.clear();
                    self.orders = mpsc::unbounded_channel().1;
                    asking.await
                }
            }
        };
        let was_held = matches!(answer, Ok(Reply::Held { .. }));
        self.heard(answer, usual, before);
        if was_held && self.hold.is_lost() {
            // Otherwise the lock would be nobody's for one more TTL. One try: its deadline ends it too.
            drop(self.values.release().await);
        }
    }

    /// A renewal was answered. A failure is reported as doubt, a loss as a loss. Before the renewal, the hold lasted until `before`, and its
    /// renewals had the `usual` TTL.
    fn heard(&mut self, answer: Result<Reply, Error>, usual: Ttl, before: Moment) {
        let (hold, values) = (&self.hold, &mut self.values);
        let (engine, mut keeper) = (&values.key.engine, self.kept.keeper());
        let Some(renewal) = keeper.under_way.take() else {
            return;
        };
        let callers = mem::take(&mut keeper.callers);
        let (sent, ttl, now) = (renewal.sent, renewal.ttl, engine.clock.now());
        let heard = match answer {
            Ok(Reply::Held { .. }) if keeper.asked_before() && !hold.is_past() => {
                // By word of the server of before, perhaps (T10): whatever of `mine` stands there is ours.
                let replaced = StoreError::replaced_meanwhile(engine.store.label());
                keeper.failed(ttl, &replaced, now);
                Err(replaced.into())
            }
            Ok(Reply::Held { deadline, .. }) => {
                values.mine = vec![deadline];
                values.deadline.store(deadline, Ordering::SeqCst);
                Ok(keeper.confirmed(sent, ttl, now).err())
            }
            Ok(Reply::NotHeld { content, at_us }) => {
                Ok(Some(values.not_held(hold, &content, at_us)))
            }
            Ok(other) => Err(values.key.refused(&other)),
            Err(error) => {
                if let Error::Store(error) = &error {
                    if !error.may_have_taken_effect {
                        hold.not_renewed(before);
                    }
                    keeper.failed(ttl, error, now);
                }
                Err(error)
            }
        };
        if keeper.ttl != usual && !matches!(heard, Ok(None)) {
            keeper.ask_for(usual);
        }
        drop(keeper);
        let verdict = heard.and_then(|lost| match lost {
            // Its new end may have passed as well.
            None if !hold.is_past() => Ok(()),
            cause => Err(lose(hold, cause)),
        });
        tell(callers, &verdict);
    }

    /// Ends the hold: now, or `keep` from now.
    ///
    /// A release that may have been executed is not repeated (T7), and its caller hears of the first failure. A lock that is to be kept is
    /// asked for as long as it is ours; after that it is left alone. Nobody works under it any more, so what cannot be written is no loss:
    /// the deadline that stands there holds.
    async fn end(mut self, keep: Option<Ttl>, mut caller: Option<ExtendReply>) {
        let (hold, engine) = (self.hold, self.values.key.engine.clone());
        let mut end = keep.map(|keep| engine.clock.now().after(keep.get()));
        let (mut failure, mut moved) = (None, false);
        let mut backoff = Backoff::new(AGAIN, PAUSE);
        let mut tell = |verdict| tell(caller.take().into_iter().collect(), &verdict);
        loop {
            if hold.is_past() {
                return tell(Err(failure.unwrap_or_else(|| lose(&hold, None))));
            }
            let left = end.and_then(|end| Ttl::new(end.since(engine.clock.now())).ok());
            if left.is_none() {
                // It was kept for as long as it should be, by the deadline that it had.
                (end, failure) = (None, None);
            }
            let answer = match left {
                None => self.values.release().await,
                Some(left) => tokio::select! {
                    biased;
                    answer = self.values.keep(left) => answer,
                    // It may be carried out yet, and then ends by its deadline, as it should.
                    () = engine.clock.sleep_until(hold.deadline()) => Err(self.values.key.unanswered()),
                },
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
                    let cause = self.values.not_held(&hold, &content, at_us);
                    return tell(Err(unknown.unwrap_or_else(|| lose(&hold, Some(cause)))));
                }
                Ok(other) => return tell(Err(self.values.key.refused(&other))),
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
}

/// The hold is lost, if it was not lost before: for this reason, or because its deadline has passed.
fn lose(hold: &Hold, cause: Option<LossCause>) -> Error {
    let cause = cause.unwrap_or_else(|| LossCause::Deadline(hold.doubted()));
    // Telemetry has no span of it.
    drop(hold.lose(cause));
    hold.wake_watchers();
    let lost = hold.loss().map(Error::Lost);
    lost.unwrap_or_else(|| StoreError::closed().into())
}

/// The values of a hold in the key.
struct Values {
    key: Key,
    /// All deadlines of this hold that the key may have (T7).
    mine: Vec<u64>,
    /// The server's time in the last answer, and when that request was sent.
    server: (u64, Moment),
    /// The deadline of the last renewal that was confirmed.
    deadline: Arc<AtomicU64>,
}

impl Values {
    /// Asks to let the hold last for `ttl` from now; once more if the estimate of the server's clock was wrong.
    async fn extend(&mut self, ttl: Ttl) -> Result<Reply, Error> {
        let mut answer = self.ask(AIM, ttl, ttl, false).await;
        if let Ok(Reply::Again { .. }) = answer {
            answer = self.ask(AIM, ttl, ttl, false).await;
        }
        match answer? {
            reply @ (Reply::Held { .. } | Reply::NotHeld { .. }) => Ok(reply),
            other => Err(self.key.refused(&other)),
        }
    }

    /// Asks once to let the hold end `left` from now.
    async fn keep(&mut self, left: Ttl) -> Result<Reply, Error> {
        // Never more than that, which is a TTL already.
        let least = Ttl::new(left.get().saturating_sub(SLACK).max(Ttl::MIN)).unwrap_or(left);
        self.ask(Duration::ZERO, left, least, true).await
    }

    async fn release(&mut self) -> Result<Reply, Error> {
        let mine = self.mine.clone();
        self.key.asking(Step::Release { mine }, true).await
    }

    /// Asks once to write the deadline for `ttl` from now, and `aim` later; it has to cover `least`. It may be ours from here on.
    async fn ask(
        &mut self,
        aim: Duration,
        ttl: Ttl,
        least: Ttl,
        is_last: bool,
    ) -> Result<Reply, Error> {
        let sent = self.key.engine.clock.now();
        // By the server's clock: what that said last, and what has passed here since the request was sent that it answered.
        let ((at_us, then), unit) = (self.server, self.key.unit);
        let passed = u64::try_from((sent.since(then) + aim).as_micros()).unwrap_or(u64::MAX);
        let to = unit.deadline(unit.at(at_us.saturating_add(passed)), ttl);
        let known = self.mine.len();
        if !self.mine.contains(&to) {
            self.mine.push(to);
        }
        let (ttl, mine) = (least, self.mine.clone());
        let answer = self
            .key
            .asking(Step::Extend { to, ttl, mine }, is_last)
            .await;
        match &answer {
            Ok(Reply::Held { at_us, .. }) => self.server = (*at_us, sent),
            Ok(Reply::Again { at_us }) => {
                self.mine.truncate(known);
                self.server = (*at_us, sent);
            }
            Err(error) if !may_have_taken_effect(error) => self.mine.truncate(known),
            _ => {}
        }
        answer
    }

    /// Why the hold is lost if the key has this content.
    fn not_held(&self, hold: &Hold, content: &Content, at_us: u64) -> LossCause {
        if self.mine.iter().any(|mine| *content == Content::of(*mine)) {
            LossCause::Deadline(hold.doubted())
        } else {
            LossCause::NotHeld(self.key.instead(content, at_us).map(Box::new))
        }
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
