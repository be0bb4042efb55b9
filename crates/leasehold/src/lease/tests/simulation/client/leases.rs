//! The leases of a client from their delivery on, and checks of what the machine does with them.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{HAND_OVER_FOR, HAND_OVERS, Owner, Reply, Step, Ttl};

use crate::clock::Moment;
use crate::lease::effects::{Effect, To};
use crate::lease::hold::Hold;
use crate::lease::machine::Event;
use crate::lease::terms::deadline;
use crate::store::Notice;
use crate::store::RenewalCause;

/// The leases of each owner: the last one, or those that share its stay.
#[derive(Default)]
pub(super) struct Leases {
    of: HashMap<Owner, Held>,
    /// The client was told of another server, which is asked for each lease, also for those that do not renew themselves.
    was_replaced: bool,
}

/// What an owner holds.
struct Held {
    leases: Vec<Lease>,
    /// It may renew itself once, although it was asked not to: its time was shorter than its user asked for.
    is_owed: bool,
    /// The TTL of the next renewal, and that of the last one.
    ttl: Ttl,
    sent: Ttl,
    /// The shortest TTL of any request of its owner.
    shortest: Ttl,
    /// Since when other clients wait, as the client was told, and how often the lock was handed on since.
    wanted_since: Option<Moment>,
    handed_on: u32,
}

/// A lease and its renewals by hand.
struct Lease {
    hold: Arc<Hold>,
    /// Its watchers were told of its end.
    is_ended: bool,
    /// A reading of the clock has shown its loss.
    was_lost: bool,
    /// When its user last asked for a renewal, and for how long.
    asked: Option<(Moment, Ttl)>,
    /// The latest end for which its user has asked.
    own_end: Moment,
}

impl Leases {
    /// A user is about to ask for a renewal.
    pub(super) fn asks(&mut self, hold: &Arc<Hold>, ttl: Ttl, now: Moment) {
        if let Some(kept) = self.of.get_mut(&hold.owner) {
            kept.ttl = if hold.stay.is_some() {
                kept.ttl.max(ttl)
            } else {
                ttl
            };
        }
        if let Some(lease) = self.lease_of(hold) {
            lease.asked = Some((now, ttl));
            lease.own_end = lease.own_end.max(now.after(ttl.get()));
        }
    }

    /// An event is about to be handled.
    pub(super) fn before(&mut self, event: &Event, now: Moment) {
        match event {
            Event::Answered(To::Renewal(owner, _), Ok(Reply::Held(answer))) => {
                if let Some(kept) = self.of.get_mut(owner) {
                    kept.is_owed = kept.sent < kept.ttl;
                    // In doubt, the client may not believe it.
                    let last = kept.leases.last();
                    let is_sure = last.is_some_and(|lease| lease.hold.doubted().is_none());
                    if answer.queued == 0 || is_sure {
                        kept.is_wanted(answer.queued > 0, now);
                    }
                }
            }
            Event::Noticed(Notice::Wanted { owner, .. }) => {
                // The server tells one owner of each client: it means all slots of the name.
                let slots = self.of.get(owner).and_then(|kept| kept.leases.last());
                let slots = slots.filter(|lease| lease.hold.slot.is_some());
                let name = slots.map(|lease| lease.hold.name.clone());
                for (of, kept) in &mut self.of {
                    let is_meant = |lease: &Lease| {
                        lease.hold.slot.is_some() && Some(&lease.hold.name) == name.as_ref()
                    };
                    if of == owner || kept.leases.iter().any(is_meant) {
                        kept.is_wanted(true, now);
                    }
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
                    let kept = self.held(hold);
                    kept.handed_on += u32::from(kept.wanted_since.is_some());
                    let since = kept.wanted_since.filter(|since| {
                        kept.handed_on > HAND_OVERS || since.after(HAND_OVER_FOR) <= now
                    });
                    if since.is_some() {
                        let who = hold.owner.id();
                        fault = Some(format!("C7: {who} is handed on, though others wait"));
                    }
                }
                Effect::Ended(hold, _) => {
                    if let Some(lease) = self.lease_of(hold) {
                        lease.is_ended = true;
                    }
                }
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

    /// What the owner of a lease holds, with that lease.
    fn held(&mut self, hold: &Arc<Hold>) -> &mut Held {
        let kept = self.of.entry(hold.owner.clone()).or_insert_with(|| Held {
            leases: Vec::new(),
            is_owed: false,
            ttl: hold.ttl,
            sent: hold.ttl,
            shortest: hold.ttl,
            wanted_since: None,
            handed_on: 0,
        });
        if kept.has(hold).is_none() {
            if hold.stay.is_none() {
                kept.leases.clear();
                kept.is_owed = hold.lasts < hold.ttl || hold.fence != hold.grant;
                kept.ttl = hold.ttl;
            } else {
                kept.ttl = kept.ttl.max(hold.ttl);
            }
            kept.shortest = kept.shortest.min(hold.ttl);
            kept.leases.push(Lease {
                hold: hold.clone(),
                is_ended: false,
                was_lost: false,
                asked: None,
                own_end: hold.since.after(hold.ttl.get()),
            });
        }
        kept
    }

    fn lease_of(&mut self, hold: &Arc<Hold>) -> Option<&mut Lease> {
        self.of.get_mut(&hold.owner)?.has(hold)
    }

    /// A renewal is about to be sent.
    fn is_renewed(&mut self, owner: &Owner, ttl: Ttl, why: RenewalCause) -> Option<String> {
        let (who, kept) = (owner.id(), self.of.get_mut(owner)?);
        (kept.sent, kept.shortest) = (ttl, kept.shortest.min(ttl));
        let mut leases = kept.leases.iter().map(|lease| &lease.hold);
        // A stay goes on while it is idle, and its readers do not.
        let is_past = |hold: &Arc<Hold>| hold.is_past() && (hold.stay.is_none() || !hold.is_over());
        if leases.clone().all(is_past) {
            return Some(format!("RN2: {who} is renewed after its end"));
        }
        if why != RenewalCause::Due || self.was_replaced {
            return None;
        }
        // A stay renews itself as long as anybody has it.
        let hold = leases.find(|hold| hold.stay.is_none())?;
        if hold.max_until.is_some_and(|max| hold.deadline() >= max) {
            return Some(format!("RN2: {who} is renewed beyond its max_hold"));
        }
        let renews_itself = hold.auto_renew || kept.is_owed;
        (!renews_itself).then(|| format!("RN2: {who} renews itself, against its terms"))
    }

    pub(super) fn deadline(&self, owner: &Owner) -> Option<Moment> {
        let leases = self.of.get(owner)?.leases.iter();
        leases.map(|lease| lease.hold.deadline()).max()
    }

    /// Checks a lease in use. `all_passed` says that no timer of the client is overdue.
    pub(super) fn check(&mut self, hold: &Arc<Hold>, all_passed: bool) -> Result<(), String> {
        let who = hold.owner.id();
        let Some(lease) = self.lease_of(hold) else {
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
        let stay = hold.stay.as_ref().filter(|_| !is_lost);
        if stay.is_some_and(|stay| stay.deadline() < hold.deadline()) {
            return Err(format!("RN6: a reader of {who} ends after its stay"));
        }
        if stay.is_some() && !hold.auto_renew && hold.deadline() > lease.own_end {
            return Err(format!(
                "RN6: a reader of {who} renews itself, against its terms"
            ));
        }
        Ok(())
    }

    /// Checks that a lease lasts as long as its user was told. A late request may shorten it to its own TTL (RN4).
    pub(super) fn check_renewed(&mut self, hold: &Arc<Hold>) -> Result<(), String> {
        let Some(shortest) = self.of.get(&hold.owner).map(|kept| kept.shortest) else {
            return Ok(());
        };
        let asked = self.lease_of(hold).and_then(|lease| lease.asked);
        // A reader has a stay of at least its time.
        let is_short = |(at, ttl): (Moment, Ttl)| hold.deadline() < deadline(at, ttl.min(shortest));
        if asked.is_some_and(is_short) && hold.loss().is_none() {
            let who = hold.owner.id();
            return Err(format!("L1: {who} was renewed by hand, and ends before"));
        }
        Ok(())
    }
}

impl Held {
    fn has(&mut self, hold: &Arc<Hold>) -> Option<&mut Lease> {
        let mut leases = self.leases.iter_mut();
        leases.find(|lease| Arc::ptr_eq(&lease.hold, hold))
    }

    /// Other clients wait, or do not, as of now.
    fn is_wanted(&mut self, is_wanted: bool, now: Moment) {
        if !is_wanted || self.wanted_since.is_none() {
            (self.wanted_since, self.handed_on) = (is_wanted.then_some(now), 0);
        }
    }
}
