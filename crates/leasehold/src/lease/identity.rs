//! The identity of a client and its owners. No two acquisitions have the same owner, not even in two copies of one process: a virtual
//! machine may be restored twice from one snapshot, but each copy has to reconnect, and then draws new random bits.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{ClientId, Label, Owner};

use crate::error::{Error, StoreError, StoreErrorKind};

/// The parts of this client's owners.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) client: ClientId,
    /// All owners are like this one, but for their bits and notes.
    model: Owner,
    /// Random bits, drawn again for each connection, and a counter of owners.
    seed: AtomicU64,
    count: AtomicU64,
}

impl Identity {
    /// A new client on `host`, or on this one.
    pub(crate) fn new(host: Option<String>) -> Result<Self, Error> {
        let host = host.unwrap_or_else(who_and_where);
        let client = ClientId::new(getrandom::u64().map_err(no_random_bits)?);
        Ok(Self {
            client,
            model: Owner::new(0, client, &host, std::process::id(), "")?,
            seed: AtomicU64::new(getrandom::u64().map_err(no_random_bits)?),
            count: AtomicU64::new(getrandom::u64().map_err(no_random_bits)?),
        })
    }

    /// A client whose bits depend only on the arguments.
    #[cfg(test)]
    pub(super) fn seeded(client: u64, seed: u64) -> Self {
        let (client, host) = (ClientId::new(client), Label::default());
        Self {
            client,
            model: Owner::labelled(0, client, &host, 1, &host),
            seed: AtomicU64::new(seed),
            count: AtomicU64::new(0),
        }
    }

    /// Draws new random bits for all further owners. If the system has none, the old bits stay.
    pub(crate) fn renew(&self) {
        if let Ok(seed) = getrandom::u64() {
            self.seed.store(seed, Ordering::Relaxed);
        }
    }

    /// The owner of a new acquisition: 128 unique bits from a random start and a counter. Needs no system call. Its text is put together
    /// in `room`.
    pub(crate) fn owner(&self, note: &Label, room: &mut String) -> Owner {
        self.model.another(self.bits(), note, room)
    }

    /// 128 unique bits for another use.
    pub(crate) fn bits(&self) -> u128 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let seed = self.seed.load(Ordering::Relaxed);
        u128::from(seed) << 64 | u128::from(scramble(count))
    }
}

/// A bijection that maps neighbours to distant numbers, so people can distinguish owners at a glance.
/// It is the finalizer of `SplitMix64` (Steele, Lea, Flood 2014).
fn scramble(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn no_random_bits(error: getrandom::Error) -> StoreError {
    StoreError::new(
        "operating system",
        StoreErrorKind::Unavailable,
        format!("no random bits: {error}"),
    )
}

/// `user@hostname`, as far as known, cut to the limit of an owner.
fn who_and_where() -> String {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok())
        .unwrap_or_else(|| "unknown".into());
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .filter(|user| !user.is_empty());
    let mut text = user.map_or(host.clone(), |user| format!("{user}@{host}"));
    while text.len() > Owner::MAX_META_BYTES {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_owners_are_equal() {
        let note = Label::new("note", "n").unwrap();
        let clients = [Identity::new(None).unwrap(), Identity::new(None).unwrap()];
        let owners: HashSet<String> = (0..20_000)
            .map(|at| clients[at % 2].owner(&note, &mut String::new()))
            .map(|owner| owner.id().to_owned())
            .collect();
        assert_eq!(owners.len(), 20_000);
    }

    #[test]
    fn two_copies_of_a_client_that_connect_anew_draw_other_owners() {
        let first = Identity::new(None).unwrap();
        let copy = |of: &AtomicU64| AtomicU64::new(of.load(Ordering::Relaxed));
        let second = Identity {
            model: first.model.clone(),
            seed: copy(&first.seed),
            count: copy(&first.count),
            ..first
        };
        assert_eq!(first.bits(), second.bits());
        first.renew();
        second.renew();
        assert_ne!(first.bits(), second.bits());
    }
}
