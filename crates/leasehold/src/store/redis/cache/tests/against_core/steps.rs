//! The events of an entry, sensible or not.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::cache::{
    Begin, Commit, EntryState, Format, Header, Reply, Step, Token, Value, Version,
};
use leasehold_core::{ClientId, Ttl};
use proptest::prelude::*;

/// Values that are not entries, and look more or less like one.
pub(super) const FOREIGN_TEXTS: [&str; 7] = [
    "",
    "{\"a\":1}",
    "lhc1 f 1795316158604832 0001795316158850 0001795316218850 00000246 j",
    "lhc1 f 9007199254740992 0001795316158850 0001795316218850 00000246 j\nx",
    "lhc1 f 179531615860483 20001795316158850 0001795316218850 00000246 j\nx",
    "lhc1 g 1795316158604832 0001795316158850 0001795316218850 00000246 j\nx",
    "lhc2 f 1795316158604832 0001795316158850 0001795316218850 00000246 j\nx",
];

#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A step whose token and version stand for others; whether the connection is subscribed.
    Ask(Step, Which, bool),
    /// Repeats the last step.
    Again,
    Pass(Span),
    /// Sets the server's clock back by this many microseconds.
    Back(u64),
    LoseControl,
    LoseValue,
    FlushScripts,
    ForeignText(usize),
    ForeignType,
    /// As a string, or as a hash.
    ForeignControl(bool),
    /// Another client stores an entry.
    Stored(Stored),
    Clear,
}

/// How long to wait: this many microseconds, or until this many milliseconds after the end of something.
#[derive(Debug, Clone, Copy)]
pub(super) enum Span {
    Micros(u64),
    Lease(i64),
    BackOff(i64),
    Soft(i64),
    Hard(i64),
    Memory(i64),
}

/// An entry as a server with another clock may have left it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    invalidated: bool,
    version: u64,
    at_by_ms: i64,
    soft_by_ms: i64,
    left_ms: u64,
}

impl Stored {
    pub(super) fn value(&self, now_ms: u64) -> (Value, u64) {
        let header = Header {
            invalidated: self.invalidated,
            version: Version::new(self.version),
            stored_ms: now_ms.saturating_add_signed(self.at_by_ms),
            soft_ms: now_ms.saturating_add_signed(self.soft_by_ms),
            load_ms: 99_999_999,
            format: Format::Raw,
        };
        let body = b"put"[..].into();
        (Value { header, body }, self.left_ms)
    }
}

/// A version, relative to the stored ones.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    /// The one that the token was granted last.
    Granted,
    Stored(i64),
    Last(i64),
    Epoch(i64),
    Exactly(u64),
}

/// The last grant of each token.
#[derive(Debug, Default)]
pub(super) struct Tokens(BTreeMap<Token, Version>);

impl Tokens {
    pub(super) fn learn(&mut self, step: &Step, reply: &Reply) {
        if let (Step::Begin(begin), Reply::Load { version, .. }) = (step, reply) {
            self.0.insert(begin.token, *version);
        }
    }
}

/// Stands for the token of the current loader.
const LOADERS: Token = Token(0);

/// The token of a load that does not exist.
pub(super) const fn nobody() -> Token {
    Token(u128::MAX)
}

/// The step that this one stands for now.
pub(super) fn meant(mut step: Step, which: Which, state: &EntryState, tokens: &Tokens) -> Step {
    let control = state.control.as_ref();
    let token = match &mut step {
        Step::Begin(Begin { token, .. })
        | Step::Renew { token, .. }
        | Step::Commit(Commit { token, .. })
        | Step::Abandon { token, .. } => token,
        Step::Invalidate { .. } => return step,
    };
    let loader = control.and_then(|control| control.loader);
    if let Some(loader) = loader.filter(|_| *token == LOADERS) {
        *token = loader.token;
    }
    let by = |version: Option<Version>, by| {
        let version = version.map_or(7, Version::get).saturating_add_signed(by);
        Version::new(version.min(Version::MAX.get()))
    };
    let stored = state.value.as_ref().map(|(value, _)| value.header.version);
    let meant = match which {
        Which::Granted => tokens.0.get(token).copied().unwrap_or_default(),
        Which::Stored(more) => by(stored, more),
        Which::Last(more) => by(control.map(|control| control.last), more),
        Which::Epoch(more) => by(control.map(|control| control.epoch), more),
        Which::Exactly(version) => Version::new(version),
    };
    match &mut step {
        Step::Begin(begin) => begin.seen = meant,
        Step::Commit(commit) => commit.version = meant,
        _ => {}
    }
    step
}

fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
}

fn whiches() -> impl Strategy<Value = Which> {
    prop_oneof![
        4 => Just(Which::Granted),
        2 => (-1_i64..2).prop_map(Which::Stored),
        1 => (-1_i64..2).prop_map(Which::Last),
        1 => (-1_i64..2).prop_map(Which::Epoch),
        1 => prop::sample::select(vec![0, 1, Version::MAX.get()]).prop_map(Which::Exactly),
    ]
}

fn asks() -> impl Strategy<Value = Event> {
    let any_token = || prop_oneof![3 => 1_u128..4, 1 => Just(u128::MAX / 3)].prop_map(Token);
    let token = || prop_oneof![1 => Just(LOADERS), 1 => any_token()];
    let lease = || {
        let all = vec![10_u64, 11, 500, 2_000, 30_000, 86_400_000];
        prop::sample::select(all).prop_map(ttl)
    };
    let millis = || prop::sample::select(vec![0_u64, 1, 20, 1_500, 60_000, 86_400_000]);
    let format = prop::sample::select(vec![Format::Json, Format::MessagePack, Format::Raw]);
    let body = prop::collection::vec(any::<u8>(), 0..40);
    let error = prop::sample::select(vec!["", "no route to host", "größe\r\n\0 7"]);
    let seen = prop_oneof![
        3 => Just(Which::Exactly(0)),
        2 => (-1_i64..2).prop_map(Which::Stored),
        1 => Just(Which::Exactly(Version::MAX.get())),
    ];
    let client = prop_oneof![1 => Just(None), 3 => (0_u64..3).prop_map(|at| Some(0xc0 + at))];
    let over = prop::bool::weighted(0.3);
    let listens = prop::bool::weighted(0.9);
    let begin = (token(), seen, over, lease(), client, listens).prop_map(
        |(token, seen, over, lease, client, listens)| {
            let begin = Begin {
                token,
                seen: Version::default(),
                over,
                lease,
                listener: client.map(ClientId::new),
            };
            Event::Ask(Step::Begin(begin), seen, listens)
        },
    );
    let load = 0_u64..100_000_000;
    let commit = (token(), whiches(), millis(), millis(), load, format, body).prop_map(
        |(token, which, fresh_ms, stale_ms, load_ms, format, body)| {
            let commit = Commit {
                token,
                version: Version::default(),
                fresh_ms: fresh_ms.max(1),
                stale_ms,
                load_ms,
                format,
                body: body.into(),
            };
            Event::Ask(Step::Commit(commit), which, true)
        },
    );
    let failed = (lease(), error.prop_map(str::to_owned));
    let others = prop_oneof![
        2 => (token(), lease()).prop_map(|(token, lease)| Step::Renew { token, lease }),
        3 => (token(), prop::option::of(failed))
            .prop_map(|(token, back_off)| Step::Abandon { token, back_off }),
        2 => any::<bool>().prop_map(|remove| Step::Invalidate { remove }),
    ];
    prop_oneof![
        8 => begin,
        5 => commit,
        7 => others.prop_map(|step| Event::Ask(step, Which::Granted, true)),
    ]
}

fn stored() -> impl Strategy<Value = Stored> {
    let version = prop::sample::select(vec![
        0,
        1_795_316_158_000_000,
        1_795_316_200_000_000,
        Version::MAX.get() - 1,
        Version::MAX.get(),
    ]);
    let by = || prop::sample::select(vec![-1_001_i64, -1, 0, 1, 1_000, 1_001, 50_000]);
    let left = prop::sample::select(vec![1_u64, 500, 100_000]);
    (prop::bool::weighted(0.2), version, by(), by(), left).prop_map(
        |(invalidated, version, at_by_ms, soft_by_ms, left_ms)| Stored {
            invalidated,
            version,
            at_by_ms,
            soft_by_ms,
            left_ms,
        },
    )
}

/// A sequence of events.
pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let micros = prop_oneof![Just(1), Just(1_000), 0_u64..3_000_000].prop_map(Span::Micros);
    let by = || 0_i64..2;
    let span = prop_oneof![
        4 => micros,
        1 => by().prop_map(Span::Lease),
        1 => by().prop_map(Span::BackOff),
        1 => by().prop_map(Span::Soft),
        1 => by().prop_map(Span::Hard),
        1 => by().prop_map(Span::Memory),
    ];
    let back = prop::sample::select(vec![1_u64, 1_000, 2_000_000, 3_600_000_000]);
    let foreign = prop_oneof![
        2 => (0..FOREIGN_TEXTS.len()).prop_map(Event::ForeignText),
        1 => any::<bool>().prop_map(Event::ForeignControl),
        1 => Just(Event::ForeignType),
    ];
    let event = prop_oneof![
        40 => asks(),
        5 => Just(Event::Again),
        10 => span.prop_map(Event::Pass),
        1 => back.prop_map(Event::Back),
        2 => Just(Event::LoseControl),
        1 => Just(Event::LoseValue),
        1 => Just(Event::FlushScripts),
        1 => foreign,
        2 => stored().prop_map(Event::Stored),
        3 => Just(Event::Clear),
    ];
    prop::collection::vec(event, 1..50)
}
