//! One renewal: made when it is due or asked for, and sent. Must never be sent while the keeper's state is locked: it may be
//! answered at once.

use std::sync::Arc;

use leasehold_core::{Owner, Reply, Step, Ttl};

use super::{State, remove, schedule, tell};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::lease::engine::Engine;
use crate::lease::hold::{Hold, deadline};
use crate::lease::kept::{Caller, Confirmed, Kept, Progress};
use crate::store::{Answer, Done};
use crate::telemetry::Ended;

/// Why a renewal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It is due.
    Due,
    /// Somebody asked for it.
    Asked,
}

/// A renewal about to be sent; not while the state is locked, since it may be answered at once.
pub(super) struct Renewal {
    pub(super) hold: Arc<Hold>,
    /// When it was made, before it is sent.
    pub(super) sent: Moment,
    pub(super) ttl: Ttl,
    pub(super) why: Why,
    pub(super) callers: Vec<Caller>,
    pub(super) is_to_be_indexed: bool,
}

/// What there is to do after a look at a lease.
pub(super) enum Found {
    Nothing,
    Renewal(Renewal),
    Lost(Arc<Hold>, Ended),
}

/// The next one that waits for room (K5).
pub(super) fn from_backlog(engine: &Engine, state: &mut State) -> Found {
    while let Some(owner) = state.backlog.pop_front() {
        let now = engine.clock.now();
        let queued = |kept: &&mut Kept| kept.progress == Progress::Queued;
        // Renewed by hand meanwhile, it has its renewal (K1).
        if let Some(kept) = state.leases.get_mut(&owner).filter(queued) {
            kept.progress = Progress::Planned;
            if kept.is_due(now) {
                return start(engine, state, &owner, Why::Due);
            }
            schedule(engine, &owner, kept);
        }
    }
    Found::Nothing
}

/// Makes a renewal, unless the lease ended a moment ago.
pub(super) fn start(engine: &Engine, state: &mut State, owner: &Owner, why: Why) -> Found {
    let Some(kept) = state.leases.get_mut(owner) else {
        return Found::Nothing;
    };
    let hold = kept.hold.clone();
    let callers = std::mem::take(&mut kept.by_hand);
    if hold.is_lost() || hold.is_past() {
        // Left in the agenda, it would be due for ever (K2).
        let (verdict, ended) = match hold.loss() {
            Some(lost) => {
                let ended = hold.lose(lost.cause.clone());
                (lost.into(), ended)
            }
            None => (StoreError::closed().into(), Ended::unseen()),
        };
        remove(engine, state, owner);
        tell(callers, &Err(verdict));
        return Found::Lost(hold, ended);
    }
    let now = engine.clock.now();
    let renewal = Renewal {
        sent: now,
        ttl: kept.asks_for(&callers, now),
        why,
        callers,
        is_to_be_indexed: kept.is_to_be_indexed(now),
        hold,
    };
    // Whatever becomes of it, the lease counts for no longer than it leaves (L1); first, so that this is when its loss is
    // told (K2).
    renewal.hold.before_renewal(deadline(now, renewal.ttl));
    kept.progress = Progress::UnderWay;
    schedule(engine, owner, kept);
    if why == Why::Due {
        state.under_way += 1;
    }
    Found::Renewal(renewal)
}

/// What an answer to a renewal counts for: that the server of before has the lease says nothing of the one that answers now (L4).
pub(super) fn believed(engine: &Engine, kept: Option<&Kept>, answer: Answer) -> Answer {
    let asked_before = kept.is_some_and(|kept| kept.confirmed == Confirmed::AskedBefore);
    match answer {
        Ok(Reply::Held(_)) if asked_before => Err(engine.replaced_meanwhile()),
        answer => answer,
    }
}

/// Does what was found to be done.
pub(super) fn send(engine: &Arc<Engine>, found: Found) {
    let renewal = match found {
        Found::Nothing => return,
        Found::Lost(hold, ended) => {
            ended.tell();
            return engine.lost(&hold);
        }
        Found::Renewal(renewal) => renewal,
    };
    if renewal.is_to_be_indexed {
        engine.index(&renewal.hold.name);
    }
    let (name, step) = (
        renewal.hold.name.clone(),
        Step::Extend {
            owner: renewal.hold.owner.clone(),
            ttl: renewal.ttl,
            fence: Some(renewal.hold.grant),
        },
    );
    let answered = {
        let engine = engine.clone();
        move |answer| engine.keeper.account(&engine, renewal, answer)
    };
    engine.store.send(&name, step, Done::new(answered));
}
