//! The lead of a name: the one node that queues its waiters (V4). A client also remembers the leads that alone refuse a lock, and
//! the locks that other clients are known to want.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::quorum::bucket;
use leasehold_core::{Busy, CLAIM_WINDOW, HolderIdentity, LockName};

use crate::clock::Moment;

/// The most names that are remembered of each kind.
const MOST: usize = 1_024;

/// Which nodes answer.
#[derive(Debug)]
pub(super) struct Leads {
    /// The nodes, in an order that is equal for all clients that name them alike.
    order: Vec<usize>,
    /// For each node, whether its last request failed.
    silent: Vec<bool>,
}

impl Leads {
    /// Orders the nodes by their labels.
    pub(super) fn new(labels: &[String]) -> Self {
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_by_key(|&node| &labels[node]);
        Self {
            order,
            silent: vec![false; labels.len()],
        }
    }

    /// The first node that answers, in an order that depends on the name. Without the lead, another node takes its place.
    pub(super) fn of(&self, name: &LockName) -> usize {
        let first = usize::from(bucket(name)) % self.order.len();
        let mut order = self.order.iter().cycle().skip(first).take(self.order.len());
        let answers = |node: &&usize| !self.silent[**node];
        *order.find(answers).unwrap_or(&self.order[first])
    }

    /// A node has answered a request, or has failed to.
    pub(super) fn heard(&mut self, node: usize, has_answered: bool) {
        self.silent[node] = !has_answered;
    }
}

/// The names whose lead alone refuses a lock that a majority would grant: the holder at the lead, and since when.
#[derive(Default)]
pub(super) struct Stuck(HashMap<String, (HolderIdentity, Moment)>);

impl Stuck {
    /// Whether the lead has refused for long enough for this holder. It then holds nothing, or the vote is stuck: its
    /// clock was set back, or a vote could not be given back.
    ///
    /// A foreign holder is in no queue, so it is not first in line: it passes if no waiter is.
    pub(super) fn is_stuck(&mut self, name: &LockName, refusal: &Busy, now: Moment) -> bool {
        let holder = &refusal.holder;
        let is_foreign = matches!(holder.who, HolderIdentity::Foreign { .. });
        if is_foreign && refusal.ahead == 0 {
            return true;
        }
        if let Some((who, since)) = self.0.get(name.key())
            && *who == holder.who
        {
            return now.since(*since) >= CLAIM_WINDOW;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let refusal = (holder.who.clone(), now);
        self.0.insert(name.key().to_owned(), refusal);
        false
    }

    /// The lead has not refused.
    pub(super) fn forget(&mut self, name: &LockName) {
        self.0.remove(name.key());
    }
}

/// How long a sign of waiters counts.
const MEMORY: Duration = Duration::from_secs(3);

/// The names of these locks, and when this client last had a sign of waiters.
#[derive(Default)]
pub(super) struct WantedNames(HashMap<String, Moment>);

impl WantedNames {
    /// There are waiters for the lock with this key.
    pub(super) fn note(&mut self, key: &str, now: Moment) {
        if let Some(last) = self.0.get_mut(key) {
            *last = now;
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, last| now.since(*last) < MEMORY);
        }
        if self.0.len() < MOST {
            self.0.insert(key.to_owned(), now);
        }
    }

    /// Whether there were waiters a moment ago.
    pub(super) fn is_wanted(&self, name: &LockName, now: Moment) -> bool {
        let last = self.0.get(name.key());
        last.is_some_and(|last| now.since(*last) < MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_different_leads_and_a_silent_node_leads_none() {
        let of = |labels: [&str; 3]| Leads::new(&labels.map(str::to_owned));
        let mut leads = of(["b", "a", "c"]);
        let names = (0..30).map(|at| LockName::new(&format!("name-{at}")).unwrap());
        let names: Vec<LockName> = names.collect();
        let counts = |leads: &Leads| {
            let mut counts = [0; 3];
            for name in &names {
                counts[leads.of(name)] += 1;
            }
            counts
        };
        assert!(counts(&leads).iter().all(|count| *count > 3));
        let other = of(["c", "b", "a"]);
        for name in &names {
            assert_eq!(
                ["b", "a", "c"][leads.of(name)],
                ["c", "b", "a"][other.of(name)]
            );
        }
        leads.heard(1, false);
        assert_eq!(counts(&leads)[1], 0);
        leads.heard(1, true);
        assert!(counts(&leads)[1] > 3);
    }

    #[test]
    fn sign_of_waiters_counts_for_three_seconds() {
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let name = LockName::new("stock").unwrap();
        let mut wanted = WantedNames::default();
        assert!(!wanted.is_wanted(&name, at(1)));
        wanted.note(name.key(), at(1));
        assert!(wanted.is_wanted(&name, at(3)));
        wanted.note(name.key(), at(3));
        assert!(wanted.is_wanted(&name, at(5)));
        assert!(!wanted.is_wanted(&name, at(6)));
        for other in 0..2 * MOST {
            wanted.note(&other.to_string(), at(6));
        }
        assert!(wanted.0.len() <= MOST);
    }
}
