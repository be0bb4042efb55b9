//! The events of a lock: requests of clients, actions of other programs, and time. They depend on neither the server
//! nor the model, so that a failed sequence can be shortened and replayed.
//!
//! Events are relative (`until the lease ends`, `the holder's fence`) and get their meaning when they happen. So a
//! shortened sequence still makes sense.

use std::time::Duration;

use leasehold_core::{Block, ClientId, Fence, Mode, Owner, Slots, Step, Ttl, Wait};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// An event.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A client asks in one request, for several things of one kind or for one; with `others`, one that counts the nodes of another
    /// quorum.
    Ask { asks: Asks, others: bool },
    /// Time passes, or the clock is set back.
    Time { lock: usize, span: Span },
    /// Another program writes under the lock's name.
    Foreign { lock: usize, intrusion: Intrusion },
    /// The fence counter is evicted, or has a value that counts as lost.
    LoseCounter,
    /// All data is lost.
    FlushAll,
    /// All scripts are forgotten.
    FlushScripts,
    /// A client subscribes to its channel, or goes away.
    Listen { client: usize, on: bool },
}

/// A batch: requests, each with the number of its lock.
pub(super) type Asks = Vec<(usize, Ask)>;

/// A step, in which an owner, a fence and a number are put in when it happens.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) step: Step,
    pub(super) who: Who,
    /// What its fence stands for, if it names one.
    pub(super) meant: Meant,
    /// The number that an acquire proposes to a node.
    pub(super) number: Number,
}

impl Ask {
    pub(super) fn acquire(who: Who, ttl_ms: u64, number: Number, wait: Option<Hearing>) -> Self {
        let step = Step::Acquire {
            owner: somebody(),
            mode: Mode::Exclusive,
            ttl: ttl_of(ttl_ms),
            block: Block::ONE,
            wait: wait.map(|hearing| Wait {
                listening: hearing == Hearing::Channel,
            }),
        };
        let meant = Meant::Grant;
        Self {
            step,
            who,
            meant,
            number,
        }
    }

    pub(super) fn settle(step: Step, who: Who, meant: Meant) -> Self {
        let number = Number::Clock(0);
        Self {
            step,
            who,
            meant,
            number,
        }
    }
}

/// Stands for an owner.
pub(super) fn somebody() -> Owner {
    Owner::new(0, ClientId::new(0), "", 0, "").unwrap()
}

/// Stands for a fence.
pub(super) const SOME: Fence = Fence::new(0);

pub(super) fn ttl_of(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

/// A number that a client proposes: so far from the clock, the counter, the highest one accepted, the holder's, or the
/// lowest one after a quarantine.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Clock(i64),
    Counter(i64),
    Ahead(i64),
    Held(i64),
    Floor(i64),
}

/// The owner that asks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Who {
    /// One of the owners, in any state.
    Any(usize),
    /// The holder, of several the last to end; or the first owner if there is none.
    Holder,
    /// Of several holders the next to end.
    NextToEnd,
    /// The first waiter, or the first owner if there is none.
    Head,
}

/// How a waiter waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Hearing {
    Channel,
    Polls,
}

/// The fence that an operator names, or an owner that believes to hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meant {
    /// That of the last grant, which identifies the holder.
    Grant,
    /// A fence that is higher by this number.
    AfterGrant(u64),
    /// The number below it, which an earlier holder may have had.
    BeforeGrant,
    /// The last one of the holder's block.
    Last,
    /// A fence that is higher than the last one by this number.
    Above(u64),
    /// A fence that was never drawn.
    Wrong,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Span {
    Micros(u64),
    Millis(u64),
    /// To the last millisecond of the lease and this many beyond it; of several, the last one to end.
    LeaseEnd(u64),
    /// The same of the next one to end.
    NextEnd(u64),
    /// To the last millisecond at which the first waiter counts as alive, and this many beyond it.
    HeadSilent(u64),
    /// To the last millisecond of the queue, and this many beyond it.
    QueueEnd(u64),
    Back(u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Intrusion {
    SetNxPx { value: usize, ttl_ms: u64 },
    Set { value: usize },
    Del,
    HashSet,
    SortedSetAdd,
}

/// The number of locks.
pub(super) const LOCKS: usize = 3;

/// The number of owners.
pub(super) const OWNERS: usize = 5;

/// The client of each owner.
pub(super) const CLIENT_OF: [usize; OWNERS] = [0, 0, 1, 1, 2];

/// The longest batch of a test.
const BATCH: usize = 8;

/// Like a token of this protocol, but too long, so that it is cut off.
const LONG: [u8; 1_100] = {
    let (mut long, begin) = ([b'x'; 1_100], FOREIGN_BEGIN);
    let mut at = 0;
    while at < begin.len() {
        long[at] = begin[at];
        at += 1;
    }
    long
};

const FOREIGN_BEGIN: &[u8] = b"lh1.00000000000000000000000000000001.0000000000000001.h:1:";

/// Values of other programs: a random token, nothing, near misses of a token or a marker, and texts that are too long.
pub(super) const FOREIGN_VALUES: [&[u8]; 26] = [
    b"lh1-shared#",
    b"lh1-shared#1700000000123456!",
    b"lh1-shared#9007199254740992",
    b"lh1-shared",
    b"lh1-slots#5",
    b"lh1-slot",
    &LONG,
    LONG.split_at(1_024).0,
    b"d2f1c9a08c3b11ef9d3c0242ac120002",
    b"",
    b"lh1.0000000000000000000000000000000A.0000000000000001.h:1:",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:+1:",
    b"lh1.00000000000000000000000000000001.0000000000000001.h::",
    b"lh1.00000000000000000000000000000001.0000000000000001.\xff:1:",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:a b",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:\n",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#-5",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#9007199254740992",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#5/",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#5/0",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#5/1025",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:#5!!",
    b"lh1.00000000000000000000000000000001.0000000000000001.h:1:a#5#5",
    b"d2f1c9a08c3b11ef9d3c0242ac120002#1795203291536740",
];

/// What counts as a lost counter: none, or such a value.
pub(super) const LOST: [Option<&str>; 12] = [
    None,
    Some("1.8e15"),
    Some(""),
    Some(" 1795203291536740"),
    Some("a fence"),
    None,
    Some("1795203291536740\n"),
    Some("-5"),
    Some("1795203291536740 5"),
    Some("9007199254740991"),
    None,
    Some("99999999999999999999999999999999"),
];

fn slots(of: u16) -> Mode {
    Mode::Slot(Slots::new(of).unwrap())
}

/// Which kinds of locks a sequence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    /// A mutex.
    OfOne,
    /// A read/write lock, a semaphore, or both under one name.
    OfSeveral,
    /// A read/write lock.
    ReadWrite,
}

/// A sequence of events. Its length begins at zero, so that a failing one can be shortened.
pub(super) fn events(kinds: Kinds) -> impl Strategy<Value = Vec<Event>> {
    // Each has the modes of its requests, each as often as it comes here.
    let read_write = || vec![Mode::Exclusive, Mode::Shared, Mode::Shared];
    let semaphore = || vec![slots(1), slots(2), slots(2), slots(3)];
    let modes = match kinds {
        Kinds::OfOne => vec![vec![Mode::Exclusive]],
        Kinds::ReadWrite => vec![read_write()],
        Kinds::OfSeveral => vec![
            read_write(),
            semaphore(),
            [read_write(), semaphore()].concat(),
        ],
    };
    select(modes).prop_flat_map(|modes| vec(event(&modes), 0..=120))
}

fn event(modes: &[Mode]) -> impl Strategy<Value = Event> + use<> {
    prop_oneof![
        60 => (lock(), ask(modes), others())
            .prop_map(|(lock, ask, others)| Event::Ask { asks: vec![(lock, ask)], others }),
        8 => (prop_oneof![acquires(modes), settlements()], others())
            .prop_map(|(asks, others)| Event::Ask { asks, others }),
        22 => (lock(), span()).prop_map(|(lock, span)| Event::Time { lock, span }),
        6 => (lock(), intrusion()).prop_map(|(lock, intrusion)| Event::Foreign { lock, intrusion }),
        2 => Just(Event::LoseCounter),
        1 => Just(Event::FlushAll),
        1 => Just(Event::FlushScripts),
        // The third client never listens.
        4 => (0..2_usize, any::<bool>()).prop_map(|(client, on)| Event::Listen { client, on }),
    ]
}

/// Mostly the first lock, so that much happens to one.
fn lock() -> impl Strategy<Value = usize> {
    prop_oneof![6 => Just(0), 1 => 1..LOCKS]
}

fn ask(modes: &[Mode]) -> impl Strategy<Value = Ask> + use<> {
    let whose = select(vec![Who::Holder, Who::NextToEnd]);
    prop_oneof![
        24 => acquire(who(1), modes),
        20 => settlement(),
        10 => (whose, meant())
            .prop_map(|(who, meant)| Ask::settle(Step::Break { fence: SOME }, who, meant)),
        3 => Just(Ask::settle(Step::Inspect, Who::Any(0), Meant::Grant)),
    ]
}

/// Boxed, as it is large and nested deeply.
fn acquire(who: impl Strategy<Value = Who> + 'static, modes: &[Mode]) -> BoxedStrategy<Ask> {
    let ask = (
        who,
        ttl(),
        fences(),
        wait(),
        number(),
        select(modes.to_vec()),
    );
    ask.prop_map(|(who, ttl_ms, fences, wait, number, wanted)| {
        let mut ask = Ask::acquire(who, ttl_ms, number, wait);
        if let Step::Acquire { block, mode, .. } = &mut ask.step {
            (*block, *mode) = (Block::nearest(fences), wanted);
        }
        ask
    })
    .boxed()
}

fn number() -> impl Strategy<Value = Number> {
    let near = || -2..=2_i64;
    prop_oneof![
        12 => (-1_000..2_000_i64).prop_map(Number::Clock),
        4 => near().prop_map(Number::Counter),
        2 => near().prop_map(Number::Ahead),
        2 => near().prop_map(Number::Held),
        2 => near().prop_map(Number::Floor),
    ]
}

fn others() -> impl Strategy<Value = bool> {
    prop_oneof![30 => Just(false), 1 => Just(true)]
}

fn settlement() -> impl Strategy<Value = Ask> {
    let extend = (who(6), ttl(), under()).prop_map(|(who, ttl_ms, (fence, meant))| {
        let (owner, ttl) = (somebody(), ttl_of(ttl_ms));
        Ask::settle(Step::Extend { owner, ttl, fence }, who, meant)
    });
    let release = (who(8), keep(), under()).prop_map(|(who, keep, (fence, meant))| {
        let (owner, keep) = (somebody(), keep.map(ttl_of));
        Ask::settle(Step::Release { owner, keep, fence }, who, meant)
    });
    let give_back = (who(8), meant()).prop_map(|(who, meant)| {
        let (owner, fence) = (somebody(), SOME);
        Ask::settle(Step::GiveBack { owner, fence }, who, meant)
    });
    prop_oneof![9 => extend, 11 => release, 4 => give_back]
}

fn settlements() -> impl Strategy<Value = Asks> {
    vec((0..LOCKS, settlement()), 2..=BATCH)
}

/// All of one client, since a request uses its connection.
fn acquires(modes: &[Mode]) -> impl Strategy<Value = Asks> + use<> {
    let modes = modes.to_vec();
    (0..OWNERS).prop_flat_map(move |one| {
        let of_client: Vec<usize> = (0..OWNERS)
            .filter(|&owner| CLIENT_OF[owner] == CLIENT_OF[one])
            .collect();
        let ask = acquire(select(of_client).prop_map(Who::Any), &modes);
        vec((0..LOCKS, ask), 2..=BATCH)
    })
}

/// The number of fences: mostly one, as without local waiters in the client.
fn fences() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(1), 1 => Just(64), 1 => Just(1_024), 1 => 2..100_u64]
}

/// A fence that the owner believes to hold under, or none.
fn under() -> impl Strategy<Value = (Option<Fence>, Meant)> {
    let meant = prop_oneof![1 => Just(None), 1 => meant().prop_map(Some)];
    meant.prop_map(|meant| (meant.map(|_| SOME), meant.unwrap_or(Meant::Grant)))
}

fn meant() -> impl Strategy<Value = Meant> {
    prop_oneof![
        7 => Just(Meant::Grant),
        2 => prop_oneof![Just(63), Just(64), 1..1_100_u64].prop_map(Meant::AfterGrant),
        1 => Just(Meant::BeforeGrant),
        2 => Just(Meant::Last),
        1 => prop_oneof![Just(1), Just(64)].prop_map(Meant::Above),
        1 => Just(Meant::Wrong),
    ]
}

/// Any owner, the first waiter, or with this weight a holder.
fn who(holder: u32) -> impl Strategy<Value = Who> {
    prop_oneof![
        16 => (0..OWNERS).prop_map(Who::Any),
        holder => Just(Who::Holder),
        holder => Just(Who::NextToEnd),
        4 => Just(Who::Head),
    ]
}

fn wait() -> impl Strategy<Value = Option<Hearing>> {
    prop_oneof![
        1 => Just(None),
        2 => Just(Some(Hearing::Polls)),
        5 => Just(Some(Hearing::Channel)),
    ]
}

fn ttl() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(10),
        10..1_000_u64,
        Just(999),
        Just(1_000),
        Just(2_999),
        Just(3_000),
        Just(3_001),
        Just(30_000),
        10..120_000_u64,
        Just(24 * 3_600_000),
    ]
}

fn keep() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![5 => Just(None), 2 => ttl().prop_map(Some)]
}

fn span() -> impl Strategy<Value = Span> {
    let beyond = || 0..=1_u64;
    prop_oneof![
        2 => (0..=999_u64).prop_map(Span::Micros),
        4 => prop_oneof![
            Just(1),
            Just(50),
            Just(250),
            Just(3_000),
            Just(3_001),
            Just(15_000),
            0..30_000_u64
        ]
        .prop_map(Span::Millis),
        5 => beyond().prop_map(Span::LeaseEnd),
        3 => beyond().prop_map(Span::NextEnd),
        3 => beyond().prop_map(Span::HeadSilent),
        1 => beyond().prop_map(Span::QueueEnd),
        2 => prop_oneof![0..50_u64, 0..20_000_u64].prop_map(Span::Back),
    ]
}

fn intrusion() -> impl Strategy<Value = Intrusion> {
    let value = || 0..FOREIGN_VALUES.len();
    prop_oneof![
        5 => (value(), ttl()).prop_map(|(value, ttl_ms)| Intrusion::SetNxPx { value, ttl_ms }),
        1 => value().prop_map(|value| Intrusion::Set { value }),
        4 => Just(Intrusion::Del),
        1 => Just(Intrusion::HashSet),
        1 => Just(Intrusion::SortedSetAdd),
    ]
}
