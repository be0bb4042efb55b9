//! The keeper of a lease: when it is renewed next, and the latest deadline that is certain. It keeps mutexes in the machine, and timestamp
//! locks beside it.
//!
//! # Invariants
//!
//! - **RN1** A lease has at most one renewal under way, so answers cannot overtake each other.
//! - **RN2** Each lease has one timer, at its next event and never later than its deadline. So a loss is reported on time, even if a renewal
//!   hangs.
//! - **RN3** An answer for a lease that is over changes nothing. If it says *held*, the lock is released: the renewal was executed after the
//!   client had given the lease up.
//! - **RN4** While an unanswered request may still be executed, no deadline is later than its TTL allows: executed after a longer renewal, it
//!   would shorten the lease without notice. Not that of a timestamp lock: it names the values that it may overwrite (T7).
//! - **RN5** At most [`AT_ONCE`] automatic renewals are under way, so many renewals that are due together do not delay other requests.
//! - **RN6** A renewal of a stay speaks for all of its readers. Each has an end of its own, at most that of the stay.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Held, HolderView, Reply, Ttl};
use tokio::sync::oneshot;

use super::hold::Hold;
use super::terms::deadline;
use super::timers::Ticket;
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause, Replaced, StoreError};
use crate::store::Answer;

/// The limit of automatic renewals under way: one batch, so another request does not wait for more than that.
pub(super) const AT_ONCE: usize = 32;

/// One lease and its renewals.
pub(crate) struct Keeper {
    pub(super) hold: Arc<Hold>,
    /// The leases that share it: the readers of this client. Then `hold` is their stay, which has no user.
    pub(super) readers: Vec<Arc<Hold>>,
    /// The TTL of each renewal.
    pub(crate) ttl: Ttl,
    /// The grant was shorter than the requested TTL: the lease is renewed once, also if it does not renew itself.
    owed: bool,
    /// When the next renewal is due. While one is under way: when it is, if that one succeeds.
    renew_at: Moment,
    /// The renewal under way (RN1).
    pub(crate) under_way: Option<Renewal>,
    /// Due, but too many renewals are under way (RN5).
    pub(super) is_in_backlog: bool,
    /// The last renewal failed.
    failed: bool,
    confirmed: Confirmed,
    /// The callers of `extend`: those of the renewal under way, then those who share the next one.
    pub(crate) callers: Vec<ExtendReply>,
    backoff: Backoff,
    /// Its timer (RN2).
    pub(super) ticket: Option<Ticket>,
    /// When its name was last put into the index. Not before the first renewal: shorter locks are not worth showing.
    indexed_at: Option<Moment>,
    /// The request with the shortest TTL that may still arrive (RN4).
    late_request: Option<LateRequest>,
}

/// A renewal under way.
pub(crate) struct Renewal {
    /// When it was made, before it is sent.
    pub(crate) sent: Moment,
    pub(crate) ttl: Ttl,
    /// How many callers of `extend` it is for.
    pub(super) callers: u32,
}

/// Whether the current server has confirmed the lease (L4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confirmed {
    Yes,
    /// The server was replaced. The new one is asked, also if the lease does not renew itself.
    No,
    /// The server was replaced while a renewal was under way. Its answer may come from the old server.
    AskedBefore,
}

/// An unanswered request over an abandoned connection. It may be executed after later requests.
struct LateRequest {
    ttl: Ttl,
    /// When it cannot arrive any more.
    until: Moment,
}

/// The least time that an unanswered request may still arrive: longer than a kernel tries to deliver it.
const LATE_REQUEST: Duration = Duration::from_secs(30);

/// How often a lease is put into the index again. The index forgets names after a day.
const INDEX_AGAIN: Duration = Duration::from_secs(12 * 60 * 60);

/// The answer channel of a caller of `extend`.
pub(crate) type ExtendReply = oneshot::Sender<Result<(), Error>>;

/// Answers the callers of `extend`.
pub(crate) fn tell(callers: Vec<ExtendReply>, verdict: &Result<(), Error>) {
    for caller in callers {
        drop(caller.send(verdict.clone()));
    }
}

impl LateRequest {
    fn of(ttl: Ttl, now: Moment) -> Self {
        Self {
            ttl,
            until: now.after(ttl.get().max(LATE_REQUEST)),
        }
    }
}

impl Keeper {
    pub(super) fn new(hold: Arc<Hold>, now: Moment) -> Self {
        let (ttl, has_values) = (hold.ttl, hold.has_values());
        Self {
            renew_at: hold.deadline().before(hold.lasts.get() * 2 / 3),
            owed: hold.lasts < ttl,
            failed: false,
            confirmed: Confirmed::Yes,
            late_request: hold.unsettled_until().map(|_| LateRequest::of(ttl, now)),
            hold,
            readers: Vec::new(),
            ttl,
            under_way: None,
            is_in_backlog: false,
            callers: Vec::new(),
            backoff: backoff(ttl, has_values),
            ticket: None,
            indexed_at: None,
        }
    }

    /// Goes on with the next lease of the same owner. Its time left may be shorter than its holder asked for (`is_short`). Returns whether
    /// another event is next.
    pub(super) fn goes_on_with(&mut self, hold: &Arc<Hold>, is_short: bool) -> bool {
        let same_plan = self.hold.max_until.is_none()
            && hold.max_until.is_none()
            && self.hold.auto_renew == hold.auto_renew;
        // The doubt may be newer than the lease.
        hold.doubt_like(&self.hold);
        self.hold = hold.clone();
        if self.ttl != hold.ttl {
            self.ask_for(hold.ttl);
        }
        self.owed |= is_short;
        !same_plan
    }

    /// A request for `ttl` is under way since before the grant. The server may execute it after a renewal (RN4).
    pub(super) fn request_is_under_way(&mut self, ttl: Ttl, now: Moment) {
        self.late_request = Some(LateRequest::of(self.counted(ttl, now), now));
    }

    /// A request for `ttl` was not answered and may still arrive.
    pub(super) fn request_may_be_late(&mut self, ttl: Ttl, now: Moment) {
        self.late_request = Some(LateRequest::of(self.counted(ttl, now), now));
        // If it was executed after the last renewal, this is the remaining deadline.
        self.before_renewal(deadline(now, ttl));
        // A renewal planned for a longer TTL may be too late.
        self.renew_at = self.renew_at.min(now.after(ttl.get() / 3));
    }

    /// Each renewal from now on is for `ttl`.
    pub(crate) fn ask_for(&mut self, ttl: Ttl) {
        (self.ttl, self.backoff) = (ttl, backoff(ttl, self.hold.has_values()));
    }

    /// The store has answered a renewal for `ttl` that was sent at `sent`. The error is the cause of a loss, and whether the store still
    /// has the owner.
    pub(super) fn heard(
        &mut self,
        reply: Reply,
        sent: Moment,
        ttl: Ttl,
        now: Moment,
    ) -> Result<Held, (LossCause, bool)> {
        let held = match reply {
            // The fence tells of a grant of a store that was rolled back: that is another hold. If its clock went back as well, it may have
            // drawn the same fence for another slot.
            Reply::Held(held) if self.hold.named().is_none() && !self.hold.is(&held) => {
                return Err((LossCause::NotHeld(None), true));
            }
            Reply::Held(held) => held,
            Reply::NotHeld(holder) => {
                // A store that was rolled back may have granted the lock to this owner again. That is another grant.
                let again = |holder: &HolderView| holder.is(&self.hold.owner);
                let left_held = holder.as_deref().is_some_and(again);
                let another = holder.filter(|_| !left_held);
                return Err((LossCause::NotHeld(another), left_held));
            }
            _ => return Err((LossCause::NotHeld(None), false)),
        };
        let renewed = self.confirmed(sent, ttl, now);
        renewed.map(|()| held).map_err(|cause| (cause, true))
    }

    /// A renewal for `ttl` that was sent at `sent` was confirmed. The error is the cause of a loss meanwhile.
    pub(crate) fn confirmed(
        &mut self,
        sent: Moment,
        ttl: Ttl,
        now: Moment,
    ) -> Result<(), LossCause> {
        let counted = self.counted(ttl, now);
        // A renewal that was only a confirmation does not change this.
        self.owed = ttl < self.ttl && (self.owed || !self.is_only_confirmed());
        self.failed = false;
        self.confirmed = Confirmed::Yes;
        self.renew_at = self.due_after(sent, ttl, now);
        self.backoff.reset();
        let until = deadline(sent, counted);
        self.hold.renew_until(until)?;
        for reader in &self.readers {
            reader.follows(until);
        }
        Ok(())
    }

    /// A request is about to be sent that may make the lease end at `deadline`.
    fn before_renewal(&self, deadline: Moment) {
        for hold in self.all() {
            hold.before_renewal(deadline);
        }
    }

    /// The lease, or the stay and the leases that share it.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Hold>> {
        iter::once(&self.hold).chain(&self.readers)
    }

    /// A renewal for `ttl` failed: the lease is doubtful, and tried again soon.
    pub(crate) fn failed(&mut self, ttl: Ttl, error: &StoreError, now: Moment) {
        self.failed = true;
        self.renew_at = if self.asked_before() {
            now
        } else {
            now.after(self.backoff.pause())
        };
        if self.confirmed != Confirmed::Yes {
            self.confirmed = Confirmed::No;
        }
        if error.may_have_taken_effect && !self.hold.has_values() {
            self.late_request = Some(LateRequest::of(self.counted(ttl, now), now));
        }
        for hold in self.all() {
            hold.doubt(error.to_string());
        }
    }

    /// Plans the next attempt for now if the last one failed.
    pub(super) fn is_tried_again(&mut self, now: Moment) -> bool {
        let is_planned = self.failed && self.is_planned();
        if is_planned {
            self.renew_at = self.renew_at.min(now);
        }
        is_planned
    }

    /// The server was replaced. The new one is asked for this lease now, or after the renewal under way (RN1).
    pub(super) fn replaced(&mut self, how: Replaced, now: Moment) {
        for hold in self.all() {
            hold.replaced(how);
        }
        if self.under_way.is_some() {
            self.confirmed = Confirmed::AskedBefore;
        } else {
            self.confirmed = Confirmed::No;
            (self.is_in_backlog, self.renew_at) = (false, now);
        }
    }

    /// Whether the next request is only a confirmation by a new server, of a lease that does not renew itself.
    fn is_only_confirmed(&self) -> bool {
        self.confirmed != Confirmed::Yes && !self.renews_itself()
    }

    /// The TTL of the next renewal. A request that is only a confirmation, without callers, does not prolong the lease.
    fn asks_for(&self, now: Moment) -> Ttl {
        let left = || Ttl::new(self.hold.deadline().since(now).max(Ttl::MIN)).ok();
        let only_confirmed = self.is_only_confirmed() && self.callers.is_empty();
        only_confirmed.then(left).flatten().unwrap_or(self.ttl)
    }

    /// Whether the server was replaced since the renewal under way was sent.
    pub(crate) fn asked_before(&self) -> bool {
        self.confirmed == Confirmed::AskedBefore
    }

    /// Whether the old server may have confirmed the lease by this answer to a renewal.
    pub(super) fn told_by_the_old(&self, answer: &Answer) -> bool {
        self.asked_before() && matches!(answer, Ok(Reply::Held(_)))
    }

    /// The trusted part of an answer to a renewal. If the old server has confirmed the lease, the new server may not have it (L4).
    pub(super) fn believes(&self, answer: Answer, store: &str) -> Answer {
        if self.told_by_the_old(&answer) {
            Err(StoreError::replaced_meanwhile(store))
        } else {
            answer
        }
    }

    /// A renewal is about to be sent, for the callers of `extend` and for the lease itself. Returns its TTL.
    pub(crate) fn begin(&mut self, now: Moment) -> Ttl {
        let ttl = self.asks_for(now);
        // The deadline is at most the one that this renewal would set, whatever its outcome (L1). Set it first, since the loss is reported
        // then (RN2).
        self.before_renewal(deadline(now, ttl));
        self.is_in_backlog = false;
        self.under_way = Some(Renewal {
            sent: now,
            ttl,
            callers: u32::try_from(self.callers.len()).unwrap_or(u32::MAX),
        });
        self.renew_at = self.due_after(now, ttl, now);
        ttl
    }

    /// Whether its name has to be put into the index at this renewal. Remembers it.
    pub(super) fn is_to_be_indexed(&mut self, now: Moment) -> bool {
        let due = self.indexed_at.is_none_or(|at| now.since(at) > INDEX_AGAIN);
        if due {
            self.indexed_at = Some(now);
        }
        due
    }

    /// The certain TTL of a renewal for `ttl`: a late request that is executed after it sets its own TTL (RN4).
    fn counted(&self, ttl: Ttl, now: Moment) -> Ttl {
        let late_request = self.late_request.as_ref().filter(|late| late.until > now);
        late_request.map_or(ttl, |late| late.ttl.min(ttl))
    }

    /// When the renewal after that for `ttl` sent at `sent` is due.
    fn due_after(&self, sent: Moment, ttl: Ttl, now: Moment) -> Moment {
        sent.after(self.counted(ttl, now).get() / 3)
    }

    /// Whether the own end of a reader has come.
    pub(super) fn has_reader_due(&self, now: Moment) -> bool {
        let mut readers = self.readers.iter();
        readers.any(|reader| reader.overdue(now).is_some())
    }

    /// Whether a renewal has to be sent.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.renews() && self.under_way.is_none() && self.renew_at <= now
    }

    fn is_planned(&self) -> bool {
        self.under_way.is_none() && !self.is_in_backlog
    }

    fn renews(&self) -> bool {
        self.confirmed != Confirmed::Yes || self.renews_itself()
    }

    /// Whether it renews itself. Not past the end that `max_hold` sets.
    fn renews_itself(&self) -> bool {
        (self.hold.auto_renew || self.owed)
            && self
                .hold
                .max_until
                .is_none_or(|max| self.hold.deadline() < max)
    }

    /// When to look at it next. A renewal is mostly answered long before the next one is due, so the timer is set for that already.
    pub(super) fn next_event(&self, now: Moment) -> Moment {
        let ends = self.all().map(|hold| hold.valid_until());
        let end = ends.min().unwrap_or(now);
        let follows = self.under_way.is_some() && self.renew_at > now;
        if self.renews() && (follows || self.is_planned()) {
            end.min(self.renew_at)
        } else {
            end
        }
    }
}

/// Pauses between attempts to renew a lease of `ttl`. Each attempt may add a value to those of a timestamp lock: some fifty at most.
fn backoff(ttl: Ttl, has_values: bool) -> Backoff {
    let limit = if has_values {
        (ttl.get() / 50).max(Duration::from_millis(100))
    } else {
        (ttl.get() / 6).min(Duration::from_secs(1))
    };
    let first = (ttl.get() / 20).min(Duration::from_millis(50));
    Backoff::new(first, limit)
}
