//! Removes the traces of an unused owner from the store. It repeats the release until the store has confirmed it, or until its time is
//! over; then once more at the next connection.
//!
//! A request with an unknown outcome may still be in a buffer: a stopped server executes it when it continues, with a full TTL, long after
//! the client gave up. So after an unknown outcome one confirmation is not enough: the release is repeated until a full TTL has passed
//! since the last such request. Owners are used once, so an extra release cannot affect another owner (core: C3).
//!
//! A settlement that is given up while the connection lasts leaves nothing behind. The client closes a connection that is silent for half a
//! second after an unanswered request, and a server answers in order. So a connection that lasts has executed or refused all earlier
//! requests, and their TTL has passed when the settlement is given up (`MARGIN`). A request that an older connection delivers later holds
//! the lock for at most its own TTL, unless the next connection comes first.
//!
//! # Invariants
//!
//! - **U1** An unused owner that may have left traces in the store has one settlement. It ends when the store has confirmed a release and no
//!   earlier request can arrive any more, or when its time is over.
//! - **U2** A release says *lost* only if no other release of this client can have freed the lock.
//! - **U3** No late request frees a lock that its user wants to stay taken.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, HolderView, LockName, Owner, Reply, Step, Ttl};

use super::effects::{Due, Effect, Effects, PendingRelease};
use super::hold::Hold;
use super::terms::{drift, rounded_up};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::store::{Answer, To};

/// The least time that a kept owner is remembered: a program that has its token may have renewed it, and no request of this client takes
/// longer.
const KEPT: Duration = Duration::from_secs(60);

/// How long after the TTL a settlement goes on trying.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the caller of a release waits for the store to come back before it is told that it did not confirm.
const CALLER_WAITS: Duration = Duration::from_secs(2);

/// An owner to undo.
pub(super) struct Settle {
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    /// The fence of the grant, where it is known: the answer is about that hold. The owner lets go of whatever it has in any case.
    pub(super) fence: Option<Fence>,
    pub(super) keep: Option<Ttl>,
    /// An earlier request was not answered and may be carried out until then.
    pub(super) unsettled_until: Option<Moment>,
    /// The lease whose use ends with this release.
    pub(super) pending_release: Option<PendingRelease>,
    /// It goes on without this client.
    pub(super) is_detached: bool,
}

impl Settle {
    /// A settlement for an unused owner that may have left traces in the store.
    pub(super) fn of(
        name: LockName,
        owner: Owner,
        ttl: Ttl,
        unsettled_until: Option<Moment>,
    ) -> Self {
        Self {
            name,
            owner,
            ttl,
            fence: None,
            keep: None,
            unsettled_until,
            pending_release: None,
            is_detached: false,
        }
    }
}

/// The state of a settlement after an answer.
pub(super) enum Stage {
    GoesOn,
    Settled,
    /// Its time is over, and nothing was confirmed: the next connection begins it anew, for a lease of this TTL.
    Abandoned(Ttl),
}

/// Releases of one owner, until they have come to something.
pub(super) struct Settlement {
    name: LockName,
    owner: Owner,
    ttl: Ttl,
    fence: Option<Fence>,
    /// At-least-hold counts from the call, whenever the store hears of it; a repeat must not begin it anew.
    keep_until: Option<Moment>,
    /// The lock stays taken after the release (at-least-hold): until when to remember that (U3).
    kept_until: Option<Moment>,
    unsettled_until: Option<Moment>,
    /// Until it has its verdict.
    pending_release: Option<PendingRelease>,
    is_detached: bool,
    begun: Moment,
    /// When the use of the lease ended.
    parted: Moment,
    gives_up_at: Moment,
    /// Another try may have been carried out (U2).
    unsure: bool,
    /// How many releases were sent, and when the last one was.
    sent: u32,
    sent_at: Moment,
    /// When the next one is sent.
    retry_at: Option<Moment>,
    backoff: Backoff,
}

impl Settlement {
    pub(super) fn new(work: Settle, now: Moment) -> Self {
        Self {
            gives_up_at: gives_up_at(work.ttl, now),
            keep_until: work.keep.map(|keep| now.after(keep.get())),
            kept_until: work.keep.map(|keep| kept_until(keep, now)),
            name: work.name,
            owner: work.owner,
            ttl: work.ttl,
            fence: work.fence,
            unsettled_until: work.unsettled_until,
            pending_release: work.pending_release,
            is_detached: work.is_detached,
            begun: now,
            parted: now,
            unsure: false,
            sent: 0,
            sent_at: now,
            retry_at: None,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
        }
    }

    /// There is one more reason to release.
    pub(super) fn join(&mut self, work: Settle, now: Moment) {
        self.ttl = self.ttl.max(work.ttl);
        self.gives_up_at = self.gives_up_at.max(gives_up_at(work.ttl, now));
        self.unsettled_until = self.unsettled_until.max(work.unsettled_until);
        self.keep_until = work.keep.map(|keep| now.after(keep.get()));
        self.kept_until = work.keep.map(|keep| kept_until(keep, now));
        self.is_detached = work.is_detached;
        // The owner releases all that it has in any case. The fence names the lease of its user.
        self.fence = self.fence.or(work.fence);
        if work.pending_release.is_some() {
            (self.pending_release, self.parted) = (work.pending_release, now);
        }
        // The one before it may be carried out, and its answer may come later.
        self.unsure = true;
    }

    /// An earlier request may be carried out until then. That counts if the lock is to be freed after all.
    pub(super) fn may_be_late(&mut self, until: Option<Moment>) {
        self.unsettled_until = self.unsettled_until.max(until);
    }

    pub(super) fn release(&mut self, now: Moment, effects: &mut Effects) {
        let left = |until: Moment| rounded_up(until.since(now));
        let step = Step::Release {
            owner: self.owner.clone(),
            keep: self.keep_until.and_then(left),
            fence: self.fence,
        };
        self.sent += 1;
        self.sent_at = now;
        self.retry_at = None;
        effects.push(Effect::Send {
            name: self.name.clone(),
            step,
            to: To::Settlement(self.owner.clone(), self.sent),
        });
    }

    /// Until when the lock is known to stay taken, if it is (U3).
    pub(super) fn kept_until(&self, now: Moment) -> Option<Moment> {
        self.kept_until.filter(|until| *until > now)
    }

    /// Whether it waits for its next release.
    pub(super) fn is_waiting(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Repeats the release at once, since there is a new connection.
    pub(super) fn tried_again(&mut self, now: Moment, effects: &mut Effects) {
        self.backoff.reset();
        self.release(now, effects);
    }

    pub(super) fn due(&mut self, now: Moment, effects: &mut Effects) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.release(now, effects);
        }
    }

    /// Takes an answer, and has its verdict told as soon as there is one.
    pub(super) fn answered(
        &mut self,
        number: u32,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) -> Stage {
        let confirmed = match answer {
            Ok(reply) => {
                if reply != Reply::Released {
                    // The owner held nothing that could be kept.
                    self.kept_until = None;
                }
                let tried = self.unsure.then(|| now.since(self.begun));
                if let Some(pending_release) = self.pending_release.take() {
                    let result = judge(&pending_release, reply, tried);
                    effects.push(Effect::Released(pending_release, result));
                }
                true
            }
            Err(error) => {
                self.unsure |= error.may_have_taken_effect;
                let waited = now.since(self.parted) >= CALLER_WAITS || now >= self.gives_up_at;
                let waits = error.kind.is_transient() && !waited;
                if !waits && let Some(pending_release) = self.pending_release.take() {
                    effects.push(Effect::Released(pending_release, Err(error.into())));
                }
                false
            }
        };
        if number < self.sent {
            // The last one is still under way.
            return Stage::GoesOn;
        }
        // A late request may be carried out after a release that was sent before that time, however late its answer.
        let settled =
            self.is_detached || (self.unsettled_until).is_none_or(|until| until <= self.sent_at);
        if confirmed && settled {
            return Stage::Settled;
        }
        // A store that confirms answers: one more release, sent after the late request, settles it.
        if now < self.gives_up_at || confirmed {
            let at = now.after(self.backoff.pause());
            self.retry_at = Some(at);
            effects.wake(at, Due::Settlement(self.owner.clone()));
            return Stage::GoesOn;
        }
        // Not a lock that is to stay taken, or that the owner of its token may use (U3).
        if self.is_detached || self.keep_until.is_some_and(|until| until > now) {
            Stage::Settled
        } else {
            Stage::Abandoned(self.ttl)
        }
    }
}

fn kept_until(keep: Ttl, now: Moment) -> Moment {
    now.after(keep.get().max(KEPT))
}

fn gives_up_at(ttl: Ttl, now: Moment) -> Moment {
    now.after(ttl.get() + MARGIN)
}

/// The result for the caller of a release. Another request that may have freed the lock was sent at most `tried` ago.
fn judge(
    pending_release: &PendingRelease,
    reply: Reply,
    tried: Option<Duration>,
) -> Result<(), Error> {
    if let Some(lost) = &pending_release.lost {
        return Err((**lost).clone().into());
    }
    let hold: &Arc<Hold> = &pending_release.hold;
    match reply {
        Reply::Released => Ok(()),
        // An earlier try of this release, or another one of this client, may have been the one that freed it, while the lease
        // was still good: unless somebody has held the lock for longer than that. One that is detached stays taken, however
        // often that is asked for. Of slots, others hold beside each other.
        Reply::NotHeld(holder)
            if tried.is_some_and(|ago| {
                is_since(holder.as_deref().filter(|next| !is_beside(hold, next)), ago)
            }) && !hold.is_past()
                && !hold.is_detached() =>
        {
            Ok(())
        }
        Reply::NotHeld(holder) => Err(hold.lost(LossCause::NotHeld(holder)).into()),
        _ => Err(hold.lost(LossCause::NotHeld(None)).into()),
    }
}

/// Whether a holder may have had the lock beside this lease.
fn is_beside(hold: &Hold, holder: &HolderView) -> bool {
    hold.slot.is_some() && holder.slot.is_some()
}

/// Whether a holder, as far as the store knows, has held for at most as long as something is `ago`. The store counts from the
/// fence, by its own clock; the two may run at speeds that differ by 1 %, as everywhere.
fn is_since(holder: Option<&HolderView>, ago: Duration) -> bool {
    let held_for = holder.and_then(|holder| holder.held_for);
    held_for.is_none_or(|held_for| held_for.saturating_sub(drift(held_for)) <= ago)
}
