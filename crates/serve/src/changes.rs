//! What has changed between two looks at locks. Changes between them are not seen: a lock that is taken and released meanwhile has not
//! changed, and one that changed its holder several times has changed it once.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::{Client, Error, HolderView, Mode, Snapshot};
use serde::Serialize;

use crate::documents::{HolderFields, LeaseFields};
use crate::look::{is_about_one, is_denied, never_expires};

/// The state of the locks by name. A missing lock is free.
pub type Snapshots = BTreeMap<String, Snapshot>;

/// The locks of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// Those that are held or waited for.
    pub locks: Snapshots,
    /// How many names of the index this user may not look at.
    pub hidden: usize,
    /// The names of locks whose state is unknown, with the reason. They keep the state of the look before.
    pub unknown: BTreeMap<String, Error>,
}

impl Picture {
    /// Looks at the `wanted` locks in the index, which has hints only, and at those of the look `before`.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn take(
        client: &Client,
        wanted: impl FnMut(&str) -> bool,
        before: Option<&Self>,
    ) -> Result<Self, Error> {
        let mut found = client.inspect_all(wanted).await?;
        let before = before.map(|before| &before.locks);
        let others = before.into_iter().flat_map(Snapshots::keys);
        let others: Vec<_> = others
            .filter(|name| !found.contains_key(*name))
            .cloned()
            .collect();
        let seen = client.inspect_many(&others).await;
        found.extend(others.into_iter().zip(seen));
        let mut picture = Self::default();
        for (name, seen) in found {
            match seen {
                Ok(snapshot) if snapshot.holder.is_none() && snapshot.queue.is_empty() => {}
                Ok(snapshot) => {
                    picture.locks.insert(name, snapshot);
                }
                Err(error) if !is_about_one(&error) => return Err(error),
                Err(error) => {
                    if let Some(snapshot) = before.and_then(|before| before.get(&name)) {
                        picture.locks.insert(name.clone(), snapshot.clone());
                    }
                    if is_denied(&error) {
                        picture.hidden += 1;
                    } else if !matches!(error, Error::Invalid(_)) {
                        picture.unknown.insert(name, error);
                    }
                }
            }
        }
        Ok(picture)
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Was free, is held.
    Acquired,
    /// Was held, is free: released, expired, broken or deleted.
    Released,
    /// The holder or its fence changed, and no snapshot showed the lock free.
    HandedOver,
    /// Another number of readers or permits hold.
    Holders,
    /// The lease has no TTL.
    Immortal,
    /// Only the number of waiters changed.
    Queue,
    /// No change: a single watched lock is free at the first snapshot.
    Free,
}

impl ChangeKind {
    /// Its word in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Released => "released",
            Self::HandedOver => "handed_over",
            Self::Holders => "holders",
            Self::Immortal => "immortal",
            Self::Queue => "queue",
            Self::Free => "free",
        }
    }
}

/// A change of one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockChange<'a> {
    /// The lock.
    pub name: &'a str,
    /// What changed.
    pub what: ChangeKind,
    /// The current holder.
    pub holder: Option<&'a HolderView>,
    /// The previous holder.
    pub before: Option<&'a HolderView>,
    /// The lock as it is; as it was, if it is free.
    pub seen: Option<&'a Snapshot>,
    /// The current number of waiters.
    pub queue: usize,
}

/// The changes from `before` to `now`, ordered by name.
pub fn compare<'a>(before: &'a Snapshots, now: &'a Snapshots) -> Vec<LockChange<'a>> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let change = |name: &'a String| of_one(name, before.get(name), now.get(name));
    names.into_iter().flat_map(change).collect()
}

fn of_one<'a>(
    name: &'a str,
    before: Option<&'a Snapshot>,
    now: Option<&'a Snapshot>,
) -> Vec<LockChange<'a>> {
    let holder = |seen: Option<&'a Snapshot>| seen.and_then(|seen| seen.holder.as_ref());
    let waiting = |seen: Option<&'a Snapshot>| seen.map_or(0, |seen| seen.queue.len());
    let (was, is, queue) = (holder(before), holder(now), waiting(now));

    let seen = before.zip(now);
    let has_same_reader = seen.is_some_and(|(before, now)| has_reader_of(before, now));
    let mut happened = Vec::new();
    match (was, is) {
        (None, Some(_)) => happened.push(ChangeKind::Acquired),
        (Some(_), None) => happened.push(ChangeKind::Released),
        (Some(was), Some(is)) if !is_same_lease(was, is) && !has_same_reader => {
            happened.push(ChangeKind::HandedOver);
        }
        _ => {}
    }
    let is_another = !happened.is_empty();
    if is.is_some_and(never_expires) && (is_another || !was.is_some_and(never_expires)) {
        happened.push(ChangeKind::Immortal);
    }
    let count = |seen: Option<&Snapshot>| seen.map_or(0, holders);
    if happened.is_empty() && count(before) != count(now) {
        happened.push(ChangeKind::Holders);
    }
    if happened.is_empty() && queue != waiting(before) {
        happened.push(ChangeKind::Queue);
    }
    let change = |what| LockChange {
        name,
        what,
        holder: is,
        before: was,
        seen: now.or(before),
        queue,
    };
    happened.into_iter().map(change).collect()
}

/// True if both are the same lease: a token is never reused. Of a lock that several hold, another one of them may be shown: readers of
/// one phase are the same, and so are permits.
pub fn is_same_lease(one: &HolderView, other: &HolderView) -> bool {
    match (one.mode, other.mode) {
        (Mode::Slot(_), Mode::Slot(_)) => true,
        (Mode::Shared, Mode::Shared) => one.fence == other.fence,
        _ => one.who == other.who && one.fence == other.fence,
    }
}

/// How many hold the lock.
pub fn holders(snapshot: &Snapshot) -> usize {
    snapshot.holders().count() + usize::try_from(snapshot.omitted).unwrap_or(usize::MAX)
}

/// Whether a reader holds in both, whichever of the readers is shown first.
fn has_reader_of(before: &Snapshot, now: &Snapshot) -> bool {
    let mut readers = before
        .holders()
        .filter(|holder| holder.mode == Mode::Shared);
    readers.any(|reader| now.holders().any(|holder| holder.who == reader.who))
}

/// The document `leasehold.watch/1` of a change.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.watch/1")]
pub struct ChangeDocument<'a> {
    time: &'a str,
    event: &'static str,
    initial: bool,
    name: &'a str,
    #[serde(flatten)]
    lease: LeaseFields,
    queue: usize,
    /// The previous holder.
    before: Option<HolderFields>,
}

impl<'a> ChangeDocument<'a> {
    /// The document of this change. `initial` is true for the state at the first look.
    pub fn of(change: &LockChange<'a>, initial: bool, time: &'a str) -> Self {
        Self {
            time,
            event: change.what.word(),
            initial,
            name: change.name,
            lease: LeaseFields::of(change.holder),
            queue: change.queue,
            before: change.before.map(|before| HolderFields::of(Some(before))),
        }
    }
}

/// The document `leasehold.watch/1` of a store that stopped answering, with the error, or answers again.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.watch/1")]
pub struct StoreDocument<'a> {
    time: &'a str,
    event: &'static str,
    error: Option<&'a str>,
}

impl<'a> StoreDocument<'a> {
    /// The document of this error, or of the end of an outage.
    pub const fn of(error: Option<&'a str>, time: &'a str) -> Self {
        let event = match error {
            Some(_) => "unanswered",
            None => "answered",
        };
        Self { time, event, error }
    }
}
