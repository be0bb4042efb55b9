//! Reads the host and the port of a URL.

use std::net::{IpAddr, Ipv6Addr};

/// The port if a URL names none.
const PORT: u16 = 6379;

pub(super) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if text.contains(',') {
        let why = "names several hosts; name one, or write redis+quorum:// for 3 to 9 servers that do not replicate each other";
        return Err(why.into());
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("has a [ without its ]")?;
        host.parse::<Ipv6Addr>()
            .map_err(|_| "has no IPv6 address between [ and ]")?;
        match port.strip_prefix(':') {
            None if port.is_empty() => (host, None),
            None => return Err("has something between ] and the port".into()),
            Some(port) => (host, Some(port)),
        }
    } else if text.matches(':').count() > 1 {
        return Err("has more than one colon in its host; write an IPv6 address in [ ]".into());
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if host.is_empty() {
            return Err("names no host".into());
        }
        if !host.chars().all(plain) {
            return Err("has a host that is neither a name nor an address".into());
        }
        (host, port)
    };
    let is_wildcard = |address: IpAddr| address.is_unspecified();
    if host.parse().is_ok_and(is_wildcard) {
        return Err("names a wildcard address; name the address of the server".into());
    }
    let port = match port {
        None => PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or("has a port that is not a number from 1 to 65535")?,
    };
    Ok((host.to_owned(), port))
}
