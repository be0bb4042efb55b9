//! What there is at one moment: the store, what each client believes, what is under way. Must never hold a rule: the store is
//! a [`World`], and nothing here changes it.
//!
//! Two states that differ only in which client is which are one: their hash is the same (see [`State::hash`]), and a hash is
//! all that the checker compares. It sorts the clients by what they do and renames them, so equal hashes belong to states
//! that can be renamed into each other, and the rules look at names for equality alone.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use leasehold_core::{Fences, Foreign, Holder, LockState, Owner, Waiter, World};

/// Which acquisition of which client. The number is used again once no trace of it is left, so there is no end of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct AcquisitionId {
    pub(super) client: u8,
    pub(super) nth: u8,
}

impl AcquisitionId {
    /// The same as 128 bits of an owner, of which the last two digits tell.
    pub(super) fn bits(self) -> u128 {
        u128::from(self.client) << 4 | u128::from(self.nth)
    }

    pub(super) fn of(owner: &Owner) -> Self {
        let digit = |at: usize| match owner.id().as_bytes()[at] {
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            digit => digit - b'0',
        };
        Self {
            client: digit(30),
            nth: digit(31),
        }
    }
}

/// Fences in a row.
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

/// What a client is doing, and believes. Times are ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Nothing; what it had is over.
    Idle,
    /// It wants the lock. What it knows of the last *busy*, if it was told to wait.
    Asking(Option<BusyReply>),
    /// It believes to hold the lock for `left` more, by a deadline counted from before it asked. The first of these fences is
    /// the one that it handed out last.
    Holding { left: u8, fences: Span },
    /// It gives back what it may have, until that was confirmed.
    Leaving,
    /// It is gone.
    Crashed,
}

/// An answer that said *busy*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BusyReply {
    /// How long the request had taken when the store answered it.
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
    /// Its hold was ended by a break or a loss of data: it may believe what is not so.
    pub(super) robbed: bool,
    /// Its connection is cut: it can ask nothing and hears nothing.
    pub(super) away: bool,
}

/// What a client can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum RequestKind {
    Try,
    Wait,
    /// Waits, and draws several fences with the grant.
    WaitMany,
    Extend,
    Release,
    /// To give it back, but only after a lease more.
    Keep,
}

/// What it can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ReplyKind {
    Held(Span),
    Busy,
    Released,
    NotHeld,
}

/// Something under way. Ages are ticks, and grow no more when they make no difference any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Request {
        from: AcquisitionId,
        verb: RequestKind,
        /// Under which its client believed to hold when it was sent, or 0.
        fence: u64,
        age: u8,
        twice: bool,
    },
    /// To a request that had taken `lag` when it was carried out, `age` ago.
    Reply {
        to: AcquisitionId,
        verb: RequestKind,
        got: ReplyKind,
        lag: u8,
        age: u8,
    },
    Wake {
        to: AcquisitionId,
        fences: Span,
        age: u8,
    },
}

impl Message {
    /// Whose it is.
    pub(super) fn id(&self) -> AcquisitionId {
        match *self {
            Self::Request { from: id, .. }
            | Self::Reply { to: id, .. }
            | Self::Wake { to: id, .. } => id,
        }
    }

    /// Has its fences changed, if it carries any.
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

    fn renamed(mut self, to: AcquisitionId) -> Self {
        match &mut self {
            Self::Request { from: id, .. }
            | Self::Reply { to: id, .. }
            | Self::Wake { to: id, .. } => *id = to,
        }
        self
    }
}

/// Has a fence changed as fences in a row are, unless it is 0, which is none.
pub(super) fn with_one(fence: &mut u64, mut with: impl FnMut(&mut Span)) {
    if *fence > 0 {
        let mut span = Span::one(*fence);
        with(&mut span);
        *fence = span.first;
    }
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) world: World,
    /// What the replica has, since it stopped following.
    pub(super) replica: Option<World>,
    pub(super) clients: Vec<Client>,
    pub(super) flight: Vec<Message>,
    /// A fence that the operator has seen and may break.
    pub(super) seen: Option<u64>,
    /// The highest fence that was ever issued.
    pub(super) issued: u64,
    /// The holder was given the lock so long ago and has not been heard of since.
    pub(super) unclaimed: Option<u8>,
    /// The rules that the last step broke: a bit for each.
    pub(super) broken: u16,
}

impl State {
    pub(super) fn client(&self, client: u8) -> &Client {
        &self.clients[usize::from(client)]
    }

    pub(super) fn client_mut(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    /// What the store keeps of the one lock there is.
    pub(super) fn lock(&self) -> Option<&LockState> {
        lock_of(&self.world)
    }

    /// The same of a replica that does not follow.
    fn replica_lock(&self) -> Option<&LockState> {
        self.replica.as_ref().and_then(lock_of)
    }

    /// Whether the client still goes on with this acquisition.
    pub(super) fn is_current(&self, id: AcquisitionId) -> bool {
        let client = self.client(id.client);
        client.nth == id.nth && !matches!(client.phase, Phase::Idle | Phase::Crashed)
    }

    /// The owners that the store or a message knows.
    pub(super) fn known(&self) -> BTreeSet<AcquisitionId> {
        let lock = || self.lock().into_iter().chain(self.replica_lock());
        let holders = lock()
            .flat_map(|lock| &lock.holders)
            .map(|holder| AcquisitionId::of(&holder.owner));
        let queued = lock()
            .flat_map(|lock| &lock.queue)
            .map(|waiter| AcquisitionId::of(&waiter.owner));
        holders
            .chain(queued)
            .chain(self.flight.iter().map(Message::id))
            .collect()
    }

    /// What is under way for a client, and left over of it, but for its name.
    fn traces(&self, client: u8) -> (Vec<Message>, [Vec<(usize, u8)>; 2]) {
        let nameless = |id: AcquisitionId| AcquisitionId {
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
            let id = AcquisitionId::of(&waiter.owner);
            (id.client == client && !self.is_current(id)).then_some((place, id.nth))
        };
        let over = |lock: Option<&LockState>| {
            let queue = lock.into_iter().flat_map(|lock| &lock.queue);
            queue.enumerate().filter_map(over).collect()
        };
        (messages, [self.lock(), self.replica_lock()].map(over))
    }

    /// Where a client stands, in the store and in the replica.
    fn places(&self, id: AcquisitionId) -> [usize; 2] {
        [self.lock(), self.replica_lock()]
            .map(|lock| lock.map_or(usize::MAX, |lock| place(lock, id)))
    }
}

fn lock_of(world: &World) -> Option<&LockState> {
    world.names().next().and_then(|name| world.get(name))
}

/// Where a client stands: 0 holds, then the places in the queue.
fn place(lock: &LockState, id: AcquisitionId) -> usize {
    let of = |owner: &Owner| AcquisitionId::of(owner) == id;
    if lock.holders.iter().any(|holder| of(&holder.owner)) {
        return 0;
    }
    let queued = lock.queue.iter().position(|waiter| of(&waiter.owner));
    queued.map_or(usize::MAX, |at| at + 1)
}

impl Hash for State {
    fn hash<H: Hasher>(&self, into: &mut H) {
        // Every field is named, so that one that is added does not compile until it is looked at.
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
                    nth,
                    phase,
                    robbed,
                    away,
                } = *client;
                (
                    phase,
                    (robbed, away),
                    self.places(AcquisitionId { client: index, nth }),
                    self.traces(index),
                    index,
                )
            })
            .collect();
        sorted.sort_unstable();
        let renamed = |id: AcquisitionId| {
            let rank = sorted.iter().position(|(.., index)| *index == id.client);
            let nth = if self.is_current(id) { 0 } else { id.nth + 1 };
            AcquisitionId {
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

fn hash_lock<H: Hasher>(
    lock: &LockState,
    renamed: impl Fn(AcquisitionId) -> AcquisitionId,
    into: &mut H,
) {
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
            renamed(AcquisitionId::of(owner)),
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
        let id = renamed(AcquisitionId::of(owner));
        (id, mode, ttl, block, listening, seen_until_ms).hash(into);
    }
    (holders.len(), queue.len()).hash(into);
}
