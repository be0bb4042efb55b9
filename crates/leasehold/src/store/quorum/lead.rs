//! The lead of a name: the one node that queues its waiters (V4). A client also remembers the leads that alone refuse a lock, and
//! what it last heard about the waiters of a lock.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::quorum::bucket;
use leasehold_core::{Busy, CLAIM_WINDOW, HolderIdentity, LockName};

use super::judge::majority;
use crate::clock::Moment;

/// The most names that are remembered of each kind.
const MOST: usize = 1_024;

/// Which nodes answer, and how fast.
#[derive(Debug)]
pub(super) struct Leads {
    /// The nodes, in an order that is equal for all clients that name them alike.
    order: Vec<usize>,
    nodes: Vec<Pace>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// The last request failed.
    is_silent: bool,
    /// It gave no vote, since it may have lost its memory. Nor does it queue anybody.
    is_in_quarantine: bool,
    /// How long a vote usually takes.
    usual: Duration,
}

impl Pace {
    const fn votes(&self) -> bool {
        !self.is_silent && !self.is_in_quarantine
    }
}

/// How much longer than usual a lead may take, once its answer alone is missing.
pub(super) const PATIENCE: Duration = Duration::from_millis(25);

/// A longer time for a vote is not usual.
const SLOW: Duration = Duration::from_millis(250);

impl Leads {
    /// Orders the nodes by their labels.
    pub(super) fn new(labels: &[String]) -> Self {
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_by_key(|&node| &labels[node]);
        Self {
            order,
            nodes: vec![Pace::default(); labels.len()],
        }
    }

    /// The first node that answers and gives votes, in an order that depends on the name. Without the lead, another node takes its place.
    pub(super) fn of(&self, name: &LockName) -> usize {
        let first = usize::from(bucket(name)) % self.order.len();
        let mut order = self.order.iter().cycle().skip(first).take(self.order.len());
        let voting = order.find(|node| self.nodes[**node].votes());
        *voting.unwrap_or(&self.order[first])
    }

    /// Whether a majority answers and gives votes.
    pub(super) fn have_majority(&self) -> bool {
        let voting = self.nodes.iter().filter(|node| node.votes()).count();
        voting >= majority(self.nodes.len())
    }

    /// Whether this node leads the name while it answers.
    pub(super) fn is_first(&self, node: usize, name: &LockName) -> bool {
        self.order[usize::from(bucket(name)) % self.order.len()] == node
    }

    /// A node has answered a request, or has failed to.
    pub(super) fn heard(&mut self, node: usize, has_answered: bool) {
        self.nodes[node].is_silent = !has_answered;
    }

    /// A node has answered a proposal after this time.
    pub(super) fn took(&mut self, node: usize, time: Duration, is_in_quarantine: bool) {
        let node = &mut self.nodes[node];
        node.usual = (node.usual * 3 + time.min(SLOW)) / 4;
        node.is_in_quarantine = is_in_quarantine;
    }

    /// How long the answer of this lead is awaited, once the others have answered.
    pub(super) fn patience(&self, node: usize) -> Duration {
        PATIENCE + 2 * self.nodes[node].usual
    }
}

/// The names whose lead alone refuses a lock that a majority would grant.
#[derive(Default)]
pub(super) struct Stuck(HashMap<String, Refused>);

/// The first refusal by this holder at the lead, and how long it may refuse until it is passed.
struct Refused {
    by: HolderIdentity,
    since: Moment,
    enough: Duration,
}

/// The least time for which a client has left its votes to the holder at the lead.
const GIVE_WAY: Duration = Duration::from_millis(40);

/// What a client does for which a majority has voted, while the lead alone holds for another. That one has no lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// It takes the lock.
    Now,
    /// It gives back its votes for a moment. If the other one is a waiter that the lead has granted the lock, that one takes them.
    Later,
    /// The other one is first in line.
    Not,
}

/// Whether the lead refuses for another program, which is in no queue, and for nobody else.
pub(super) fn is_in_no_queue(refusal: &Busy) -> bool {
    refusal.ahead == 0 && matches!(refusal.holder.who, HolderIdentity::Foreign { .. })
}

impl Stuck {
    /// The other one may be the first waiter, which was granted the lock just now, or the last holder, whose release the lead gets later
    /// than the waiters there (V5). It is passed only if it stays: its vote is stuck, since the clock of the lead was set back or a vote
    /// could not be given back. Without a sign of waiters (`is_wanted`), a moment is enough for it to show that it lives. A foreign one is
    /// in no queue.
    pub(super) fn passing(
        &mut self,
        name: &LockName,
        refusal: &Busy,
        is_wanted: Option<bool>,
        now: Moment,
    ) -> Passing {
        let holder = &refusal.holder;
        let is_claim = holder.expires_in.is_none_or(|left| left <= CLAIM_WINDOW);
        if is_in_no_queue(refusal) {
            return Passing::Now;
        }
        let gives_way = refusal.ahead == 0 && is_wanted != Some(true) && !is_claim;
        let (enough, else_) = if gives_way {
            (GIVE_WAY, Passing::Later)
        } else {
            (CLAIM_WINDOW, Passing::Not)
        };
        // A client that has not left its votes to it begins to do so now.
        if let Some(refused) = self.0.get(name.key())
            && refused.by == holder.who
            && refused.enough <= enough
        {
            let is_stuck = now.since(refused.since) >= enough;
            return if is_stuck { Passing::Now } else { else_ };
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let refused = Refused {
            by: holder.who.clone(),
            since: now,
            enough,
        };
        self.0.insert(name.key().to_owned(), refused);
        else_
    }

    /// The lead has not refused, or not alone.
    pub(super) fn forget(&mut self, name: &LockName) {
        self.0.remove(name.key());
    }
}

/// How long a sign of waiters counts, or that there are none.
const MEMORY: Duration = Duration::from_secs(3);

/// What this client last heard about the waiters of a lock.
struct Heard {
    at: Moment,
    is_wanted: bool,
    /// When all nodes were asked last for a writer and for a reader, since there are waiters.
    asked_all: [Moment; 2],
}

/// What this client last heard about the waiters of some locks.
#[derive(Default)]
pub(super) struct WaitersHeard {
    /// By key.
    names: HashMap<String, Heard>,
    swept: Option<Moment>,
}

impl WaitersHeard {
    /// There are waiters for the lock with this key, or its lead said that there are none, in an answer to a request of this time.
    pub(super) fn note(&mut self, key: &str, is_wanted: bool, asked: Moment, now: Moment) {
        let all = [asked; 2];
        if let Some(heard) = self.names.get_mut(key) {
            // A waiter that came later is not forgotten.
            if is_wanted || !heard.is_wanted || heard.at <= asked {
                let asked_all = if heard.is_wanted {
                    heard.asked_all
                } else {
                    all
                };
                *heard = Heard {
                    at: now,
                    is_wanted,
                    asked_all,
                };
            }
            return;
        }
        if self.names.len() >= MOST {
            self.make_room(is_wanted, now);
        }
        if self.names.len() < MOST {
            let heard = Heard {
                at: now,
                is_wanted,
                asked_all: all,
            };
            self.names.insert(key.to_owned(), heard);
        }
    }

    /// A name that nobody waits for gives way to one with waiters. Else the old ones go, now and then.
    fn make_room(&mut self, is_wanted: bool, now: Moment) {
        if self.swept.is_none_or(|swept| now.since(swept) >= MEMORY) {
            self.swept = Some(now);
            self.names.retain(|_, heard| now.since(heard.at) < MEMORY);
        }
        if is_wanted && self.names.len() >= MOST {
            self.names.retain(|_, heard| heard.is_wanted);
        }
    }

    /// Whether there were waiters a moment ago. `None` if this client did not hear of the name.
    pub(super) fn is_wanted(&self, name: &LockName, now: Moment) -> Option<bool> {
        self.last(name, MEMORY, now)
    }

    /// Whether a request may ask the lead alone: there are waiters, and all nodes were asked a moment ago. Else all are asked now, since only a
    /// majority shows that the refusal of the lead is stuck. A reader may be refused where a writer is not, so each has its own turns.
    pub(super) fn may_ask_lead_alone(
        &mut self,
        name: &LockName,
        is_shared: bool,
        now: Moment,
    ) -> bool {
        let heard = self.names.get_mut(name.key());
        let Some(heard) = heard.filter(|it| it.is_wanted && now.since(it.at) < MEMORY) else {
            return false;
        };
        let asked_all = &mut heard.asked_all[usize::from(is_shared)];
        let is_recent = now.since(*asked_all) < MEMORY;
        if !is_recent {
            *asked_all = now;
        }
        is_recent
    }

    /// Whether there were waiters by what was heard last, `within` this time.
    pub(super) fn was_wanted(&self, name: &LockName, within: Duration, now: Moment) -> bool {
        self.last(name, within, now) == Some(true)
    }

    fn last(&self, name: &LockName, within: Duration, now: Moment) -> Option<bool> {
        let heard = self.names.get(name.key())?;
        (now.since(heard.at) < within).then_some(heard.is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ClientId, HolderView, Owner};

    use super::*;

    #[test]
    fn names_have_different_leads_and_a_node_that_queues_nobody_leads_none() {
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
        leads.took(1, Duration::ZERO, true);
        // It answers, as to a renewal.
        leads.heard(1, true);
        assert_eq!(counts(&leads)[1], 0);
        leads.took(1, Duration::ZERO, false);
        assert!(counts(&leads)[1] > 3);
    }

    #[test]
    fn a_lead_is_awaited_for_as_long_as_it_usually_takes() {
        let ms = Duration::from_millis;
        let mut leads = Leads::new(&["a", "b"].map(str::to_owned));
        assert_eq!(leads.patience(0), PATIENCE);
        for _ in 0..20 {
            leads.took(0, ms(80), false);
        }
        assert!(leads.patience(0) > ms(160), "{:?}", leads.patience(0));
        leads.took(0, Duration::from_secs(60), false);
        assert!(leads.patience(0) < ms(400), "{:?}", leads.patience(0));
        assert_eq!(leads.patience(1), PATIENCE);
    }

    /// A holder that the lead alone names: a waiter that was granted the lock just now (`lasts` is short), or one that seems to be gone.
    fn refusal(lasts: Duration) -> Busy {
        let owner = Owner::new(1, ClientId::new(1), "test", 1, "").unwrap();
        let who = HolderIdentity::Owner(owner);
        Busy {
            others: 0,
            holder: HolderView::new(who, None, None, Some(lasts)),
            ahead: 0,
            poll_after: Duration::ZERO,
            at_us: 0,
        }
    }

    #[test]
    fn a_holder_at_the_lead_alone_is_passed_once_it_had_the_time_to_take_the_lock() {
        let at = |millis: u64| Moment::from_micros(millis * 1_000);
        let name = LockName::new("stock").unwrap();
        let (claim, gone) = (
            refusal(CLAIM_WINDOW),
            refusal(CLAIM_WINDOW + Duration::from_secs(1)),
        );
        let mut stuck = Stuck::default();
        assert_eq!(stuck.passing(&name, &claim, None, at(0)), Passing::Not);
        // It was not left any votes until now.
        assert_eq!(stuck.passing(&name, &gone, None, at(200)), Passing::Later);
        assert_eq!(stuck.passing(&name, &gone, None, at(239)), Passing::Later);
        assert_eq!(stuck.passing(&name, &gone, None, at(240)), Passing::Now);
        // While others wait, it has a waiter's time.
        let wanted = Some(true);
        assert_eq!(stuck.passing(&name, &gone, wanted, at(3_199)), Passing::Not);
        assert_eq!(stuck.passing(&name, &gone, wanted, at(3_200)), Passing::Now);
        stuck.forget(&name);
        assert_eq!(stuck.passing(&name, &gone, None, at(3_300)), Passing::Later);
    }

    #[test]
    fn word_of_waiters_counts_for_three_seconds() {
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let name = LockName::new("stock").unwrap();
        let mut wanted = WaitersHeard::default();
        assert_eq!(wanted.is_wanted(&name, at(1)), None);
        for is_wanted in [false, true] {
            wanted.note(name.key(), is_wanted, at(1), at(1));
            assert_eq!(wanted.is_wanted(&name, at(3)), Some(is_wanted));
            wanted.note(name.key(), is_wanted, at(3), at(3));
            assert_eq!(wanted.is_wanted(&name, at(5)), Some(is_wanted));
            assert_eq!(wanted.is_wanted(&name, at(6)), None);
        }
        // An answer to an earlier request does not count.
        wanted.note(name.key(), true, at(7), at(7));
        wanted.note(name.key(), false, at(6), at(8));
        assert_eq!(wanted.is_wanted(&name, at(8)), Some(true));
        wanted.note(name.key(), false, at(8), at(8));
        assert_eq!(wanted.is_wanted(&name, at(8)), Some(false));
        for other in 0..2 * MOST {
            wanted.note(&other.to_string(), false, at(8), at(8));
        }
        assert!(wanted.names.len() <= MOST);
        wanted.note("other", true, at(8), at(8));
        let other = LockName::new("other").unwrap();
        assert_eq!(wanted.is_wanted(&other, at(8)), Some(true));
    }

    #[test]
    fn all_nodes_are_asked_every_three_seconds_for_writers_and_for_readers() {
        let at = |millis: u64| Moment::from_micros(millis * 1_000);
        let name = LockName::new("stock").unwrap();
        let mut wanted = WaitersHeard::default();
        let mut alone = |is_wanted, is_shared, now| {
            wanted.note(name.key(), is_wanted, at(now), at(now));
            wanted.may_ask_lead_alone(&name, is_shared, at(now))
        };
        assert!(!alone(false, false, 0));
        // The answer that told of waiters was that of a full round.
        assert!(alone(true, false, 1_000));
        assert!(alone(true, false, 3_999));
        assert!(!alone(true, true, 4_000));
        assert!(alone(true, true, 4_001));
        // A turn of a reader is none of a writer.
        assert!(!alone(true, false, 4_001));
        assert!(alone(true, false, 7_000));
        assert!(!alone(true, false, 7_001));
    }
}
