//! The state of the lock model: the store (a [`World`]), the clients' beliefs, the messages in flight.
//!
//! States that differ only by a renaming of clients are equal: they have the same hash (see [`State::hash`]), and the checker
//! compares hashes only. The hash sorts and renames the clients; the rules compare their names for equality only.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use leasehold_core::{Fences, Foreign, Holder, LockState, Owner, Waiter, World};

use crate::frame::CallId;

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
    pub(super) const IDLE: Self = Self::in_phase(0, Phase::Idle);

    /// A client that nothing happened to.
    pub(super) const fn in_phase(nth: u8, phase: Phase) -> Self {
        Self {
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

/// A message in flight. Ages are ticks, up to the point where they make no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Request {
        from: CallId,
        verb: RequestKind,
        /// The fence by which its client believed to hold when it was sent, or 0.
        fence: u64,
        age: u8,
        twice: bool,
    },
    /// The reply to a request that was `lag` old when it was executed, `age` ago.
    Reply {
        to: CallId,
        verb: RequestKind,
        got: ReplyKind,
        lag: u8,
        age: u8,
    },
    Wake {
        to: CallId,
        fences: Span,
        age: u8,
    },
}

impl Message {
    /// The acquisition that it belongs to.
    pub(super) fn id(&self) -> CallId {
        match *self {
            Self::Request { from: id, .. }
            | Self::Reply { to: id, .. }
            | Self::Wake { to: id, .. } => id,
        }
    }

    /// Replaces its fences, if it has any.
    pub(super) fn with_fences(&mut self, mut with: impl FnMut(&mut Span)) {
        match self {
            Self::Reply {
                got: ReplyKind::Held(fences),
                ..
            }
            | Self::Wake { fences, .. } => with(fences),
            Self::Request { fence, .. } => with_one(fence, with),
            Self::Reply { .. } => {}
        }
    }

    fn renamed(mut self, to: CallId) -> Self {
        match &mut self {
            Self::Request { from: id, .. }
            | Self::Reply { to: id, .. }
            | Self::Wake { to: id, .. } => *id = to,
        }
        self
    }
}

/// Replaces a fence by its shifted value; 0 means none and stays.
pub(super) fn with_one(fence: &mut u64, mut with: impl FnMut(&mut Span)) {
    if *fence > 0 {
        let mut span = Span::one(*fence);
        with(&mut span);
        *fence = span.first;
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

    /// Whether an owner holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.lock().is_some_and(|lock| !lock.holders.is_empty())
    }

    /// Whether a foreign program has the lock.
    pub(super) fn is_foreign(&self) -> bool {
        self.lock().is_some_and(|lock| lock.foreign.is_some())
    }

    /// The replica's state of the only lock, once it stopped following.
    fn replica_lock(&self) -> Option<&LockState> {
        self.replica.as_ref().and_then(lock_of)
    }

    /// Whether this is the client's current acquisition.
    pub(super) fn is_current(&self, id: CallId) -> bool {
        let client = self.client(id.client);
        client.nth == id.nth && !matches!(client.phase, Phase::Idle | Phase::Crashed)
    }

    /// The owners that the store or a message knows.
    pub(super) fn known(&self) -> BTreeSet<CallId> {
        let lock = || self.lock().into_iter().chain(self.replica_lock());
        let holders = lock()
            .flat_map(|lock| &lock.holders)
            .map(|holder| CallId::of(&holder.owner));
        let queued = lock()
            .flat_map(|lock| &lock.queue)
            .map(|waiter| CallId::of(&waiter.owner));
        holders
            .chain(queued)
            .chain(self.flight.iter().map(Message::id))
            .collect()
    }

    /// The messages and the leftovers of a client, without its name.
    fn traces(&self, client: u8) -> (Vec<Message>, [Vec<(usize, u8)>; 2]) {
        let nameless = |id: CallId| CallId {
            client: 0,
            nth: if self.is_current(id) { 0 } else { id.nth + 1 },
        };
        let its = self
            .flight
            .iter()
            .filter(|message| message.id().client == client);
        let mut messages: Vec<_> = its
            .map(|message| message.renamed(nameless(message.id())))
            .collect();
        messages.sort_unstable();
        let over = |(place, waiter): (usize, &Waiter)| {
            let id = CallId::of(&waiter.owner);
            (id.client == client && !self.is_current(id)).then_some((place, id.nth))
        };
        let over = |lock: Option<&LockState>| {
            let queue = lock.into_iter().flat_map(|lock| &lock.queue);
            queue.enumerate().filter_map(over).collect()
        };
        (messages, [self.lock(), self.replica_lock()].map(over))
    }

    /// The place of a client in the store and in the replica.
    fn places(&self, id: CallId) -> [usize; 2] {
        [self.lock(), self.replica_lock()]
            .map(|lock| lock.map_or(usize::MAX, |lock| place(lock, id)))
    }
}

fn lock_of(world: &World) -> Option<&LockState> {
    world.names().next().and_then(|name| world.get(name))
}

/// The place of a client: 0 holds, then the places in the queue.
fn place(lock: &LockState, id: CallId) -> usize {
    let of = |owner: &Owner| CallId::of(owner) == id;
    if lock.holders.iter().any(|holder| of(&holder.owner)) {
        return 0;
    }
    let queued = lock.queue.iter().position(|waiter| of(&waiter.owner));
    queued.map_or(usize::MAX, |at| at + 1)
}

impl Hash for State {
    fn hash<H: Hasher>(&self, into: &mut H) {
        // The pattern names every field, so a new one does not compile until it is handled.
        let Self {
            world,
            replica,
            clients,
            flight,
            seen,
            issued,
            unclaimed,
            broken,
        } = self;
        let mut sorted: Vec<_> = (0u8..)
            .zip(clients)
            .map(|(index, client)| {
                let Client {
                    nth: _,
                    phase,
                    robbed,
                    away,
                } = *client;
                let (places, traces) = (self.places(self.id(index)), self.traces(index));
                (phase, (robbed, away), places, traces, index)
            })
            .collect();
        sorted.sort_unstable();
        let renamed = |id: CallId| {
            let rank = sorted.iter().position(|(.., index)| *index == id.client);
            let nth = if self.is_current(id) { 0 } else { id.nth + 1 };
            CallId {
                client: rank.map_or(u8::MAX, |rank| u8::try_from(rank).unwrap_or(u8::MAX)),
                nth,
            }
        };
        for (phase, robbed, ..) in &sorted {
            (phase, robbed).hash(into);
        }
        let mut messages: Vec<_> = flight
            .iter()
            .map(|message| message.renamed(renamed(message.id())))
            .collect();
        messages.sort_unstable();
        (messages, seen, issued, unclaimed, broken).hash(into);
        (
            world.counter,
            replica.as_ref().map(|replica| replica.counter),
        )
            .hash(into);
        for lock in [self.lock(), self.replica_lock()] {
            lock.is_some().hash(into);
            if let Some(lock) = lock {
                hash_lock(lock, renamed, into);
            }
        }
    }
}

fn hash_lock<H: Hasher>(lock: &LockState, renamed: impl Fn(CallId) -> CallId, into: &mut H) {
    let LockState {
        holders,
        foreign,
        queue,
    } = lock;
    for Holder {
        owner,
        mode,
        fences,
        expires_at_ms,
        kept,
    } in holders
    {
        (
            renamed(CallId::of(owner)),
            mode,
            fences,
            expires_at_ms,
            kept,
        )
            .hash(into);
    }
    if let Some(Foreign {
        kind,
        value,
        expires_at_ms,
    }) = foreign
    {
        (kind, value, expires_at_ms).hash(into);
    }
    for Waiter {
        owner,
        mode,
        ttl,
        block,
        listening,
        seen_until_ms,
    } in queue
    {
        let id = renamed(CallId::of(owner));
        (id, mode, ttl, block, listening, seen_until_ms).hash(into);
    }
    (holders.len(), queue.len()).hash(into);
}
