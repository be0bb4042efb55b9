//! The state of the lock model: the store (a [`World`]), the clients' beliefs, the messages in flight.
//!
//! States that differ only by a renaming of clients are equal: they have the same hash (see [`State::hash`]), and the checker
//! compares hashes only. The hash sorts and renames the clients; the rules compare their names for equality only.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use leasehold_core::{Fences, Foreign, Holder, LockState, Mode, Owner, Waiter, World};

use crate::frame::{CallId, ranks};

/// Consecutive fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Span {
    pub(super) fn of(fences: Fences) -> Self {
        Self {
            first: fences.first.get(),
            last: fences.last().get(),
        }
    }

    pub(super) const fn one(fence: u64) -> Self {
        Self {
            first: fence,
            last: fence,
        }
    }
}

/// The state and belief of a client. Times are ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Idle; its last acquisition is over.
    Idle,
    /// It wants the lock. Contains the last *busy* reply, if it was told to wait.
    Asking(Option<BusyReply>),
    /// It believes to hold the lock for `left` more ticks. It handed out the first of these fences last.
    Holding { left: u8, fences: Span },
    /// It releases, until that is confirmed.
    Leaving,
    /// It is gone.
    Crashed,
}

/// A *busy* reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BusyReply {
    /// The age of the request when the store answered it.
    pub(super) lag: u8,
    /// How long ago that was.
    pub(super) age: u8,
}

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Client {
    /// The mode in which it asks, always.
    pub(super) mode: Mode,
    /// The number of its acquisition.
    pub(super) nth: u8,
    pub(super) phase: Phase,
    /// A break or a loss of data ended its hold: its belief may be wrong.
    pub(super) robbed: bool,
    /// Its connection is cut: it sends and receives nothing.
    pub(super) away: bool,
}

impl Client {
    /// A client that has just started.
    pub(super) const fn new(mode: Mode) -> Self {
        Self {
            mode,
            nth: 0,
            phase: Phase::Idle,
            robbed: false,
            away: false,
        }
    }

    /// The same client, if nothing had happened to it.
    pub(super) const fn in_phase(self, nth: u8, phase: Phase) -> Self {
        Self {
            mode: self.mode,
            nth,
            phase,
            robbed: false,
            away: false,
        }
    }
}

/// A client that believes to hold the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Believer {
    pub(super) id: CallId,
    pub(super) mode: Mode,
    /// For how many ticks more.
    pub(super) left: u8,
    pub(super) fences: Span,
    pub(super) robbed: bool,
}

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum RequestKind {
    Try,
    Wait,
    /// Waits, and draws several fences with the grant.
    WaitMany,
    Extend,
    Release,
    /// Release, with a delay of one lease.
    Keep,
}

impl RequestKind {
    /// Whether its client leaves the lock with it.
    pub(super) const fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::Keep)
    }
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ReplyKind {
    Held(Span),
    Busy,
    Released,
    NotHeld,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Parcel {
    Request {
        verb: RequestKind,
        /// The fence by which its client believed to hold when it was sent, or 0.
        fence: u64,
        twice: bool,
    },
    /// The reply to a request that was `lag` old when it was executed.
    Reply {
        verb: RequestKind,
        got: ReplyKind,
        lag: u8,
    },
    Wake(Span),
}

/// A message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    /// The acquisition that it belongs to.
    pub(super) id: CallId,
    /// Its age in ticks, up to the point where it makes no difference.
    pub(super) age: u8,
    pub(super) what: Parcel,
}

impl Message {
    /// A message that has just been sent.
    pub(super) const fn new(id: CallId, what: Parcel) -> Self {
        Self { id, age: 0, what }
    }
}

/// The whole state of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) world: World,
    /// The state of the replica, once it stopped following.
    pub(super) replica: Option<World>,
    pub(super) clients: Vec<Client>,
    pub(super) flight: Vec<Message>,
    /// A fence that the operator has seen and may break.
    pub(super) seen: Option<u64>,
    /// The highest fence that was ever issued.
    pub(super) issued: u64,
    /// How long ago the holder was granted the lock, if it has been silent since.
    pub(super) unclaimed: Option<u8>,
    /// The rules that the last step violated: a bit for each.
    pub(super) broken: u16,
}

impl State {
    pub(super) fn client(&self, client: u8) -> &Client {
        &self.clients[usize::from(client)]
    }

    pub(super) fn client_mut(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    /// The current acquisition of a client.
    pub(super) fn id(&self, client: u8) -> CallId {
        let nth = self.client(client).nth;
        CallId { client, nth }
    }

    /// The clients that believe to hold the lock.
    pub(super) fn believers(&self) -> impl Iterator<Item = Believer> {
        let clients = (0u8..).zip(&self.clients);
        clients.filter_map(|(index, client)| match client.phase {
            Phase::Holding { left, fences } => Some(Believer {
                id: self.id(index),
                mode: client.mode,
                left,
                fences,
                robbed: client.robbed,
            }),
            _ => None,
        })
    }

    /// The store's state of the only lock.
    pub(super) fn lock(&self) -> Option<&LockState> {
        lock_of(&self.world)
    }

    /// Whether all who believe to hold the lock and were not robbed may do so together (C1).
    pub(super) fn believers_admit_each_other(&self) -> bool {
        let mut modes: Vec<_> = self
            .believers()
            .filter(|it| !it.robbed)
            .map(|it| it.mode)
            .collect();
        modes.sort_unstable_by_key(|mode| number(*mode));
        match modes[..] {
            [] | [_] => true,
            [first, .., Mode::Slot(most)] => {
                matches!(first, Mode::Slot(_)) && modes.len() <= usize::from(most.get())
            }
            [..] => modes.iter().all(|mode| *mode == Mode::Shared),
        }
    }

    /// Whether of all who believe to hold the lock each has fences of its own. Readers of a phase share theirs (C2).
    pub(super) fn believers_have_fences(&self) -> bool {
        let mut all: Vec<_> = self
            .believers()
            .map(|it| (it.fences, it.mode == Mode::Shared))
            .collect();
        all.sort_unstable();
        all.windows(2).all(|pair| {
            let [(one, shared), (other, too)] = [pair[0], pair[1]];
            one.last < other.first || shared && too && one == other
        })
    }

    /// Whether an owner holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.lock().is_some_and(|lock| !lock.holders.is_empty())
    }

    /// Whether a foreign program has the lock.
    pub(super) fn is_foreign(&self) -> bool {
        self.lock().is_some_and(|lock| lock.foreign.is_some())
    }

    /// Whether this is the client's current acquisition.
    pub(super) fn is_current(&self, id: CallId) -> bool {
        let client = self.client(id.client);
        client.nth == id.nth && !matches!(client.phase, Phase::Idle | Phase::Crashed)
    }

    /// The only lock in the store and in the replica, once that stopped following.
    fn locks(&self) -> [Option<&LockState>; 2] {
        [self.lock(), self.replica.as_ref().and_then(lock_of)]
    }

    /// The owners that the store or a message knows.
    pub(super) fn known(&self) -> BTreeSet<CallId> {
        let locks = self.locks().into_iter().flatten();
        let messages = self.flight.iter().map(|message| message.id);
        locks.flat_map(calls).chain(messages).collect()
    }

    /// A number for an acquisition of a client: 0 is the current one.
    fn nth(&self, id: CallId) -> u8 {
        if self.is_current(id) { 0 } else { id.nth + 1 }
    }

    /// The messages in flight of which this is so, in an order of their own and with other names.
    fn messages(&self, of: impl Fn(CallId) -> bool, name: impl Fn(CallId) -> u8) -> Vec<Message> {
        let its = self.flight.iter().filter(|message| of(message.id));
        let renamed = its.map(|message| {
            let (client, nth) = (name(message.id), self.nth(message.id));
            let id = CallId { client, nth };
            Message { id, ..*message }
        });
        let mut all: Vec<_> = renamed.collect();
        all.sort_unstable();
        all
    }

    /// All that tells a client from others, without its name.
    fn traits(&self, client: u8) -> impl Ord + Hash {
        // The pattern names every field, so a new one does not compile until it is handled.
        let Client {
            mode,
            nth: _,
            phase,
            robbed,
            away,
        } = *self.client(client);
        let places = self.locks().map(|lock| {
            let lock = lock?;
            calls(lock).position(|id| id == self.id(client))
        });
        let over = |(place, waiter): (usize, &Waiter)| {
            let id = CallId::of(&waiter.owner);
            (id.client == client && !self.is_current(id)).then_some((place, id.nth))
        };
        let over = self.locks().map(|lock| {
            let queue = lock.into_iter().flat_map(|lock| &lock.queue);
            queue.enumerate().filter_map(over).collect::<Vec<_>>()
        });
        let messages = self.messages(|id| id.client == client, |_| 0);
        let own = (number(mode), robbed, away);
        (phase, own, places, messages, over)
    }
}

/// A number for each mode: 0, 1, and those above for slots, in their order.
fn number(mode: Mode) -> u16 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Slot(slots) => 1 + slots.get(),
    }
}

fn lock_of(world: &World) -> Option<&LockState> {
    world.names().next().and_then(|name| world.get(name))
}

/// The acquisitions that a lock knows: those of its holders, then those of its waiters.
fn calls(lock: &LockState) -> impl Iterator<Item = CallId> {
    let holders = lock.holders.iter().map(|holder| &holder.owner);
    let waiters = lock.queue.iter().map(|waiter| &waiter.owner);
    holders.chain(waiters).map(CallId::of)
}

impl Hash for State {
    fn hash<H: Hasher>(&self, into: &mut H) {
        let Self {
            world,
            replica,
            clients,
            flight: _,
            seen,
            issued,
            unclaimed,
            broken,
        } = self;
        let ranks = ranks(clients.len(), |client| self.traits(client), into);
        let rank = |id: CallId| ranks[usize::from(id.client)];
        self.messages(|_| true, rank).hash(into);
        (seen, issued, unclaimed, broken).hash(into);
        let replica = replica.as_ref().map(|replica| replica.counter);
        (world.counter, replica).hash(into);
        for lock in self.locks() {
            lock.is_some().hash(into);
            if let Some(lock) = lock {
                hash_lock(
                    lock,
                    |owner| (rank(CallId::of(owner)), self.nth(CallId::of(owner))),
                    into,
                );
            }
        }
    }
}

fn hash_lock<H: Hasher>(lock: &LockState, name: impl Fn(&Owner) -> (u8, u8), into: &mut H) {
    let LockState {
        holders,
        foreign,
        queue,
    } = lock;
    for holder in holders {
        let Holder {
            owner,
            mode,
            fences,
            slot,
            vote,
            expires_at_ms,
            kept,
        } = holder;
        (name(owner), mode, fences, slot, vote, expires_at_ms, kept).hash(into);
    }
    if let Some(Foreign {
        kind,
        value,
        expires_at_ms,
    }) = foreign
    {
        (kind, value, expires_at_ms).hash(into);
    }
    for waiter in queue {
        let Waiter {
            owner,
            mode,
            ttl,
            block,
            listening,
            seen_until_ms,
        } = waiter;
        (name(owner), mode, ttl, block, listening, seen_until_ms).hash(into);
    }
    (holders.len(), queue.len()).hash(into);
}
