//! Store URLs: removing secrets for display, and inserting a password. A text may hold several URLs with spaces
//! between: the servers of a quorum.
//!
//! The library validates URLs. A doubtful URL is shown as its scheme only.

/// The schemes of a server, without and with encryption.
const PLAIN: [&str; 2] = ["redis", "valkey"];
const ENCRYPTED: [&str; 2] = ["rediss", "valkeys"];

/// The URLs in a text. The path of one URL may contain spaces, so only a text with a known scheme in each word is
/// several URLs.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_url = |word: &&str| {
        let is_other = word.starts_with("local:") || word.starts_with("memory:");
        is_other || word.contains(':') && takes_one_password(word)
    };
    // A path of `local:` may contain anything.
    let is_list = words.len() > 1 && takes_one_password(words[0]) && words.iter().all(is_url);
    if is_list { words } else { vec![text] }
}

/// The longest TTL of a lease, as the URL of a quorum names it.
pub(crate) fn max_ttl(url: &str) -> Option<&str> {
    let (_, options) = QuorumUrl::split(url)?.tail.split_once('?')?;
    let mut options = options.split('&');
    options.find_map(|option| option.strip_prefix("max_ttl="))
}

/// The text with `change` applied to each of its URLs.
fn each(text: &str, change: impl Fn(&str) -> String) -> String {
    let urls: Vec<String> = split(text).into_iter().map(change).collect();
    urls.join(" ")
}

/// A text without the users and passwords of its URLs.
pub(crate) fn shown(text: &str) -> String {
    each(text, |url| match QuorumUrl::split(url) {
        Some(quorum) => quorum.shown(),
        None => one_shown(url),
    })
}

fn one_shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else {
        return "...".into();
    };
    match scheme {
        "local" | "memory" => url.to_owned(),
        _ if is_socket(scheme) => {
            let path = rest.split('?').next().unwrap_or_default();
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.contains(['&', '=', '@']) {
                "unix:...".into()
            } else {
                format!("unix:{path}")
            }
        }
        _ if is_server(scheme) => {
            let (rest, options) = match rest.rsplit_once('?') {
                Some((rest, options)) if options.split('&').all(is_shown) => (rest, options),
                _ => (rest, ""),
            };
            let database = options.split('&').find(|option| option.starts_with("db="));
            let database = database.map_or_else(String::new, |option| format!("?{option}"));
            let (before, host) = rest.rsplit_once('@').unwrap_or(("", rest));
            let host = host.trim_start_matches("//");
            // A slash before the last `@` may belong to a password that is not encoded.
            let doubtful = before.trim_start_matches("//").contains(['/', '?', '#']);
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]/".contains(c);
            // The text in place of the port may be a password without its `@`.
            let end = host.rsplit(']').next().unwrap_or_default();
            let port = end.split_once(':').map_or("", |(_, port)| port);
            let is_port = port.chars().all(|c| c.is_ascii_digit() || c == '/');
            if doubtful || !is_port || !host.chars().all(plain) {
                format!("{scheme}://...")
            } else {
                format!("{scheme}://{host}{database}")
            }
        }
        _ => "...".into(),
    }
}

/// True for an option that holds no secret: a database, or a setting of encryption. An @ may belong to a password.
fn is_shown(option: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_database = option.strip_prefix("db=").is_some_and(is_number);
    is_database || is_of_tls(option) && !option.contains('@')
}

fn is_of_tls(option: &str) -> bool {
    option.starts_with("tls_")
}

/// True if one of the URLs is of an encrypted connection.
pub(crate) fn is_encrypted(text: &str) -> bool {
    split(text).into_iter().any(is_one_encrypted)
}

fn is_one_encrypted(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default();
    let of_server = scheme.strip_suffix("+quorum").unwrap_or(scheme);
    ENCRYPTED.contains(&of_server)
}

/// The text with these options added to each URL of an encrypted connection.
pub(crate) fn with_options(text: &str, options: &[(&str, String)]) -> String {
    if options.is_empty() {
        return text.to_owned();
    }
    let options = options.iter();
    let options = options.map(|(key, value)| format!("{key}={}", encoded(value)));
    let options = options.collect::<Vec<_>>().join("&");
    each(text.trim_end(), |url| {
        let separator = if url.contains('?') { '&' } else { '?' };
        if is_one_encrypted(url) {
            format!("{url}{separator}{options}")
        } else {
            url.to_owned()
        }
    })
}

/// True if one of the URLs has settings of encryption.
pub(crate) fn has_tls_options(text: &str) -> bool {
    split(text).into_iter().any(|url| {
        let (_, options) = url.split_once('?').unwrap_or_default();
        options.split('&').any(is_of_tls)
    })
}

/// True if one of the URLs has a password, or may have one in an unusual form.
pub(crate) fn has_password(text: &str) -> bool {
    let any = |url: &str| match QuorumUrl::split(url) {
        Some(quorum) => quorum.servers().iter().any(|url| one_has_password(url)),
        None => one_has_password(url),
    };
    split(text).into_iter().any(any)
}

fn one_has_password(url: &str) -> bool {
    match url.split_once(':') {
        Some(("local" | "memory", _)) | None => false,
        Some((_, rest)) => {
            let (_, options) = rest.split_once(['?', '&']).unwrap_or_default();
            let user = rest.rsplit_once('@').map(|(user, _)| user);
            let mut options = options.split('&').filter(|option| !is_of_tls(option));
            let in_options = options.any(|option| option.contains("pass"));
            in_options
                || user.is_some_and(|user| {
                    user.split_once(':')
                        .is_some_and(|(_, password)| !password.is_empty())
                })
        }
    }
}

/// True for stores that use passwords.
pub(crate) fn takes_password(text: &str) -> bool {
    split(text).into_iter().all(takes_one_password)
}

fn takes_one_password(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default();
    is_server(scheme) || is_socket(scheme) || QuorumUrl::split(url).is_some()
}

fn is_server(scheme: &str) -> bool {
    PLAIN.contains(&scheme) || ENCRYPTED.contains(&scheme)
}

fn is_socket(scheme: &str) -> bool {
    ["unix", "redis+unix", "valkey+unix"].contains(&scheme)
}

/// Inserts a password into each URL of a text that [`takes_password`] and has none.
pub(crate) fn with_password(text: &str, password: &str) -> String {
    let password = encoded(password);
    each(text, |url| match QuorumUrl::split(url) {
        Some(quorum) => quorum.with_each(|server| one_with_password(server, &password)),
        None => one_with_password(url, &password),
    })
}

fn one_with_password(url: &str, password: &str) -> String {
    let Some((scheme, rest)) = url
        .split_once("://")
        .filter(|(scheme, _)| !is_socket(scheme))
    else {
        let separator = if url.contains('?') { '&' } else { '?' };
        return format!("{url}{separator}pass={password}");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = user.trim_end_matches(':');
    format!("{scheme}://{user}:{password}@{host}{tail}")
}

/// Percent-encodes all characters that have a meaning in a URL.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The parts of the URL of a quorum, `redis+quorum://host1,host2,host3/`: several servers with one scheme, path and
/// options. The library validates them.
struct QuorumUrl<'a> {
    /// The scheme of each server.
    scheme: &'a str,
    /// The servers, each with its login.
    hosts: Vec<&'a str>,
    /// The path and the options.
    tail: &'a str,
}

impl<'a> QuorumUrl<'a> {
    /// Splits the URL of a quorum; `None` for any other URL.
    fn split(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        let scheme = scheme.strip_suffix("+quorum")?;
        if !is_server(scheme) {
            return None;
        }
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (hosts, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        Some(Self {
            scheme,
            hosts: hosts.split(',').collect(),
            tail,
        })
    }

    /// A URL for each server.
    fn servers(&self) -> Vec<String> {
        let url = |host: &&str| format!("{}://{host}{}", self.scheme, self.tail);
        self.hosts.iter().map(url).collect()
    }

    /// The URL with `change` applied to the URL of each server.
    fn with_each(&self, change: impl Fn(&str) -> String) -> String {
        let hosts: Vec<String> = self.hosts_by(change).collect();
        format!("{}+quorum://{}{}", self.scheme, hosts.join(","), self.tail)
    }

    /// The URL without users and passwords.
    fn shown(&self) -> String {
        let last_login = self.hosts.iter().rposition(|host| host.contains('@'));
        // A host and a port before a login may be the beginning of a password with a comma.
        let is_doubtful = self.hosts[..last_login.unwrap_or_default()]
            .iter()
            .any(|host| host.contains(':') && !host.contains('@'));
        let is_hidden = self.hosts_by(one_shown).any(|host| host == "...");
        if is_doubtful || is_hidden || !self.has_plain_tail() {
            return format!("{}+quorum://...", self.scheme);
        }
        self.with_each(one_shown)
    }

    /// The servers with `change` applied to their URLs, without the scheme.
    fn hosts_by(&self, change: impl Fn(&str) -> String) -> impl Iterator<Item = String> {
        let scheme = format!("{}://", self.scheme);
        self.hosts.iter().map(move |host| {
            let changed = change(&format!("{scheme}{host}"));
            changed
                .strip_prefix(&scheme)
                .map_or_else(|| "...".into(), str::to_owned)
        })
    }

    /// True for a path and options that hold no secret.
    fn has_plain_tail(&self) -> bool {
        let (path, options) = self.tail.split_once('?').unwrap_or((self.tail, ""));
        let is_plain = |option: &str| {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            if is_shown(option) {
                return true;
            }
            let (_, unit) = value.split_at(value.bytes().take_while(u8::is_ascii_digit).count());
            ["durable", "max_ttl"].contains(&key) && ["", "ms", "s", "m", "h"].contains(&unit)
        };
        let mut options = options.split('&').filter(|option| !option.is_empty());
        path.chars().all(|c| c == '/' || c.is_ascii_digit()) && options.all(is_plain)
    }
}

#[cfg(test)]
mod tests;
