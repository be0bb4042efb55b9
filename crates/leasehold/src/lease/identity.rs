//! Who a client is to others. Must never give two acquisitions the same owner.

use leasehold_core::{ClientId, Owner};

use crate::error::{Error, StoreError, StoreErrorKind};

/// What this client writes into its owners.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) client: ClientId,
    host: String,
    pid: u32,
}

impl Identity {
    /// A new client on `host`, or on this one.
    pub(crate) fn new(host: Option<String>) -> Result<Self, Error> {
        let host = host.unwrap_or_else(who_and_where);
        let identity = Self {
            client: ClientId::new(random()?),
            host,
            pid: std::process::id(),
        };
        // A host that is too long is refused now and not at the first acquisition.
        identity.owner("")?;
        Ok(identity)
    }

    /// The owner of a new acquisition.
    pub(crate) fn owner(&self, note: &str) -> Result<Owner, Error> {
        Ok(Owner::new(
            random()?,
            self.client,
            &self.host,
            self.pid,
            note,
        )?)
    }
}

/// Random bits from the operating system.
fn random<T: FromBits>() -> Result<T, StoreError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| {
        StoreError::new(
            "operating system",
            StoreErrorKind::Unavailable,
            format!("no random bits: {error}"),
        )
    })?;
    Ok(T::from_bits(u128::from_ne_bytes(bits)))
}

trait FromBits {
    fn from_bits(bits: u128) -> Self;
}

impl FromBits for u128 {
    fn from_bits(bits: u128) -> Self {
        bits
    }
}

impl FromBits for u64 {
    #[allow(clippy::cast_possible_truncation, reason = "half of the random bits")]
    fn from_bits(bits: u128) -> Self {
        bits as Self
    }
}

/// `user@hostname`, as far as known, cut to what an owner can hold.
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
