//! Adaptive spin: stays awake for a reply that is about to come, as long as that has paid off recently.
//!
//! A server nearby replies faster than a sleeping thread can be woken. So after a request, the sending thread keeps
//! checking for the reply for a short time before it sleeps. If replies take longer, the spin is wasted; it is then
//! skipped for more and more requests.

use std::time::Duration;

use crate::clock::Moment;

/// The longest spin after a request.
const MAX_SPIN: Duration = Duration::from_micros(100);

/// How long to spin after a reply, for the next request.
const SPIN_AFTER_REPLY: Duration = Duration::from_micros(20);

/// How many requests at most are sent without a spin after a failed one.
const MAX_SKIPPED: u32 = 256;

/// The spins of one connection.
#[derive(Debug, Default)]
pub(super) struct AdaptiveSpin {
    state: SpinState,
    /// Failed spins in a row.
    failures: u32,
    /// Requests still to be sent without a spin.
    skip: u32,
}

#[derive(Debug, Default, Clone, Copy)]
enum SpinState {
    #[default]
    Parked,
    /// Spins for a reply, until then.
    AwaitingReply(Moment),
    /// Spins for the next request, until then.
    AwaitingRequest(Moment),
}

impl AdaptiveSpin {
    /// True during a spin.
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

    /// A reply came. If it came during the spin, the next reply may come in time as well.
    pub(super) fn answered(&mut self, now: Moment) {
        if matches!(self.state, SpinState::AwaitingReply(_)) {
            self.failures = 0;
            self.state = SpinState::AwaitingRequest(now.after(SPIN_AFTER_REPLY));
        }
    }

    /// True if the spin goes on.
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
        // When replies are fast again, every request spins, from the next reply that is in time.
        for sent in (20_000_u64..20_600).map(|n| n * 1_000) {
            spin.sent(at(sent));
            spin.answered(at(sent + 50));
        }
        spin.sent(at(30_000_000));
        assert!(spin.continues(at(30_000_000)));
    }
}
