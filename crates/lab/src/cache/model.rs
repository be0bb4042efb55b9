//! A guarded entry as a subject of the frame: the rules that are explored, and the properties.

use std::time::Duration;

use leasehold_core::cache::{Body, EntryState, Outcome, Reply, Step};
use leasehold_core::{Invalid, Now, Ttl};
use stateright::Property;

use super::actions::CacheAction;
use super::judge::CacheRule;
use super::setup::{BACK_OFF, CacheSetup, CacheSituation, FRESH, LEASE, STALE, TICK};
use super::state::{Books, CacheClient, CachePhase, CacheState};
use super::time::TICK_MS;
use super::trace;
use crate::frame::{Framed, Subject, Turn, kept};

/// The rules of an entry: [`EntryState::apply`], or a broken version in a test.
pub type ApplyEntry = fn(&mut EntryState, Now, &Step) -> Outcome;

/// One entry, and its rules.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) apply: ApplyEntry,
    pub(super) lease: Ttl,
    pub(super) back_off: Ttl,
    pub(super) fresh_ms: u64,
    pub(super) stale_ms: u64,
    pub(super) body: Body,
}

pub(super) type CacheModel = Framed<Entry>;
pub(super) type CacheTurn<'a> = Turn<'a, Entry>;

impl CacheModel {
    pub(super) fn new(setup: CacheSetup, apply: ApplyEntry) -> Result<Self, Invalid> {
        let entry = Entry {
            apply,
            lease: Ttl::new(TICK * u32::from(LEASE))?,
            back_off: Ttl::new(TICK * u32::from(BACK_OFF))?,
            fresh_ms: u64::from(FRESH) * TICK_MS,
            stale_ms: u64::from(STALE) * TICK_MS,
            body: Body::from([]),
        };
        Ok(Self::of(setup, setup.reaches, entry))
    }
}

impl Subject for Entry {
    type Setup = CacheSetup;
    type State = CacheState;
    type Action = CacheAction;
    type Reply = Reply;
    type Situation = CacheSituation;

    const TICK: (CacheAction, Duration) = (CacheAction::Tick, TICK);

    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 6),
        ("what", 32),
        ("reply", 16),
        ("value", 12),
        ("lease", 10),
        ("loading", 0),
    ];

    fn init(model: &CacheModel) -> CacheState {
        let idle = CacheClient {
            nth: 0,
            phase: CachePhase::Idle,
            told: false,
        };
        CacheState {
            entry: EntryState::default(),
            clients: vec![idle; usize::from(model.setup.clients)],
            flight: Vec::new(),
            books: Books::default(),
        }
    }

    fn broken(state: &CacheState) -> u16 {
        state.books.broken
    }

    fn possible(model: &CacheModel, state: &CacheState, into: &mut Vec<CacheAction>) {
        model.possible(state, into);
    }

    fn act(turn: &mut CacheTurn<'_>, action: CacheAction) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<CacheModel>> {
        vec![
            kept!(
                "K1 at most one client has the lease of a load",
                CacheRule::Loaders
            ),
            kept!(
                "K1b nobody is told to load while the source is left alone",
                CacheRule::Rest
            ),
            kept!(
                "K2 the numbers that an entry gives out rise",
                CacheRule::Numbers
            ),
            kept!(
                "K3 nothing is fresh that was invalidated, or whose load the store has forgotten",
                CacheRule::Truth
            ),
            kept!(
                "K4 the version of what is stored does not fall",
                CacheRule::Falls
            ),
            kept!(
                "K4b a late value is kept if nothing newer is there",
                CacheRule::Dropped
            ),
            kept!(
                "K5 who was told to wait is told when the load ends, and nobody else",
                CacheRule::Waiters
            ),
            Property::always(
                "K5b who waits loads or has a fresh value when lease and back-off are over, once others stop",
                CacheModel::waits_end,
            ),
            kept!("K6 a step of an entry may be repeated", CacheRule::Repeats),
            kept!("K7 everything kept of an entry has an end", CacheRule::Ends),
        ]
    }

    fn cells(before: &CacheState, action: CacheAction, after: &CacheTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}
