//! Forms batches: decides which steps go together, and when. An acquire never goes before the release that freed its
//! lock.

use std::collections::VecDeque;

use leasehold_core::{LockName, Step};

use super::contents::{Contents, QueuedStep};
use crate::store::redis::codec::form::{Batch, Kind};

impl Contents {
    /// Chooses the form of a step. Extend and release of one lock keep their order. The second step takes the form of
    /// the first while the first one waits, or while a long form may still follow it.
    pub(super) fn kind(&self, name: &LockName, step: &Step) -> Kind {
        let names_fence = matches!(
            step,
            Step::Extend { fence: Some(_), .. } | Step::Release { fence: Some(_), .. }
        );
        let carries_short = || {
            self.under_way
                .values()
                .any(|(kind, _)| *kind == Kind::Settle)
        };
        match self.contended.kind(name, step) {
            Kind::Settle if self.waits(Kind::SettleLong, name) => Kind::SettleLong,
            Kind::SettleLong
                if names_fence && (carries_short() || self.waits(Kind::Settle, name)) =>
            {
                Kind::Settle
            }
            kind => kind,
        }
    }

    fn waits(&self, kind: Kind, name: &LockName) -> bool {
        self.queues[kind as usize]
            .iter()
            .any(|item| item.name == *name)
    }

    /// The next batch: of the kind whose first step has waited longest. A step that frees a lock may go before an
    /// acquire that came earlier, but an acquire never goes before such a step that came earlier.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let first = |queue: &VecDeque<QueuedStep>| queue.front().map(|item| item.sequence);
        let fronts = Kind::ALL
            .into_iter()
            .filter_map(|kind| Some((first(&self.queues[kind as usize])?, kind)));
        let (_, kind) = fronts.min_by_key(|(sequence, _)| *sequence)?;
        let before = if kind.settles() {
            u64::MAX
        } else {
            let settle = Kind::ALL.into_iter().filter(|kind| kind.settles());
            let fronts = settle.filter_map(|kind| first(&self.queues[kind as usize]));
            fronts.min().unwrap_or(u64::MAX)
        };
        self.take_batch(kind, before)
    }

    /// The next batch of a kind, with only those steps that came before this sequence number.
    pub(super) fn take_batch(&mut self, kind: Kind, before: u64) -> Option<Batch> {
        let queue = &mut self.queues[kind as usize];
        let fits = queue.iter().take(kind.most());
        let count = fits.take_while(|item| item.sequence < before).count();
        if count == 0 {
            return None;
        }
        let (mut steps, mut waiting) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for item in queue.drain(..count) {
            steps.push((item.name, item.step));
            waiting.push(item.waiting);
        }
        let id = self.next_batch_id;
        self.next_batch_id += 1;
        self.under_way.insert(id, (kind, waiting));
        Some(Batch { id, kind, steps })
    }
}
