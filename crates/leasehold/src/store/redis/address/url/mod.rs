//! Reads the URL of a server. Must never quote a part of one after its scheme, which may be a secret, and never pass over a part
//! that it does not understand.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use redis::{ConnectionAddr, RedisConnectionInfo};

/// The port if a URL names none.
const PORT: u16 = 6379;

const ENCODE: &str = "in user and password, percent-encode / : @ # ? % and spaces";

/// What a URL says.
pub(super) struct Parsed {
    pub(super) addr: ConnectionAddr,
    pub(super) settings: RedisConnectionInfo,
    /// The URL without user and password.
    pub(super) shown: String,
}

/// Who we are to the server, and which of its databases is meant.
#[derive(Default)]
struct Login {
    user: Option<String>,
    password: Option<String>,
    database: Option<u32>,
}

/// Whether a URL of this scheme is one of a server.
pub(super) fn knows(scheme: &str) -> bool {
    is_tcp(scheme) || is_socket(scheme)
}

fn is_tcp(scheme: &str) -> bool {
    ["redis", "rediss", "valkey", "valkeys"].contains(&scheme)
}

fn is_socket(scheme: &str) -> bool {
    ["unix", "redis+unix", "valkey+unix"].contains(&scheme)
}

/// Reads a URL whose scheme is [known](knows), or says what is wrong with it.
pub(super) fn parse(url: &str) -> Result<Parsed, String> {
    // A mounted secret often ends with a line break.
    let (scheme, rest) = url.trim_end().split_once(':').unwrap_or_default();
    if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!(
            "has a space or a control character in it; {ENCODE}"
        ));
    }
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

fn tcp(scheme: &str, rest: &str) -> Result<Parsed, String> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err("has no // after the scheme".into());
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if tail.contains('@') {
        return Err(format!("has an @ after the host; {ENCODE}"));
    }
    let (who, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut login = Login::default();
    login.take_user(who)?;
    let (host, port) = host_and_port(host)?;
    let (path, query) = split_tail(tail)?;
    login.take_path(path)?;
    for (key, value) in pairs(query) {
        match key {
            "db" => login.take_database(value)?,
            "protocol" => speaks(value)?,
            "user" | "username" | "pass" | "password" => {
                return Err("names user or password after the host; put them before it".into());
            }
            _ => return Err("has an option after ? that is not known; known is db".into()),
        }
    }
    let database = login.database.filter(|number| *number > 0);
    let database = database.map_or_else(String::new, |number| format!("/{number}"));
    let shown = if host.contains(':') {
        format!("{scheme}://[{host}]:{port}{database}")
    } else {
        format!("{scheme}://{host}:{port}{database}")
    };
    let addr = if ["rediss", "valkeys"].contains(&scheme) {
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
        // As in a form: a plus is a space.
        let text = || text(&value.replace('+', " "));
        match key {
            "db" => login.take_database(value)?,
            "protocol" => speaks(value)?,
            "user" | "username" => once(&mut login.user, text()?, "users")?,
            "pass" | "password" => once(&mut login.password, text()?, "passwords")?,
            _ => {
                return Err(
                    "has an option after ? that is not known; known are db, user and pass".into(),
                );
            }
        }
    }
    let database = login.database.filter(|number| *number > 0);
    let database = database.map_or_else(String::new, |number| format!("/{number}"));
    Ok(Parsed {
        addr: ConnectionAddr::Unix(path),
        settings: login.settings(),
        shown: format!("unix:{shown}{database}"),
    })
}

impl Login {
    fn take_user(&mut self, who: &str) -> Result<(), String> {
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let given = |part: &str| match part {
            "" => Ok(None),
            part => text(part).map(Some),
        };
        (self.user, self.password) = (given(user)?, given(password)?);
        Ok(())
    }

    fn take_path(&mut self, path: &str) -> Result<(), String> {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.strip_suffix('/').unwrap_or(path) {
            "" => Ok(()),
            number => self.take_database(number),
        }
    }

    fn take_database(&mut self, text: &str) -> Result<(), String> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        let number = number.ok_or("names a database that is no number")?;
        once(&mut self.database, number, "databases")
    }

    fn settings(self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default();
        if let Some(user) = self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = self.password {
            settings = settings.set_password(password);
        }
        settings.set_db(self.database.unwrap_or_default().into())
    }
}

/// Keeps a value that may be said twice, but not in two ways.
fn once<T: PartialEq>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place {
        Some(other) if *other != value => Err(format!("names two {what}")),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if text.contains(',') {
        let why = "names several hosts, and Leasehold keeps its locks on one server: name that one";
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
        return Err("has more than one colon in its host; an IPv6 address stands in [ ]".into());
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
            return Err("has a host that is no name and no address".into());
        }
        (host, port)
    };
    let is_wildcard = |address: IpAddr| address.is_unspecified();
    if host.parse().is_ok_and(is_wildcard) {
        return Err("names every address of a host, to which nobody connects: name one".into());
    }
    let port = match port {
        None => PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or("has a port that is no number from 1 to 65535")?,
    };
    Ok((host.to_owned(), port))
}

/// A path, and the options after it.
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

fn text(encoded: &str) -> Result<String, String> {
    String::from_utf8(decoded(encoded)?)
        .map_err(|_| "has a user or a password that is not UTF-8".into())
}

/// The bytes that a percent-encoded text means.
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let pair = digit().zip(digit());
        let byte = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(byte.ok_or("has a % without two hexadecimal digits; write %25 for it")?);
    }
    Ok(bytes)
}
