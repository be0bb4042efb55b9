//! Steps of an owner that names the fence under which it believes to hold (C8).

use leasehold_core::{Fence, Fences, Holder, LockState, Outcome, Owner, Reply, Step};
use proptest::prelude::*;

/// Which fence it names, relative to the stored state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Believed {
    /// None: it knows no fence.
    Nothing,
    /// The fence of its grant; without a hold, of the first holder's.
    Granted,
    /// The last fence of that block.
    Last,
    /// A fence from before that grant.
    Earlier,
    /// A fence that was not issued yet.
    Beyond,
}

impl Believed {
    /// Mostly the fence that a client would name.
    pub(crate) const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Nothing,
        Self::Granted,
        Self::Granted,
        Self::Last,
        Self::Earlier,
        Self::Beyond,
    ];

    pub(crate) fn fence(self, state: &LockState, owner: &Owner) -> Option<Fence> {
        let (granted, last) = match hold(state, owner).or(state.holders.first()) {
            Some(holder) => (holder.fences.first.get(), holder.fences.last().get()),
            None => (1, 1),
        };
        let fence = match self {
            Self::Nothing => return None,
            Self::Granted => granted,
            Self::Last => last,
            Self::Earlier => granted - 1,
            Self::Beyond => last + 1,
        };
        Some(Fence::new(fence))
    }
}

/// Whether the hold of the owner that asks, if it has one, may be the one that the step names.
pub(crate) fn is_believed(step: &Step, state: &LockState) -> bool {
    let (Step::Extend { owner, fence, .. } | Step::Release { owner, fence, .. }) = step else {
        return true;
    };
    let fits = |fence| hold(state, owner).is_none_or(|hold| hold.fences.contains(fence));
    fence.is_none_or(fits)
}

/// C8: the step is answered as if its owner held only if it holds by a grant of that fence. A break frees those that hold by it (C3).
pub(crate) fn as_believed(
    step: &Step,
    before: &LockState,
    outcome: &Outcome,
    after: &LockState,
) -> Result<(), TestCaseError> {
    match step {
        Step::Extend {
            owner,
            fence: Some(_),
            ..
        } => {
            let held = matches!(outcome.reply, Reply::Held(_));
            prop_assert_eq!(held, holds(after, owner) && is_believed(step, after), "C8");
            if !held && holds(before, owner) {
                prop_assert_eq!(hold(after, owner), hold(before, owner), "C8");
            }
        }
        Step::Release {
            owner,
            keep,
            fence: Some(fence),
        } => {
            // Its own step may grant it the lock. That is another hold, unless the fence is a lucky guess.
            let given = outcome.wakes.iter().find(|wake| wake.owner == *owner);
            let guessed = given
                .and_then(|wake| Some((wake.fence?, wake.block)))
                .is_some_and(|(first, block)| Fences { first, block }.contains(*fence));
            let held = holds(before, owner) && is_believed(step, before) || guessed;
            prop_assert_eq!(outcome.reply == Reply::Released, held, "C8");
            let stays = held && keep.is_some();
            prop_assert!(stays || !holds(after, owner), "lets go in any case");
            prop_assert!(!waits(after, owner));
        }
        Step::Break { fence } => {
            let named = |holder: &Holder| holder.fences.contains(*fence);
            let is_freed = before.holders.iter().any(named);
            prop_assert_eq!(outcome.reply == Reply::Released, is_freed, "C3");
            prop_assert!(!after.holders.iter().any(named), "C3");
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn hold<'a>(state: &'a LockState, owner: &Owner) -> Option<&'a Holder> {
    let mut holders = state.holders.iter();
    holders.find(|holder| holder.owner == *owner)
}

pub(crate) fn holds(state: &LockState, owner: &Owner) -> bool {
    hold(state, owner).is_some()
}

pub(crate) fn waits(state: &LockState, owner: &Owner) -> bool {
    state.queue.iter().any(|waiter| waiter.owner == *owner)
}
