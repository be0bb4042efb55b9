//! The owners of a client, and its callers in line: one table.
//!
//! The tasks of one client that want the same lock form a line. One owner asks the store for all of them, and holds the lock for one after
//! the other. The store sees one owner of a client at a time, but for a semaphore: there each slot that the client holds has an owner of
//! its own beside the line.
//!
//! # Invariants
//!
//! - **E1** Each owner of this client that the store may know is in the table. It stays there until no answer can give it anything more, and
//!   the store has confirmed its release. If too many settlements are abandoned, the oldest are forgotten.
//! - **Q1** For each name at most one owner of this client stands in the store's queue, or holds the lock through its line. Beside it may
//!   be owners that hold a slot, and owners that ask for one once.
//! - **Q2** While a line has waiters, its owner asks the store or holds the lock, so no wake-up is lost.
//! - **Q3** Waiters are served in the order in which they came. Only waiters that have gone are skipped.
//! - **Q4** Each request is answered once, or leaves.
//! - **Q5** A line ends with its last waiter, unless its owner holds the lock.
//! - **Q6** A lost lease does not delay the waiters of its line, even if the line learns of the loss last: the store decides.
//! - **Q7** Readers that hold together share the stay of one owner. Those that waited for its grant enter with it. Later, a request joins it
//!   only if no other stands in the line; it joins as soon as the one that kept it out has left.
//! - **Q8** A line asks for the mode of its first waiter, so that nobody waits for a caller that has left.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::time::Duration;

use leasehold_core::{Block, HolderView, LockName, Mode, Owner, Session, Ttl, block_for};

use super::acquisition::{Acquisition, Leftovers, SentRequest};
use super::effects::{Due, Effects};
use super::hold::Hold;
use super::keeper::Keeper;
use super::settle::Settlement;
use super::terms::Terms;
use super::waiter::Waiter;
use crate::clock::Moment;
use crate::fold::Folding;

/// The longest time between two checks of an idle lock.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// The first block of fences for a lock that may stay idle and be taken again.
const LINGERING: u64 = 4;

/// How many spare entries are kept: enough for a busy client.
const SPARE: usize = 64;

/// All owners of a client, and its callers.
#[derive(Default)]
pub(super) struct Owners {
    /// The owner that acts for each line: it asks for the lock or holds it (Q1).
    lines: HashMap<LockName, Owner, Folding>,
    entries: HashMap<Owner, Box<Entry>, Folding>,
    /// Entries of owners that are used no more. The next owners use their memory.
    #[expect(
        clippy::vec_box,
        reason = "the table has boxes, since entries are large"
    )]
    spare: Vec<Box<Entry>>,
    /// The room of lines whose last waiter has the lock: many leases are held, and few acquired, at a time.
    spare_lines: Vec<VecDeque<Waiter>>,
}

/// One owner.
pub(super) struct Entry {
    pub(super) name: LockName,
    pub(super) state: OwnerState,
    /// The callers of this client that wait for the lock, while the owner acts for them. An owner that asks for a slot beside the line has
    /// none: when it is granted one, it serves the first of the line.
    pub(super) waiting: VecDeque<Waiter>,
    /// The request for the lock that is under way. It can outlive the acquisition: a wake was faster, or all callers left.
    pub(super) asked: Option<SentRequest>,
    /// The lease was lost while a renewal for this TTL was under way. The store may still carry it out (RN3).
    pub(super) lost_renewal: Option<Ttl>,
}

/// What an owner does.
pub(super) enum OwnerState {
    /// It acquires the lock from the store, on behalf of all waiters of its line.
    Asking(Acquisition),
    /// It holds the lock. A lease is in use, or the lock is idle.
    Holding(Holding),
    /// It releases what it may have in the store.
    Settling(Settlement),
    /// It was released, and the lock stays taken: until when the client remembers that (U3).
    Kept(Moment),
    /// Its settlement for a lease of this TTL ended without an answer, and begins anew at the next connection. Until then, the lock may
    /// have to stay taken (U3).
    Abandoned {
        ttl: Ttl,
        kept_until: Option<Moment>,
    },
    /// It is used no more.
    Left,
}

/// One grant of the store: one owner there, and one lease after the other in this client (a stay).
pub(super) struct Holding {
    pub(super) terms: Terms,
    pub(super) stay: Session,
    /// The lease in use, or the last one, and its renewals.
    pub(super) keeper: Keeper,
    /// The lock is idle, and is kept until this moment in case a task wants it again.
    pub(super) idle_until: Option<Moment>,
    /// The last notice that other clients wait. An answer to an earlier request does not count them.
    heard: Option<Moment>,
    /// When the next check for idleness is due.
    looked_at: Option<Moment>,
}

impl Owners {
    /// The owner that acts for the line of this name.
    pub(super) fn acting_for(&mut self, name: &LockName) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(self.lines.get(name)?)?;
        Some(entry)
    }

    /// The owner in the table; one that is used no more if it is not there.
    pub(super) fn entry(&mut self, name: &LockName, owner: &Owner) -> &mut Entry {
        let entry = self.entries.entry(owner.clone());
        entry.or_insert_with(|| fresh(name, self.spare.pop()))
    }

    /// An entry for a new owner, without waiters.
    pub(super) fn fresh(&mut self, name: &LockName) -> Box<Entry> {
        let mut entry = fresh(name, self.spare.pop());
        if entry.waiting.capacity() == 0 {
            entry.waiting = self.spare_lines.pop().unwrap_or_default();
        }
        entry
    }

    /// The next lines use the room of this one, which is empty.
    pub(super) fn spare_line(&mut self, mut line: VecDeque<Waiter>) {
        if self.spare_lines.len() < SPARE {
            // A long line must not keep its memory.
            line.shrink_to(1);
            self.spare_lines.push(line);
        }
    }

    pub(super) fn get(&mut self, owner: &Owner) -> Option<&mut Entry> {
        self.entries.get_mut(owner).map(|entry| &mut **entry)
    }

    /// The acquisition of this owner, if it still acquires.
    pub(super) fn asking(&mut self, owner: &Owner) -> Option<&mut Acquisition> {
        match &mut self.entries.get_mut(owner)?.state {
            OwnerState::Asking(asking) => Some(asking),
            _ => None,
        }
    }

    /// What this owner holds.
    pub(super) fn holding(&mut self, owner: &Owner) -> Option<&mut Holding> {
        match &mut self.entries.get_mut(owner)?.state {
            OwnerState::Holding(holding) => Some(holding),
            _ => None,
        }
    }

    pub(super) fn settling(&mut self, owner: &Owner) -> Option<&mut Settlement> {
        match &mut self.entries.get_mut(owner)?.state {
            OwnerState::Settling(open) => Some(open),
            _ => None,
        }
    }

    /// Whether this owner acts for the line of this name.
    pub(super) fn is_acting(&self, name: &LockName, owner: &Owner) -> bool {
        self.lines.get(name) == Some(owner)
    }

    /// Adds an owner that does not act for its line (Q1).
    pub(super) fn stands_aside(&mut self, owner: Owner, entry: Box<Entry>) {
        self.entries.insert(owner, entry);
    }

    /// From now on, `owner` acts for the line of its name (Q1).
    pub(super) fn acts(&mut self, owner: Owner, entry: Box<Entry>) {
        self.lines.insert(entry.name.clone(), owner.clone());
        self.entries.insert(owner, entry);
    }

    /// The line of this name ends (Q5). Returns the owner that acted for it.
    pub(super) fn ends(&mut self, name: &LockName) -> Option<Owner> {
        self.lines.remove(name)
    }

    /// Takes out what an owner has done so far: it is used no more.
    pub(super) fn retire(&mut self, owner: &Owner) -> Option<OwnerState> {
        let entry = self.entries.get_mut(owner)?;
        Some(mem::replace(&mut entry.state, OwnerState::Left))
    }

    /// Forgets an owner that is used no more, once no answer for it is to come (E1).
    pub(super) fn tidy(&mut self, owner: &Owner) {
        let is_done = |entry: &Entry| {
            matches!(entry.state, OwnerState::Left)
                && entry.asked.is_none()
                && entry.lost_renewal.is_none()
        };
        if self.entries.get(owner).is_some_and(|entry| is_done(entry))
            && let Some(mut entry) = self.entries.remove(owner)
            && self.spare.len() < SPARE
        {
            // A long line must not keep its memory.
            entry.waiting.shrink_to(1);
            self.spare.push(entry);
        }
    }

    /// Ends all lines. Returns their owners and those beside them, in an order that depends on nothing else.
    pub(super) fn close(&mut self) -> Vec<(LockName, Owner)> {
        let lines: HashSet<Owner, Folding> = self.lines.drain().map(|(_, owner)| owner).collect();
        let is_aside = |state: &OwnerState| matches!(state, OwnerState::Holding(holding) if holding.keeper.hold.slot.is_some());
        let all = self.entries.iter();
        let mut all: Vec<_> = all
            .filter(|(owner, entry)| lines.contains(owner) || is_aside(&entry.state))
            .map(|(owner, entry)| (entry.name.clone(), owner.clone()))
            .collect();
        all.sort_by(|(a, one), (b, other)| (a, one.token()).cmp(&(b, other.token())));
        all
    }

    /// All owners that acquire, in the order of their names.
    pub(super) fn all_asking(&mut self) -> Vec<(Owner, &mut Acquisition)> {
        let entries = self.entries.iter_mut();
        let mut all: Vec<_> = entries
            .filter_map(|(owner, entry)| match &mut entry.state {
                OwnerState::Asking(asking) => Some((&entry.name, owner, asking)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(name, ..)| *name);
        all.into_iter()
            .map(|(_, owner, asking)| (owner.clone(), asking))
            .collect()
    }

    /// All leases, the one with the earliest deadline first.
    pub(super) fn all_held(&mut self) -> Vec<(&Owner, &mut Keeper)> {
        let entries = self.entries.iter_mut();
        let mut all: Vec<_> = entries
            .filter_map(|(owner, entry)| match &mut entry.state {
                OwnerState::Holding(holding) => Some((owner, &mut holding.keeper)),
                _ => None,
            })
            .collect();
        all.sort_by_cached_key(|(owner, keeper)| (keeper.hold.deadline(), owner.id().to_owned()));
        all
    }

    /// What the owners of slots of this name hold.
    pub(super) fn all_slots(&mut self, name: &LockName) -> impl Iterator<Item = &mut Holding> {
        let entries = self.entries.values_mut();
        entries.filter_map(move |entry| match &mut entry.state {
            OwnerState::Holding(holding)
                if holding.keeper.hold.slot.is_some() && entry.name == *name =>
            {
                Some(holding)
            }
            _ => None,
        })
    }

    /// All settlements that wait for their next release, in a fixed order.
    pub(super) fn all_waiting_to_settle(&mut self) -> Vec<&mut Settlement> {
        let entries = self.entries.iter_mut();
        let mut all: Vec<_> = entries
            .filter_map(|(owner, entry)| match &mut entry.state {
                OwnerState::Settling(open) if open.is_waiting() => Some((owner, open)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(owner, _)| owner.id());
        all.into_iter().map(|(_, open)| open).collect()
    }
}

/// Takes out the callers that only try.
pub(super) fn take_once(waiting: &mut VecDeque<Waiter>) -> VecDeque<Waiter> {
    if waiting.iter().all(|waiter| !waiter.is_once()) {
        return VecDeque::new();
    }
    let (once, rest) = mem::take(waiting).into_iter().partition(Waiter::is_once);
    *waiting = rest;
    once
}

/// Drops the callers at the head that have gone (Q3).
pub(super) fn drop_gone(waiting: &mut VecDeque<Waiter>) {
    while waiting.front().is_some_and(Waiter::is_gone) {
        waiting.pop_front();
    }
}

/// The number of waiters at the head that want these terms. The lock may be handed on to them.
pub(super) fn alike(waiting: &VecDeque<Waiter>, terms: &Terms) -> usize {
    let most = usize::try_from(Block::MOST.get()).unwrap_or(usize::MAX);
    let alike = waiting.iter().take_while(|waiter| waiter.terms() == terms);
    alike.take(most).count()
}

/// How many fences to request for these waiters, after the stay `before` if there was one.
pub(super) fn fences_for(waiting: &VecDeque<Waiter>, before: Option<&Session>) -> Block {
    let Some(first) = waiting.front() else {
        return Block::ONE;
    };
    let tasks = alike(waiting, first.terms());
    let wanted = before.map_or_else(|| block_for(tasks, false), |stay| stay.next_block(tasks));
    if first.lingers() && !before.is_some_and(Session::is_wanted) {
        wanted.max(Block::nearest(LINGERING))
    } else {
        wanted
    }
}

/// The entry of an owner that is used no more; `spare` is one of another name.
fn fresh(name: &LockName, spare: Option<Box<Entry>>) -> Box<Entry> {
    if let Some(mut entry) = spare {
        entry.name.clone_from(name);
        return entry;
    }
    Box::new(Entry {
        name: name.clone(),
        state: OwnerState::Left,
        waiting: VecDeque::new(),
        asked: None,
        lost_renewal: None,
    })
}

impl Entry {
    /// It asks for the lock on these terms, for the first time.
    pub(super) fn asks(&mut self, terms: Terms, waits: bool, now: Moment) {
        self.asked = Some(SentRequest {
            ttl: terms.ttl,
            sent: now,
            waits,
            left: Leftovers::default(),
        });
        self.state = OwnerState::Asking(Acquisition::new(terms));
    }

    /// The place of the request with this number in the line.
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        self.waiting.iter().position(|waiter| waiter.id == id)
    }

    /// Who holds the lock, as this owner knows it, and how many of other clients wait in front of it.
    pub(super) fn seen(&self) -> Option<(HolderView, u32)> {
        match &self.state {
            OwnerState::Asking(asking) => {
                let (_, busy) = asking.busy.as_ref()?;
                Some((busy.holder.clone(), busy.ahead))
            }
            OwnerState::Holding(holding) => Some((holding.keeper.hold.view(), 0)),
            _ => None,
        }
    }
}

impl Holding {
    pub(super) fn new(terms: Terms, stay: Session, keeper: Keeper, heard: Option<Moment>) -> Self {
        Self {
            terms,
            stay,
            keeper,
            idle_until: None,
            heard,
            looked_at: None,
        }
    }

    /// Whether this request may join the readers that hold (Q7). Those that waited for the grant enter together, however many.
    pub(super) fn admits(&mut self, waiter: &Waiter, is_granted: bool, now: Moment) -> bool {
        self.terms.mode == Mode::Shared
            && waiter.mode() == Mode::Shared
            && self.keeper.hold.is_fit_to_hand_on(self.terms.ttl, now)
            && (is_granted || self.stay.join(now.as_micros()).is_ok())
    }

    /// Another client waits, as of now.
    pub(super) fn is_wanted(&mut self, now: Moment) {
        self.heard = Some(now);
        self.stay.queued(1, now.as_micros());
    }

    /// The answer to the request of `sent` says that nobody waits. That is outdated if a notice of a waiter came since.
    pub(super) fn is_wanted_by_none(&mut self, sent: Moment, now: Moment) {
        if self.heard.is_none_or(|heard| heard < sent) {
            self.stay.queued(0, now.as_micros());
        }
    }

    /// After the end of this lease, the lock stays idle in this client. Not if its user wants none of that, or if others wait.
    pub(super) fn stays_idle(&mut self, last: &Hold, now: Moment, effects: &mut Effects) -> bool {
        if last.linger().is_zero() || self.stay.is_wanted() {
            return false;
        }
        self.idle_until = Some(now.after(last.linger()));
        self.look(&last.owner, now, effects);
        true
    }

    /// Plans the next check of the idle lock: at its end, or within [`LOOK_WITHIN`], so late checks do not pile up.
    pub(super) fn look(&mut self, owner: &Owner, now: Moment, effects: &mut Effects) {
        self.looked_at.take_if(|at| *at <= now);
        let Some(until) = self.idle_until else {
            return;
        };
        let at = until.min(now.after(LOOK_WITHIN));
        if self.looked_at.is_none_or(|planned| planned > at) {
            self.looked_at = Some(at);
            effects.wake(at, Due::Idle(owner.clone()));
        }
    }
}

#[cfg(test)]
impl Owners {
    /// Checks Q1, Q2, Q5 to Q8, and RN2. (RN1 cannot be said otherwise.)
    pub(super) fn check(&self) {
        for owner in self.lines.values() {
            let state = self.entries.get(owner).map(|entry| &entry.state);
            let acts = matches!(state, Some(OwnerState::Asking(_) | OwnerState::Holding(_)));
            assert!(acts, "Q2: nobody acts for a line");
        }
        for (owner, entry) in &self.entries {
            let acts = self.lines.get(&entry.name) == Some(owner);
            let waits = !entry.waiting.is_empty();
            assert!(acts || !waits, "Q2: nobody acts for a caller");
            match &entry.state {
                OwnerState::Asking(asking) if !acts => {
                    assert!(matches!(asking.terms.mode, Mode::Slot(_)), "Q1");
                    let asks_once = entry.asked.as_ref().is_some_and(|asked| !asked.waits);
                    assert!(asks_once, "Q1: asks for a slot once");
                }
                OwnerState::Asking(asking) => {
                    let first = entry.waiting.front().map(Waiter::mode);
                    assert_eq!(first, Some(asking.terms.mode), "Q8");
                }
                OwnerState::Holding(holding) => {
                    let due = holding.keeper.ticket.map(super::timers::Ticket::at);
                    let mut all = holding.keeper.all();
                    let in_time = |at: Moment| all.all(|hold| at <= hold.valid_until());
                    let has_slot = holding.keeper.hold.slot.is_some();
                    assert!(acts != has_slot, "Q1");
                    assert!(due.is_some_and(in_time), "RN2");
                    let readers = &holding.keeper.readers;
                    let is_shared = holding.terms.mode == Mode::Shared;
                    assert_eq!(
                        is_shared && holding.idle_until.is_none(),
                        !readers.is_empty(),
                        "Q7"
                    );
                    let is_idle = holding.idle_until.is_some();
                    assert!(!(waits && is_idle), "idle, and waited for");
                    assert!(
                        !(waits && holding.keeper.hold.is_lost()),
                        "Q6: waits behind a loss"
                    );
                }
                OwnerState::Left => assert!(
                    entry.asked.is_some() || entry.lost_renewal.is_some(),
                    "nothing is to come for an owner that is used no more"
                ),
                OwnerState::Settling(_) | OwnerState::Kept(_) | OwnerState::Abandoned { .. } => {}
            }
        }
    }

    /// Whether nobody asks or holds, and no answer is to come but for a settlement.
    pub(super) fn is_idle(&self) -> bool {
        let is_settled = |entry: &Entry| {
            matches!(
                entry.state,
                OwnerState::Settling(_) | OwnerState::Kept(_) | OwnerState::Abandoned { .. }
            )
        };
        self.lines.is_empty() && self.entries.values().all(|entry| is_settled(entry))
    }

    /// Of each settlement: whether it waits for its next release.
    pub(super) fn waiting_settlements(&self) -> Vec<bool> {
        let waits = |entry: &Entry| match &entry.state {
            OwnerState::Settling(open) => Some(open.is_waiting()),
            _ => None,
        };
        let entries = self.entries.values();
        entries.filter_map(|entry| waits(entry)).collect()
    }
}
