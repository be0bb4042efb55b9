//! The lead of a name: the one node that queues its waiters. Without the lead, another node takes its place (V4).

use leasehold_core::LockName;
use leasehold_core::quorum::bucket;

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

    /// The first node that answers, in an order that depends on the name.
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
}
