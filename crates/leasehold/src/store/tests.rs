//! Store URLs.

use super::*;

#[test]
fn a_url_of_no_store_is_refused_with_what_to_write() {
    for (url, why) in [
        ("", "has no scheme"),
        ("S3CR3T@host", "has no scheme"),
        ("S3CR3T:x@host", "has an unknown scheme"),
        ("127.0.0.1:6379", "write redis://host:port/"),
        ("localhost:6379/0", "write redis://host:port/"),
        ("etcd://S3CR3T@h/", "unknown scheme"),
        (
            "redis-sentinel://:S3CR3T@h/main",
            "redis+sentinel://host1:26379",
        ),
        ("redis-cluster://h/", "redis+cluster://host1:6379"),
        ("redis+cluster://:S3CR3T@h/1", "names a database"),
        ("redis+quorum://:S3CR3T@a,b", "no majority of two"),
        ("redis+Quorum://S3CR3T,b,c", "unknown scheme"),
        ("memory://x", "write memory:"),
        ("redis://a,b", "several hosts"),
    ] {
        let Err(refused) = Target::parse(url) else {
            panic!("{url} was taken")
        };
        let refused = refused.to_string();
        assert!(refused.contains(why), "{url}: {refused}");
        assert!(!refused.contains("S3CR3T"), "{url}: {refused}");
    }
}

#[cfg(all(feature = "redis", feature = "local"))]
#[test]
fn a_quorum_is_made_of_servers_only() {
    let (a, b) = ("redis://:S3CR3T@a", "valkey://b");
    for (last, why) in [
        ("memory:", "\"memory:\": is no server"),
        ("local:/locks.db", "\"local:/locks.db\": is no server"),
        ("redis+quorum://:S3CR3T@c,d,e", "is a quorum already"),
        ("etcd://S3CR3T@h/", "unknown scheme"),
        ("redis://:S3CR3T@h/x", "not a number"),
        (a, "same server twice"),
    ] {
        let Err(refused) = Target::quorum([a, b, last]) else {
            panic!("{last} was taken")
        };
        let refused = refused.to_string();
        assert!(refused.contains(why), "{last}: {refused}");
        assert!(!refused.contains("S3CR3T"), "{last}: {refused}");
    }
    let Ok(Target::Quorum(address)) = Target::quorum([a, b, "unix:/c"]) else {
        panic!("three servers were refused")
    };
    let shown = "quorum of 3: redis://a:6379, valkey://b:6379, unix:/c";
    assert_eq!(address.to_string(), shown);
}

#[cfg(all(feature = "tls", feature = "local"))]
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
        ("redis://a S3CR3T://b", &["redis://a S3CR3T://b"]),
        ("redis://a redis", &["redis://a redis"]),
        ("", &[""]),
    ] {
        assert_eq!(StoreUrl::split(text), urls, "{text}");
    }
    let refused = StoreUrl::list("redis://a redis://:S3CR3T").unwrap_err();
    assert_eq!(refused.input, "redis:...");
}

#[cfg(all(feature = "tls", feature = "local"))]
#[test]
fn a_url_takes_the_settings_that_it_can_use() {
    let one = |url: &str| StoreUrl::list(url).unwrap().remove(0);
    let tls = [
        ("tls_ca", "/a b".to_owned()),
        ("tls_name", "c@d".to_owned()),
    ];
    for (url, whole) in [
        ("rediss://h", "rediss://h?tls_ca=%2Fa%20b&tls_name=c%40d"),
        (
            "rediss://h/2?db=2\n",
            "rediss://h/2?db=2&tls_ca=%2Fa%20b&tls_name=c%40d",
        ),
        ("redis://a", "redis://a"),
        ("unix:/c", "unix:/c"),
        ("local:/c", "local:/c"),
        (
            "rediss+quorum://a,b,c",
            "rediss+quorum://a,b,c?tls_ca=%2Fa%20b&tls_name=c%40d",
        ),
    ] {
        let url = one(url);
        assert_eq!(url.with(None, &tls), whole);
        assert_eq!(url.with(None, &[]), url.0);
        assert_eq!(url.is_of_servers(), !whole.starts_with("local:"));
        assert!(!url.has_password() && !url.has_tls_options(), "{url}");
        assert_eq!(one(whole).has_tls_options(), url.is_encrypted());
    }
    let url = one("rediss+quorum://a,b,c").with(Some("S3CR3T"), &tls[..1]);
    assert!(one(&url).has_password() && one(&url).has_tls_options());
    assert!(!format!("{:?} {0}", one(&url)).contains("S3CR3T"));
}

#[cfg(feature = "tls")]
#[test]
fn a_url_of_a_quorum_says_how_long_a_lease_may_last() {
    for (url, seconds) in [
        ("redis+quorum://a,b,c/2?durable=1&max_ttl=500ms", 0.5),
        ("rediss+quorum://u:p@a,b,c?max_ttl=2m", 120.0),
        ("redis://a", 24.0 * 60.0 * 60.0),
    ] {
        let read = StoreUrl::list(url).unwrap().remove(0);
        let longest = Duration::from_secs_f64(seconds);
        assert_eq!(read.longest_ttl(), longest, "{url}");
    }
}
