//! The address of a Redis server and the login, or those of a [`quorum`], read from a URL. User and password are never shown.
//!
//! Errors quote no part after the scheme, which may be a secret. A part that is not understood is an error, and so are two different
//! values for one of them.

pub(super) mod quorum;
#[cfg(feature = "tls")]
pub(super) mod rewrite;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU8;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;
use redis::{ConnectionAddr, RedisConnectionInfo};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::access::{Access, Dialer, Source};
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// How long sent bytes may stay unacknowledged before the kernel gives the connection up.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(10);

/// How long a connection may be idle before the kernel asks the other side for a sign of life, and the pause between such questions. Less
/// than any network keeps an idle connection in mind; and without an answer, the connection ends within half a minute.
const IDLE: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: u32 = 2;

/// The port if a URL names none.
const PORT: u16 = 6379;

/// The port of a sentinel if a URL names none.
const SENTINEL_PORT: u16 = 26379;

/// The begin of each option of TLS.
const TLS: &str = "tls_";

/// The options that require [`Replicas`], in every URL.
const REPLICAS: &str = "replicas, fsync and replicas_timeout";

/// How long replicas may take to confirm, unless configured.
const REPLICAS_TIMEOUT: Duration = Duration::from_millis(500);

const ENCODE: &str = "in user and password, percent-encode / : @ # ? % and spaces";

/// The end of the scheme of a cluster, after that of its nodes.
const CLUSTER: &str = "+cluster";

/// The end of the scheme of a server that sentinels name, after that of the server.
const SENTINEL: &str = "+sentinel";

/// Host and port.
pub(super) type Place = (String, u16);

/// The replicas that must receive a grant or a renewal before the client counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    /// The least number of replicas that confirm.
    pub(super) count: NonZeroU8,
    /// It has to be on the disk of the server and of the replicas.
    pub(super) fsync: bool,
    /// How long they may take.
    pub(super) timeout: Duration,
}

/// A parsed URL.
#[derive(Clone)]
pub(crate) struct Address {
    /// Where the server is; in a cluster, one of its nodes; a sentinel, if there is `watched`.
    pub(super) addr: ConnectionAddr,
    /// The sentinels that name the server.
    pub(super) watched: Option<Arc<Watched>>,
    /// Host and port of more nodes of a cluster.
    pub(super) seeds: Vec<Place>,
    /// The URL says that the servers are nodes of a cluster.
    pub(super) is_cluster: bool,
    /// `shown` of the URL that was given, which led to this node of a cluster, sentinel or primary.
    given: String,
    /// The login at the server, and the database.
    pub(super) settings: RedisConnectionInfo,
    /// The URL without user and password.
    shown: String,
    /// What has to confirm each grant and each renewal; `None` if the server itself is enough.
    pub(super) replicas: Option<Replicas>,
    /// The source of credentials outside the URL.
    pub(super) credentials: Option<Source>,
    /// Makes the streams to host and port, if the client does not.
    pub(super) dialer: Option<Dialer>,
    /// The settings of the client, or else of the URL.
    #[cfg(feature = "tls")]
    pub(super) tls: Tls,
}

/// What a URL says of sentinels.
pub(super) struct Watched {
    /// Host and port of each, at least one.
    pub(super) sentinels: Vec<Place>,
    /// The name of the primary in their words.
    pub(super) name: String,
    /// The login at each.
    login: RedisConnectionInfo,
}

impl Address {
    /// True if a URL of this scheme can name a server.
    pub(crate) fn has_scheme(scheme: &str) -> bool {
        let several = [CLUSTER, SENTINEL].into_iter();
        let mut server = several.filter_map(|end| scheme.strip_suffix(end));
        is_tcp(server.next().unwrap_or(scheme)) || is_socket(scheme)
    }

    /// One of the sentinels.
    pub(super) fn of_sentinel(&self, host: &str, port: u16) -> Self {
        Self {
            watched: self.watched.clone(),
            credentials: match &self.credentials {
                Some(Source::Credentials(_)) => None,
                other => other.clone(),
            },
            shown: format!("sentinel {}", host_port(host, port)),
            ..self.of_node(host, port)
        }
    }

    /// The login at `addr`, and the database.
    pub(super) fn login(&self) -> &RedisConnectionInfo {
        let watched = self.watched.as_ref();
        watched.map_or(&self.settings, |watched| &watched.login)
    }

    /// A node of the cluster that this address leads to, or the primary that sentinels name.
    pub(super) fn of_node(&self, host: &str, port: u16) -> Self {
        let mut addr = self.addr.clone();
        match &mut addr {
            ConnectionAddr::TcpTls {
                host: at, port: on, ..
            } => (*at, *on) = (host.to_owned(), port),
            // The other nodes of a cluster are not behind a socket.
            addr => *addr = ConnectionAddr::Tcp(host.to_owned(), port),
        }
        let scheme = match addr {
            ConnectionAddr::TcpTls { .. } => "rediss",
            _ => "redis",
        };
        Self {
            addr,
            watched: None,
            seeds: Vec::new(),
            shown: server_url(scheme, host, port),
            ..self.clone()
        }
    }

    /// Host and port, unless it is a socket.
    pub(super) fn place(&self) -> Option<Place> {
        match &self.addr {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        }
    }

    /// True if both were read from the same URL, without its login.
    pub(super) fn is_given_as(&self, other: &Self) -> bool {
        self.given == other.given
    }

    /// Reads the URL of a server, of a cluster, or of sentinels.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        read(url).map_err(|why| refused(url, why))
    }

    /// Adds credentials and TLS settings.
    pub(crate) fn with(mut self, access: Access) -> Result<Self, Invalid> {
        let refuse = |why| Err(Invalid::new("store URL", &self.shown, why));
        let has_its_own = self.settings.username().is_some() || self.settings.password().is_some();
        if matches!(access.credentials, Some(Source::Credentials(_))) && has_its_own {
            return refuse(
                "has a user or a password, and credentials were given besides: leave one of them out",
            );
        }
        #[cfg(feature = "tls")]
        {
            if access.tls.is_some() && !self.is_private() {
                return refuse(
                    "is not encrypted, and TLS settings were given besides: write rediss:// or leave them out",
                );
            }
            if access.tls.is_some() && !self.tls.is_default() {
                return refuse(
                    "has TLS options, and TLS settings were given besides: leave one of them out",
                );
            }
            self.tls = access.tls.unwrap_or(self.tls);
            self.tls.check()?;
        }
        if access.dialer.is_some() && matches!(self.addr, ConnectionAddr::Unix(_)) {
            return refuse(
                "is a socket file, and a dial function was given besides, which takes host and port: leave one of them out",
            );
        }
        (self.credentials, self.dialer) = (access.credentials, access.dialer);
        Ok(self)
    }

    /// True if the client logs in with a password, at the server or at its sentinels.
    #[cfg(any(feature = "doctor", feature = "tls"))]
    pub(crate) fn has_password(&self) -> bool {
        let is_asked_for = matches!(self.credentials, Some(Source::Credentials(_)));
        let logins = [&self.settings, self.login()];
        is_asked_for || logins.iter().any(|login| login.password().is_some())
    }

    /// True if the URL has settings of encryption.
    #[cfg(feature = "tls")]
    pub(crate) fn has_tls_options(&self) -> bool {
        !self.tls.is_default()
    }

    /// Sets the options of a new stream.
    pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
        // A client sends little and waits for the reply: a request must not wait for a full packet.
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        // What only listens sends nothing, and would not notice that the network has dropped it.
        let alive = TcpKeepalive::new().with_time(IDLE);
        let alive = alive.with_interval(ASK_EVERY).with_retries(ASK_TIMES);
        socket.set_tcp_keepalive(&alive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNCONFIRMED))?;
        Ok(())
    }

    /// True if the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.addr, ConnectionAddr::TcpTls { .. })
    }

    /// True if the connection is encrypted or does not leave this host's kernel.
    #[cfg(any(feature = "doctor", feature = "tls"))]
    pub(super) fn is_private(&self) -> bool {
        self.is_encrypted() || matches!(self.addr, ConnectionAddr::Unix(_))
    }
}

/// Scheme, host, port and database: safe for errors and logs.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The error for a URL. It quotes only the scheme: the rest may contain a secret.
fn refused(url: &str, why: String) -> Invalid {
    let scheme = url.split(':').next().unwrap_or_default();
    Invalid::new("store URL", &format!("{scheme}:..."), why)
}

fn is_tcp(scheme: &str) -> bool {
    ["redis", "rediss", "valkey", "valkeys"].contains(&scheme)
}

fn is_socket(scheme: &str) -> bool {
    ["unix", "redis+unix", "valkey+unix"].contains(&scheme)
}

/// Reads the URL of a server, or returns an error that says how to write it.
fn read(url: &str) -> Result<Address, String> {
    let (scheme, rest) = split_scheme(url)?;
    if let Some(scheme) = scheme.strip_suffix(CLUSTER) {
        let form = "host1[:port][,host2[:port]...], with user:password@ before the first host if the nodes ask for them";
        cluster(scheme, rest).map_err(|why| format!("{why}; write {scheme}+cluster://{form}"))
    } else if let Some(scheme) = scheme.strip_suffix(SENTINEL) {
        let form = "host1[:26379][,host2[:26379]...]/NAME[/db], with user:password@ before the first host if the server asks for them, and ?sentinel_user=NAME&sentinel_pass=SECRET if the sentinels do";
        sentinels(scheme, rest).map_err(|why| format!("{why}; write {scheme}+sentinel://{form}"))
    } else if is_socket(scheme) {
        let form = "unix:/path/to/socket[?db=0&user=NAME&pass=SECRET]";
        socket(rest).map_err(|why| format!("{why}; write {form}"))
    } else {
        let form = "host[:port][/db], with user:password@ before the host if it asks for them";
        tcp(scheme, rest).map_err(|why| format!("{why}; write {scheme}://{form}"))
    }
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

/// Some nodes of a cluster. Login and options are the same for all nodes.
fn cluster(scheme: &str, rest: &str) -> Result<Address, String> {
    let (authority, tail) = split_authority(rest)?;
    let (who, mut places) = split_hosts(authority, PORT)?;
    let (host, port) = places.remove(0);
    let mut address = tcp(scheme, &format!("//{who}{}{tail}", host_port(&host, port)))?;
    if address.settings.db() != 0 {
        return Err("names a database; a cluster has none but 0".into());
    }
    address.is_cluster = true;
    let others = places
        .iter()
        .map(|(host, port)| format!(",{}", host_port(host, *port)));
    address.shown = address.shown.replacen("://", "+cluster://", 1) + &others.collect::<String>();
    address.given.clone_from(&address.shown);
    address.seeds = places;
    Ok(address)
}

/// Some sentinels, and the server that they name. The login before the hosts is that of the server; the sentinels have their own.
fn sentinels(scheme: &str, rest: &str) -> Result<Address, String> {
    let (authority, tail) = split_authority(rest)?;
    let (who, sentinels) = split_hosts(authority, SENTINEL_PORT)?;
    let (path, query) = split_tail(tail)?;
    let path = path.strip_prefix('/').unwrap_or(path);
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        let why = "does not say after the hosts what the sentinels call the primary (`sentinel monitor NAME` in their configuration)";
        return Err(why.into());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !name.chars().all(plain) {
        return Err("has a name of the primary that is not made of letters, digits and .-_".into());
    }
    let (mut own, mut common) = (Parts::default(), Vec::new());
    for (key, value) in pairs(query) {
        match key {
            "sentinel_user" | "sentinel_username" => {
                once(&mut own.user, text(value)?, "users for the sentinels")?;
            }
            "sentinel_pass" | "sentinel_password" => {
                once(
                    &mut own.password,
                    text(value)?,
                    "passwords for the sentinels",
                )?;
            }
            _ => common.push(format!("{key}={value}")),
        }
    }
    let shown: Vec<String> = sentinels
        .iter()
        .map(|(host, port)| host_port(host, *port))
        .collect();
    let options = common.join("&");
    let mut address = tcp(scheme, &format!("//{who}{}/{database}?{options}", shown[0]))?;
    let login = own.into_address(address.addr.clone(), "")?.settings;
    let database = match address.settings.db() {
        0 => String::new(),
        number => format!("/{number}"),
    };
    let hosts = shown.join(",");
    address.shown = format!("{scheme}+sentinel://{hosts}/{name}{database}");
    address.given.clone_from(&address.shown);
    address.watched = Some(Arc::new(Watched {
        sentinels,
        name: name.to_owned(),
        login,
    }));
    Ok(address)
}

/// Splits the login with its @ from a list of hosts.
fn split_hosts(authority: &str, port: u16) -> Result<(&str, Vec<Place>), String> {
    let (who, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    // A login before each host would be taken for a long password, and all hosts but the last for a part of it.
    if who.matches('@').count() > 1 {
        return Err(format!(
            "has more than one @; write user and password once, before the first host; {ENCODE}"
        ));
    }
    let places = hosts.split(',').map(|host| host_and_port(host, port));
    Ok((who, places.collect::<Result<_, _>>()?))
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn server_url(scheme: &str, host: &str, port: u16) -> String {
    format!("{scheme}://{}", host_port(host, port))
}

fn tcp(scheme: &str, rest: &str) -> Result<Address, String> {
    let (authority, tail) = split_authority(rest)?;
    let (who, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut parts = Parts::default();
    parts.take_user(who)?;
    let (host, port) = host_and_port(host, PORT)?;
    let (path, query) = split_tail(tail)?;
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.strip_suffix('/').unwrap_or(path) {
        "" => {}
        number => parts.take_database(number)?,
    }
    let is_encrypted = ["rediss", "valkeys"].contains(&scheme);
    for (key, value) in pairs(query) {
        match key {
            "db" => parts.take_database(value)?,
            "protocol" => speaks(value)?,
            "user" | "username" | "pass" | "password" => {
                return Err("names user or password after the host; put them before it".into());
            }
            _ if parts.take_replicas(key, value)? => {}
            _ if key.starts_with(TLS) && !is_encrypted => {
                let why =
                    "has an option of TLS, but is not encrypted; write rediss in place of redis";
                return Err(why.into());
            }
            #[cfg(feature = "tls")]
            _ if parts.tls.take(key, text(value)?)? => {}
            #[cfg(feature = "tls")]
            _ if is_encrypted => {
                let known = crate::tls::OPTIONS;
                return Err(format!(
                    "has an unknown option after ?; known are db, {known}, {REPLICAS}"
                ));
            }
            _ => {
                return Err(format!(
                    "has an unknown option after ?; known are db, {REPLICAS}"
                ));
            }
        }
    }
    let server = server_url(scheme, &host, port);
    let addr = if is_encrypted {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    parts.into_address(addr, &server)
}

fn socket(rest: &str) -> Result<Address, String> {
    let mut parts = Parts::default();
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (who, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            if !host.is_empty() {
                return Err("has a host before the path".into());
            }
            parts.take_user(who)?;
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
    let server = format!("unix:{}", path.display());
    if server.contains(char::is_control) {
        return Err("has a control character in its path".into());
    }
    for (key, value) in pairs(query) {
        // As in an HTML form, a plus stands for a space.
        let text = || text(&value.replace('+', " "));
        match key {
            "db" => parts.take_database(value)?,
            "protocol" => speaks(value)?,
            "user" | "username" => once(&mut parts.user, text()?, "users")?,
            "pass" | "password" => once(&mut parts.password, text()?, "passwords")?,
            _ if parts.take_replicas(key, value)? => {}
            _ => {
                return Err(format!(
                    "has an unknown option after ?; known are db, user and pass, {REPLICAS}"
                ));
            }
        }
    }
    parts.into_address(ConnectionAddr::Unix(path), &server)
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

/// Reads a host and a port; without one, it is `default`.
fn host_and_port(text: &str, default: u16) -> Result<Place, String> {
    if text.contains(',') {
        let why = "names several hosts; name one, or write redis+cluster:// for nodes of a cluster, redis+sentinel:// for sentinels, or redis+quorum:// for 3 to 9 servers that do not replicate each other";
        return Err(why.into());
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("has a [ without its ]")?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err("has no IPv6 address between [ and ]".into());
        }
        if !port.is_empty() && !port.starts_with(':') {
            return Err("has something between ] and the port".into());
        }
        (host, port.strip_prefix(':'))
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if port.is_some_and(|port| port.contains(':')) {
            return Err("has more than one colon in its host; write an IPv6 address in [ ]".into());
        }
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
        None => default,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or("has a port that is not a number from 1 to 65535")?,
    };
    Ok((host.to_owned(), port))
}

/// The parts of a URL, apart from the place of the server.
#[derive(Default)]
struct Parts {
    user: Option<String>,
    password: Option<String>,
    database: Option<u32>,
    replicas: Option<NonZeroU8>,
    fsync: Option<bool>,
    replicas_timeout: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: Tls,
}

impl Parts {
    fn take_user(&mut self, who: &str) -> Result<(), String> {
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        self.user = Some(text(user)?).filter(|user| !user.is_empty());
        self.password = Some(text(password)?).filter(|password| !password.is_empty());
        Ok(())
    }

    fn take_database(&mut self, text: &str) -> Result<(), String> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        let number = number.ok_or("names a database that is not a number")?;
        once(&mut self.database, number, "databases")
    }

    /// Takes an option that says what replicas have to confirm. False for another option.
    fn take_replicas(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "replicas" => {
                let count = value.parse().ok();
                let count = count.ok_or("has a value of replicas that is not a number from 1 to 255; leave it out to wait for none")?;
                once(&mut self.replicas, count, "values of replicas")?;
            }
            "fsync" => once(&mut self.fsync, flag(key, value)?, "values of fsync")?,
            "replicas_timeout" => {
                let timeout = duration(key, value)?;
                if timeout.is_zero() {
                    return Err("has a replicas_timeout of 0; the least is 1ms".into());
                }
                let place = &mut self.replicas_timeout;
                once(place, timeout, "values of replicas_timeout")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads from the options how many replicas must confirm each grant and each renewal.
    fn confirmation(&self) -> Result<Option<Replicas>, String> {
        let timeout = self.replicas_timeout;
        match self.replicas {
            Some(count) => Ok(Some(Replicas {
                count,
                fsync: self.fsync.unwrap_or(false),
                timeout: timeout.unwrap_or(REPLICAS_TIMEOUT),
            })),
            None if self.fsync == Some(true) => {
                Err("has fsync without replicas; write replicas=1&fsync=1".into())
            }
            None if timeout.is_some() => {
                Err("has a replicas_timeout without replicas; write replicas=1 too".into())
            }
            None => Ok(None),
        }
    }

    /// The address of a server with this name.
    fn into_address(self, addr: ConnectionAddr, server: &str) -> Result<Address, String> {
        let replicas = self.confirmation()?;
        let database = self.database.unwrap_or_default();
        let shown = match database {
            0 => server.to_owned(),
            number => format!("{server}/{number}"),
        };
        let mut settings = RedisConnectionInfo::default()
            .set_db(database.into())
            .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        if let Some(user) = self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = self.password {
            settings = settings.set_password(password);
        }
        Ok(Address {
            addr,
            watched: None,
            seeds: Vec::new(),
            is_cluster: false,
            settings,
            given: shown.clone(),
            shown,
            replicas,
            credentials: None,
            dialer: None,
            #[cfg(feature = "tls")]
            tls: self.tls,
        })
    }
}

/// Stores a value. The same value may be given twice, two different ones are an error.
fn once<T: PartialEq>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place {
        Some(other) if *other != value => Err(format!("names two {what}")),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

/// Reads the value of an option that is on or off.
fn flag(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("has a value of {key} that is neither 0 nor 1")),
    }
}

/// Reads the value of an option: a whole number with a unit, such as `60s`.
fn duration(key: &str, value: &str) -> Result<Duration, String> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let millis = number.zip(millis).and_then(|(n, unit)| n.checked_mul(unit));
    let millis = millis.ok_or_else(|| {
        format!("has a {key} that is not a duration such as 500ms, 60s, 2m or 1h")
    })?;
    Ok(Duration::from_millis(millis))
}

/// Decodes a percent-encoded text.
fn text(encoded: &str) -> Result<String, String> {
    String::from_utf8(decoded(encoded)?).map_err(|_| "has a part that is not UTF-8".into())
}

/// Decodes a percent-encoded text to bytes.
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
