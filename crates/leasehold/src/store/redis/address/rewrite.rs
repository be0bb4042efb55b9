//! The texts that are made of a valid URL: without its logins, with a password, with an option. [`Address`] and [`QuorumAddress`] say
//! which URL is valid.

use redis::ConnectionAddr;

use super::quorum::QuorumAddress;
use super::{Address, is_socket, split_authority, split_scheme};

/// A valid URL of any store without users and passwords.
pub(crate) fn shown(url: &str) -> String {
    match Address::parse(url) {
        // The password of a socket and that of sentinels are options.
        Ok(address)
            if matches!(address.addr, ConnectionAddr::Unix(_)) || address.watched.is_some() =>
        {
            address.shown
        }
        _ => with_logins(url, |_| String::new()),
    }
}

/// A valid URL of servers without a password, with this one for each server.
pub(crate) fn with_password(url: &str, password: &str) -> String {
    if is_socket(url.split(':').next().unwrap_or_default()) {
        return with_option(url, "pass", password);
    }
    let password = encoded(password);
    with_logins(url, |user| {
        format!("{}:{password}@", user.trim_end_matches(':'))
    })
}

/// A valid URL of servers with this option.
pub(crate) fn with_option(url: &str, key: &str, value: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{}{separator}{key}={}", url.trim_end(), encoded(value))
}

/// A valid URL with the part before each host made by `login`, from the login without its `@`.
fn with_logins(url: &str, login: impl Fn(&str) -> String) -> String {
    let split = split_scheme(url).and_then(|(scheme, rest)| Ok((scheme, split_authority(rest)?)));
    let Ok((scheme, (authority, tail))) = split else {
        return url.to_owned();
    };
    let is_quorum = QuorumAddress::has_scheme(scheme);
    // In the path of a file, an @ ends no login.
    if !is_quorum && !Address::has_scheme(scheme) {
        return url.to_owned();
    }
    let servers = authority
        .split(|c: char| is_quorum && c == ',')
        .map(|server| {
            let (user, host) = server.rsplit_once('@').unwrap_or(("", server));
            login(user) + host
        });
    let servers: Vec<String> = servers.collect();
    format!("{scheme}://{}{tail}", servers.join(","))
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
    use testkit::rows;

    use super::*;

    #[test]
    fn a_url_is_shown_as_it_is_without_its_logins() {
        let table = "
            redis://host                               | redis://host
            redis://:S3CR3T@host:7000/3                | redis://host:7000/3
            redis://S3CR3T@host/?db=3                  | redis://host/?db=3
            rediss://S3C,R3T:S3CR3T:S3@CR3T@[::1]      | rediss://[::1]
            rediss://u:S3CR3T@h?tls_ca=/a.pem&db=3     | rediss://h?tls_ca=/a.pem&db=3
            unix:/run/r.sock?db=1&pass=S3CR3T          | unix:/run/r.sock/1
            redis+unix://:S3CR3T@/r.sock               | unix:/r.sock
            redis+sentinel://u:S3CR3T@a,b:1/m/2?sentinel_pass=S3CR3T | redis+sentinel://a:26379,b:1/m/2
            redis+quorum://a,b:1,c                     | redis+quorum://a,b:1,c
            redis+quorum://u:S3CR3T@a,:S3CR3T@[::1]:7,c/2?max_ttl=60s | redis+quorum://a,[::1]:7,c/2?max_ttl=60s
            local:/a@b?mode=0600                       | local:/a@b?mode=0600
            local://a@b/f                              | local://a@b/f
            memory:                                    | memory:
        ";
        for [url, as_shown] in rows(table) {
            assert_eq!(shown(url), as_shown);
        }
    }

    #[test]
    fn a_password_goes_where_the_server_wants_it() {
        let table = "
            redis://h:1/2                | redis://:p%40%3A%20%2C@h:1/2
            redis://h                    | redis://:p%40%3A%20%2C@h
            rediss://me@h/               | rediss://me:p%40%3A%20%2C@h/
            redis://me:@h/               | redis://me:p%40%3A%20%2C@h/
            rediss://h?tls_ca=/passport  | rediss://:p%40%3A%20%2C@h?tls_ca=/passport
            valkey://h/?db=2             | valkey://:p%40%3A%20%2C@h/?db=2
            rediss+sentinel://a,b:1/m/2  | rediss+sentinel://:p%40%3A%20%2C@a,b:1/m/2
            redis+unix:///s              | redis+unix:///s?pass=p%40%3A%20%2C
            redis+unix://me@/s           | redis+unix://me@/s?pass=p%40%3A%20%2C
            unix:///s?db=1               | unix:///s?db=1&pass=p%40%3A%20%2C
        ";
        for [url, whole] in rows(table) {
            assert!(!Address::parse(url).unwrap().has_password(), "{url}");
            let with = with_password(url, "p@: ,");
            assert_eq!(with, whole);
            let settings = Address::parse(&with).map(|address| address.settings);
            assert_eq!(settings.unwrap().password(), Some("p@: ,"), "{with}");
        }
        let quorum = "valkeys+quorum://[::1]:7,me@b,c/2?max_ttl=60s\n";
        let whole = "valkeys+quorum://:p%2Cq@[::1]:7,me:p%2Cq@b,:p%2Cq@c/2?max_ttl=60s";
        assert_eq!(with_password(quorum, "p,q"), whole);
        let nodes = QuorumAddress::parse(whole).map(|quorum| quorum.nodes);
        assert!(nodes.unwrap().iter().all(Address::has_password));
    }
}
