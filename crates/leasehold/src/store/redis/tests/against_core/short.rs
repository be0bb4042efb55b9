//! Which steps the short forms fit. Those are executed before the others of their request.

use std::collections::BTreeMap;

use leasehold_core::{Fence, LockName, Owner, Step};

use super::server::Redis;
use crate::store::redis::protocol::{Kind, counter_of};

impl Redis {
    /// Which of these steps the short form fits, given the stored state and the effects of earlier steps.
    pub(super) fn fits(
        &mut self,
        kind: Kind,
        steps: &[(LockName, Step)],
        clock_us: u64,
        others: bool,
    ) -> Result<Vec<bool>, String> {
        if self.refuses(others)? {
            return Ok(vec![false; steps.len()]);
        }
        let (mut values, mut counters) = (BTreeMap::new(), BTreeMap::new());
        let mut fits = Vec::new();
        for (name, step) in steps {
            let queue = name.beside(":lh-queue");
            let free = self.command(&["EXISTS", name.key(), &queue]).int() == 0;
            let mut value = || self.command(&["GET", name.key()]);
            let known = values.entry(name.key().to_owned()).or_insert_with(|| {
                let value = if free { None } else { Some(value()) };
                value.map(|value| match value {
                    testkit::Reply::Str(bytes) => bytes,
                    _ => b"another type".to_vec(),
                })
            });
            let own = |owner: &Owner, fence: &Option<Fence>| {
                let fence = fence.map_or(0, Fence::get);
                format!("{}#{fence}", owner.token()).into_bytes()
            };
            let is = |known: &Option<Vec<u8>>, own: &[u8]| {
                let rest = known.as_ref().and_then(|value| value.strip_prefix(own));
                rest.is_some_and(|rest| matches!(rest, [] | [b'/', .., b'0'..=b'9']))
            };
            let fit = !kind.is_long()
                && match step {
                    Step::Acquire { .. } => known.is_none(),
                    Step::Propose(proposal) => {
                        let key = counter_of(proposal.terms, name);
                        let counter = counters.entry(key.clone()).or_insert_with(|| {
                            let last = self.command(&["GET", &key]);
                            (!last.is_nil()).then(|| last.text().parse::<u64>().unwrap())
                        });
                        let first = proposal.fences.first.get();
                        let most = clock_us + 10_000_000;
                        let fits = known.is_none()
                            && counter.is_some_and(|last| last < first && first <= most);
                        if fits {
                            *counter = Some(proposal.fences.last().get());
                        }
                        fits
                    }
                    Step::GiveBack { owner, fence } => is(known, &own(owner, &Some(*fence))),
                    Step::Extend { owner, fence, .. } | Step::Release { owner, fence, .. } => {
                        is(known, &own(owner, fence))
                    }
                    Step::Break { .. } | Step::Inspect => false,
                };
            match step {
                Step::Acquire { .. } | Step::Propose(_) if fit => *known = Some(b"taken".to_vec()),
                Step::Release { keep: None, .. } | Step::GiveBack { .. } if fit => *known = None,
                _ => {}
            }
            fits.push(fit);
        }
        Ok(fits)
    }
}
