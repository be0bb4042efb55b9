//! The side of core: a `World`, its time, and the subscribers of a wake.

use std::time::Duration;

use leasehold_core::quorum::{Mark, NoVote, NodeMemory, Proposal, QuorumTerms};
use leasehold_core::{
    ClientId, Counter, Fence, Fences, Foreign, Holder, LockName, LockState, Mode, Now, Outcome,
    Owner, Presence, Reply, Step, Ttl, Waiter, World,
};

use super::steps::{
    Ask, CLIENT_OF, FOREIGN_VALUES, Intrusion, LOCKS, Meant, Number, OWNERS, Span, Who,
};
use super::tally::{note, note_other_terms};
use crate::store::redis::tests::Tally;

/// Whether the server is alone or a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    Node,
}

/// What a server remembers beside its locks: for each name its counter, and a node's mark.
#[derive(Debug, PartialEq)]
pub(super) struct Memory {
    pub(super) counters: Vec<Counter>,
    pub(super) mark: Option<Mark>,
}

/// When each case begins, in microseconds: not at the beginning of a millisecond.
pub(super) const START_US: u64 = 1_700_000_000_123_456;

/// How long Redis keeps a queue that no client joins or refreshes (`QUEUE_MEMORY` in `prelude.lua`).
///
/// Core has no such limit: it drops silent waiters one by one, when they are first and the lock is free. By then all waiters
/// of the queue are silent, so both sides choose the same next holder. Until then, core still counts the silent waiters.
const QUEUE_MEMORY_MS: u64 = 60_000;

/// The channel of a client, as `RedisStore` names it.
pub(super) fn channel(client: usize) -> String {
    format!("leasehold:wake:{}", client_id(client))
}

fn client_id(client: usize) -> ClientId {
    ClientId::new(0xc0 + u64::try_from(client).unwrap())
}

/// Which clients are subscribed to their channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listeners([bool; 3]);

impl Listeners {
    fn hears(self, owner: &Owner) -> bool {
        (0..self.0.len()).any(|client| client_id(client) == owner.client() && self.0[client])
    }
}

impl Presence for Listeners {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        !self.hears(&waiter.owner)
    }
}

/// The terms of the quorum. The shortest quarantine, so that it ends in many sequences.
pub(super) fn terms() -> QuorumTerms {
    QuorumTerms {
        nodes: 3,
        longest_ttl: Ttl::new(Duration::from_secs(2)).unwrap(),
    }
}

/// The terms of a client that counts the nodes of another quorum, if it is one of the `others`.
pub(super) fn terms_of(others: bool) -> QuorumTerms {
    let mut terms = terms();
    terms.nodes += 2 * u8::from(others);
    terms
}

/// The mark of a node of a new quorum.
pub(super) fn mark() -> Mark {
    Mark {
        terms: terms(),
        made_at_ms: 0,
    }
}

impl Number {
    /// The first fence that is proposed now.
    fn first(self, clock_us: u64, memory: &NodeMemory, name: &LockName, lock: &LockState) -> Fence {
        let counter = memory.clone().counter(name).0.map_or(0, Fence::get);
        let held = lock.holders.first();
        let held = held.map_or(clock_us, |holder| fences_of(holder).first.get());
        let floor = memory.mark.map_or(clock_us, Mark::floor_us);
        let (from, by) = match self {
            Self::Clock(by) => (clock_us, by),
            Self::Counter(by) => (counter, by),
            Self::Ahead(by) => (clock_us + 10_000_000, by),
            Self::Held(by) => (held, by),
            Self::Floor(by) => (floor, by),
        };
        Fence::new(from.saturating_add_signed(by))
    }
}

/// Turns an acquire into a proposal, by a client with these terms.
fn proposed(step: Step, first: Fence, terms: QuorumTerms) -> Step {
    match step {
        Step::Acquire {
            owner,
            mode,
            ttl,
            block,
            wait,
        } => Step::Propose(Proposal {
            owner,
            is_shared: mode == Mode::Shared,
            ttl,
            fences: Fences { first, block },
            terms,
            wait,
        }),
        step => step,
    }
}

/// The owner that wants the lock, if the step is a request for it.
pub(super) fn wants(step: &Step) -> Option<&Owner> {
    match step {
        Step::Acquire { owner, .. } => Some(owner),
        Step::Propose(proposal) => Some(&proposal.owner),
        _ => None,
    }
}

/// The state according to core.
pub(super) struct Model {
    pub(super) names: [LockName; LOCKS],
    pub(super) owners: Vec<Owner>,
    pub(super) clock_us: u64,
    listeners: Listeners,
    world: World,
    /// The last millisecond of each queue's keys, while there is a queue.
    queue_until_ms: [u64; LOCKS],
    /// The last end of any hold that was not alone, for each lock. So long, the queue may last longer.
    held_until_ms: [u64; LOCKS],
}

impl Model {
    pub(super) fn new(names: [LockName; LOCKS], role: Role) -> Self {
        let owner = |at: usize| {
            let number = u128::try_from(at).unwrap() + 1;
            let pid = u32::try_from(4000 + at).unwrap();
            Owner::new(
                number,
                client_id(CLIENT_OF[at]),
                "deploy@web 3",
                pid,
                "a: %",
            )
        };
        Self {
            names,
            owners: (0..OWNERS).map(|at| owner(at).unwrap()).collect(),
            clock_us: START_US,
            listeners: Listeners([true, true, false]),
            world: match role {
                Role::Alone => World::default(),
                Role::Node => World::node(Some(mark())),
            },
            queue_until_ms: [0; LOCKS],
            held_until_ms: [0; LOCKS],
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock_us / 1_000
    }

    /// The state of a lock, without the processes of holders, which Redis does not know. Of several holders, the last to end comes first.
    pub(super) fn state(&self, lock: usize) -> LockState {
        let mut state = self
            .world
            .get(&self.names[lock])
            .cloned()
            .unwrap_or_default();
        for holder in &mut state.holders {
            holder.kept = false;
        }
        sort(&mut state.holders);
        state
    }

    /// How long a queue's keys last, if there is a queue.
    pub(super) fn queue_for_ms(&self, lock: usize) -> Option<u64> {
        let state = self.state(lock);
        let queued = !state.queue.is_empty() || has_several(&state);
        queued.then(|| self.queue_until_ms[lock].saturating_sub(self.now_ms()))
    }

    /// Several holders stand in the keys of the queue, which outlast them, and may then stay for some time. That is taken as it is, as long
    /// as no holder and no waiter is forgotten too early.
    pub(super) fn learn(&mut self, lock: usize, queue_for_ms: Option<u64>) {
        let Some(left) = queue_for_ms else { return };
        let (until, state) = (self.now_ms() + left, self.state(lock));
        let last_end = last_end(&state);
        let waited = if state.queue.is_empty() {
            0
        } else {
            self.queue_until_ms[lock]
        };
        let least = last_end.max(waited);
        let most = self.held_until_ms[lock].max(self.queue_until_ms[lock]);
        if (least..=most).contains(&until) {
            self.queue_until_ms[lock] = until;
        } else {
            self.queue_until_ms[lock] = least;
        }
    }

    /// The step that an ask stands for now.
    pub(super) fn step(&self, lock: usize, ask: Ask, others: bool) -> Step {
        let state = self.state(lock);
        let by = match ask.who {
            Who::Any(at) => Some(&self.owners[at]),
            Who::Holder => state.holders.first().map(|holder| &holder.owner),
            Who::NextToEnd => state.holders.last().map(|holder| &holder.owner),
            Who::Head => state.queue.front().map(|waiter| &waiter.owner),
        };
        let mut holders = state.holders.iter();
        let meant = holders.find(|holder| Some(&holder.owner) == by);
        let meant = meant.or(state.holders.first());
        let fences = meant.map(fences_of);
        let last = fences.map_or(0, |fences| fences.last().get());
        let granted = fences.map_or(0, |fences| fences.first.get());
        let named = Fence::new(match ask.meant {
            Meant::Grant => granted,
            Meant::AfterGrant(by) => granted + by,
            Meant::BeforeGrant => granted.saturating_sub(1),
            Meant::Last => last,
            Meant::Above(by) => last + by,
            Meant::Wrong => self.clock_us + 7,
        });
        let mut step = ask.step;
        match &mut step {
            Step::Acquire { owner, .. }
            | Step::Extend { owner, .. }
            | Step::Release { owner, .. }
            | Step::GiveBack { owner, .. } => *owner = by.unwrap_or(&self.owners[0]).clone(),
            _ => {}
        }
        match &mut step {
            Step::Break { fence } | Step::GiveBack { fence, .. } => *fence = named,
            Step::Extend { fence, .. } | Step::Release { fence, .. } => {
                *fence = fence.map(|_| named);
            }
            _ => {}
        }
        let is_acquire = matches!(step, Step::Acquire { .. });
        let Some(memory) = self.world.node.as_ref().filter(|_| is_acquire) else {
            return step;
        };
        let name = &self.names[lock];
        let first = ask.number.first(self.clock_us, memory, name, &state);
        proposed(step, first, terms_of(others))
    }

    /// Takes a step. Returns only the wakes of waiters with a channel.
    pub(super) fn apply(
        &mut self,
        lock: usize,
        step: &Step,
        others: bool,
        tally: &mut Tally,
    ) -> Outcome {
        let before = self.state(lock);
        let now = Now::at_micros(self.clock_us);
        let (name, terms) = (&self.names[lock], terms_of(others));
        let mut outcome = (self.world).apply_by(terms, now, name, step, &self.listeners);
        if let Reply::NoVote(NoVote::OtherTerms(_)) = outcome.reply {
            assert_eq!(before, self.state(lock), "a refusal changes nothing");
            note_other_terms(tally, step);
            return outcome;
        }
        let waits = match step {
            Step::Acquire { wait, .. } => wait.is_some(),
            Step::Propose(proposal) => proposal.wait.is_some(),
            _ => false,
        };
        if waits && matches!(outcome.reply, Reply::Busy(_)) {
            self.queue_until_ms[lock] = self.now_ms() + QUEUE_MEMORY_MS;
        }
        // A waiter that leaves may have been passed over before.
        let mut advanced = before.clone();
        if matches!(step, Step::Release { .. } | Step::GiveBack { .. }) {
            let fence = Fence::MAX;
            advanced.apply(
                &mut Counter::default(),
                now,
                &Step::Break { fence },
                &self.listeners,
            );
        }
        let passed = [&advanced, &self.state(lock)].map(|after| passed_over(&before, after));
        if passed.contains(&true) {
            self.queue_until_ms[lock] = self.now_ms() + QUEUE_MEMORY_MS;
        }
        let after = self.state(lock);
        if has_several(&before) || has_several(&after) {
            // A waiter may have been granted the lock before its request gave it another end.
            let claimed = self.now_ms() + 3_000;
            let held_until = &mut self.held_until_ms[lock];
            *held_until = claimed.max(last_end(&after)).max(*held_until);
        }
        note(tally, step, &before, &after, &outcome);
        outcome.wakes.retain(|wake| {
            let granted = |waiter: &&Waiter| waiter.owner == wake.owner;
            before.queue.iter().find(granted).unwrap().listening
        });
        outcome
    }

    /// Moves the clock.
    pub(super) fn pass(&mut self, lock: usize, span: Span, tally: &mut Tally) {
        let state = self.state(lock);
        // Until a deadline, which may have passed or not exist.
        let to = |deadline: Option<u64>, beyond: u64| {
            let left = deadline.map_or(0, |at| (at + beyond).saturating_sub(self.now_ms()));
            self.clock_us + left * 1_000
        };
        self.clock_us = match span {
            Span::Micros(micros) => self.clock_us + micros,
            Span::Millis(millis) => self.clock_us + millis * 1_000,
            Span::LeaseEnd(beyond) => {
                let foreign = state
                    .foreign
                    .as_ref()
                    .and_then(|foreign| foreign.expires_at_ms);
                to(
                    state
                        .holders
                        .first()
                        .map(|holder| holder.expires_at_ms)
                        .or(foreign),
                    beyond,
                )
            }
            Span::NextEnd(beyond) => to(
                state.holders.last().map(|holder| holder.expires_at_ms),
                beyond,
            ),
            Span::HeadSilent(beyond) => to(
                state.queue.front().map(|waiter| waiter.seen_until_ms),
                beyond,
            ),
            Span::QueueEnd(beyond) => to(
                state.queue.front().map(|_| self.queue_until_ms[lock]),
                beyond,
            ),
            Span::Back(millis) => self.clock_us - millis * 1_000,
        };
        // Redis may drop an expired key at any time from now on, so core drops it at once: the clock may be set back
        // later.
        let now = Now::at_micros(self.clock_us);
        for lock in 0..LOCKS {
            let queue_ends = self.queue_until_ms[lock] < self.now_ms();
            let (waited, held) = (
                !self.state(lock).queue.is_empty(),
                self.state(lock).holders.len(),
            );
            let after = self.world.entry(&self.names[lock]);
            after.expire(now);
            if queue_ends {
                after.queue.clear();
            }
            tally.note("forgotten queues", waited && after.queue.is_empty());
            let is_left = !after.holders.is_empty() && after.holders.len() < held;
            tally.note("ends of some of several holders", is_left);
        }
    }

    /// Another program writes under the lock's name.
    pub(super) fn intrude(&mut self, lock: usize, intrusion: Intrusion, tally: &mut Tally) {
        let now_ms = self.now_ms();
        let ends = matches!(intrusion, Intrusion::Set { .. } | Intrusion::Del);
        let what = "locks of several that another program overwrites";
        tally.note(what, ends && has_several(&self.state(lock)));
        let state = self.world.entry(&self.names[lock]);
        let free = state.holders.is_empty() && state.foreign.is_none();
        let foreign = |kind: &str, value: &[u8], expires_at_ms| {
            Some(Foreign {
                kind: kind.into(),
                value: value.into(),
                expires_at_ms,
            })
        };
        match intrusion {
            Intrusion::SetNxPx { value, ttl_ms } if free => {
                state.foreign = foreign("string", FOREIGN_VALUES[value], Some(now_ms + ttl_ms));
            }
            Intrusion::Set { value } => {
                state.holders.clear();
                state.foreign = foreign("string", FOREIGN_VALUES[value], None);
            }
            Intrusion::Del => {
                state.holders.clear();
                state.foreign = None;
            }
            Intrusion::HashSet if free => state.foreign = foreign("hash", b"", None),
            Intrusion::SortedSetAdd if free => state.foreign = foreign("zset", b"", None),
            // Redis refuses it, or it adds a field to the existing value.
            Intrusion::SetNxPx { .. } | Intrusion::HashSet | Intrusion::SortedSetAdd => {}
        }
    }

    pub(super) fn memory(&self) -> Memory {
        let Some(mut node) = self.world.node.clone() else {
            let (counters, mark) = (vec![self.world.counter], None);
            return Memory { counters, mark };
        };
        Memory {
            counters: self.names.iter().map(|name| *node.counter(name)).collect(),
            mark: node.mark,
        }
    }

    pub(super) fn lose_counters(&mut self) {
        self.world.counter = Counter::default();
        if let Some(node) = &mut self.world.node {
            for name in &self.names {
                *node.counter(name) = Counter::default();
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.world = match self.world.node {
            None => World::default(),
            Some(_) => World::node(None),
        };
    }

    pub(super) fn listen(&mut self, client: usize, on: bool) {
        self.listeners.0[client] = on;
    }
}

/// The fences by which others know a holder; of a vote for a reader, its number.
pub(super) fn fences_of(holder: &Holder) -> Fences {
    let first = holder.vote.unwrap_or(holder.fences.first);
    Fences {
        first,
        ..holder.fences
    }
}

/// Orders holders as others see them: the last to end first.
pub(super) fn sort(holders: &mut [Holder]) {
    holders.sort_by(|a, b| {
        let ends = b.expires_at_ms.cmp(&a.expires_at_ms);
        ends.then_with(|| a.owner.token().cmp(b.owner.token()))
    });
}

/// The last end of holders that are not alone.
fn last_end(state: &LockState) -> u64 {
    let several = state.holders.iter().filter(|_| has_several(state));
    several
        .map(|holder| holder.expires_at_ms)
        .max()
        .unwrap_or(0)
}

/// Whether the holders are some that are not alone.
pub(super) fn has_several(state: &LockState) -> bool {
    let mut holders = state.holders.iter();
    holders.any(|holder| holder.mode != Mode::Exclusive)
}

/// Whether a step has passed over waiters, since they could not be told. They keep their place, but not for as long.
fn passed_over(before: &LockState, after: &LockState) -> bool {
    after.queue.iter().any(|waiter| {
        let was = before.queue.iter().find(|was| was.owner == waiter.owner);
        was.is_some_and(|was| was.listening && was.seen_until_ms > waiter.seen_until_ms)
    })
}
