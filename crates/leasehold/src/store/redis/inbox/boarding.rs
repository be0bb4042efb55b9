//! Which steps go together, and when. Must never let what takes a lock go before what freed it.

use std::collections::VecDeque;

use super::{Batch, Inner, Item};
use crate::store::redis::batch::Kind;

impl Inner {
    /// The next batch of the kind that has waited longest. What frees a lock may go before what takes one, and not after it.
    pub(super) fn board_next(&mut self) -> Option<Batch> {
        let first = |line: &VecDeque<Item>| line.front().map(|item| item.number);
        let fronts = Kind::ALL
            .into_iter()
            .filter_map(|kind| Some((first(&self.lines[kind as usize])?, kind)));
        let (_, kind) = fronts.min_by_key(|(number, _)| *number)?;
        let settle = &self.lines[Kind::Settle as usize];
        let before = if kind == Kind::Settle {
            u64::MAX
        } else {
            first(settle).unwrap_or(u64::MAX)
        };
        self.board(kind, before)
    }

    /// The next batch of a kind, of what came before that number.
    pub(super) fn board(&mut self, kind: Kind, before: u64) -> Option<Batch> {
        let line = &mut self.lines[kind as usize];
        let fits = line.iter().take(kind.most());
        let count = fits.take_while(|item| item.number < before).count();
        if count == 0 {
            return None;
        }
        let (mut steps, mut waiting) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for item in line.drain(..count) {
            steps.push((item.name, item.step));
            waiting.push(item.waiting);
        }
        let id = self.next_batch;
        self.next_batch += 1;
        self.under_way.insert(id, waiting);
        Some(Batch { id, steps })
    }
}
