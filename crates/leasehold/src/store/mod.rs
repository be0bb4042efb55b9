//! The stores of locks. A store executes steps of `leasehold-core` atomically; the rules are core's.
//!
//! A new store is one file here, one scheme of a [`Target`] and one row in `tests/conformance/main.rs`.

mod contract;
#[cfg(feature = "entries")]
pub(crate) mod entries;
#[cfg(feature = "local")]
pub(crate) mod local;
pub(crate) mod memory;
#[cfg(any(feature = "redis", test))]
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(test)]
mod tests;

#[cfg(feature = "tls")]
use std::fmt;
use std::sync::Arc;
#[cfg(any(feature = "doctor", feature = "redis"))]
use std::time::Duration;

use leasehold_core::Invalid;
#[cfg(feature = "tls")]
use leasehold_core::Ttl;

#[cfg(feature = "timestamp")]
pub(crate) use self::contract::TimestampRequest;
pub(crate) use self::contract::{
    Answer, Asker, Attach, Done, IndexRequest, Listener, Notice, RenewalCause, Scope, Store, To,
    answered, heard, snapshot,
};
pub use self::contract::{InspectedNodes, NodeView};
#[cfg(feature = "redis")]
pub use self::quorum::QuorumInit;
#[cfg(feature = "redis")]
use crate::access::Access;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined, Facts};
use crate::error::Error;

/// A store, as named by a URL.
pub(crate) enum Target {
    #[cfg(feature = "redis")]
    Redis(Box<redis::Address>),
    /// Independent servers, a majority of which decides.
    #[cfg(feature = "redis")]
    Quorum(Box<redis::QuorumAddress>),
    #[cfg(feature = "local")]
    Local(String),
    Memory,
}

/// The schemes, for an error message. If this build lacks one of these stores, it says so when that store is asked for.
const SCHEMES: &str = "use redis://host:6379/, rediss://..., valkey://..., valkeys://..., unix:/path/to/socket, redis+cluster://host1,host2/, redis+sentinel://host1,host2/NAME, redis+quorum://host1,host2,host3/, local: or local:/path/to/file, or memory:";

impl Target {
    /// Reads a URL. Errors quote only its scheme, since the rest may contain a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        let refuse = |shown: &str, why: String| Err(Invalid::new("store URL", shown, why));
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        // The text before a colon may be a host, a user or a password.
        let shown = if url.is_empty() { "" } else { "..." };
        let Some((scheme, rest)) = url.split_once(':') else {
            return refuse(shown, format!("has no scheme; {SCHEMES}"));
        };
        let port = rest.split('/').next().unwrap_or_default();
        if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
            let why = "is a host and a port without a scheme; write redis://host:port/";
            return refuse(shown, why.into());
        }
        match scheme {
            #[cfg(feature = "local")]
            "local" => Ok(Self::Local(rest.into())),
            #[cfg(not(feature = "local"))]
            "local" => refuse("local:...", left_out("local")),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => refuse(
                "memory:...",
                "has something after the scheme; write memory:".into(),
            ),
            #[cfg(not(feature = "tls"))]
            "rediss" | "valkeys" | "rediss+quorum" | "valkeys+quorum" | "rediss+cluster"
            | "valkeys+cluster" | "rediss+sentinel" | "valkeys+sentinel" => {
                refuse(&format!("{scheme}:..."), left_out("tls"))
            }
            #[cfg(feature = "redis")]
            _ if redis::Address::has_scheme(scheme) => {
                redis::Address::parse(url).map(|address| Self::Redis(Box::new(address)))
            }
            #[cfg(feature = "redis")]
            _ if redis::QuorumAddress::has_scheme(scheme) => {
                redis::QuorumAddress::parse(url).map(|address| Self::Quorum(Box::new(address)))
            }
            #[cfg(not(feature = "redis"))]
            "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" | "redis+quorum"
            | "valkey+quorum" | "redis+cluster" | "valkey+cluster" | "redis+sentinel"
            | "valkey+sentinel" => refuse(&format!("{scheme}:..."), left_out("redis")),
            _ if !is_scheme(scheme) || !rest.starts_with("//") => {
                refuse(shown, format!("has an unknown scheme; {SCHEMES}"))
            }
            _ => refuse(&format!("{scheme}:..."), unknown(scheme)),
        }
    }
}

#[cfg(feature = "redis")]
impl Target {
    /// A quorum of the servers with these URLs.
    pub(crate) fn quorum(urls: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, Invalid> {
        let mut nodes = Vec::new();
        for url in urls {
            let (shown, why) = match Self::parse(url.as_ref())? {
                Self::Redis(address) => {
                    nodes.push(*address);
                    continue;
                }
                Self::Quorum(address) => (
                    address.to_string(),
                    "is a quorum already; give this URL alone, or one URL for each server",
                ),
                #[cfg(feature = "local")]
                Self::Local(path) => (format!("local:{path}"), NO_SERVER),
                Self::Memory => ("memory:".into(), NO_SERVER),
            };
            return Err(Invalid::new("store URL", &shown, why));
        }
        redis::QuorumAddress::of(nodes).map(|address| Self::Quorum(Box::new(address)))
    }

    /// Adds access settings, and replaces the settings of a quorum that are given. Credentials may not be in the URL as well. Stores
    /// that are no servers have no such settings.
    pub(crate) fn with(
        self,
        access: &Access,
        longest_ttl: Option<Duration>,
        durable: Option<bool>,
    ) -> Result<Self, Invalid> {
        Ok(match self {
            Self::Redis(address) => Self::Redis(Box::new(address.with(access.clone())?)),
            Self::Quorum(address) => {
                let address = address.with(access)?.set(longest_ttl, durable)?;
                Self::Quorum(Box::new(address))
            }
            #[cfg(feature = "local")]
            Self::Local(path) => Self::Local(path),
            Self::Memory => Self::Memory,
        })
    }
}

/// The text of a valid URL, for the command: to show it, to add settings to it, and to hand it on. It is not part of the stable API.
#[cfg(feature = "tls")]
#[derive(Clone)]
pub struct StoreUrl(String);

#[cfg(feature = "tls")]
impl StoreUrl {
    /// The URLs in a text with spaces between: the servers of a quorum. The path of one URL may contain spaces, so only a text with a
    /// known scheme in each word is several URLs.
    pub fn split(text: &str) -> Vec<&str> {
        let is_of_servers = |url: &&str| {
            url.split_once(':').is_some_and(|(scheme, _)| {
                redis::Address::has_scheme(scheme) || redis::QuorumAddress::has_scheme(scheme)
            })
        };
        let is_url = |url: &&str| {
            let is_other = url.starts_with("local:") || url.starts_with("memory:");
            is_other || is_of_servers(url)
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_list = words.len() > 1 && is_of_servers(&words[0]) && words.iter().all(is_url);
        if is_list { words } else { vec![text] }
    }

    /// Reads the URLs in a text.
    ///
    /// # Errors
    /// The first URL that names no store, as [`Client::connect`](crate::Client::connect) would refuse it.
    pub fn list(text: &str) -> Result<Vec<Self>, Invalid> {
        let read = |url: &str| Target::parse(url).map(|_| Self(url.to_owned()));
        Self::split(text).into_iter().map(read).collect()
    }

    /// True for a server or a quorum: these take a password.
    pub fn is_of_servers(&self) -> bool {
        !self.servers().is_empty()
    }

    /// True if there is a password in it.
    pub fn has_password(&self) -> bool {
        self.servers().iter().any(redis::Address::has_password)
    }

    /// True if the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.servers().iter().any(redis::Address::is_encrypted)
    }

    /// True if there are settings of encryption in it.
    pub fn has_tls_options(&self) -> bool {
        self.servers().iter().any(redis::Address::has_tls_options)
    }

    /// The longest TTL of a lease.
    pub fn longest_ttl(&self) -> Duration {
        match Target::parse(&self.0) {
            Ok(Target::Quorum(quorum)) => quorum.terms().longest_ttl.get(),
            _ => Ttl::MAX,
        }
    }

    /// The URL with this password, if one is given, and with these settings of encryption, if it is encrypted.
    pub fn with(&self, password: Option<&str>, tls: &[(&str, String)]) -> String {
        let mut url = match password {
            Some(password) => redis::with_password(&self.0, password),
            None => self.0.clone(),
        };
        if self.is_encrypted() {
            for (key, value) in tls {
                url = redis::with_option(&url, key, value);
            }
        }
        url
    }

    fn servers(&self) -> Vec<redis::Address> {
        match Target::parse(&self.0) {
            Ok(Target::Redis(address)) => vec![*address],
            Ok(Target::Quorum(quorum)) => quorum.nodes,
            _ => Vec::new(),
        }
    }
}

/// Without users and passwords.
#[cfg(feature = "tls")]
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redis::shown(&self.0))
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a store in a quorum that is no server.
#[cfg(feature = "redis")]
const NO_SERVER: &str = "is no server, and a quorum is made of Redis or Valkey servers only";

/// The error for a store that this build lacks.
#[cfg(not(all(feature = "redis", feature = "local", feature = "tls")))]
fn left_out(feature: &str) -> String {
    format!(
        "needs the feature `{feature}` of leasehold, and this program was built without it; ask for it in Cargo.toml"
    )
}

/// The error for an unknown scheme, with a hint.
fn unknown(scheme: &str) -> String {
    let scheme = scheme.to_ascii_lowercase();
    if scheme.contains("sentinel") {
        "a server is named by its sentinels: redis+sentinel://host1:26379,host2:26379/NAME".into()
    } else if scheme.contains("cluster") {
        "a cluster is named by some of its nodes: redis+cluster://host1:6379,host2:6379/".into()
    } else {
        format!("unknown scheme; {SCHEMES}")
    }
}

/// Opens a store for a client. Returns at once; [`Store::ready`] waits until it can be used.
#[cfg_attr(
    not(feature = "local"),
    expect(clippy::unnecessary_wraps, reason = "only a file can fail to open")
)]
#[cfg_attr(
    not(any(feature = "redis", feature = "local")),
    expect(clippy::needless_pass_by_value, reason = "only memory has no address")
)]
pub(crate) fn open(target: Target, attach: Attach) -> Result<Arc<dyn Store>, Error> {
    Ok(match target {
        #[cfg(feature = "redis")]
        Target::Redis(address) => Arc::new(redis::RedisStore::open(*address, attach)),
        #[cfg(feature = "redis")]
        Target::Quorum(address) => Arc::new(redis::open_quorum(*address, &attach)),
        #[cfg(feature = "local")]
        Target::Local(path) => Arc::new(local::LocalStore::open(&path, attach)?),
        Target::Memory => Arc::new(memory::Memory::new(attach.clock.clone()).attach(attach)),
    })
}

/// Marks the servers of a quorum; each request may take `limit`.
#[cfg(feature = "redis")]
pub(crate) async fn init_quorum(
    target: &Target,
    again: bool,
    limit: Duration,
) -> Result<QuorumInit, Error> {
    let Target::Quorum(address) = target else {
        let why = "is no quorum: name 3 to 9 servers, or write redis+quorum://host1,host2,host3/";
        return Err(Invalid::new("store URL", "...", why).into());
    };
    Ok(redis::init(address, again, limit).await?)
}

/// Examines the store at `target` over a separate connection; each request may take `limit`.
#[cfg(feature = "doctor")]
#[cfg_attr(
    not(feature = "redis"),
    expect(unused_variables, reason = "of use to a server only")
)]
#[cfg_attr(
    not(any(feature = "redis", feature = "local")),
    expect(clippy::unused_async, reason = "memory is examined at once")
)]
pub(crate) async fn examine(
    target: &Target,
    how: &Examination,
    limit: Duration,
) -> Result<Examined, Error> {
    match target {
        #[cfg(feature = "redis")]
        Target::Redis(address) => Ok(redis::examine(address, how, limit).await?),
        #[cfg(feature = "redis")]
        Target::Quorum(address) => Ok(redis::examine_quorum(address, how, limit).await?),
        #[cfg(feature = "local")]
        Target::Local(path) => local::examine(path).await,
        Target::Memory => Ok(Examined::new("memory:", Facts::Memory)),
    }
}
