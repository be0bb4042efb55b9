//! Staying awake for an answer that is about to come. Must never cost more than it has been worth lately.
//!
//! A server nearby answers within a fraction of the time that a sleeping thread takes to be woken. So after a request was sent,
//! whoever sent it goes on looking for the answer for a moment before it sleeps. Where answers take longer, that is in vain, and
//! soon not tried any more, but for one request in many.

use std::time::Duration;

use crate::clock::Moment;

/// How long to stay awake.
const MOMENT: Duration = Duration::from_micros(100);

/// How long after an answer the next request may still find somebody awake.
const AFTER: Duration = Duration::from_micros(20);

/// How many requests at most go by without a vigil after one that was in vain.
const MOST_SKIPPED: u32 = 256;

/// The vigils over one connection.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    state: State,
    /// Vigils in a row that were in vain.
    in_vain: u32,
    /// Requests to go by without one.
    skip: u32,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Asleep,
    /// For an answer, until then.
    Looking(Moment),
    /// For the next request, until then.
    Answered(Moment),
}

impl Vigil {
    /// Whether there is one now.
    pub(super) const fn is_kept(&self) -> bool {
        !matches!(self.state, State::Asleep)
    }

    /// A request was sent.
    pub(super) fn begin(&mut self, now: Moment) {
        if matches!(self.state, State::Looking(_)) {
            return;
        }
        match self.skip.checked_sub(1) {
            Some(skip) => self.skip = skip,
            None => self.state = State::Looking(now.after(MOMENT)),
        }
    }

    /// An answer came: if it came in time, the next one may as well.
    pub(super) fn rewarded(&mut self, now: Moment) {
        if matches!(self.state, State::Looking(_)) {
            self.in_vain = 0;
            self.state = State::Answered(now.after(AFTER));
        }
    }

    /// Whether to stay awake.
    pub(super) fn lasts(&mut self, now: Moment) -> bool {
        match self.state {
            State::Asleep => return false,
            State::Looking(until) | State::Answered(until) if now < until => return true,
            State::Answered(_) => {}
            State::Looking(_) => {
                self.in_vain = self.in_vain.saturating_add(1);
                self.skip = 1_u32
                    .checked_shl(self.in_vain)
                    .map_or(MOST_SKIPPED, |skip| skip.min(MOST_SKIPPED));
            }
        }
        self.state = State::Asleep;
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
        let mut vigil = Vigil::default();
        assert!(!vigil.lasts(at(0)));
        for sent in [1_000, 2_000, 3_000] {
            vigil.begin(at(sent));
            assert!(vigil.lasts(at(sent + 99)));
            vigil.rewarded(at(sent + 99));
            assert!(vigil.lasts(at(sent + 118)), "the next request may come");
            assert!(!vigil.lasts(at(sent + 119)));
        }
        vigil.begin(at(9_000));
        assert!(!vigil.lasts(at(9_100)) && !vigil.is_kept());
    }

    #[test]
    fn where_answers_take_long_few_are_waited_for() {
        let mut vigil = Vigil::default();
        let mut awake = 0;
        for sent in (0..10_000_u64).map(|n| n * 1_000) {
            vigil.begin(at(sent));
            awake += u32::from(vigil.lasts(at(sent)));
            vigil.lasts(at(sent + 500));
            vigil.rewarded(at(sent + 500));
        }
        assert!((30..60).contains(&awake), "{awake}");
        // And where they are fast again, all are, from the next one that is in time.
        for sent in (20_000_u64..20_600).map(|n| n * 1_000) {
            vigil.begin(at(sent));
            vigil.rewarded(at(sent + 50));
        }
        vigil.begin(at(30_000_000));
        assert!(vigil.lasts(at(30_000_000)));
    }
}
