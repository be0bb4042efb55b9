use proptest::prelude::*;

use super::*;

fn read(url: &str) -> Result<QuorumAddress, String> {
    QuorumAddress::parse(url).map_err(|invalid| invalid.to_string())
}

fn refused(url: &str) -> String {
    read(url).map(|address| address.to_string()).unwrap_err()
}

fn of(urls: &[&str]) -> Result<QuorumAddress, Invalid> {
    let nodes = urls.iter().map(|url| Address::parse(url).unwrap());
    QuorumAddress::of(nodes.collect())
}

#[test]
fn every_form_of_a_quorum_is_read() {
    let seconds = |seconds| Duration::from_secs(seconds);
    for (url, shown, longest_ttl, durable) in [
        (
            "redis+quorum://a,b:6380,c",
            "quorum of 3: redis://a:6379, redis://b:6380, redis://c:6379",
            seconds(60),
            false,
        ),
        (
            "valkey+quorum://a,b,c/2?max_ttl=2m&durable=1\n",
            "quorum of 3: valkey://a:6379/2, valkey://b:6379/2, valkey://c:6379/2",
            seconds(120),
            true,
        ),
        (
            "rediss+quorum://u:S3CR3T@a,:S3CR3T@b,c/?db=1&durable=0&max_ttl=500ms",
            "quorum of 3: rediss://a:6379/1, rediss://b:6379/1, rediss://c:6379/1",
            Duration::from_millis(500),
            false,
        ),
        (
            "valkeys+quorum://u:S3CR3T@[::2],[::1]:7000,[::3]/?max_ttl=24h&",
            "quorum of 3: valkeys://[::2]:6379, valkeys://[::1]:7000, valkeys://[::3]:6379",
            seconds(24 * 60 * 60),
            false,
        ),
        (
            "redis+quorum://a:1,a:2,a:3?protocol=3&max_ttl=90s&max_ttl=90s",
            "quorum of 3: redis://a:1, redis://a:2, redis://a:3",
            seconds(90),
            false,
        ),
    ] {
        let address = read(url).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(address.to_string(), shown, "{url}");
        assert_eq!(address.longest_ttl.get(), longest_ttl, "{url}");
        assert_eq!(address.durable, durable, "{url}");
    }
    let nine = read("redis+quorum://a,b,c,d,e,f,g,h,i").map(|address| address.nodes.len());
    assert_eq!(nine, Ok(9));
}

#[cfg(feature = "tls")]
#[test]
fn encryption_of_a_quorum_is_that_of_each_server() {
    let address = read("rediss+quorum://a,b,c/2?tls_name=db.internal&max_ttl=5s").ok();
    let nodes = address.unwrap().nodes;
    assert!(nodes.iter().all(|node| !node.tls.is_default()));
    let said = refused("redis+quorum://a,b,c?tls_ca=/a");
    assert!(said.contains("is not encrypted"), "{said}");
}

#[test]
fn each_server_of_a_quorum_has_its_login() {
    let address = read("redis+quorum://u:p%2Cq@a,:p@b:1,c/3").ok().unwrap();
    let logins = address.nodes.iter().map(|node| {
        let settings = &node.settings;
        (settings.username(), settings.password(), settings.db())
    });
    let logins: Vec<_> = logins.collect();
    let (user, password) = (Some("u"), Some("p,q"));
    assert_eq!(
        logins,
        [(user, password, 3), (None, Some("p"), 3), (None, None, 3)]
    );
}

#[test]
fn what_is_no_quorum_is_refused_without_secrets() {
    for (url, why) in [
        ("redis+quorum://", "names no host"),
        ("redis+quorum:a,b,c", "no //"),
        ("redis+quorum://a", "names one server"),
        (
            "redis+quorum://a,b",
            "no majority of two is less than both: name 3 to 9 servers",
        ),
        ("redis+quorum://a,b,c,d,e,f,g,h,i,j", "names 10 servers"),
        ("redis+quorum://a,,c", "empty host between its commas"),
        ("redis+quorum://a,b,c,", "empty host between its commas"),
        ("redis+quorum://:S3CR3T@,b,c", "names no host"),
        ("redis+quorum://a,b,A:6379", "same server twice"),
        ("redis+quorum://[::1],b,[0:0::1]:6379", "same server twice"),
        ("redis+quorum://a,b,u:S3CR3T@a/1", "same server twice"),
        ("redis+quorum://a,b,c?S3CR3T=1", "db, durable and max_ttl"),
        ("redis+quorum://a,b,c?password=S3CR3T", "before it"),
        ("redis+quorum://a,b,c?replicas=1", "must not have"),
        ("redis+quorum://a,b,c?protocol=2", "RESP3"),
        ("redis+quorum://a,b,c/1?db=2", "two databases"),
        ("redis+quorum://a,b,c/S3CR3T", "not a number"),
        ("redis+quorum://a,b,c#S3CR3T", "after #"),
        ("redis+quorum://a,b,c?durable=S3CR3T", "neither 0 nor 1"),
        ("redis+quorum://a,b,c?durable", "neither 0 nor 1"),
        ("redis+quorum://a,b,c?durable=0&durable=1", "two values"),
        ("redis+quorum://a,b,c?max_ttl=1s&max_ttl=2s", "two values"),
        ("redis+quorum://a,b,c?max_ttl=S3CR3T", "not a duration"),
        ("redis+quorum://a,b,c?max_ttl=60", "not a duration"),
        ("redis+quorum://a,b,c?max_ttl=s", "not a duration"),
        ("redis+quorum://a,b,c?max_ttl=+1s", "not a duration"),
        (
            "redis+quorum://a,b,c?max_ttl=18446744073709551615h",
            "not a duration",
        ),
        ("redis+quorum://a,b,c?max_ttl=9ms", "10 ms to 24 h"),
        ("redis+quorum://a,b,c?max_ttl=25h", "10 ms to 24 h"),
        ("redis+quorum://a,b:x,c", "from 1 to 65535"),
        ("redis+quorum://a,0.0.0.0,c", "wildcard"),
        ("redis+quorum://a,b,u:S3 CR3T@c", "space"),
        ("redis+quorum://a,b,u:S3CR3T/x@c", "percent-encode"),
        ("redis+quorum://u:S3CR3T,x@a,b,c", "a comma in these as %2C"),
        ("redis+quorum://u:12345,x@a,b,c", "put it last"),
        ("redis+quorum://[::1]:7000,u:S3CR3T@b,c", "put it last"),
        ("redis+quorum://a,u:S3CR3T", "port"),
    ] {
        let said = refused(url);
        assert!(said.contains(why), "{url}: {said}");
        assert!(said.contains("\"redis+quorum:...\""), "{url}: {said}");
        assert!(
            !said.contains("S3CR3T") && !said.contains("12345"),
            "{said}"
        );
    }
}

#[test]
fn urls_of_servers_make_a_quorum() {
    let address = of(&["redis://:S3CR3T@a", "unix:/r.sock", "rediss://c"]).ok();
    assert_eq!(
        address.unwrap().to_string(),
        "quorum of 3: redis://a:6379, unix:/r.sock, rediss://c:6379"
    );
    for (urls, why) in [
        ([].as_slice(), "names no server"),
        (&["redis://:S3CR3T@a"], "names one server"),
        (&["redis://:S3CR3T@a", "redis://b"], "majority of two"),
        (&["redis://a", "rediss://:S3CR3T@a", "unix:/s"], "twice"),
        (&["unix:/s", "redis://a", "unix:/s?db=1"], "twice"),
    ] {
        let said = of(urls).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains(why) && !said.contains("S3CR3T"), "{said}");
    }
}

#[test]
fn settings_of_a_client_replace_those_of_a_url() {
    let address = || read("redis+quorum://a,b,c?max_ttl=5s&durable=1").ok();
    let set = |longest_ttl, durable| {
        let set = address().unwrap().set(longest_ttl, durable);
        set.map(|set| (set.longest_ttl.get(), set.durable))
    };
    let seconds = Duration::from_secs;
    assert_eq!(set(None, None), Ok((seconds(5), true)));
    assert_eq!(set(Some(seconds(7)), None), Ok((seconds(7), true)));
    assert_eq!(set(None, Some(false)), Ok((seconds(5), false)));
    let said = set(Some(Duration::ZERO), None).unwrap_err().to_string();
    assert!(said.contains("longest TTL of a quorum"), "{said}");
}

#[test]
fn access_of_a_client_is_that_of_each_server() {
    use std::io;

    use crate::access::{Credentials, Source};

    let source = Source::new(async || Ok::<_, io::Error>(Credentials::password("S3CR3T")));
    let access = Access {
        credentials: Some(source),
        ..Access::default()
    };
    let address = of(&["redis://a", "redis://b", "redis://c"]).ok().unwrap();
    let address = address.with(&access).ok().unwrap();
    assert!(address.nodes.iter().all(|node| node.credentials.is_some()));
    let refused = of(&["redis://a", "redis://b/?replicas=1", "redis://c"]).err();
    assert!(refused.unwrap().to_string().contains("must not have"));
    let address = of(&["redis://a", "redis://b", "redis://:S3CR3T@c"]).ok();
    let said = address.unwrap().with(&access).map(|_| ()).unwrap_err();
    let said = said.to_string();
    assert!(said.contains("leave one of them out"), "{said}");
    assert!(!said.contains("S3CR3T"), "{said}");
}

proptest! {
    #[test]
    fn no_text_panics_or_quotes_a_secret(
        text in "[a-z0-9:/@#?&=%,\\[\\]. ]{0,24}", tail in "(,[ab:@1]{0,6}){0,3}"
    ) {
        let url = format!("redis+quorum://{text}Zz9{text}{tail}");
        if let Err(why) = read(&url) {
            prop_assert!(!why.contains("Zz9"), "{}", why);
        }
    }
}
