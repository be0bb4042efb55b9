//! The changes between two snapshots of the locks. Pure.

use std::collections::BTreeMap;

use leasehold::{HolderView, Snapshot};

use crate::view::{is_same_lease, never_expires};

/// The state of the locks by name. A missing lock is free.
pub(crate) type Snapshots = BTreeMap<String, Snapshot>;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// Was free, is held.
    Acquired,
    /// Was held, is free: released, expired, broken or deleted.
    Released,
    /// The holder or its fence changed, and no snapshot showed the lock free.
    HandedOver,
    /// The lease has no TTL.
    Immortal,
    /// Only the number of waiters changed.
    Queue,
    /// No change: a single watched lock is free at the first snapshot.
    Free,
}

/// A change of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockChange<'a> {
    pub(crate) name: &'a str,
    pub(crate) what: ChangeKind,
    /// The current holder.
    pub(crate) holder: Option<&'a HolderView>,
    /// The previous holder.
    pub(crate) before: Option<&'a HolderView>,
    /// The current number of waiters.
    pub(crate) queue: usize,
}

/// The changes from `before` to `now`, ordered by name.
pub(crate) fn compare<'a>(before: &'a Snapshots, now: &'a Snapshots) -> Vec<LockChange<'a>> {
    let mut names: Vec<&str> = before
        .keys()
        .chain(now.keys())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .flat_map(|name| of_one(name, before.get(name), now.get(name)))
        .collect()
}

fn of_one<'a>(
    name: &'a str,
    before: Option<&'a Snapshot>,
    now: Option<&'a Snapshot>,
) -> Vec<LockChange<'a>> {
    let holder = |seen: Option<&'a Snapshot>| seen.and_then(|seen| seen.holder.as_ref());
    let waiting = |seen: Option<&'a Snapshot>| seen.map_or(0, |seen| seen.queue.len());
    let (was, is, queue) = (holder(before), holder(now), waiting(now));

    let mut happened = Vec::new();
    let is_another = match (was, is) {
        (None, Some(_)) => {
            happened.push(ChangeKind::Acquired);
            true
        }
        (Some(_), None) => {
            happened.push(ChangeKind::Released);
            false
        }
        (Some(was), Some(is)) if !is_same_lease(was, is) => {
            happened.push(ChangeKind::HandedOver);
            true
        }
        _ => false,
    };
    if is.is_some_and(never_expires) && (is_another || !was.is_some_and(never_expires)) {
        happened.push(ChangeKind::Immortal);
    }
    if happened.is_empty() && queue != waiting(before) {
        happened.push(ChangeKind::Queue);
    }
    let event = |what| LockChange {
        name,
        what,
        holder: is,
        before: was,
        queue,
    };
    happened.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::view::samples::{foreign, free, held, with_queue};

    use super::*;

    fn happened(before: Option<Snapshot>, now: Option<Snapshot>) -> Vec<ChangeKind> {
        let picture = |seen: Option<Snapshot>| {
            seen.into_iter()
                .map(|seen| ("x".to_owned(), seen))
                .collect::<Snapshots>()
        };
        compare(&picture(before), &picture(now))
            .iter()
            .map(|event| event.what)
            .collect()
    }

    #[test]
    fn each_change_is_told_once() {
        use ChangeKind::{Acquired, HandedOver, Immortal, Queue, Released};
        let queued = |count: usize| with_queue(held(41), &vec![5; count]);
        let mut endless = held(41);
        if let Some(holder) = &mut endless.holder {
            holder.expires_in = None;
        }
        let mut renewed = held(41);
        if let Some(holder) = &mut renewed.holder {
            holder.expires_in = Some(Duration::from_secs(30));
        }
        for (before, now, events) in [
            (None, None, vec![]),
            (None, Some(free()), vec![]),
            (Some(free()), None, vec![]),
            (None, Some(held(41)), vec![Acquired]),
            (Some(free()), Some(held(41)), vec![Acquired]),
            (Some(held(41)), Some(renewed), vec![]),
            (Some(held(41)), None, vec![Released]),
            (Some(held(41)), Some(free()), vec![Released]),
            (Some(held(41)), Some(held(105)), vec![HandedOver]),
            (
                Some(queued(2)),
                Some(with_queue(held(105), &[5])),
                vec![HandedOver],
            ),
            (Some(queued(2)), Some(queued(1)), vec![Queue]),
            (Some(queued(2)), Some(queued(2)), vec![]),
            (Some(held(41)), Some(endless.clone()), vec![Immortal]),
            (Some(endless.clone()), Some(endless), vec![]),
            (None, Some(foreign("hash", b"")), vec![Acquired, Immortal]),
            (
                Some(foreign("string", b"one")),
                Some(foreign("string", b"two")),
                vec![HandedOver, Immortal],
            ),
            (
                Some(held(41)),
                Some(foreign("hash", b"")),
                vec![HandedOver, Immortal],
            ),
        ] {
            assert_eq!(
                happened(before.clone(), now.clone()),
                events,
                "{before:?} {now:?}"
            );
        }
    }

    #[test]
    fn events_come_in_the_order_of_names_and_say_who() {
        let before = Snapshots::from([("b".to_owned(), held(41))]);
        let now = Snapshots::from([
            ("a".to_owned(), held(7)),
            ("b".to_owned(), with_queue(held(105), &[5])),
        ]);
        let events = compare(&before, &now);
        let [a, b] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(
            (a.name, a.what, a.before),
            ("a", ChangeKind::Acquired, None)
        );
        assert_eq!((b.name, b.what, b.queue), ("b", ChangeKind::HandedOver, 1));
        assert_eq!(b.before, before["b"].holder.as_ref());
        assert_eq!(b.holder, now["b"].holder.as_ref());
    }
}
