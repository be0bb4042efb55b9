//! The URL of a quorum, `redis+quorum://host1,host2,host3/`: several servers with one scheme, path and options.

/// The parts of a URL of this form. The library validates them.
pub(crate) struct QuorumUrl<'a> {
    /// The scheme of each server.
    scheme: &'a str,
    /// The servers, each with its login.
    hosts: Vec<&'a str>,
    /// The path and the options.
    tail: &'a str,
}

impl<'a> QuorumUrl<'a> {
    /// Splits the URL of a quorum; `None` for any other URL.
    pub(crate) fn split(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        let scheme = scheme.strip_suffix("+quorum")?;
        if !["redis", "rediss", "valkey", "valkeys"].contains(&scheme) {
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
    pub(crate) fn servers(&self) -> Vec<String> {
        let url = |host: &&str| format!("{}://{host}{}", self.scheme, self.tail);
        self.hosts.iter().map(url).collect()
    }

    /// The URL with `change` applied to the URL of each server.
    pub(crate) fn with_each(&self, change: impl Fn(&str) -> String) -> String {
        let hosts: Vec<String> = self.hosts_by(change).collect();
        format!("{}+quorum://{}{}", self.scheme, hosts.join(","), self.tail)
    }

    /// The URL without users and passwords. `one_shown` hides those of a server, and `is_shown` tells an
    /// option of a server without a secret.
    pub(crate) fn shown(
        &self,
        one_shown: impl Fn(&str) -> String,
        is_shown: impl Fn(&str) -> bool,
    ) -> String {
        let last_login = self.hosts.iter().rposition(|host| host.contains('@'));
        // A host and a port before a login may be the beginning of a password with a comma.
        let is_doubtful = self.hosts[..last_login.unwrap_or_default()]
            .iter()
            .any(|host| host.contains(':') && !host.contains('@'));
        let is_hidden = self.hosts_by(&one_shown).any(|host| host == "...");
        if is_doubtful || is_hidden || !self.has_plain_tail(is_shown) {
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
    fn has_plain_tail(&self, is_shown: impl Fn(&str) -> bool) -> bool {
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
mod tests {
    use crate::address::{has_password, shown, takes_password, with_password};

    #[test]
    fn url_of_a_quorum_is_shown_without_secrets() {
        for (url, as_shown) in [
            ("redis+quorum://a,b:1,c", "redis+quorum://a,b:1,c"),
            (
                "rediss+quorum://u:S3CR3T@a,:S3CR3T@[::1]:7,c/2?max_ttl=60s&durable=1&db=2",
                "rediss+quorum://a,[::1]:7,c/2?max_ttl=60s&durable=1&db=2",
            ),
            (
                "rediss+quorum://:S3CR3T@a,b,c?tls_ca=/a.pem&max_ttl=9s",
                "rediss+quorum://a,b,c?tls_ca=/a.pem&max_ttl=9s",
            ),
            ("redis+quorum://u:1?tls_S3CR3T@a,b,c", "redis+quorum://..."),
            ("redis+quorum://u:S3CR3T,b,c", "redis+quorum://..."),
            ("redis+quorum://u:123,S3CR3T@b,c,d", "redis+quorum://..."),
            ("redis+quorum://u:S3/CR3T@b,c,d", "redis+quorum://..."),
            ("redis+quorum://a,b,c/?pass=S3CR3T", "redis+quorum://..."),
            ("redis+quorum://a,b,c/S3CR3T", "redis+quorum://..."),
            ("redis+quorum://a,b,c#S3CR3T", "redis+quorum://..."),
            ("redis+sentinel://a,b:S3CR3T", "..."),
        ] {
            assert_eq!(shown(url), as_shown, "{url}");
        }
    }

    #[test]
    fn password_goes_to_each_server_of_a_quorum() {
        for (url, whole) in [
            (
                "redis+quorum://a,me@b:1,c/2?max_ttl=60s",
                "redis+quorum://:p%2Cq@a,me:p%2Cq@b:1,:p%2Cq@c/2?max_ttl=60s",
            ),
            (
                "valkeys+quorum://[::1]:7,b,c",
                "valkeys+quorum://:p%2Cq@[::1]:7,:p%2Cq@b,:p%2Cq@c",
            ),
        ] {
            assert!(takes_password(url) && !has_password(url), "{url}");
            let with = with_password(url, "p,q");
            assert_eq!(with, whole);
            assert!(has_password(&with), "{with}");
        }
        assert!(has_password("redis+quorum://a,b:1,u:S3CR3T@c"));
    }
}
