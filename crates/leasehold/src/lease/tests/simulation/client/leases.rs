//! The leases of a client from their delivery on, and checks of what the machine does with them.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{HAND_OVER_FOR, Owner, Reply, Step, Ttl};

use crate::clock::Moment;
use crate::lease::effects::{Effect, To};
use crate::lease::hold::Hold;
use crate::lease::machine::Event;
use crate::lease::terms::deadline;
use crate::store::Notice;
use crate::store::RenewalCause;

/// The last lease of each owner.
#[derive(Default)]
pub(super) struct Leases {
    of: HashMap<Owner, Lease>,
    /// The client was told of another server, which is asked for each lease, also for those that do not renew themselves.
    was_replaced: bool,
}

/// A lease and its renewals.
struct Lease {
    hold: Arc<Hold>,
    /// Its watchers were told of its end.
    is_ended: bool,
    /// A reading of the clock has shown its loss.
    was_lost: bool,
    /// It may renew itself once, although it was asked not to: its time was shorter than its user asked for.
    is_owed: bool,
    /// The TTL of the next renewal, and that of the last one.
    ttl: Ttl,
    sent: Ttl,
    /// The shortest TTL of any request of its owner.
    shortest: Ttl,
    /// When its user last asked for a renewal.
    asked_at: Option<Moment>,
    /// Since when other clients wait, by the answers to renewals.
    wanted_since: Option<Moment>,
}

impl Leases {
    /// An event is about to be handled.
    pub(super) fn before(&mut self, event: &Event, now: Moment) {
        match event {
            Event::Extended(owner, ttl, _) => {
                if let Some(lease) = self.of.get_mut(owner) {
                    (lease.ttl, lease.asked_at) = (*ttl, Some(now));
                }
            }
            Event::Answered(To::Renewal(owner, _), Ok(Reply::Held(held))) => {
                if let Some(lease) = self.of.get_mut(owner) {
                    lease.is_owed = lease.sent < lease.ttl;
                    let since = lease.wanted_since.unwrap_or(now);
                    lease.wanted_since = (held.queued > 0).then_some(since);
                }
            }
            Event::Noticed(Notice::Replaced(..)) => self.was_replaced = true,
            _ => {}
        }
    }

    /// These are the effects of an event. Returns a fault of a hand-over or of a renewal among them.
    pub(super) fn after(&mut self, effects: &[Effect], now: Moment) -> Option<String> {
        let mut fault = None;
        // First, since the first renewal of a lease may come before its delivery.
        for effect in effects {
            match effect {
                Effect::Grant(_, hold) => {
                    let since = self.lease(hold).wanted_since;
                    if since.is_some_and(|since| since.after(HAND_OVER_FOR) <= now) {
                        let who = hold.owner.id();
                        fault = Some(format!("C7: {who} is handed on, though others wait"));
                    }
                }
                Effect::Ended(hold, _) => self.lease(hold).is_ended = true,
                _ => {}
            }
        }
        let mut renewals = effects.iter().filter_map(|effect| match effect {
            Effect::Send {
                step: Step::Extend { ttl, .. },
                to: To::Renewal(owner, why),
                ..
            } => Some((owner, *ttl, *why)),
            _ => None,
        });
        fault.or_else(|| renewals.find_map(|(owner, ttl, why)| self.is_renewed(owner, ttl, why)))
    }

    fn lease(&mut self, hold: &Arc<Hold>) -> &mut Lease {
        let before = self.of.remove(&hold.owner);
        let lease = match before {
            Some(lease) if Arc::ptr_eq(&lease.hold, hold) => lease,
            before => Lease {
                hold: hold.clone(),
                is_ended: false,
                was_lost: false,
                is_owed: hold.lasts < hold.ttl || hold.fence != hold.grant,
                ttl: hold.ttl,
                wanted_since: before.as_ref().and_then(|before| before.wanted_since),
                sent: before.as_ref().map_or(hold.ttl, |before| before.sent),
                shortest: before.map_or(hold.ttl, |before| before.shortest.min(hold.ttl)),
                asked_at: None,
            },
        };
        self.of.entry(hold.owner.clone()).or_insert(lease)
    }

    /// A renewal is about to be sent.
    fn is_renewed(&mut self, owner: &Owner, ttl: Ttl, why: RenewalCause) -> Option<String> {
        let (who, lease) = (owner.id(), self.of.get_mut(owner)?);
        (lease.sent, lease.shortest) = (ttl, lease.shortest.min(ttl));
        let hold = &lease.hold;
        if hold.is_past() {
            return Some(format!("RN2: {who} is renewed after its end"));
        }
        if why != RenewalCause::Due || self.was_replaced {
            return None;
        }
        if hold.max_until.is_some_and(|max| hold.deadline() >= max) {
            return Some(format!("RN2: {who} is renewed beyond its max_hold"));
        }
        let renews_itself = hold.auto_renew || lease.is_owed;
        (!renews_itself).then(|| format!("RN2: {who} renews itself, against its terms"))
    }

    pub(super) fn deadline(&self, owner: &Owner) -> Option<Moment> {
        self.of.get(owner).map(|lease| lease.hold.deadline())
    }

    /// Checks a lease in use. `all_passed` says that no timer of the client is overdue.
    pub(super) fn check(&mut self, hold: &Arc<Hold>, all_passed: bool) -> Result<(), String> {
        let who = hold.owner.id();
        let lease = self.of.get_mut(&hold.owner);
        let Some(lease) = lease.filter(|lease| Arc::ptr_eq(&lease.hold, hold)) else {
            return Ok(());
        };
        let is_lost = hold.loss().is_some();
        if lease.was_lost && !is_lost {
            return Err(format!("L3: {who} was lost, and is held again"));
        }
        lease.was_lost = is_lost;
        if is_lost && all_passed && !lease.is_ended {
            return Err(format!("RN2: the user of {who} is not told of the loss"));
        }
        Ok(())
    }

    /// Checks that a lease lasts as long as its user was told. A late request may shorten it to its own TTL (RN4).
    pub(super) fn check_renewed(&self, hold: &Hold) -> Result<(), String> {
        let Some(lease) = self.of.get(&hold.owner) else {
            return Ok(());
        };
        let is_short = |asked_at| hold.deadline() < deadline(asked_at, lease.shortest);
        if lease.asked_at.is_some_and(is_short) {
            let who = hold.owner.id();
            return Err(format!("L1: {who} was renewed by hand, and ends before"));
        }
        Ok(())
    }
}
