//! The batches in flight over one connection. It keeps their order when the server refuses a batch and it is sent
//! again.
//!
//! A server executes requests in the order in which it receives them. But it may refuse a batch as a whole: it does not
//! know the script by its hash, or the user has no permission for one of the keys. The client then sends that batch in
//! another form, while later batches are already in flight. (A step that its short form does not fit is sent again in
//! the long form; `Contents::kind` in the queue keeps the order of such steps.)
//!
//! # Invariants
//!
//! - **F1** After a refusal no new batch is sent until all refused batches have been sent again: one at a time, in
//!   their order, each after the reply to the previous one.
//! - **F2** If a batch after a refused one found a lock busy, it is sent again too, because the refused batch may have
//!   been the one that frees the lock. Every step is safe to repeat.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, StreamExt};
use leasehold_core::Reply;

use crate::store::contract::Answer;
use crate::store::redis::codec::form::Batch;

/// A batch and its answers.
pub(super) struct CompletedBatch {
    pub(super) batch: Batch,
    /// `None` if the server refused the batch as a whole and executed none of it.
    pub(super) answers: Option<Vec<Answer>>,
    /// The connection can still be used.
    pub(super) is_reliable: bool,
}

/// The batches in flight. `execute` sends a batch again, in a form that the server accepts.
pub(super) struct InFlight<'a, C: Fn(Batch) -> BoxFuture<'a, CompletedBatch>> {
    /// In the order of sending, which is also the order of the replies.
    under_way: FuturesOrdered<BoxFuture<'a, CompletedBatch>>,
    resend: BTreeMap<u64, Batch>,
    /// Only one batch at a time is in flight (F1).
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

    /// True if another batch may be sent, given the most batches that may be in flight.
    pub(super) fn has_room(&self, most: usize) -> bool {
        !self.serial && self.under_way.len() < most
    }

    /// Adds a batch that has been sent.
    pub(super) fn begin(&mut self, request: BoxFuture<'a, CompletedBatch>) {
        self.under_way.push_back(request);
    }

    /// Waits for the next reply. The inner `None` says that the batch has to be sent again, so that there may be no
    /// room for new ones. The outer `None` says that no batch is in flight. This is cancel-safe.
    #[allow(
        clippy::option_option,
        reason = "the outer one says that nothing is under way"
    )]
    pub(super) async fn next(&mut self) -> Option<Option<CompletedBatch>> {
        let completed = self.under_way.next().await?;
        Some(self.complete(completed))
    }

    /// The next completed batch, if there is one now.
    pub(super) fn next_by_now(&mut self) -> Option<CompletedBatch> {
        while let Some(Some(completed)) = self.next().now_or_never() {
            if completed.is_some() {
                return completed;
            }
        }
        None
    }

    /// Takes a reply. Keeps the batch if it has to be sent again.
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
        // The third batch found the lock busy that the first one frees. The fourth did not.
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
