//! The state of the cache model: the entry, the clients, the messages in flight, and the judge's record. The entry is an
//! [`EntryState`], and nothing here changes it.
//!
//! States that differ only by a renaming of clients are equal, as in the lock models.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use leasehold_core::ClientId;
use leasehold_core::cache::{BackOff, Control, EntryState, Loader, Token, Value};

use crate::frame::{CallId, ranks};

impl CallId {
    pub(super) fn token(self) -> Token {
        Token(u128::from(self.client) << 8 | u128::from(self.nth))
    }

    pub(super) fn of_token(Token(bits): Token) -> Self {
        let byte = |bits: u128| u8::try_from(bits & 0xff).unwrap_or(u8::MAX);
        Self {
            client: byte(bits >> 8),
            nth: byte(bits),
        }
    }
}

/// The value that a client has loaded: its version, and whether the entry was invalidated since, or the store has lost its
/// control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Load {
    pub(super) version: u64,
    pub(super) old: bool,
}

/// The state of a client's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    Idle,
    /// It wants the value: one newer than it has seen, or any fresh one.
    Asking(Option<u64>),
    /// It is the loader.
    Loading(Load),
}

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) nth: u8,
    pub(super) phase: Phase,
    /// It was told to wait, and has not been woken.
    pub(super) told: bool,
}

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Request {
    Begin(Option<u64>),
    Renew,
    Commit(Load),
    Fail,
    GiveUp,
}

/// A request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) from: CallId,
    pub(super) request: Request,
    pub(super) twice: bool,
}

/// The whole state of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) entry: EntryState,
    pub(super) clients: Vec<Client>,
    pub(super) flight: Vec<Message>,
    pub(super) books: Books,
}

/// The judge's record of requests and replies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Books {
    /// The current lease, and how many ticks are left of it.
    pub(super) lease: Option<(CallId, u8)>,
    /// How many ticks of the back-off are left.
    pub(super) rests: Option<u8>,
    /// The entry was invalidated after the load of the stored value was granted.
    pub(super) value_old: bool,
    /// The highest number given out.
    pub(super) issued: u64,
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

    /// The current call of a client.
    pub(super) fn id(&self, client: u8) -> CallId {
        let nth = self.client(client).nth;
        CallId { client, nth }
    }

    /// Whether this is the client's current call.
    pub(super) fn is_current(&self, id: CallId) -> bool {
        let client = self.client(id.client);
        client.nth == id.nth && client.phase != Phase::Idle
    }

    /// The calls that the store, the judge or a message knows.
    pub(super) fn known(&self) -> BTreeSet<CallId> {
        let control = self.entry.control.as_ref();
        let loader = control.and_then(|control| control.loader);
        let messages = self.flight.iter().map(|message| message.from);
        let loader = loader.map(|loader| CallId::of_token(loader.token));
        let lease = self.books.lease.map(|(id, _)| id);
        loader.into_iter().chain(lease).chain(messages).collect()
    }

    /// A canonical number for a call of a client: 0 is the current one, the others are counted.
    fn nth(&self, known: &BTreeSet<CallId>, id: CallId) -> u8 {
        let over = |other: &&CallId| other.client == id.client && !self.is_current(**other);
        let is_current = self.is_current(id);
        let place = known.iter().filter(over).position(|other| *other == id);
        match place {
            Some(at) if !is_current => u8::try_from(at + 1).unwrap_or(u8::MAX),
            _ => 0,
        }
    }

    /// All that tells a client from others, without its name.
    fn traits(&self, client: u8, known: &BTreeSet<CallId>) -> impl Ord + Hash {
        // The pattern names every field, so a new one does not compile until it is handled.
        let Client {
            nth: _,
            phase,
            told,
        } = *self.client(client);
        let lease = self.books.lease.filter(|(id, _)| id.client == client);
        let lease = lease.map(|(id, left)| (self.nth(known, id), left));
        let mut sends = Vec::new();
        for message in &self.flight {
            if message.from.client == client {
                let nth = self.nth(known, message.from);
                sends.push((nth, message.request, message.twice));
            }
        }
        sends.sort_unstable();
        (phase, told, lease, sends)
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, into: &mut H) {
        let Self {
            entry,
            clients,
            flight: _,
            books,
        } = self;
        let known = self.known();
        let ranks = ranks(clients.len(), |client| self.traits(client, &known), into);
        let Books {
            lease,
            rests,
            value_old,
            issued,
            broken,
        } = books;
        (lease.is_some(), rests, value_old, issued, broken).hash(into);
        let EntryState {
            value,
            control,
            foreign,
        } = entry;
        foreign.hash(into);
        if let Some((Value { header, body: _ }, until_ms)) = value {
            (header, until_ms).hash(into);
        }
        value.is_some().hash(into);
        if let Some(Control {
            last,
            epoch,
            loader,
            back_off,
            failures,
            waiting,
            forget_at_ms,
        }) = control
        {
            (last, epoch, failures, forget_at_ms).hash(into);
            if let Some(Loader {
                token,
                version,
                until_ms,
            }) = loader
            {
                let id = CallId::of_token(*token);
                let name = (ranks[usize::from(id.client)], self.nth(&known, id));
                (name, version, until_ms).hash(into);
            }
            if let Some(BackOff { until_ms, error: _ }) = back_off {
                until_ms.hash(into);
            }
            let rank = |client: &ClientId| ranks.get(usize::try_from(client.get()).ok()?);
            let mut waiting: Vec<_> = waiting.iter().map(rank).collect();
            waiting.sort_unstable();
            (loader.is_some(), back_off.is_some(), waiting).hash(into);
        }
        control.is_some().hash(into);
    }
}
