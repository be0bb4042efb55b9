//! Renews all leases of a client and watches their deadlines. Must never renew a lease that is over.
//!
//! A lease is looked after from where it was acquired, and given up from where it is released, without waking anybody; the
//! client's thread only comes in when a renewal or a deadline is due.
//!
//! # Invariants
//!
//! - **K1** A lease has at most one renewal under way, so its answers cannot overtake each other.
//! - **K2** Every lease in `leases` stands in the agenda once, at the time of its next event, which is never later than its
//!   deadline, wherever that moves: so loss is told on time even when a renewal hangs.
//! - **K3** An answer to a lease that is over changes nothing. If it says *held*, the lock is released: the renewal was
//!   carried out after we had given up.
//! - **K4** While a request without an answer may still be carried out, no deadline is later than its TTL allows: carried
//!   out after a longer renewal, it would shorten the lease without a word.
//! - **K5** At most [`AT_ONCE`] leases that renew themselves have a renewal under way, so that many that are due together
//!   do not keep other requests waiting.

mod renewal;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError};

use leasehold_core::{Owner, Reply, Ttl};

use self::renewal::{Found, Renewal, Why, believed, from_backlog, send, start};
use super::engine::{Due, Engine};
use super::hold::Hold;
use super::kept::{Caller, Kept, Progress};
use crate::clock::Moment;
use crate::error::{Error, LossCause, Replaced, StoreError};
use crate::store::Answer;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::Said;

/// How many renewals that came due are under way at once: a batch, so that a request of somebody else does not wait for more
/// than that.
pub(super) const AT_ONCE: usize = 32;

/// The keeper of a client.
#[derive(Default)]
pub(super) struct Keeper(Mutex<State>);

#[derive(Default)]
struct State {
    leases: HashMap<Owner, Kept>,
    under_way: usize,
    /// Due, and waiting for room (K5).
    backlog: VecDeque<Owner>,
    /// Lost while a renewal was under way, which may be carried out all the same (K3).
    lost_under_way: HashSet<Owner>,
    /// When it was heard that the server was replaced, and how, the last time.
    replaced: Option<(Moment, Replaced)>,
}

impl Keeper {
    /// Looks after a new lease.
    pub(super) fn keep(&self, engine: &Engine, hold: &Arc<Hold>) {
        let mut state = self.lock();
        if hold.is_over() {
            return;
        }
        let owner = hold.owner.clone();
        let now = engine.clock.now();
        let mut kept = Kept::new(hold.clone(), now);
        if let Some((at, how)) = state.replaced
            && hold.asked_at <= at
        {
            // Perhaps by word of the server of before (L4).
            kept.replaced(how, now);
        }
        kept.ticket = Some(
            engine
                .agenda
                .add(kept.next_event(), Due::Lease(owner.clone())),
        );
        state.leases.insert(owner, kept);
    }

    /// The next lease of the same owner, handed on. It lasts for as long as the one before it.
    pub(super) fn hand_on(&self, engine: &Arc<Engine>, hold: &Arc<Hold>, ttl: Ttl) {
        let mut state = self.lock();
        let Some(kept) = state.leases.get_mut(&hold.owner) else {
            drop(state);
            // Lost a moment ago.
            hold.lose(LossCause::Deadline(None)).tell();
            return;
        };
        if let Err(cause) = hold.renew_until(kept.hold.deadline()) {
            // It was made with a deadline that has passed since, and a look at it may have seen that (L3, Q6).
            let lost = lose(engine, &mut state, hold.clone(), cause);
            drop(state);
            return send(engine, lost);
        }
        let same_plan = kept.hold.max_until.is_none()
            && hold.max_until.is_none()
            && kept.hold.auto_renew == hold.auto_renew;
        // Heard since it was made.
        hold.doubt_like(&kept.hold);
        kept.hold = hold.clone();
        if kept.ttl != ttl {
            kept.ask_for(ttl);
        }
        if !same_plan {
            schedule(engine, &hold.owner, kept);
        }
        let left = hold.deadline().since(hold.since);
        if left < ttl.get() / 2 {
            kept.owe();
        }
        if left < ttl.get() / 2 && kept.progress != Progress::UnderWay {
            let renewal = start(engine, &mut state, &hold.owner, Why::Asked);
            drop(state);
            send(engine, renewal);
        }
    }

    /// The lease is over: it is not renewed any more.
    pub(super) fn forget(&self, engine: &Engine, owner: &Owner) {
        remove(engine, &mut self.lock(), owner);
    }

    /// Renews now, for `ttl` from now on.
    pub(super) fn extend(&self, engine: &Arc<Engine>, owner: &Owner, ttl: Ttl, caller: Caller) {
        let mut state = self.lock();
        // Dropping the caller says that the lease is over; its hold knows why.
        let Some(kept) = state.leases.get_mut(owner) else {
            return;
        };
        kept.ask_for(ttl);
        kept.by_hand.push(caller);
        if kept.progress != Progress::UnderWay {
            let renewal = start(engine, &mut state, owner, Why::Asked);
            drop(state);
            send(engine, renewal);
        }
    }

    /// The store is there again: what could not be renewed is renewed now, since it may be gone before the next attempt.
    pub(super) fn reconnected(&self, engine: &Engine) {
        let now = engine.clock.now();
        for (owner, kept) in &mut self.lock().leases {
            if kept.is_tried_again(now) {
                schedule(engine, owner, kept);
            }
        }
    }

    /// Another server answers: what it knows of each lease is asked at once, the one that ends soonest first (L4).
    pub(super) fn replaced(&self, engine: &Engine, how: Replaced) {
        let now = engine.clock.now();
        let mut state = self.lock();
        state.backlog.clear();
        state.replaced = Some((now, how));
        let mut leases: Vec<_> = state.leases.iter_mut().collect();
        leases.sort_by_key(|(_, kept)| kept.hold.deadline());
        for (owner, kept) in leases {
            kept.replaced(how, now);
            schedule(engine, owner, kept);
        }
    }

    /// Something is due for this lease.
    pub(super) fn attend(&self, engine: &Arc<Engine>, owner: &Owner) {
        let mut state = self.lock();
        let State {
            leases,
            under_way,
            backlog,
            ..
        } = &mut *state;
        let Some(kept) = leases.get_mut(owner) else {
            return;
        };
        let now = engine.clock.now();
        if let Some(cause) = kept.hold.overdue(now) {
            let hold = kept.hold.clone();
            let lost = lose(engine, &mut state, hold, cause);
            drop(state);
            send(engine, lost);
        } else if kept.is_due(now) && *under_way >= AT_ONCE {
            kept.progress = Progress::Queued;
            backlog.push_back(owner.clone());
            schedule(engine, owner, kept);
        } else if kept.is_due(now) {
            let renewal = start(engine, &mut state, owner, Why::Due);
            drop(state);
            send(engine, renewal);
        } else {
            schedule(engine, owner, kept);
        }
    }

    /// A request of this owner for `ttl` was not answered, and may be carried out after whatever is sent from now on.
    pub(super) fn straggles(&self, engine: &Engine, owner: &Owner, ttl: Ttl) {
        if let Some(kept) = self.lock().leases.get_mut(owner) {
            kept.straggles(ttl, engine.clock.now());
            schedule(engine, owner, kept);
        }
    }

    /// Takes the answer to a renewal into account.
    fn account(&self, engine: &Arc<Engine>, renewal: Renewal, answer: Answer) {
        // As in `attend`.
        let _under_way = engine.tasks.token();
        let Renewal {
            hold: asked_for,
            sent,
            ttl,
            why,
            callers,
            ..
        } = renewal;
        let owner = asked_for.owner.clone();
        let mut state = self.lock();
        let next = if why == Why::Due {
            state.under_way -= 1;
            from_backlog(engine, &mut state)
        } else {
            Found::Nothing
        };
        let in_use = state.leases.get(&owner).map(|kept| kept.hold.clone());
        let answer = believed(engine, state.leases.get(&owner), answer);
        let (took, said) = (engine.clock.now().since(sent), Said::by(&answer));
        let mut lost = None;
        let mut confirmed = None;
        let mut is_to_be_undone = false;
        let verdict = match (state.leases.get_mut(&owner), answer) {
            (None, answer) => {
                // Over while the renewal was under way (K3). What was released is settled already, and may be kept on purpose.
                is_to_be_undone =
                    state.lost_under_way.remove(&owner) && matches!(answer, Ok(Reply::Held(_)));
                Err(asked_for
                    .loss()
                    .map_or_else(|| StoreError::closed().into(), Error::Lost))
            }
            (Some(kept), Err(error)) => {
                kept.failed(ttl, &error, engine.clock.now());
                Err(error.into())
            }
            (Some(kept), Ok(reply)) => match kept.heard(reply, sent, ttl, engine.clock.now()) {
                Ok(held) => {
                    confirmed = Some(held);
                    Ok(())
                }
                Err((cause, left_held)) => {
                    is_to_be_undone = left_held;
                    let hold = kept.hold.clone();
                    // First, since who renews by hand looks there as soon as it is removed.
                    let ended = hold.lose(cause.clone());
                    remove(engine, &mut state, &owner);
                    let error = hold.lost(cause).into();
                    lost = Some((hold, ended));
                    Err(error)
                }
            },
        };
        let mut again = None;
        if let Some(kept) = state.leases.get_mut(&owner) {
            if kept.by_hand.is_empty() {
                schedule(engine, &owner, kept);
            } else {
                again = Some(start(engine, &mut state, &owner, Why::Asked));
            }
        }
        drop(state);
        if is_to_be_undone {
            engine.let_go(&asked_for.name, &owner);
        }
        tell(callers, &verdict);
        if let Some(hold) = in_use {
            let (lease, left) = ((&hold.name, hold.fence), || hold.valid_for());
            engine
                .telemetry
                .renewed(lease, took, &said, || hold.span(), left);
        }
        if let Some(held) = confirmed {
            engine.renewed(&asked_for.name, &owner, (held.queued, sent));
        }
        if let Some((hold, ended)) = lost {
            ended.tell();
            engine.lost(&hold);
        }
        for found in [again.unwrap_or(Found::Nothing), next] {
            send(engine, found);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().leases.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Changes are made whole before anything that could panic is called.
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        for kept in state.leases.values() {
            let attended = kept.ticket.map(super::agenda::Ticket::at);
            assert!(
                attended.is_some_and(|at| at <= kept.hold.valid_until()),
                "K2"
            );
        }
        state
    }
}

/// Puts a lease where it belongs in the agenda (K2).
fn schedule(engine: &Engine, owner: &Owner, kept: &mut Kept) {
    if let Some(ticket) = kept.ticket.take() {
        engine.agenda.remove(ticket);
    }
    kept.ticket = Some(
        engine
            .agenda
            .add(kept.next_event(), Due::Lease(owner.clone())),
    );
}

/// Gives up a lease that time has ended. If a renewal is under way, its answer is to undo that (K3).
fn lose(engine: &Engine, state: &mut State, hold: Arc<Hold>, cause: LossCause) -> Found {
    // First, since who renews by hand looks there as soon as it is removed.
    let ended = hold.lose(cause);
    let kept = state.leases.get(&hold.owner);
    if kept.is_some_and(|kept| kept.progress == Progress::UnderWay) {
        state.lost_under_way.insert(hold.owner.clone());
    }
    remove(engine, state, &hold.owner);
    Found::Lost(hold, ended)
}

fn remove(engine: &Engine, state: &mut State, owner: &Owner) {
    if let Some(ticket) = state.leases.remove(owner).and_then(|kept| kept.ticket) {
        engine.agenda.remove(ticket);
    }
}

/// Tells those who renewed by hand, as far as they still listen.
fn tell(callers: Vec<Caller>, verdict: &Result<(), Error>) {
    for caller in callers {
        drop(caller.send(verdict.clone()));
    }
}
