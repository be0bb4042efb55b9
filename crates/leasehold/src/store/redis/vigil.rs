//! Staying awake for an answer that is about to come. Must never cost more than it has been worth lately.
//!
//! A server nearby answers within a fraction of the time that a sleeping thread takes to be woken. So after a request was sent,
//! its runner goes on looking for the answer for a moment before it sleeps. Where answers take longer, that is in vain, and
//! soon not tried any more, but for one request in many.

use std::time::Duration;

use crate::clock::Moment;

/// How long to stay awake.
const MOMENT: Duration = Duration::from_micros(100);

/// How many requests at most go by without a vigil after one that was in vain.
const MOST_SKIPPED: u32 = 256;

/// The vigils over one connection.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    until: Option<Moment>,
    /// Vigils in a row that were in vain.
    in_vain: u32,
    /// Requests to go by without one.
    skip: u32,
}

impl Vigil {
    /// A request was sent.
    pub(super) fn begin(&mut self, now: Moment) {
        if self.until.is_some() {
            return;
        }
        match self.skip.checked_sub(1) {
            Some(skip) => self.skip = skip,
            None => self.until = Some(now.after(MOMENT)),
        }
    }

    /// An answer came: if it came in time, the next one may as well.
    pub(super) fn rewarded(&mut self) {
        if self.until.take().is_some() {
            self.in_vain = 0;
        }
    }

    /// Whether to stay awake.
    pub(super) fn lasts(&mut self, now: Moment) -> bool {
        match self.until {
            None => false,
            Some(until) if now < until => true,
            Some(_) => {
                self.until = None;
                self.in_vain = self.in_vain.saturating_add(1);
                self.skip = 1_u32
                    .checked_shl(self.in_vain)
                    .map_or(MOST_SKIPPED, |skip| skip.min(MOST_SKIPPED));
                false
            }
        }
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
            vigil.rewarded();
            assert!(!vigil.lasts(at(sent + 99)));
        }
        vigil.begin(at(9_000));
        assert!(!vigil.lasts(at(9_100)));
    }

    #[test]
    fn where_answers_take_long_few_are_waited_for() {
        let mut vigil = Vigil::default();
        let mut awake = 0;
        for sent in (0..10_000_u64).map(|n| n * 1_000) {
            vigil.begin(at(sent));
            awake += u32::from(vigil.lasts(at(sent)));
            vigil.lasts(at(sent + 500));
            vigil.rewarded();
        }
        assert!((30..60).contains(&awake), "{awake}");
        // And where they are fast again, all are, from the next one that is in time.
        for sent in (20_000_u64..20_600).map(|n| n * 1_000) {
            vigil.begin(at(sent));
            vigil.rewarded();
        }
        vigil.begin(at(30_000_000));
        assert!(vigil.lasts(at(30_000_000)));
    }
}
