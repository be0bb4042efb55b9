//! The end of a lease: to the next one here, idle, or back to the store. Must never give a lock back twice, nor keep it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::{Fence, LockName, Owner, Step, Ttl};

use super::engine::Engine;
use super::hold::{Hold, Start};
use super::line::{Ending, Seat, Terms};
use super::seat::Waiter;
use super::settle::{Settle, Verdict, release};
use crate::clock::Moment;
use crate::error::{Error, Lost};
use crate::store::Done;
use crate::telemetry::{How, Telemetry};

/// For how long a release besides that of the lease is remembered: longer than anybody waits for the answer to a release.
const UNDONE: Duration = Duration::from_secs(60);

/// A lease that is being given back, and who wants to know.
pub(super) struct Giving {
    hold: Arc<Hold>,
    keep: Option<Ttl>,
    lost: Option<Lost>,
    verdict: Option<Verdict>,
}

impl Giving {
    pub(super) fn tell(self, telemetry: &Telemetry, result: Result<(), Error>) {
        telemetry.given_back(
            &self.hold.name,
            self.hold.fence,
            &result,
            self.lost.is_some(),
        );
        if let Some(verdict) = self.verdict {
            // The caller may have stopped listening.
            drop(verdict.send(result));
        }
    }

    fn parts(self) -> (Option<Ttl>, Option<Lost>, Option<Verdict>) {
        (self.keep, self.lost, self.verdict)
    }
}

impl Engine {
    /// Gives the lock of `owner` back to the store.
    pub(super) fn give_up(
        self: &Arc<Self>,
        name: &LockName,
        owner: Owner,
        lease: Option<Arc<Hold>>,
        giving: Option<Giving>,
    ) {
        self.keeper.forget(self, &owner);
        let Some(hold) = giving.as_ref().map(|giving| giving.hold.clone()).or(lease) else {
            // Asked for, and wanted by nobody when it came.
            self.let_go(name, &owner);
            return;
        };
        // A lease extended by hand may have longer to go than it was taken for.
        let left = Ttl::new(hold.deadline().since(self.clock.now()));
        let in_use = giving.is_some();
        let (keep, lost, verdict) = giving.map_or((None, None, None), Giving::parts);
        // What was lost must not be kept from the one who may have it now.
        let rest = hold.left_to_keep(self.clock.now());
        let keep = keep.max(rest).filter(|_| lost.is_none());
        if let Some(keep) = keep {
            self.keep(&owner, keep);
        }
        let work = Settle {
            name: name.clone(),
            owner,
            ttl: left.map_or(hold.ttl, |left| left.max(hold.ttl)),
            fence: Some(hold.grant),
            keep,
            unsettled_until: hold.unsettled_until(),
            hold: Some((hold, lost)),
            in_use,
        };
        release(self, work, verdict);
    }

    /// Whether the lock of this owner is to stay taken for a while after its release.
    pub(super) fn is_kept(&self, owner: &Owner) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(owner)
            .is_some_and(|until| *until > self.clock.now())
    }

    fn keep(&self, owner: &Owner, keep: Ttl) {
        let now = self.clock.now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, until| *until > now);
        // Not for less than any request of ours may take: whoever has its token may have renewed it meanwhile.
        kept.insert(owner.clone(), now.after(keep.get().max(UNDONE)));
    }

    /// A release of this owner is about to be sent besides that of its lease, which may be on its way.
    pub(super) fn undoes(&self, owner: &Owner) {
        let now = self.clock.now();
        let mut undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        undone.retain(|_, until| *until > now);
        undone.insert(owner.clone(), now.after(UNDONE));
    }

    /// When there was such a release: from then on the lease's own may find the lock free, though nothing was lost.
    pub(super) fn undone_at(&self, owner: &Owner) -> Option<Moment> {
        let undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        undone.get(owner).map(|until| until.before(UNDONE))
    }

    /// Releases what nobody wants, once: if the answer is lost, its TTL ends it.
    pub(super) fn let_go(&self, name: &LockName, owner: &Owner) {
        if self.is_kept(owner) {
            return;
        }
        self.undoes(owner);
        let step = Step::Release {
            owner: owner.clone(),
            keep: None,
            fence: None,
        };
        let token = self.tasks.token();
        self.store.send(name, step, Done::new(move |_| drop(token)));
    }

    /// Ends a lease, once.
    pub(crate) fn release(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        keep: Option<Ttl>,
        verdict: Option<Verdict>,
    ) {
        if !hold.give_back() {
            if let (Some(verdict), Some(lost)) = (verdict, hold.loss()) {
                // Closed meanwhile: the caller is told why, if it still listens.
                drop(verdict.send(Err(lost.into())));
            }
            return;
        }
        // As in `attend`.
        let _under_way = self.tasks.token();
        let now = self.clock.now();
        let lost = hold.loss();
        let fits = lost.is_none() && hold.is_fit_to_hand_on(hold.ttl, now);
        let tells_wanted = self.store.tells_wanted();
        // Kept from everybody, those who wait here too.
        let keep = keep.max(hold.left_to_keep(now));
        let ending = if keep.is_some() || lost.is_some() || self.is_closed() {
            Ending::GiveBack
        } else {
            let lingers = !hold.linger.is_zero() && tells_wanted;
            Ending::HandOn {
                linger_until: lingers.then(|| now.after(hold.linger)),
            }
        };
        let how = match (&lost, &verdict) {
            (Some(lost), _) => How::Lost(lost.cause.clone()),
            (None, Some(_)) => How::Released,
            (None, None) => How::Dropped,
        };
        hold.retire(how).tell();
        let giving = Giving {
            hold: hold.clone(),
            keep,
            lost,
            verdict,
        };
        let todo = {
            let mut lines = self.lines();
            if !tells_wanted {
                // Nobody says whether others wait, so they do.
                lines.wanted(&hold.name, &hold.owner, now);
            }
            let owner = |terms: &Terms| self.identity.owner(&terms.note);
            lines.give_back(
                &hold.name,
                &hold.owner,
                owner,
                (ending, fits),
                now,
                |seat, owner, fence, hold| self.next_lease(seat, owner, fence, hold, now),
            )
        };
        self.perform(&hold.name, todo, Some(giving));
    }

    /// The lease that follows `before` inside this client.
    pub(super) fn next_lease(
        &self,
        seat: &Seat<Waiter>,
        owner: &Owner,
        fence: Fence,
        before: &Arc<Hold>,
        now: Moment,
    ) -> Arc<Hold> {
        let start = seat.caller.start(owner, fence, &seat.terms);
        Arc::new(Hold::new(
            self.clock.clone(),
            Start {
                grant: before.grant,
                asked_at: before.asked_at,
                until: before.deadline(),
                unsettled_until: before.unsettled_until(),
                ..start
            },
            now,
        ))
    }
}
