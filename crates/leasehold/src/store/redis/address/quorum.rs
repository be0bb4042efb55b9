//! The addresses of a quorum: 3 to 9 independent servers, a majority of which decides.
//!
//! Its URL has several hosts with commas between, each with its own login. Path and options are those of a server, and count for each of
//! them. Two options are for the quorum.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::quorum::QuorumTerms;
use leasehold_core::{Invalid, Ttl};
use redis::ConnectionAddr;

use super::{
    Address, TLS, duration, flag, is_tcp, once, pairs, refused, split_authority, split_scheme,
    split_tail, tcp,
};
use crate::access::Access;

/// The fewest servers: one of three may be down.
const FEWEST: usize = 3;

/// The most servers.
const MOST: usize = 9;

/// The longest TTL of a lease, unless configured.
const LONGEST_TTL: Duration = Duration::from_secs(60);

/// Said of the options that are for one server.
const NO_REPLICAS: &str = "asks for replicas, which a node of a quorum must not have; leave replicas, fsync and replicas_timeout out, or name one server";

/// The end of a quorum's scheme, after the scheme of its servers.
const SUFFIX: &str = "+quorum";

/// The servers of a quorum, and what all its clients must agree on.
pub(crate) struct QuorumAddress {
    /// 3 to 9 servers, each of them once.
    pub(crate) nodes: Vec<Address>,
    /// The longest TTL of a lease. A server that lost its memory grants nothing for about as long.
    pub(crate) longest_ttl: Ttl,
    /// True if each server writes a change to its disk before it answers.
    pub(crate) durable: bool,
}

impl QuorumAddress {
    /// True if a URL of this scheme names a quorum.
    pub(crate) fn has_scheme(scheme: &str) -> bool {
        scheme.strip_suffix(SUFFIX).is_some_and(is_tcp)
    }

    /// Reads the URL of a quorum.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        let refuse = |why| refused(url, why);
        let (scheme, rest) = split_scheme(url).map_err(refuse)?;
        let read = read(scheme.trim_end_matches(SUFFIX), rest);
        let (nodes, longest_ttl, durable) = read.map_err(|why| {
            refuse(format!(
                "{why}; write {scheme}://host1[:port],host2[:port],host3[:port][/db][?max_ttl=60s&durable=1], with user:password@ before each host that asks for them, and a comma in these as %2C"
            ))
        })?;
        let this = Self::with_defaults(nodes).map_err(refuse)?;
        this.set(longest_ttl, durable)
            .map_err(|invalid| refuse(format!("max_ttl {}", invalid.why)))
    }

    /// A quorum of these servers, with the default settings.
    pub(crate) fn of(nodes: Vec<Address>) -> Result<Self, Invalid> {
        let shown = listed(&nodes);
        Self::with_defaults(nodes).map_err(|why| Invalid::new("store URL", &shown, why))
    }

    /// What all clients of the quorum agree on.
    pub(crate) fn terms(&self) -> QuorumTerms {
        QuorumTerms {
            // At most nine.
            nodes: u8::try_from(self.nodes.len()).unwrap_or(u8::MAX),
            longest_ttl: self.longest_ttl,
        }
    }

    fn with_defaults(nodes: Vec<Address>) -> Result<Self, String> {
        match nodes.len() {
            0 => return Err("names no server; name 3 to 9 servers".into()),
            1 => return Err("names one server, which is no quorum; name 3 to 9 servers".into()),
            2 => {
                let why =
                    "names two servers; no majority of two is less than both: name 3 to 9 servers";
                return Err(why.into());
            }
            FEWEST..=MOST => {}
            many => return Err(format!("names {many} servers; name 3 to 9 servers")),
        }
        if nodes.iter().any(|node| node.replicas.is_some()) {
            return Err(NO_REPLICAS.into());
        }
        let servers: Vec<String> = nodes.iter().map(server).collect();
        let is_again = |(at, one): (usize, &String)| servers[..at].contains(one);
        if servers.iter().enumerate().any(is_again) {
            let why = "names the same server twice; each vote must come from a server of its own";
            return Err(why.into());
        }
        Ok(Self {
            nodes,
            longest_ttl: Ttl::new(LONGEST_TTL).map_err(|invalid| invalid.to_string())?,
            durable: false,
        })
    }

    /// Adds credentials and TLS settings, the same for all servers.
    pub(crate) fn with(self, access: &Access) -> Result<Self, Invalid> {
        let nodes = self.nodes.into_iter();
        let nodes = nodes.map(|node| node.with(access.clone()));
        Ok(Self {
            nodes: nodes.collect::<Result<_, _>>()?,
            ..self
        })
    }

    /// Changes the settings that are given.
    pub(crate) fn set(
        mut self,
        longest_ttl: Option<Duration>,
        durable: Option<bool>,
    ) -> Result<Self, Invalid> {
        if let Some(longest) = longest_ttl {
            self.longest_ttl = Ttl::new(longest).map_err(|invalid| Invalid {
                what: "longest TTL of a quorum",
                ..invalid
            })?;
        }
        self.durable = durable.unwrap_or(self.durable);
        Ok(self)
    }
}

/// A text that is equal for two addresses of one server, whatever their databases and logins.
fn server(address: &Address) -> String {
    match &address.addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            // An IPv6 address can be written in several ways.
            let host = match host.parse::<IpAddr>() {
                Ok(address) => address.to_string(),
                Err(_) => host.to_ascii_lowercase(),
            };
            format!("{host} {port}")
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        other => other.to_string(),
    }
}

/// The servers, without their logins.
fn listed(nodes: &[Address]) -> String {
    let shown: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    shown.join(", ")
}

/// Number and addresses of the servers: safe for errors and logs.
impl fmt::Display for QuorumAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "quorum of {}: {}", self.nodes.len(), listed(&self.nodes))
    }
}

/// The servers, the longest TTL, and whether they are durable.
type ParsedQuorum = (Vec<Address>, Option<Duration>, Option<bool>);

/// Reads a quorum of servers of this scheme.
fn read(scheme: &str, rest: &str) -> Result<ParsedQuorum, String> {
    let (authority, tail) = split_authority(rest)?;
    let (path, query) = split_tail(tail)?;
    let (mut longest_ttl, mut durable, mut common) = (None, None, Vec::new());
    for (key, value) in pairs(query) {
        match key {
            "max_ttl" => once(&mut longest_ttl, duration(key, value)?, "values of max_ttl")?,
            "durable" => once(&mut durable, flag(key, value)?, "values of durable")?,
            "replicas" | "fsync" | "replicas_timeout" => return Err(NO_REPLICAS.into()),
            "db" | "protocol" | "user" | "username" | "pass" | "password" => {
                common.push(format!("{key}={value}"));
            }
            _ if key.starts_with(TLS) => common.push(format!("{key}={value}")),
            _ => {
                let why = "has an unknown option after ?; known are db, durable and max_ttl, and tls_ca and its like with rediss+quorum";
                return Err(why.into());
            }
        }
    }
    let tail = format!("{path}?{}", common.join("&"));
    let hosts: Vec<&str> = authority.split(',').collect();
    let last_login = hosts.iter().rposition(|host| host.contains('@'));
    let mut before = hosts[..last_login.unwrap_or_default()].iter();
    // A host and a port without a login may be the beginning of a password with a comma, and would be shown.
    if before.any(|host| host.contains(':') && !host.contains('@')) {
        let why = "has a host without a login before one that has a login; put it last";
        return Err(why.into());
    }
    let read = |host: &&str| match *host {
        "" if hosts.len() > 1 => Err("has an empty host between its commas".into()),
        host => tcp(scheme, &format!("//{host}{tail}")),
    };
    let nodes = hosts.iter().map(read).collect::<Result<_, _>>()?;
    Ok((nodes, longest_ttl, durable))
}

#[cfg(test)]
mod tests;
