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
            "redis+sentinel://:S3CR3T@h/",
            "Sentinel is not supported yet",
        ),
        ("redis-cluster://h/", "Cluster is not supported yet"),
        ("rediss+cluster://h/", "Cluster is not supported yet"),
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
