//! The end of a lease: the lock goes to the next waiter of this client, stays idle, or goes back to the store.

use std::sync::Arc;

use leasehold_core::{Fence, LockName, Owner, Ttl};

use super::{Machine, refuse};
use crate::clock::{Clock, Moment};
use crate::error::{LossCause, StoreError};
use crate::lease::effects::{Effect, Effects, PendingRelease};
use crate::lease::events::Release;
use crate::lease::hold::{Hold, Start};
use crate::lease::queue::{Ending, QueueEntry};
use crate::lease::queues::Closed;
use crate::lease::settle::Settle;
use crate::lease::terms::Terms;
use crate::lease::waiter::Waiter;
use crate::telemetry::How;

impl Machine {
    /// Ends a lease, which was not ended before.
    pub(super) fn released(&mut self, release: Release, now: Moment, effects: &mut Effects) {
        let Release {
            hold,
            keep,
            verdict,
            tells_wanted,
        } = release;
        let lost = hold.loss();
        let fits = lost.is_none() && hold.is_fit_to_hand_on(hold.ttl, now);
        // Then no waiter gets the lock, not even one of this client.
        let keep = keep.max(hold.left_to_keep(now));
        let ending = if keep.is_some() || !fits || self.is_closed {
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
        let ended = hold.retire(how);
        effects.push(Effect::Ended(hold.clone(), ended));
        if !tells_wanted {
            // The store does not notify of waiters, so assume that there are some.
            self.queues.wanted(&hold.name, &hold.owner, now);
        }
        let (identity, clock) = (&self.identity, &self.clock);
        let owner = |terms: &Terms| identity.owner(&terms.note);
        let actions = self.queues.give_back(
            &hold.name,
            &hold.owner,
            owner,
            ending,
            now,
            |entry, owner, fence, hold| next_lease(clock, entry, owner, fence, hold, now),
        );
        let release = PendingRelease {
            hold: hold.clone(),
            keep,
            lost,
            verdict,
        };
        self.execute(&hold.name, actions, Some(release), now, effects);
    }

    /// Gives the lock of `owner` back to the store; with a use of it that ends now, or else of an idle lease.
    pub(super) fn give_up(
        &mut self,
        name: &LockName,
        owner: Owner,
        idle: Option<Arc<Hold>>,
        release: Option<PendingRelease>,
        now: Moment,
        effects: &mut Effects,
    ) {
        self.renewals.forget(&owner, effects);
        let used = release.as_ref().map(|release| release.hold.clone());
        let Some(hold) = used.or(idle) else {
            return;
        };
        let keep = release.as_ref().and_then(|release| release.keep);
        // A lease extended by hand may have longer to go than it was taken for.
        let left = Ttl::new(hold.deadline().since(now));
        let lost = release.as_ref().and_then(|release| release.lost.as_ref());
        // Another owner may hold a lost lock now, so it must not be kept. A lease lost by closing the client is still this client's.
        let is_lost = lost.is_some_and(|lost| lost.cause != LossCause::Closed);
        let work = Settle {
            name: name.clone(),
            owner,
            ttl: left.map_or(hold.ttl, |left| left.max(hold.ttl)),
            fence: Some(hold.grant),
            keep: keep.max(hold.left_to_keep(now)).filter(|_| !is_lost),
            unsettled_until: hold.unsettled_until(),
            pending_release: release,
            is_detached: hold.is_detached(),
        };
        self.settlements.begin(work, now, effects);
    }

    /// Ends all waiting and all leases.
    pub(super) fn close(&mut self, now: Moment, effects: &mut Effects) {
        self.is_closed = true;
        let Closed {
            entries,
            acquisition,
            leases,
        } = self.queues.close();
        refuse(entries, &StoreError::closed().into(), effects);
        for (name, acquisition) in acquisition {
            self.abandon(&name, acquisition, now, effects);
        }
        for (name, owner, hold) in leases {
            let ended = hold.lose(LossCause::Closed);
            effects.push(Effect::Ended(hold.clone(), ended));
            // An idle lease was released by its user, but not in the store.
            hold.give_back();
            self.give_up(&name, owner, Some(hold), None, now, effects);
        }
    }
}

/// The lease that follows `before` inside this client.
pub(super) fn next_lease(
    clock: &Clock,
    entry: &QueueEntry<Waiter>,
    owner: &Owner,
    fence: Fence,
    before: &Arc<Hold>,
    now: Moment,
) -> Arc<Hold> {
    let start = entry.caller.start(owner, fence, &entry.terms);
    let start = Start {
        grant: before.grant,
        asked_at: before.asked_at,
        until: before.deadline(),
        unsettled_until: before.unsettled_until(),
        ..start
    };
    Arc::new(Hold::new(clock.clone(), start, now))
}
