//! Store URLs: removing secrets for display, and inserting a password. A text may hold several URLs with spaces
//! between: the servers of a quorum.
//!
//! The library validates URLs. A doubtful URL is shown as its scheme only.

mod quorum;

use self::quorum::QuorumUrl;

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

/// The text with `change` applied to each of its URLs.
fn each(text: &str, change: impl Fn(&str) -> String) -> String {
    let urls: Vec<String> = split(text).into_iter().map(change).collect();
    urls.join(" ")
}

/// A text without the users and passwords of its URLs.
pub(crate) fn shown(text: &str) -> String {
    each(text, |url| match QuorumUrl::split(url) {
        Some(quorum) => quorum.shown(one_shown, is_shown),
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
    let schemes = ["rediss", "valkeys", "rediss+quorum", "valkeys+quorum"];
    let scheme = url.split(':').next();
    scheme.is_some_and(|scheme| schemes.contains(&scheme))
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
    ["redis", "rediss", "valkey", "valkeys"].contains(&scheme)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_url_shows_its_password() {
        for (url, as_shown) in [
            ("redis://:S3CR3T@host:7000/3", "redis://host:7000/3"),
            ("rediss://user:S3CR3T@[::1]", "rediss://[::1]"),
            ("redis://host", "redis://host"),
            ("redis://u:S3/CR@3T@host/", "redis://..."),
            ("redis://u:S3CR3T", "redis://..."),
            ("redis://:S3CR3T", "redis://..."),
            ("redis://host/?S3CR3T", "redis://..."),
            ("unix:/run/r.sock?db=1&pass=S3CR3T", "unix:/run/r.sock"),
            ("unix:/run/r.sock&pass=S3CR3T", "unix:..."),
            ("valkeys://:S3CR3T@host/", "valkeys://host/"),
            ("redis://:S3CR3T@host/?db=3", "redis://host/?db=3"),
            ("redis://u:S3CR3T?db=3", "redis://..."),
            ("rediss://u:S3CR3T@h?tls_ca=/a.pem", "rediss://h"),
            (
                "rediss://h/?tls_name=a.b&db=3&tls_pin=ab",
                "rediss://h/?db=3",
            ),
            ("redis://u:123?tls_S3CR3T@h", "redis://..."),
            ("rediss://h?tls_ca=/a&S3CR3T", "rediss://..."),
            ("redis+unix://:S3CR3T@/r.sock", "unix:..."),
            ("redis+unix:///r.sock?pass=S3CR3T", "unix:/r.sock"),
            ("local:/a/b?c", "local:/a/b?c"),
            ("redis://:S3CR3T@a redis://b", "redis://a redis://b"),
            ("redis://:S3CR3T@a memory:", "redis://a memory:"),
            ("redis://a S3CR3T://b", "redis://..."),
            ("redis://a S3CR3T", "redis://..."),
            ("S3CR3T@host", "..."),
            ("S3CR3T:S3CR3T@host", "..."),
        ] {
            assert_eq!(shown(url), as_shown, "{url}");
        }
    }

    #[test]
    fn a_password_goes_where_the_store_wants_it() {
        for (url, whole) in [
            ("redis://h:1/2", "redis://:p%40%3A%20@h:1/2"),
            ("redis://h", "redis://:p%40%3A%20@h"),
            ("rediss://me@h/", "rediss://me:p%40%3A%20@h/"),
            ("redis://me:@h/", "redis://me:p%40%3A%20@h/"),
            (
                "rediss://h?tls_ca=/passport",
                "rediss://:p%40%3A%20@h?tls_ca=/passport",
            ),
            ("valkey://h/?db=2", "valkey://:p%40%3A%20@h/?db=2"),
            ("redis+unix:///s", "redis+unix:///s?pass=p%40%3A%20"),
            ("redis+unix://me@/s", "redis+unix://me@/s?pass=p%40%3A%20"),
            (
                "redis://a valkey://b unix:/c",
                "redis://:p%40%3A%20@a valkey://:p%40%3A%20@b unix:/c?pass=p%40%3A%20",
            ),
            ("unix:/s", "unix:/s?pass=p%40%3A%20"),
            ("unix:///s?db=1", "unix:///s?db=1&pass=p%40%3A%20"),
        ] {
            assert!(takes_password(url) && !has_password(url), "{url}");
            let with = with_password(url, "p@: ");
            assert_eq!(with, whole);
            assert!(has_password(&with), "{with}");
        }
    }

    #[test]
    fn options_go_to_each_encrypted_url() {
        let options = [
            ("tls_ca", "/a b".to_owned()),
            ("tls_name", "c@d".to_owned()),
        ];
        for (url, whole) in [
            ("rediss://h", "rediss://h?tls_ca=%2Fa%20b&tls_name=c%40d"),
            (
                "rediss://h/2?db=2\n",
                "rediss://h/2?db=2&tls_ca=%2Fa%20b&tls_name=c%40d",
            ),
            ("redis://a unix:/c", "redis://a unix:/c"),
            (
                "rediss+quorum://a,b,c",
                "rediss+quorum://a,b,c?tls_ca=%2Fa%20b&tls_name=c%40d",
            ),
        ] {
            let with = with_options(url, &options);
            assert_eq!(with, whole);
            assert_eq!(has_tls_options(&with), is_encrypted(url));
            assert_eq!(with_options(url, &[]), url);
        }
    }

    #[test]
    fn several_urls_have_spaces_between() {
        for (text, urls) in [
            ("redis://a", &["redis://a"][..]),
            ("redis://a/\n", &["redis://a/\n"]),
            ("redis://a  redis://b", &["redis://a", "redis://b"]),
            (
                "unix:/a redis+quorum://b local:/c",
                &["unix:/a", "redis+quorum://b", "local:/c"],
            ),
            ("local:/a redis://b", &["local:/a redis://b"]),
            ("redis://u:S3 CR3T@h", &["redis://u:S3 CR3T@h"]),
            ("redis://a redis", &["redis://a redis"]),
            ("", &[""]),
        ] {
            assert_eq!(split(text), urls, "{text}");
        }
        assert!(has_password("redis://a redis://:S3CR3T@b"));
        assert!(!has_password("redis://a:1 redis://me@b"));
        assert!(!takes_password("redis://a memory:"));
    }
}
