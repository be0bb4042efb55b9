//! The checks on each step of the store, and the liveness of waiters. The checks use a separate record of requests and replies, and the
//! stored state; they never call the rules.

use std::ops::ControlFlow;

use leasehold_core::cache::{
    CommitOutcome, EntryState, MEMORY, Outcome, POLL, Reply, Standing, Step, Version,
};

use super::model::{BACK_OFF, CacheModel, FRESH, LEASE, STALE, ticks_ms};
use super::state::{Phase, Request, State};
use crate::frame::{CallId, NOW, millis, waits_alone};

/// The rules that a step can violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// K1.
    Loaders = 1,
    /// No client is told to load during a back-off.
    Rest = 1 << 1,
    /// K2.
    Numbers = 1 << 2,
    /// K3.
    Truth = 1 << 3,
    /// K4: the version only rises.
    Falls = 1 << 4,
    /// K4: a late value is kept if there is nothing newer.
    Dropped = 1 << 5,
    /// K5.
    Waiters = 1 << 6,
    /// K6.
    Repeats = 1 << 7,
    /// K7.
    Ends = 1 << 8,
}

/// A step that the store took, and took again.
pub(super) struct Taken<'a> {
    /// The call; `None` for an invalidation.
    pub(super) by: Option<CallId>,
    pub(super) step: &'a Step,
    /// A commit of a value that may be outdated.
    pub(super) old: bool,
    pub(super) before: EntryState,
    pub(super) first: Outcome,
    pub(super) second: Outcome,
    /// The entry after the second time.
    pub(super) again: EntryState,
}

/// Judges a step that led to `state`, and updates the record.
pub(super) fn step(state: &mut State, taken: &Taken<'_>) {
    let mut broken = repeats(state, taken) | ends(state) | falls(state, taken);
    let lease = state.books.lease;
    let mine = lease.is_some_and(|(id, _)| Some(id) == taken.by);
    let stored = version(&taken.before);
    let mut ended = false;
    match (taken.step, &taken.first.reply) {
        (Step::Begin(_), reply) => broken |= began(state, taken.by, reply),
        (Step::Renew { .. }, reply) => {
            let renewed = *reply == Reply::Renewed;
            broken |= unless(renewed == mine, Rule::Loaders);
            if mine {
                state.books.lease = taken.by.map(|id| (id, LEASE));
            }
        }
        (Step::Commit(commit), Reply::Committed(kept)) => {
            broken |= committed(state, taken, commit.version, *kept);
            let is_known = !is_unknown(state, taken, commit.version);
            let news = is_known && stored.is_none_or(|stored| stored < commit.version);
            ended = mine || news;
            state.books.lease.take_if(|_| mine);
            state.books.rests.take_if(|_| ended);
        }
        (Step::Abandon { back_off, .. }, _) => {
            ended = mine;
            state.books.lease.take_if(|_| mine);
            if mine && back_off.is_some() {
                state.books.rests = Some(BACK_OFF);
            }
        }
        (Step::Invalidate { .. }, _) => {
            ended = true;
            state.books.lease = None;
            state.books.value_old = true;
            if let Some(epoch) = state.entry.control.as_ref().map(|control| control.epoch) {
                broken |= unless(epoch.get() > state.books.issued, Rule::Numbers);
                state.books.issued = state.books.issued.max(epoch.get());
            }
        }
        _ => {}
    }
    broken |= told(state, taken, ended) | truth(state);
    state.books.broken |= broken;
}

const fn unless(kept: bool, rule: Rule) -> u16 {
    if kept { 0 } else { rule as u16 }
}

fn version(entry: &EntryState) -> Option<Version> {
    entry.value.as_ref().map(|(value, _)| value.header.version)
}

/// K1, K2, and that no client waits without a reason.
fn began(state: &mut State, by: Option<CallId>, reply: &Reply) -> u16 {
    let books = &mut state.books;
    let other = books.lease.is_some_and(|(id, _)| Some(id) != by);
    match reply {
        Reply::Load { version, .. } => {
            let mut broken = unless(!other, Rule::Loaders);
            broken |= unless(books.rests.is_none(), Rule::Rest);
            // A load keeps its identity as long as it has its lease.
            if books.lease.is_none() {
                broken |= unless(version.get() > books.issued, Rule::Numbers);
            }
            books.issued = books.issued.max(version.get());
            books.lease = by.map(|id| (id, LEASE));
            broken
        }
        Reply::Busy { poll_after, .. } => unless(
            other && *poll_after <= POLL && !poll_after.is_zero(),
            Rule::Waiters,
        ),
        Reply::BackOff { .. } => unless(books.rests.is_some(), Rule::Waiters),
        Reply::Fresh(_) => unless(!books.value_old, Rule::Truth),
        _ => Rule::Waiters as u16,
    }
}

/// Whether the control exists and never gave this number out: a lost control did, before the clock was set back.
fn is_unknown(state: &State, taken: &Taken<'_>, number: Version) -> bool {
    taken.before.control.is_some() && number.get() > state.books.issued
}

/// K3 and K4, for the reply to a commit.
fn committed(state: &mut State, taken: &Taken<'_>, number: Version, kept: CommitOutcome) -> u16 {
    let header = taken.before.value.as_ref().map(|(value, _)| value.header);
    let is_unknown = is_unknown(state, taken, number);
    let books = &mut state.books;
    let expected = match header {
        Some(newer) if newer.version > number => CommitOutcome::Overtaken,
        Some(same) if same.version == number && !books.value_old => {
            CommitOutcome::Fresh(same.soft_ms)
        }
        Some(same) if same.version == number => CommitOutcome::Stale,
        Some(_) if is_unknown => CommitOutcome::Overtaken,
        _ if taken.old => CommitOutcome::Stale,
        _ => CommitOutcome::Fresh(NOW.millis() + ticks_ms(FRESH)),
    };
    let stored = version(&state.entry);
    let is_new = header.is_none_or(|header| header.version < number);
    if is_new && state.entry.value != taken.before.value {
        books.value_old = taken.old;
    }
    match (expected, kept) {
        (CommitOutcome::Stale, CommitOutcome::Fresh(_)) => Rule::Truth as u16,
        _ if is_new && !is_unknown && stored != Some(number) => Rule::Dropped as u16,
        (expected, kept) if expected == kept => 0,
        (CommitOutcome::Overtaken, _) => Rule::Falls as u16,
        _ => Rule::Dropped as u16,
    }
}

/// K3, for the stored value.
fn truth(state: &State) -> u16 {
    let value = state.entry.value.as_ref();
    let fresh = value.is_some_and(|(value, _)| value.standing(NOW) == Standing::Fresh);
    unless(!(fresh && state.books.value_old), Rule::Truth)
}

/// K4.
fn falls(state: &State, taken: &Taken<'_>) -> u16 {
    let (was, is) = (version(&taken.before), version(&state.entry));
    let removed = matches!(taken.step, Step::Invalidate { remove: true });
    let kept = match (was, is) {
        (Some(was), Some(is)) => is >= was,
        (Some(_), None) => removed,
        (None, _) => true,
    };
    unless(kept, Rule::Falls)
}

/// K5: every waiter is woken when the load ends, and no other client.
fn told(state: &mut State, taken: &Taken<'_>, ended: bool) -> u16 {
    let woken = &taken.first.wakes;
    let mut broken = 0;
    for (index, client) in (0u64..).zip(&mut state.clients) {
        let is_woken = woken.iter().any(|id| id.get() == index);
        broken |= unless(is_woken == (ended && client.told), Rule::Waiters);
        client.told &= !is_woken;
    }
    let waits = matches!(
        taken.first.reply,
        Reply::Busy { .. } | Reply::BackOff { .. }
    );
    if let Some(id) = taken.by.filter(|_| waits) {
        state.client_mut(id.client).told = true;
    }
    broken
}

/// K6.
fn repeats(state: &State, taken: &Taken<'_>) -> u16 {
    let same = taken.second.reply == taken.first.reply && taken.second.wakes.is_empty();
    // Each invalidation has a number.
    let numbered = matches!(taken.step, Step::Invalidate { .. });
    unless(
        same && (numbered || taken.again == state.entry),
        Rule::Repeats,
    )
}

/// K7.
fn ends(state: &State) -> u16 {
    let within =
        |until: u64, ticks: u8, memory: u64| until <= NOW.millis() + ticks_ms(ticks) + memory;
    let value = state.entry.value.as_ref();
    let value = value.is_none_or(|(_, until)| within(*until, FRESH + STALE, 0));
    let control = state.entry.control.as_ref();
    let control = control.is_none_or(|control| {
        let kept = within(control.forget_at_ms, LEASE.max(BACK_OFF), millis(MEMORY));
        let loader = control
            .loader
            .is_none_or(|loader| within(loader.until_ms, LEASE, 0));
        let failed = control.back_off.as_ref();
        kept && loader && failed.is_none_or(|failed| within(failed.until_ms, BACK_OFF, 0))
    });
    unless(value && control, Rule::Ends)
}

impl CacheModel {
    /// K5: a waiter loads or has a fresh value at the latest one millisecond after the current lease and back-off end.
    pub(super) fn waits_end(&self, state: &State) -> bool {
        (0u8..).zip(&state.clients).all(|(client, at)| {
            let Phase::Asking(seen) = at.phase else {
                return true;
            };
            let lease = state.books.lease.map(|(_, left)| left);
            let most = lease.max(state.books.rests);
            let most = most.map_or(0, |left| ticks_ms(left) + 1);
            let waited = self.alone(state, state.id(client), seen);
            waited.is_some_and(|ms| ms <= most)
        })
    }

    /// After how many milliseconds of polling alone it loads or has a fresh value.
    fn alone(&self, state: &State, id: CallId, seen: Option<u64>) -> Option<u64> {
        let step = self.asks(id, Request::Begin(seen));
        let mut entry = state.entry.clone();
        waits_alone(
            |now| match (self.subject.apply)(&mut entry, now, &step).reply {
                Reply::Busy { poll_after, .. } => ControlFlow::Continue(millis(poll_after)),
                Reply::BackOff { left, .. } => ControlFlow::Continue(millis(left)),
                reply => ControlFlow::Break(matches!(reply, Reply::Load { .. } | Reply::Fresh(_))),
            },
        )
    }
}
