//! The events of the hostile test. None depends on an earlier one.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The number of owners, of three clients.
pub(super) const OWNERS: usize = 4;

/// The number of keys of a lock.
pub(super) const KEYS: usize = 4;

/// Values of the counter that count as lost.
pub(super) const NO_FENCES: [&str; 8] = [
    "",
    "a fence",
    "-5",
    "1e20",
    " 5",
    "5 6",
    "9007199254740991",
    "99999999999999999999999999999999",
];

/// Records of waiters that no client wrote.
pub(super) const RECORDS: [&str; 8] = [
    "junk",
    "",
    "exclusive 0 - 99999999999999",
    "exclusive 99999999999999999999 - 99999999999999",
    "exclusive 30000 - 999999999999999999999999999999",
    "exclusive 5 leasehold:wake:zz 99999999999999",
    "shared 30000 - 99999999999999",
    "exclusive 30000 with space 99999999999999",
];

/// Places in the queue that no client took.
pub(super) const SCORES: [&str; 5] = ["inf", "-inf", "1e300", "-1", "9007199254740993"];

/// Members of the queue besides owners.
pub(super) const MEMBERS: [&str; 4] = ["", "a b", "lh1.", "granted 1 2 3 4 5"];

#[derive(Debug, Clone)]
pub(super) enum Event {
    Acquire(usize, u64, Option<bool>),
    Extend(usize, u64),
    Release(usize, Option<u64>),
    /// With the last fence, or any other.
    Break(bool),
    Inspect,
    Delete(usize),
    /// Makes it a string, a list or a hash.
    Retype(usize, usize),
    SpoilFence(usize),
    SpoilRecord(usize, usize),
    SpoilPlace(usize, usize),
    Stranger(usize, usize),
    Pass(u64),
    Back(u64),
    Listen(usize, bool),
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 0..=60)
}

/// The first owner holds, others wait, anything happens, and the first owner releases.
pub(super) fn releases() -> impl Strategy<Value = Vec<Event>> {
    let waiter = (
        1..OWNERS,
        select(vec![10_u64, 500, 3_000, 30_000]),
        any::<bool>(),
    );
    let waiter = waiter.prop_map(|(who, ms, listens)| Event::Acquire(who, ms, Some(listens)));
    (vec(waiter, 1..=3), vec(event(), 0..=3)).prop_map(|(waiters, between)| {
        let mut all = vec![Event::Acquire(0, 30_000, None)];
        all.extend(waiters);
        all.extend(between);
        all.push(Event::Release(0, None));
        all
    })
}

fn event() -> impl Strategy<Value = Event> {
    let who = || 0..OWNERS;
    let ms = || select(vec![10_u64, 500, 3_000, 30_000]);
    let wait = select(vec![None, Some(false), Some(true), Some(true)]);
    prop_oneof![
        24 => (who(), ms(), wait).prop_map(|(who, ms, wait)| Event::Acquire(who, ms, wait)),
        8 => (who(), ms()).prop_map(|(who, ms)| Event::Extend(who, ms)),
        14 => (who(), prop::option::weighted(0.2, ms())).prop_map(|(who, keep)| Event::Release(who, keep)),
        3 => any::<bool>().prop_map(Event::Break),
        2 => Just(Event::Inspect),
        8 => (0..KEYS).prop_map(Event::Delete),
        2 => (0..KEYS, 0..3_usize).prop_map(|(key, kind)| Event::Retype(key, kind)),
        2 => (0..NO_FENCES.len()).prop_map(Event::SpoilFence),
        3 => (who(), 0..RECORDS.len()).prop_map(|(who, record)| Event::SpoilRecord(who, record)),
        2 => (who(), 0..SCORES.len()).prop_map(|(who, score)| Event::SpoilPlace(who, score)),
        1 => (0..MEMBERS.len(), 0..RECORDS.len()).prop_map(|(who, record)| Event::Stranger(who, record)),
        8 => prop_oneof![Just(0), 1..4_000_u64, Just(20_000)].prop_map(Event::Pass),
        3 => prop_oneof![Just(1), 1..60_000_u64].prop_map(Event::Back),
        2 => (0..2_usize, any::<bool>()).prop_map(|(client, on)| Event::Listen(client, on)),
    ]
}
