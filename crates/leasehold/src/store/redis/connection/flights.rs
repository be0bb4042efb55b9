//! The batches on their way over one connection. Must never let a batch be overtaken because it was refused and has to be sent
//! again. A step that its short form does not fit goes again in the long one; the queue's `Contents::kind` sees to its order.
//!
//! A server carries out what it is sent in order. But it may refuse a batch as a whole: it does not know the script by its hash, or
//! a right is missing for one of the keys. That batch has to be sent in another form, when later ones are on their way already.
//!
//! # Invariants
//!
//! - **F1** From the first refusal on nothing new is sent, until all that was refused has gone again: one batch after the other, in
//!   their order, each when the one before it is answered.
//! - **F2** A batch that came after a refused one is answered only by what it finds after that: if it found a lock busy, it goes again
//!   too. Every step is safe to repeat.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, StreamExt};
use leasehold_core::Reply;

use crate::store::contract::Answer;
use crate::store::redis::codec::form::Batch;

/// A batch that was answered.
pub(super) struct Landed {
    pub(super) batch: Batch,
    /// `None` if it was refused as a whole, and none of it was carried out.
    pub(super) answers: Option<Vec<Answer>>,
    /// The connection can be relied on further.
    pub(super) fit: bool,
}

/// Batches under way. `carry` sends a batch in full, whatever form that takes.
pub(super) struct Flights<'a, C: Fn(Batch) -> BoxFuture<'a, Landed>> {
    /// In the order in which they were sent, which is that of the answers.
    under_way: FuturesOrdered<BoxFuture<'a, Landed>>,
    again: BTreeMap<u64, Batch>,
    /// One at a time (F1).
    serial: bool,
    carry: C,
}

impl<'a, C: Fn(Batch) -> BoxFuture<'a, Landed>> Flights<'a, C> {
    pub(super) fn new(carry: C) -> Self {
        Self {
            under_way: FuturesOrdered::new(),
            again: BTreeMap::new(),
            serial: false,
            carry,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether another batch may be sent, if that many may be under way.
    pub(super) fn has_room(&self, most: usize) -> bool {
        !self.serial && self.under_way.len() < most
    }

    /// A batch has been sent.
    pub(super) fn begin(&mut self, flight: BoxFuture<'a, Landed>) {
        self.under_way.push_back(flight);
    }

    /// Waits until a batch comes back, and says so even if it has to go again: there may be no room then any more. `None` if nothing
    /// is under way. Nothing is lost if this is dropped.
    #[allow(
        clippy::option_option,
        reason = "the outer one says that nothing is under way"
    )]
    pub(super) async fn next(&mut self) -> Option<Option<Landed>> {
        let landed = self.under_way.next().await?;
        Some(self.land(landed))
    }

    /// The next one that has been answered by now.
    pub(super) fn next_by_now(&mut self) -> Option<Landed> {
        while let Some(Some(landed)) = self.next().now_or_never() {
            if landed.is_some() {
                return landed;
            }
        }
        None
    }

    /// A batch came back; it may have to go again.
    fn land(&mut self, landed: Landed) -> Option<Landed> {
        let landed = if self.is_to_go_again(&landed) {
            self.serial = true;
            self.again.insert(landed.batch.id, landed.batch);
            None
        } else {
            Some(landed)
        };
        if self.under_way.is_empty() {
            match self.again.pop_first() {
                Some((_, batch)) => self.under_way.push_back((self.carry)(batch)),
                None => self.serial = false,
            }
        }
        landed
    }

    fn is_to_go_again(&self, landed: &Landed) -> bool {
        let Some(answers) = &landed.answers else {
            return true;
        };
        let refused_before = self.again.range(..landed.batch.id).next().is_some();
        refused_before && (answers.iter()).any(|answer| matches!(answer, Ok(Reply::Busy(_))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use leasehold_core::Busy;
    use testkit::block_on;

    use super::*;
    use crate::store::redis::codec::form::Kind;

    fn batch(id: u64) -> Batch {
        let (kind, steps) = (Kind::Acquire, Vec::new());
        Batch { id, kind, steps }
    }

    fn flight<'a>(id: u64, answers: Option<Vec<Answer>>) -> BoxFuture<'a, Landed> {
        let (batch, fit) = (batch(id), true);
        let landed = Landed {
            batch,
            answers,
            fit,
        };
        std::future::ready(landed).boxed()
    }

    fn busy() -> Vec<Answer> {
        let who = leasehold_core::Who::Foreign {
            kind: "string".into(),
            value: Vec::new(),
        };
        let holder = leasehold_core::HolderView::new(who, None, None, None);
        let busy = Busy {
            ahead: 0,
            poll_after: Duration::ZERO,
            at_us: 0,
            holder,
        };
        vec![Ok(Reply::Busy(busy))]
    }

    fn freed() -> Vec<Answer> {
        vec![Ok(Reply::Released)]
    }

    #[test]
    fn what_is_refused_goes_again_before_anything_new_and_in_order() {
        let again = Mutex::new(Vec::new());
        let mut flights = Flights::new(|batch: Batch| {
            again.lock().unwrap().push(batch.id);
            flight(batch.id, Some(freed()))
        });
        // The third found busy what the first was to free; the fourth did not.
        for (id, answers) in [(1, None), (2, None), (3, Some(busy())), (4, Some(freed()))] {
            assert!(flights.has_room(5));
            flights.begin(flight(id, answers));
        }
        let mut landed = Vec::new();
        while let Some(next) = block_on(flights.next()) {
            landed.extend(next.map(|next| next.batch.id));
            assert_eq!(flights.has_room(5), flights.is_empty(), "after {landed:?}");
        }
        assert_eq!(landed, [4, 1, 2, 3]);
        assert_eq!(*again.lock().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn what_was_answered_before_a_refusal_is_not_sent_again() {
        let mut flights = Flights::new(|batch: Batch| flight(batch.id, Some(freed())));
        flights.begin(flight(1, Some(busy())));
        flights.begin(flight(2, None));
        let first = flights.next_by_now().unwrap();
        assert!(matches!(first.answers.unwrap()[0], Ok(Reply::Busy(_))));
        assert_eq!(flights.next_by_now().unwrap().batch.id, 2);
        assert!(flights.next_by_now().is_none() && flights.has_room(1));
    }
}
