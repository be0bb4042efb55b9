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
pub(super) struct CompletedBatch {
    pub(super) batch: Batch,
    /// `None` if it was refused as a whole, and none of it was carried out.
    pub(super) answers: Option<Vec<Answer>>,
    /// The connection can be relied on further.
    pub(super) is_reliable: bool,
}

/// Batches under way. `execute` sends a batch in full, whatever form that takes.
pub(super) struct InFlight<'a, C: Fn(Batch) -> BoxFuture<'a, CompletedBatch>> {
    /// In the order in which they were sent, which is that of the answers.
    under_way: FuturesOrdered<BoxFuture<'a, CompletedBatch>>,
    resend: BTreeMap<u64, Batch>,
    /// One at a time (F1).
    serial: bool,
    execute: C,
}

impl<'a, C: Fn(Batch) -> BoxFuture<'a, CompletedBatch>> InFlight<'a, C> {
    pub(super) fn new(execute: C) -> Self {
        Self {
            under_way: FuturesOrdered::new(),
            resend: BTreeMap::new(),
            serial: false,
            execute,
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
    pub(super) fn begin(&mut self, request: BoxFuture<'a, CompletedBatch>) {
        self.under_way.push_back(request);
    }

    /// Waits until a batch comes back, and says so even if it has to go again: there may be no room then any more. `None` if nothing
    /// is under way. Nothing is lost if this is dropped.
    #[allow(
        clippy::option_option,
        reason = "the outer one says that nothing is under way"
    )]
    pub(super) async fn next(&mut self) -> Option<Option<CompletedBatch>> {
        let completed = self.under_way.next().await?;
        Some(self.complete(completed))
    }

    /// The next one that has been answered by now.
    pub(super) fn next_by_now(&mut self) -> Option<CompletedBatch> {
        while let Some(Some(completed)) = self.next().now_or_never() {
            if completed.is_some() {
                return completed;
            }
        }
        None
    }

    /// A batch came back; it may have to go again.
    fn complete(&mut self, completed: CompletedBatch) -> Option<CompletedBatch> {
        let completed = if self.must_resend(&completed) {
            self.serial = true;
            self.resend.insert(completed.batch.id, completed.batch);
            None
        } else {
            Some(completed)
        };
        if self.under_way.is_empty() {
            match self.resend.pop_first() {
                Some((_, batch)) => self.under_way.push_back((self.execute)(batch)),
                None => self.serial = false,
            }
        }
        completed
    }

    fn must_resend(&self, completed: &CompletedBatch) -> bool {
        let Some(answers) = &completed.answers else {
            return true;
        };
        let refused_before = self.resend.range(..completed.batch.id).next().is_some();
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

    fn request<'a>(id: u64, answers: Option<Vec<Answer>>) -> BoxFuture<'a, CompletedBatch> {
        let (batch, is_reliable) = (batch(id), true);
        let completed = CompletedBatch {
            batch,
            answers,
            is_reliable,
        };
        std::future::ready(completed).boxed()
    }

    fn busy() -> Vec<Answer> {
        let who = leasehold_core::HolderIdentity::Foreign {
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
        let resend = Mutex::new(Vec::new());
        let mut in_flight = InFlight::new(|batch: Batch| {
            resend.lock().unwrap().push(batch.id);
            request(batch.id, Some(freed()))
        });
        // The third found busy what the first was to free; the fourth did not.
        for (id, answers) in [(1, None), (2, None), (3, Some(busy())), (4, Some(freed()))] {
            assert!(in_flight.has_room(5));
            in_flight.begin(request(id, answers));
        }
        let mut completed = Vec::new();
        while let Some(next) = block_on(in_flight.next()) {
            completed.extend(next.map(|next| next.batch.id));
            assert_eq!(
                in_flight.has_room(5),
                in_flight.is_empty(),
                "after {completed:?}"
            );
        }
        assert_eq!(completed, [4, 1, 2, 3]);
        assert_eq!(*resend.lock().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn what_was_answered_before_a_refusal_is_not_sent_again() {
        let mut in_flight = InFlight::new(|batch: Batch| request(batch.id, Some(freed())));
        in_flight.begin(request(1, Some(busy())));
        in_flight.begin(request(2, None));
        let first = in_flight.next_by_now().unwrap();
        assert!(matches!(first.answers.unwrap()[0], Ok(Reply::Busy(_))));
        assert_eq!(in_flight.next_by_now().unwrap().batch.id, 2);
        assert!(in_flight.next_by_now().is_none() && in_flight.has_room(1));
    }
}
