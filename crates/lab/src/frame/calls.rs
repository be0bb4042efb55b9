//! The calls of clients, with numbers that are used again, and the owners of core that stand for them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use leasehold_core::{ClientId, Invalid, Owner};

/// How many calls of a client a store and the network may know at once. Their numbers are used again.
pub(crate) const MOST_CALLS: u8 = 8;

/// A call of a client: an acquisition, or a load. Its number is used again once no trace of it is left, so the numbers are bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CallId {
    pub(crate) client: u8,
    pub(crate) nth: u8,
}

impl CallId {
    /// The next call of a client: with the first number that nothing knows. `None` if more than `left_over` known calls are over.
    pub(crate) fn fresh(
        client: u8,
        left_over: usize,
        known: &BTreeSet<Self>,
        is_current: impl Fn(Self) -> bool,
    ) -> Option<Self> {
        let over = known.iter().filter(|id| !is_current(**id)).count();
        let mut ids = (0..MOST_CALLS).map(|nth| Self { client, nth });
        ids.find(|id| over <= left_over && !known.contains(id))
    }

    /// The call that an owner of [`Owners`] stands for.
    pub(crate) fn of(owner: &Owner) -> Self {
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

/// A letter for the client and a number for the call.
impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", letter(self.client), self.nth + 1)
    }
}

/// The letter of a client.
pub(crate) fn letter(client: u8) -> char {
    char::from(b'A' + client)
}

/// The owners of core that stand for the calls of clients.
#[derive(Debug, Clone)]
pub(crate) struct Owners(Arc<[Owner]>);

impl Owners {
    /// Those of so many clients.
    pub(crate) fn new(clients: u8) -> Result<Self, Invalid> {
        let ids = (0..clients).flat_map(|client| (0..MOST_CALLS).map(move |nth| (client, nth)));
        let owners = ids.map(|(client, nth)| {
            // The last two digits differ.
            let bits = u128::from(client) << 4 | u128::from(nth);
            Owner::new(bits, ClientId::new(client.into()), "lab", 1, "")
        });
        Ok(Self(owners.collect::<Result<_, _>>()?))
    }

    /// The owner that stands for this call.
    pub(crate) fn of(&self, id: CallId) -> &Owner {
        &self.0[usize::from(id.client) * usize::from(MOST_CALLS) + usize::from(id.nth)]
    }
}
