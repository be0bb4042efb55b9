//! Reads the URL of a server.
//!
//! Errors quote no part after the scheme, which may be a secret. A part that is not understood is an error.

mod host;
mod login;
mod percent;
pub(super) mod quorum;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use redis::{ConnectionAddr, RedisConnectionInfo};

use self::host::host_and_port;
use self::login::{Login, once};
use self::percent::{decoded, text};
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// The begin of each option of TLS.
const TLS: &str = "tls_";

const ENCODE: &str = "in user and password, percent-encode / : @ # ? % and spaces";

/// The content of a URL.
pub(super) struct Parsed {
    pub(super) addr: ConnectionAddr,
    pub(super) settings: RedisConnectionInfo,
    #[cfg(feature = "tls")]
    pub(super) tls: Tls,
    /// The URL without user and password.
    pub(super) shown: String,
}

/// True if a URL of this scheme names a server.
pub(super) fn knows(scheme: &str) -> bool {
    is_tcp(scheme) || is_socket(scheme)
}

fn is_tcp(scheme: &str) -> bool {
    ["redis", "rediss", "valkey", "valkeys"].contains(&scheme)
}

fn is_socket(scheme: &str) -> bool {
    ["unix", "redis+unix", "valkey+unix"].contains(&scheme)
}

/// Reads a URL with a [known](knows) scheme, or returns an error that says how to write it.
pub(super) fn parse(url: &str) -> Result<Parsed, String> {
    let (scheme, rest) = split_scheme(url)?;
    if is_socket(scheme) {
        socket(rest)
    } else {
        tcp(scheme, rest)
    }
    .map_err(|why| {
        let form = if is_socket(scheme) {
            "unix:/path/to/socket[?db=0&user=NAME&pass=SECRET]".to_owned()
        } else {
            format!("{scheme}://host[:port][/db], with user:password@ before the host if it asks for them")
        };
        format!("{why}; write {form}")
    })
}

/// Splits a URL without spaces into its scheme and the rest.
fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    // A mounted secret often ends with a line break.
    let (scheme, rest) = url.trim_end().split_once(':').unwrap_or_default();
    if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!(
            "has a space or a control character in it; {ENCODE}"
        ));
    }
    Ok((scheme, rest))
}

/// Splits the text after the scheme: login and host first, then path and options.
fn split_authority(rest: &str) -> Result<(&str, &str), String> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err("has no // after the scheme".into());
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if tail.contains('@') {
        return Err(format!("has an @ after the host; {ENCODE}"));
    }
    Ok((authority, tail))
}

fn tcp(scheme: &str, rest: &str) -> Result<Parsed, String> {
    let (authority, tail) = split_authority(rest)?;
    let (who, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut login = Login::default();
    login.take_user(who)?;
    let (host, port) = host_and_port(host)?;
    let (path, query) = split_tail(tail)?;
    login.take_path(path)?;
    let is_encrypted = ["rediss", "valkeys"].contains(&scheme);
    #[cfg(feature = "tls")]
    let mut tls = Tls::default();
    for (key, value) in pairs(query) {
        match key {
            "db" => login.take_database(value)?,
            "protocol" => speaks(value)?,
            "user" | "username" | "pass" | "password" => {
                return Err("names user or password after the host; put them before it".into());
            }
            _ if key.starts_with(TLS) && !is_encrypted => {
                return Err("has an option of TLS, but is not encrypted; write rediss://".into());
            }
            #[cfg(feature = "tls")]
            _ if tls.take(key, text(value)?)? => {}
            #[cfg(feature = "tls")]
            _ if is_encrypted => {
                let known = crate::tls::OPTIONS;
                return Err(format!(
                    "has an unknown option after ?; known are db, {known}"
                ));
            }
            _ => return Err("has an unknown option after ?; only db is known".into()),
        }
    }
    let database = login.database.filter(|number| *number > 0);
    let database = database.map_or_else(String::new, |number| format!("/{number}"));
    let shown = if host.contains(':') {
        format!("{scheme}://[{host}]:{port}{database}")
    } else {
        format!("{scheme}://{host}:{port}{database}")
    };
    let addr = if is_encrypted {
        let (insecure, tls_params) = (false, None);
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    Ok(Parsed {
        addr,
        settings: login.settings(),
        #[cfg(feature = "tls")]
        tls,
        shown,
    })
}

fn socket(rest: &str) -> Result<Parsed, String> {
    let mut login = Login::default();
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (who, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            if !host.is_empty() {
                return Err("has a host before the path".into());
            }
            login.take_user(who)?;
            path
        }
    };
    let (path, query) = split_tail(path)?;
    if path.contains(['&', '=']) {
        return Err("has options that do not begin with a question mark".into());
    }
    let path = decoded(path)?;
    if !path.starts_with(b"/") || path.ends_with(b"/") {
        return Err("must name a socket by its absolute path".into());
    }
    let path = PathBuf::from(OsString::from_vec(path));
    let shown = path.display().to_string();
    if shown.contains(char::is_control) {
        return Err("has a control character in its path".into());
    }
    for (key, value) in pairs(query) {
        // As in an HTML form, a plus stands for a space.
        let text = || text(&value.replace('+', " "));
        match key {
            "db" => login.take_database(value)?,
            "protocol" => speaks(value)?,
            "user" | "username" => once(&mut login.user, text()?, "users")?,
            "pass" | "password" => once(&mut login.password, text()?, "passwords")?,
            _ => {
                return Err("has an unknown option after ?; known are db, user and pass".into());
            }
        }
    }
    let database = login.database.filter(|number| *number > 0);
    let database = database.map_or_else(String::new, |number| format!("/{number}"));
    Ok(Parsed {
        addr: ConnectionAddr::Unix(path),
        settings: login.settings(),
        #[cfg(feature = "tls")]
        tls: Tls::default(),
        shown: format!("unix:{shown}{database}"),
    })
}

/// Splits a path from the options after it.
fn split_tail(tail: &str) -> Result<(&str, &str), String> {
    if tail.contains('#') {
        let why =
            "has something after #, which has no meaning here (certificates are always checked)";
        return Err(why.into());
    }
    Ok(tail.split_once('?').unwrap_or((tail, "")))
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn speaks(protocol: &str) -> Result<(), String> {
    match protocol {
        "3" | "resp3" => Ok(()),
        _ => Err("asks for another protocol than RESP3".into()),
    }
}
