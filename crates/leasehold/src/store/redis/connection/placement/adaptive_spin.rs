//! Staying awake for an answer that is about to come. Must never cost more than it has been worth lately.
//!
//! A server nearby answers within a fraction of the time that a sleeping thread takes to be woken. So after a request was sent,
//! whoever sent it goes on looking for the answer for a moment before it sleeps. Where answers take longer, that is in vain, and
//! soon not tried any more, but for one request in many.

use std::time::Duration;

use crate::clock::Moment;

/// How long to stay awake.
const MAX_SPIN: Duration = Duration::from_micros(100);

/// How long after an answer the next request may still find somebody awake.
const SPIN_AFTER_REPLY: Duration = Duration::from_micros(20);

/// How many requests at most go by without a spin after one that was in vain.
const MAX_SKIPPED: u32 = 256;

/// The vigils over one connection.
#[derive(Debug, Default)]
pub(super) struct AdaptiveSpin {
    state: SpinState,
    /// Vigils in a row that were in vain.
    failures: u32,
    /// Requests to go by without one.
    skip: u32,
}

#[derive(Debug, Default, Clone, Copy)]
enum SpinState {
    #[default]
    Parked,
    /// For an answer, until then.
    AwaitingReply(Moment),
    /// For the next request, until then.
    AwaitingRequest(Moment),
}

impl AdaptiveSpin {
    /// Whether there is one now.
    pub(super) const fn is_spinning(&self) -> bool {
        !matches!(self.state, SpinState::Parked)
    }

    /// A request was sent.
    pub(super) fn sent(&mut self, now: Moment) {
        if matches!(self.state, SpinState::AwaitingReply(_)) {
            return;
        }
        match self.skip.checked_sub(1) {
            Some(skip) => self.skip = skip,
            None => self.state = SpinState::AwaitingReply(now.after(MAX_SPIN)),
        }
    }

    /// An answer came: if it came in time, the next one may as well.
    pub(super) fn answered(&mut self, now: Moment) {
        if matches!(self.state, SpinState::AwaitingReply(_)) {
            self.failures = 0;
            self.state = SpinState::AwaitingRequest(now.after(SPIN_AFTER_REPLY));
        }
    }

    /// Whether to stay awake.
    pub(super) fn continues(&mut self, now: Moment) -> bool {
        match self.state {
            SpinState::Parked => return false,
            SpinState::AwaitingReply(until) | SpinState::AwaitingRequest(until) if now < until => {
                return true;
            }
            SpinState::AwaitingRequest(_) => {}
            SpinState::AwaitingReply(_) => {
                self.failures = self.failures.saturating_add(1);
                self.skip = 1_u32
                    .checked_shl(self.failures)
                    .map_or(MAX_SKIPPED, |skip| skip.min(MAX_SKIPPED));
            }
        }
        self.state = SpinState::Parked;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    #[test]
    fn it_lasts_until_the_answer_or_for_a_moment() {
        let mut spin = AdaptiveSpin::default();
        assert!(!spin.continues(at(0)));
        for sent in [1_000, 2_000, 3_000] {
            spin.sent(at(sent));
            assert!(spin.continues(at(sent + 99)));
            spin.answered(at(sent + 99));
            assert!(spin.continues(at(sent + 118)), "the next request may come");
            assert!(!spin.continues(at(sent + 119)));
        }
        spin.sent(at(9_000));
        assert!(!spin.continues(at(9_100)) && !spin.is_spinning());
    }

    #[test]
    fn where_answers_take_long_few_are_waited_for() {
        let mut spin = AdaptiveSpin::default();
        let mut awake = 0;
        for sent in (0..10_000_u64).map(|n| n * 1_000) {
            spin.sent(at(sent));
            awake += u32::from(spin.continues(at(sent)));
            spin.continues(at(sent + 500));
            spin.answered(at(sent + 500));
        }
        assert!((30..60).contains(&awake), "{awake}");
        // And where they are fast again, all are, from the next one that is in time.
        for sent in (20_000_u64..20_600).map(|n| n * 1_000) {
            spin.sent(at(sent));
            spin.answered(at(sent + 50));
        }
        spin.sent(at(30_000_000));
        assert!(spin.continues(at(30_000_000)));
    }
}
