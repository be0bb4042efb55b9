//! Reads the URL of a quorum: several hosts with commas between, each with its own login.
//!
//! Path and options are those of a server, and count for each of them. Two options are for the quorum.

use std::time::Duration;

use super::login::once;
use super::{Parsed, TLS, is_tcp, pairs, split_authority, split_scheme, split_tail, tcp};

/// The end of a quorum's scheme, after the scheme of its servers.
const SUFFIX: &str = "+quorum";

/// The content of a quorum's URL.
pub(in crate::store::redis::address) struct ParsedQuorum {
    pub(in crate::store::redis::address) nodes: Vec<Parsed>,
    pub(in crate::store::redis::address) longest_ttl: Option<Duration>,
    pub(in crate::store::redis::address) durable: Option<bool>,
}

/// True if a URL of this scheme names a quorum.
pub(in crate::store::redis::address) fn knows(scheme: &str) -> bool {
    scheme.strip_suffix(SUFFIX).is_some_and(is_tcp)
}

/// Reads a URL with a [known](knows) scheme, or returns an error that says how to write it.
pub(in crate::store::redis::address) fn parse(url: &str) -> Result<ParsedQuorum, String> {
    let (scheme, rest) = split_scheme(url)?;
    hosts(scheme.trim_end_matches(SUFFIX), rest).map_err(|why| {
        format!(
            "{why}; write {scheme}://host1[:port],host2[:port],host3[:port][/db][?max_ttl=60s&durable=1], with user:password@ before each host that asks for them, and a comma in these as %2C"
        )
    })
}

/// Reads the hosts, as servers of this scheme.
fn hosts(scheme: &str, rest: &str) -> Result<ParsedQuorum, String> {
    let (authority, tail) = split_authority(rest)?;
    let (path, query) = split_tail(tail)?;
    let (mut longest_ttl, mut durable, mut common) = (None, None, Vec::new());
    for (key, value) in pairs(query) {
        match key {
            "max_ttl" => once(&mut longest_ttl, duration(value)?, "values of max_ttl")?,
            "durable" => once(&mut durable, flag(value)?, "values of durable")?,
            "db" | "protocol" | "user" | "username" | "pass" | "password" => {
                common.push(format!("{key}={value}"));
            }
            _ if key.starts_with(TLS) => {
                common.push(format!("{key}={value}"));
            }
            _ => {
                let why = "has an unknown option after ?; known are db, durable and max_ttl, and tls_ca and its like with rediss+quorum";
                return Err(why.into());
            }
        }
    }
    let tail = format!("{path}?{}", common.join("&"));
    let hosts: Vec<&str> = authority.split(',').collect();
    refuse_split_logins(&hosts)?;
    let read = |host: &&str| match *host {
        "" if hosts.len() > 1 => Err("has an empty host between its commas".into()),
        host => tcp(scheme, &format!("//{host}{tail}")),
    };
    Ok(ParsedQuorum {
        nodes: hosts.iter().map(read).collect::<Result<_, _>>()?,
        longest_ttl,
        durable,
    })
}

/// Refuses a host and a port without a login before a login. They may be the beginning of a password with a comma, and would be shown.
fn refuse_split_logins(hosts: &[&str]) -> Result<(), String> {
    let last_login = hosts.iter().rposition(|host| host.contains('@'));
    let before = &hosts[..last_login.unwrap_or_default()];
    if before
        .iter()
        .any(|host| host.contains(':') && !host.contains('@'))
    {
        let why = "has a host without a login before one that has a login; put it last";
        return Err(why.into());
    }
    Ok(())
}

/// Reads a whole number with a unit, such as `60s`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let millis = number.zip(millis).and_then(|(n, unit)| n.checked_mul(unit));
    let millis =
        millis.ok_or("has a max_ttl that is not a duration such as 500ms, 60s, 2m or 1h")?;
    Ok(Duration::from_millis(millis))
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("has a value of durable that is neither 0 nor 1".into()),
    }
}
