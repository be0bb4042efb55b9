//! The events of a lock, in random order. They are drawn without knowledge of its state.

use leasehold_core::{Mode, Slots};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::believed::Believed;

/// Two owners of each of three clients.
pub(crate) const OWNERS: usize = 6;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Ask(Ask, usize),
    /// Both clocks advance.
    Pass(u64),
    /// To the end of the lease that ends first, and this many milliseconds beyond it.
    PassLease(u64),
    /// To the last millisecond at which the first waiter counts as alive, and this many beyond it.
    PassSilent(u64),
    /// The wall clock steps back; the clock that judges expiry does not.
    WallBack(u64),
    /// A client's process ends.
    Crash(usize),
    /// A client is cut off from its wakes, or connected again.
    Deaf(usize, bool),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    /// In this mode, unless the owner has a hold or a place of another mode.
    Acquire(Mode, u64, u64, Option<bool>),
    Extend(u64, Believed),
    Release(Option<u64>, Believed),
    /// By a fence of the owner's hold, else by the last fence of all; or by one that nobody has.
    Break(bool),
    Inspect,
}

pub(crate) fn slots(of: u16) -> Mode {
    Mode::Slot(Slots::new(of).unwrap())
}

/// At most so many events, on a lock that is asked for in one mode only, in those of one kind of lock, or in all of them.
pub(crate) fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    use Mode::{Exclusive, Shared};
    let limits = [slots(1), slots(2), slots(3)];
    let all = [Exclusive, Shared, Exclusive, Shared]
        .into_iter()
        .chain(limits);
    let modes = prop_oneof![
        5 => Just(vec![Exclusive]),
        3 => Just(vec![Exclusive, Shared, Shared]),
        2 => Just(limits.to_vec()),
        3 => Just(all.collect::<Vec<_>>()),
    ];
    modes.prop_flat_map(move |modes| vec(event(modes), 0..most))
}

pub(crate) fn event(modes: Vec<Mode>) -> impl Strategy<Value = Event> {
    let believed = || select(&Believed::ALL[..]);
    let ttl = || prop_oneof![Just(10), Just(2_999), Just(30_000), 10..90_000_u64];
    let ask = prop_oneof![
        6 => (select(modes), ttl(), select(&[1, 1, 17, 1_024][..]), any::<Option<bool>>())
            .prop_map(|(mode, ttl, block, wait)| Ask::Acquire(mode, ttl, block, wait)),
        2 => (ttl(), believed()).prop_map(|(ttl, fence)| Ask::Extend(ttl, fence)),
        3 => (prop_oneof![3 => Just(None), 1 => ttl().prop_map(Some)], believed()).prop_map(|(keep, fence)| Ask::Release(keep, fence)),
        1 => any::<bool>().prop_map(Ask::Break),
        1 => Just(Ask::Inspect),
    ];
    prop_oneof![
        24 => (ask, 0..OWNERS).prop_map(|(ask, who)| Event::Ask(ask, who)),
        4 => prop_oneof![Just(1), Just(3_001_000), 0..20_000_000_u64].prop_map(Event::Pass),
        4 => (0..=1_u64).prop_map(Event::PassLease),
        2 => (0..=1_u64).prop_map(Event::PassSilent),
        1 => (0..100_000_000_u64).prop_map(Event::WallBack),
        1 => (0..3_usize).prop_map(Event::Crash),
        2 => (0..3_usize, any::<bool>()).prop_map(|(client, deaf)| Event::Deaf(client, deaf)),
    ]
}
