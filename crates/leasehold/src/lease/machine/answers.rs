//! Event handlers for grants, notices of the store, and time limits.

use std::sync::Arc;

use leasehold_core::{CLAIM_WINDOW, Fences, Held, LockName, Owner, Ttl, Wake};

use super::{About, Machine};
use crate::clock::Moment;
use crate::lease::acquisition::{Acquisition, Hint, SentRequest};
use crate::lease::effects::{Due, Effect, Effects};
use crate::lease::hold::{Hold, Start};
use crate::lease::queue::StoreGrant;
use crate::lease::renewal::Renewal;
use crate::lease::settle::Settle;
use crate::lease::terms::{Term, Terms, deadline};
use crate::store::{Answer, Notice};

impl Machine {
    /// The store has answered a request with the lock. Not if the lease has ended before it could begin.
    pub(super) fn taken(
        &mut self,
        request: &SentRequest,
        held: &Held,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        let until = deadline(request.sent, request.ttl);
        let (Some(first), true) = (held.fence, until > now) else {
            return false;
        };
        let grant = StoreGrant {
            fences: Fences {
                first,
                block: held.block,
            },
            queued: held.queued,
        };
        let term = Term {
            asked_at: request.sent,
            until,
            lasts: request.ttl,
        };
        self.take(&request.name, &request.owner, grant, term, now, effects);
        true
    }

    fn take(
        &mut self,
        name: &LockName,
        owner: &Owner,
        grant: StoreGrant,
        term: Term,
        now: Moment,
        effects: &mut Effects,
    ) {
        let (identity, clock) = (&self.identity, &self.clock);
        let next_owner = |terms: &Terms| identity.owner(&terms.note);
        let first = grant.fences.first;
        let actions =
            (self.queues).taken(name, owner, next_owner, grant, now, |entry, acquisition| {
                let start = entry.caller.start(owner, first, &entry.terms);
                let start = Start {
                    asked_at: term.asked_at,
                    until: term.until,
                    unsettled_until: acquisition.left.unsettled_until,
                    lasts: term.lasts,
                    ..start
                };
                Arc::new(Hold::new(clock.clone(), start, now))
            });
        self.execute(name, actions.unwrap_or_default(), None, now, effects);
    }

    /// Takes a notice of the store.
    pub(super) fn noticed(&mut self, notice: Notice, now: Moment, effects: &mut Effects) {
        match notice {
            Notice::Granted { key, wake } => {
                self.granted(&LockName::from_key(&key), &wake, now, effects);
            }
            Notice::Wanted { key, owner } => {
                let name = LockName::from_key(&key);
                let actions = self.queues.wanted(&name, &owner, now);
                self.execute(&name, actions, None, now, effects);
            }
            Notice::First { key, owner } => {
                let name = LockName::from_key(&key);
                self.hint(&name, &owner, Hint::Ask, now, effects);
            }
            Notice::Cut(_) => self
                .queues
                .all_acquisitions()
                .for_each(|(_, acquisition)| acquisition.broken()),
            Notice::Replaced(how) => self.renewals.replaced(how, now, effects),
            Notice::Reconnected => {
                let broken = |(name, acquisition): (&LockName, &mut Acquisition)| {
                    acquisition.broken();
                    (name.clone(), acquisition.owner.clone())
                };
                let mut all: Vec<_> = self.queues.all_acquisitions().map(broken).collect();
                // In an order that depends on nothing else.
                all.sort_by(|(a, _), (b, _)| a.cmp(b));
                for (name, owner) in all {
                    self.hint(&name, &owner, Hint::Ask, now, effects);
                }
                self.settlements.reconnected(now, effects);
                self.renewals.reconnected(now, effects);
            }
            // For the listeners of entries.
            #[cfg(feature = "entries")]
            Notice::LoadEnded { .. } | Notice::Changed { .. } => {}
        }
    }

    fn granted(&mut self, name: &LockName, wake: &Wake, now: Moment, effects: &mut Effects) {
        let owner = &wake.owner;
        if let Some(acquisition) = self.queues.acquisition(name, owner) {
            let (Some(first), Some(term)) = (wake.fence, acquisition.granted_until(wake, now))
            else {
                return self.hint(name, owner, Hint::Claim, now, effects);
            };
            if let Some(ticket) = acquisition.asks_at.take() {
                effects.unset(ticket);
            }
            let grant = StoreGrant {
                fences: Fences {
                    first,
                    block: wake.block,
                },
                queued: wake.queued,
            };
            self.take(name, owner, grant, term, now, effects);
        } else if self.queues.owned_by(name, owner).is_none()
            && let Ok(granted) = Ttl::new(CLAIM_WINDOW)
        {
            // The acquisition was given up (E2). If the lock was used and released instead, this does nothing.
            let work = Settle::of(name.clone(), owner.clone(), granted, None);
            self.settlements.clean_up(work, now, effects);
        }
    }

    /// A renewal was answered.
    pub(super) fn renewed(
        &mut self,
        renewal: Renewal,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) {
        let (hold, ttl, sent) = (renewal.hold.clone(), renewal.ttl, renewal.sent);
        let heard = self.renewals.answered(renewal, answer, now, effects);
        if heard.is_to_be_undone {
            let work = Settle::of(hold.name.clone(), hold.owner.clone(), ttl, None);
            self.settlements.clean_up(work, now, effects);
        }
        if let Some(held) = heard.confirmed {
            let actions = (self.queues).queued(&hold.name, &hold.owner, held.queued, sent, now);
            self.execute(&hold.name, actions, None, now, effects);
        }
        self.tell_queues(now, effects);
    }

    /// The time limit of a request has passed: refuses it with the reason, unless an answer is expected soon.
    pub(super) fn limit_passed(
        &mut self,
        name: &LockName,
        id: u64,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Some(at) = queue.waiting.iter().position(|entry| entry.id == id) else {
            return;
        };
        let waiter = &mut queue.waiting[at].caller;
        let About {
            store,
            request_timeout,
            ..
        } = &self.about;
        match waiter.out_of_time(&queue.state, at, now, store, *request_timeout) {
            Err(later) => {
                let ticket = effects.wake(later, Due::Limit(name.clone(), id));
                waiter.alarm = Some(ticket);
            }
            Ok(error) => {
                if let Some(entry) = self.leave(name, id, now, effects) {
                    effects.push(Effect::Refuse(entry.caller, Box::new(error)));
                }
            }
        }
    }
}
