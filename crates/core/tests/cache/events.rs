//! The events of an entry, in random order. They are drawn without knowledge of its state.

use proptest::prelude::*;

/// The number of clients.
pub(crate) const CLIENTS: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// With the client's token, or a fresh one.
    Begin {
        client: usize,
        again: bool,
        over: bool,
        listens: bool,
        lease: u64,
    },
    /// For one of all loads so far, counted from the last.
    Renew(usize, u64),
    Commit {
        load: usize,
        fresh: u64,
        stale: u64,
    },
    Abandon(usize, Option<u64>),
    Invalidate(bool),
    /// Both clocks advance, by microseconds.
    Pass(u64),
    /// Both clocks advance to the last millisecond of a deadline, and this many beyond it.
    PassTo(End, u64),
    /// The wall clock steps back; the clock that judges expiry does not.
    WallBack(u64),
    /// The store loses some state.
    Lose(Lost),
    /// The store loses some state, and its wall clock is set back by a day, which is longer than any load.
    LoseBehind(Lost),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Lease,
    BackOff,
    Soft,
    Hard,
    Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Control,
    Value,
    Both,
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![Just(Lost::Control), Just(Lost::Value), Just(Lost::Both)]
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let lease = || prop_oneof![Just(10), Just(2_000), 10..90_000_u64];
    let load = || prop_oneof![4 => Just(0), 2 => Just(1), 2 => 0..8_usize];
    let time = || prop_oneof![1 => Just(0), 4 => 1..120_000_u64];
    let begin = (
        0..CLIENTS,
        any::<bool>(),
        prop::bool::weighted(0.2),
        any::<bool>(),
        lease(),
    )
        .prop_map(|(client, again, over, listens, lease)| Event::Begin {
            client,
            again,
            over,
            listens,
            lease,
        });
    let end = prop_oneof![
        3 => Just(End::Lease),
        1 => Just(End::BackOff),
        2 => Just(End::Soft),
        1 => Just(End::Hard),
        1 => Just(End::Memory),
    ];
    prop_oneof![
        12 => begin,
        3 => (load(), lease()).prop_map(|(load, lease)| Event::Renew(load, lease)),
        8 => (load(), time(), time()).prop_map(|(load, fresh, stale)| Event::Commit { load, fresh: fresh.max(1), stale }),
        3 => (load(), prop::option::of(lease())).prop_map(|(load, failed)| Event::Abandon(load, failed)),
        4 => any::<bool>().prop_map(Event::Invalidate),
        4 => prop_oneof![Just(0), Just(1), 0..20_000_000_u64].prop_map(Event::Pass),
        5 => (end, 0..=1_u64).prop_map(|(end, beyond)| Event::PassTo(end, beyond)),
        1 => (0..100_000_000_u64).prop_map(Event::WallBack),
        1 => lost().prop_map(Event::Lose),
        1 => lost().prop_map(Event::LoseBehind),
    ]
}
