//! The grants of a step: whom they admit beside whom (C1), their fences (C2), and their slots (C9).

use leasehold_core::{Fence, Fences, Holder, LockState, Mode, Outcome, Owner, Reply, Step};
use proptest::prelude::*;

use crate::believed::{hold, holds};

pub(crate) struct Grant<'a> {
    /// Its place in the line before the step; behind all for an owner that did not wait.
    place: usize,
    pub(crate) waited: bool,
    pub(crate) owner: &'a Owner,
    mode: Mode,
    fences: Fences,
    slot: Option<u16>,
}

/// The grants of a step, first in line first.
pub(crate) fn grants<'a>(
    step: &'a Step,
    before: &LockState,
    outcome: &'a Outcome,
    after: &LockState,
) -> Vec<Grant<'a>> {
    let place = |owner: &Owner| {
        let mut queue = before.queue.iter();
        queue.position(|waiter| waiter.owner == *owner)
    };
    let woken = outcome.wakes.iter().map(|wake| {
        let place = place(&wake.owner).unwrap();
        Grant {
            place,
            waited: true,
            owner: &wake.owner,
            mode: before.queue[place].mode,
            fences: Fences {
                first: wake.fence.unwrap(),
                block: wake.block,
            },
            slot: wake.slot,
        }
    });
    let mut all: Vec<_> = woken.collect();
    if let (Step::Acquire { owner, mode, .. }, Reply::Held(_)) = (step, &outcome.reply)
        && !holds(before, owner)
    {
        let Holder { fences, slot, .. } = hold(after, owner).unwrap();
        all.push(Grant {
            place: place(owner).unwrap_or(usize::MAX),
            waited: place(owner).is_some(),
            owner,
            mode: *mode,
            fences: *fences,
            slot: *slot,
        });
    }
    all.sort_by_key(|grant| grant.place);
    all
}

/// Whether a request is admitted beside these holders, in words other than the crate's.
pub(crate) fn admits<'a>(mode: Mode, holders: impl IntoIterator<Item = &'a Holder>) -> bool {
    let held: Vec<_> = holders.into_iter().map(|holder| holder.mode).collect();
    match (mode, held.as_slice()) {
        (_, []) => true,
        (Mode::Exclusive, _) | (_, [Mode::Exclusive, ..]) => false,
        (Mode::Shared, held) => !held.iter().any(|mode| matches!(mode, Mode::Slot(_))),
        (Mode::Slot(of), held) => {
            !held.contains(&Mode::Shared) && held.len() < usize::from(of.get())
        }
    }
}

/// C1: the holders admit each other, and each was admitted beside those before it.
pub(crate) fn admit_each_other(
    all: &[Grant],
    before: &LockState,
    after: &LockState,
) -> Result<(), TestCaseError> {
    for (at, holder) in after.holders.iter().enumerate() {
        let alone = holder.mode == Mode::Exclusive;
        prop_assert!(!alone || after.holders.len() == 1, "C1: alone");
        for other in &after.holders[at + 1..] {
            prop_assert!(holder.owner != other.owner, "one hold each");
            let kinds = [holder, other].map(|it| std::mem::discriminant(&it.mode));
            prop_assert_eq!(kinds[0], kinds[1], "C1: of one kind");
        }
    }
    // A release and a break free the lock between grants, so the holders that they end do not count.
    let mut held: Vec<&Holder> = before.holders.iter().collect();
    held.retain(|holder| holds(after, &holder.owner));
    for grant in all {
        prop_assert!(admits(grant.mode, held.iter().copied()), "C1");
        held.extend(hold(after, grant.owner));
    }
    Ok(())
}

/// C2, above the last fence that was `issued` before. Returns the last one now.
pub(crate) fn fences_rise(
    step: &Step,
    all: &[Grant],
    issued: Option<Fence>,
    before: &LockState,
    after: &LockState,
) -> Result<Option<Fence>, TestCaseError> {
    let phase_of = |lock: &LockState| {
        let mut holders = lock.holders.iter();
        holders.find_map(|holder| (holder.mode == Mode::Shared).then_some(holder.fences))
    };
    // A break ends a phase before it lets in others.
    let is_broken =
        |phase: &Fences| matches!(step, Step::Break { fence } if phase.contains(*fence));
    let mut phase = phase_of(before).filter(|phase| !is_broken(phase));
    let mut issued = issued;
    for grant in all {
        match phase {
            Some(fences) if grant.mode == Mode::Shared => {
                prop_assert_eq!(grant.fences, fences, "C2: of the phase");
            }
            _ => {
                prop_assert!(Some(grant.fences.first) > issued, "C2");
                issued = Some(grant.fences.last());
                phase = (grant.mode == Mode::Shared).then_some(grant.fences);
            }
        }
    }
    let readers = after.holders.iter().filter(|it| it.mode == Mode::Shared);
    for reader in readers {
        prop_assert_eq!(Some(reader.fences), phase_of(after), "C2: one for all");
    }
    for holder in &after.holders {
        prop_assert!(Some(holder.fences.last()) <= issued, "C2: counted");
    }
    Ok(issued)
}

/// C9.
pub(crate) fn slots_differ(
    all: &[Grant],
    before: &LockState,
    after: &LockState,
) -> Result<(), TestCaseError> {
    for (at, holder) in after.holders.iter().enumerate() {
        match (holder.mode, holder.slot) {
            (Mode::Slot(of), Some(slot)) => {
                prop_assert!((1..=of.get()).contains(&slot), "C9: within the limit");
                let others = &after.holders[at + 1..];
                prop_assert!(others.iter().all(|it| it.slot != Some(slot)), "C9: differ");
            }
            (mode, slot) => prop_assert!(!matches!(mode, Mode::Slot(_)) && slot.is_none(), "C9"),
        }
    }
    let slots = |lock: &LockState| -> Vec<u16> {
        let holders = lock.holders.iter();
        let stay = holders.filter(|holder| holds(after, &holder.owner));
        stay.filter_map(|holder| holder.slot).collect()
    };
    let free = |taken: &[u16]| (1..=1_000).find(|slot| !taken.contains(slot));
    // A step that ends a hold grants before that, and after it.
    let mut held = slots(before);
    let mut ever: Vec<_> = before.holders.iter().filter_map(|it| it.slot).collect();
    for grant in all {
        let Some(slot) = grant.slot else {
            continue;
        };
        let is_smallest = free(&held) == Some(slot) || free(&ever) == Some(slot);
        prop_assert!(is_smallest, "C9: the smallest");
        ever.push(slot);
        held.extend(hold(after, grant.owner).and_then(|it| it.slot));
    }
    Ok(())
}
