//! Answers to renewals (RN3).

use leasehold_core::Reply;

use super::{Heard, Renewals, over, schedule};
use crate::clock::Moment;
use crate::error::Error;
use crate::lease::effects::{Effect, Effects};
use crate::lease::renewal::{Renewal, RenewalCause, believed};
use crate::store::Answer;
use crate::telemetry::Said;

impl Renewals {
    /// Handles the answer to a renewal.
    pub(in crate::lease) fn answered(
        &mut self,
        renewal: Renewal,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) -> Heard {
        let owner = renewal.hold.owner.clone();
        let in_use = self.leases.get(&owner).map(|entry| entry.hold.clone());
        let answer = believed(self.leases.get(&owner), answer, &self.store);
        let said = Said::by(&answer);
        let (verdict, heard, ended) = self.judge(&renewal, answer, now, effects);
        effects.push(Effect::Extended(renewal.callers, verdict));
        if let Some(hold) = in_use {
            effects.push(Effect::Renewed(hold, now.since(renewal.sent), said));
        }
        if let Some(ended) = ended {
            effects.push(ended);
        }
        if let Some(entry) = self.leases.get_mut(&owner) {
            if entry.by_hand.is_empty() {
                schedule(&owner, entry, effects);
            } else {
                self.send(&owner, RenewalCause::Asked, now, effects);
            }
        }
        if renewal.why == RenewalCause::Due {
            self.under_way -= 1;
            self.send_from_backlog(now, effects);
        }
        heard
    }

    /// Returns the verdict for the callers of `extend`, the part for queues and settlements, and the effect of a loss.
    fn judge(
        &mut self,
        renewal: &Renewal,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) -> (Result<(), Error>, Heard, Option<Effect>) {
        let owner = &renewal.hold.owner;
        let mut heard = Heard {
            confirmed: None,
            is_to_be_undone: false,
        };
        let mut ended = None;
        let verdict = match (self.leases.get_mut(owner), answer) {
            (None, answer) => {
                // Over while the renewal was under way (RN3). What was released is settled already, and may be kept on purpose.
                heard.is_to_be_undone =
                    self.lost_under_way.remove(owner) && matches!(answer, Ok(Reply::Held(_)));
                Err(over(&renewal.hold))
            }
            (Some(entry), Err(error)) => {
                entry.failed(renewal.ttl, &error, now);
                Err(error.into())
            }
            (Some(entry), Ok(reply)) => match entry.heard(reply, renewal.sent, renewal.ttl, now) {
                Ok(held) => {
                    heard.confirmed = Some(held);
                    Ok(())
                }
                Err((cause, left_held)) => {
                    heard.is_to_be_undone = left_held;
                    let hold = entry.hold.clone();
                    let error = hold.lost(cause.clone()).into();
                    ended = Some(self.end(hold, cause, effects));
                    Err(error)
                }
            },
        };
        (verdict, heard, ended)
    }
}
