//! Every form of a URL, and every invalid part.

use proptest::prelude::*;

use super::*;

fn shown(url: &str) -> String {
    read(url).map_or_else(|why| why, |parsed| parsed.shown)
}

fn user_and_password(url: &str) -> (Option<String>, Option<String>) {
    let settings = read(url).map(|parsed| parsed.settings).ok().unwrap();
    let own = |text: &str| text.to_owned();
    (settings.username().map(own), settings.password().map(own))
}

#[test]
fn every_form_is_read() {
    for (url, as_shown) in [
        ("redis://h", "redis://h:6379"),
        ("redis://h/\n", "redis://h:6379"),
        ("valkey://h:7/3", "valkey://h:7/3"),
        ("valkeys://h/?db=3", "valkeys://h:6379/3"),
        ("redis://h/3?db=3", "redis://h:6379/3"),
        ("redis://h?db=0&protocol=resp3", "redis://h:6379"),
        ("redis://[::1]:18200/", "redis://[::1]:18200"),
        ("rediss://u:p@[::1]", "rediss://[::1]:6379"),
        ("unix:/r.sock", "unix:/r.sock"),
        ("unix:///r%20.sock?db=2&pass=x", "unix:/r .sock/2"),
        ("redis+unix:///r.sock", "unix:/r.sock"),
        (
            "redis+sentinel://u:p@a,[::1]:7/m-1.x/2?sentinel_pass=x",
            "redis+sentinel://a:26379,[::1]:7/m-1.x/2",
        ),
        (
            "valkeys+sentinel://a/0/?db=2",
            "valkeys+sentinel://a:26379/0/2",
        ),
        ("valkey+unix://u:p@/r.sock?db=1", "unix:/r.sock/1"),
    ] {
        assert_eq!(shown(url), as_shown, "{url}");
    }
    for (scheme, tls) in [
        ("redis", false),
        ("rediss", true),
        ("valkey", false),
        ("valkeys", true),
    ] {
        let parsed = read(&format!("{scheme}://h"));
        let addr = parsed.map(|parsed| parsed.addr).unwrap();
        let insecure = matches!(addr, ConnectionAddr::TcpTls { insecure: true, .. });
        let is_tls = matches!(addr, ConnectionAddr::TcpTls { .. });
        assert_eq!((is_tls, insecure), (tls, false), "{scheme}");
    }
}

#[test]
fn unknown_parts_of_a_url_are_refused() {
    for (url, why) in [
        ("redis://h/?nonsense=1", "option after ?"),
        ("redis://h/?password=S3CR3T", "before it"),
        ("redis://h/?tls_ca=/a", "is not encrypted; write rediss in"),
        ("redis://h/?protocol=resp2", "RESP3"),
        ("redis://h/?S3CR3T", "option after ?"),
        ("redis://h/3?db=4", "two databases"),
        ("redis://h/?db=1&db=2", "two databases"),
        ("redis://h/?db=x", "not a number"),
        ("redis://h/?db=", "not a number"),
        ("redis://h/x", "not a number"),
        ("redis://h/-1", "not a number"),
        ("redis://h/1/2", "not a number"),
        ("redis://h/#3", "after #"),
        ("rediss://h/#insecure", "certificates are always checked"),
        ("redis://a,b", "several hosts"),
        ("redis://a:1,b:2/", "several hosts"),
        ("redis://", "names no host"),
        ("redis:///3", "names no host"),
        ("redis:h", "no //"),
        ("redis://:S3CR3T@", "names no host"),
        ("redis://h:", "port"),
        ("redis://h:99999/", "from 1 to 65535"),
        ("redis://h:0/", "from 1 to 65535"),
        ("redis://h:+1/", "from 1 to 65535"),
        ("redis://u:S3CR3T", "port"),
        ("redis://::1:18200/", "write an IPv6 address in [ ]"),
        ("redis://[::1", "without its ]"),
        ("redis://[h]/", "no IPv6"),
        ("redis://[::1]6379/", "between ]"),
        ("redis://0.0.0.0/", "wildcard"),
        ("redis://[::]/", "wildcard"),
        ("redis://h\u{f6}/", "neither a name"),
        ("redis://u:S3 CR3T@h/", "space"),
        ("redis://u:S3CR3T%@h/", "%25"),
        ("redis://u:%ff@h/", "UTF-8"),
        ("redis://u:S3CR3T#x@h/", "percent-encode"),
        ("redis://u:S3CR3T/x@h/", "percent-encode"),
        ("redis://u:S3CR3T?x@h/", "percent-encode"),
        (
            "redis+sentinel://u:S3CR3T@a,u:S3CR3T@b/m",
            "before the first host",
        ),
        (
            "redis+cluster://u:S3CR3T@a,u:S3CR3T@b",
            "before the first host",
        ),
        ("redis+sentinel://:S3CR3T@a,b", "call the primary"),
        ("redis+sentinel://a//3", "call the primary"),
        ("redis+sentinel://a,,b/m", "names no host"),
        ("redis+sentinel://a/m%20m", "letters, digits"),
        ("redis+sentinel://a/m/x", "not a number"),
        ("redis+sentinel://a/m/1/2", "not a number"),
        ("redis+sentinel://a/m/1?db=2", "two databases"),
        ("redis+sentinel://a/m?sentinel_S3CR3T=1", "option after ?"),
        ("redis+sentinel://a/m?pass=S3CR3T", "before it"),
        (
            "redis+sentinel://a/m?sentinel_pass=a&sentinel_password=S3CR3T",
            "two passwords for the sentinels",
        ),
        ("redis+sentinel://a/m?tls_ca=/a", "not encrypted"),
        ("unix:r.sock", "absolute path"),
        ("unix:", "absolute path"),
        ("unix://tmp/r.sock", "has a host"),
        ("unix:/r.sock&pass=S3CR3T", "question mark"),
        ("unix:/r.sock?S3CR3T=1", "known are db, user and pass"),
        ("unix://u:a@/r.sock?pass=S3CR3T", "two passwords"),
        ("unix:/r%1bsock", "control"),
    ] {
        let said = read(url).map(|parsed| parsed.shown).unwrap_err();
        assert!(said.contains(why), "{url}: {said}");
        assert!(!said.contains("S3CR3T"), "{url}: {said}");
    }
}

#[test]
fn replicas_are_read_in_every_url_of_a_server_or_cluster() {
    let asked = |count, fsync, millis| {
        Some(Replicas {
            count: NonZeroU8::new(count).unwrap(),
            fsync,
            timeout: Duration::from_millis(millis),
        })
    };
    for (url, replicas) in [
        ("redis://h", None),
        ("redis://h/?fsync=0", None),
        ("redis://h/?replicas=1", asked(1, false, 500)),
        ("rediss://h/?replicas=2&fsync=1", asked(2, true, 500)),
        ("redis://h/3?replicas=2&fsync=0&db=3", asked(2, false, 500)),
        (
            "redis+cluster://a,b/?replicas=255&replicas_timeout=2s",
            asked(255, false, 2_000),
        ),
        (
            "unix:/s?replicas=1&replicas_timeout=1ms",
            asked(1, false, 1),
        ),
    ] {
        let parsed = read(url).unwrap_or_else(|why| panic!("{url}: {why}"));
        assert_eq!(parsed.replicas, replicas, "{url}");
        assert!(!parsed.shown.contains("replicas"), "{}", parsed.shown);
    }
    let node = read("redis+cluster://a/?replicas=1").map(|address| address.of_node("b", 7));
    assert_eq!(node.unwrap().replicas, asked(1, false, 500));
    for (options, why) in [
        ("replicas", "not a number from 1 to 255"),
        ("replicas=0", "not a number from 1 to 255; leave it out"),
        ("replicas=-1", "not a number from 1 to 255"),
        ("replicas=256", "not a number from 1 to 255"),
        ("replicas=all", "not a number from 1 to 255"),
        ("replicas=1&replicas=2", "two values of replicas"),
        (
            "replicas=1&fsync=2",
            "value of fsync that is neither 0 nor 1",
        ),
        (
            "replicas=1&fsync=yes",
            "value of fsync that is neither 0 nor 1",
        ),
        ("fsync=1", "fsync without replicas"),
        ("replicas_timeout=1s", "replicas_timeout without replicas"),
        ("replicas=1&replicas_timeout=0s", "replicas_timeout of 0"),
        (
            "replicas=1&replicas_timeout=1",
            "replicas_timeout that is not a",
        ),
        (
            "replicas=1&replicas_timeout=-1s",
            "not a duration such as 500ms",
        ),
        (
            "replicas=1&replicas_timeout=1s&replicas_timeout=2s",
            "two values of replicas_timeout",
        ),
    ] {
        for begin in [
            "redis://h/",
            "rediss://h/",
            "redis+cluster://a,b/",
            "unix:/s",
        ] {
            let url = format!("{begin}?{options}");
            let said = read(&url).map(|parsed| parsed.shown).unwrap_err();
            assert!(said.contains(why), "{url}: {said}");
        }
    }
}

#[test]
fn user_and_password_are_decoded() {
    let said = |user: &str, password: &str| {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        (some(user), some(password))
    };
    for (url, user, password) in [
        ("redis://h", "", ""),
        ("redis://me@h", "me", ""),
        ("redis://:p%40%3a%20@h", "", "p@: "),
        ("redis://me:p:q@r@h", "me", "p:q@r"),
        ("unix:/s?user=me&pass=a+b%2B", "me", "a b+"),
        ("unix:/s?username=me&password=p", "me", "p"),
        ("redis+unix://me:p@/s", "me", "p"),
    ] {
        assert_eq!(user_and_password(url), said(user, password), "{url}");
    }
}

#[test]
fn a_server_and_its_sentinels_have_logins_of_their_own() {
    let url = "redis+sentinel://me:p%2Cq@a,b:1/m?sentinel_user=s&sentinel_pass=%40";
    let address = read(url).ok().unwrap();
    let login = |address: &Address| {
        let login = address.login();
        let parts = [login.username(), login.password()];
        parts.map(|part| part.unwrap_or_default().to_owned())
    };
    assert_eq!(login(&address), ["s", "@"]);
    assert_eq!(login(&address.of_sentinel("b", 1)), ["s", "@"]);
    let primary = address.of_node("10.0.0.1", 6379);
    assert_eq!(login(&primary), ["me", "p,q"]);
    assert_eq!(primary.to_string(), "redis://10.0.0.1:6379");
    let shown = address.of_sentinel("::1", 1).to_string();
    assert_eq!(shown, "sentinel [::1]:1");
}

fn encoded(text: &str) -> String {
    let encode = |byte: u8| format!("%{byte:02x}");
    text.bytes().map(encode).collect()
}

proptest! {
    #[test]
    fn what_is_encoded_comes_out_as_it_was(
        user in "\\PC{0,12}", password in "\\PC{1,12}", host in "[a-z]{1,9}", port in 1u16.., db: u32
    ) {
        let url = format!("redis://{}:{}@{host}:{port}/{db}", encoded(&user), encoded(&password));
        let parsed = read(&url).map_err(TestCaseError::fail)?;
        let settings = parsed.settings;
        prop_assert_eq!(settings.username().unwrap_or_default(), &user);
        prop_assert_eq!(settings.password(), Some(password.as_str()));
        prop_assert_eq!(settings.db(), i64::from(db));
        prop_assert_eq!(parsed.addr, ConnectionAddr::Tcp(host, port));
    }

    #[test]
    fn no_text_makes_it_panic_or_quote_a_secret(
        scheme in "(redis|rediss|valkey|unix|redis\\+unix|redis\\+sentinel)", text in "[a-z0-9:/@#?&=%,\\[\\]. ]{0,24}"
    ) {
        let url = format!("{scheme}:{text}Zz9{text}");
        if let Err(why) = read(&url) {
            prop_assert!(!why.contains("Zz9"), "{}", why);
        }
    }
}

#[cfg(feature = "tls")]
#[test]
fn encryption_has_options() {
    let url = |options: &str| format!("rediss://:S3CR3T@h/3?{options}");
    for options in [
        "tls_ca=/a%20b.pem",
        "tls_cert=/c&tls_key=/k&db=3",
        "tls_name=db.internal&tls_pin=12,34",
    ] {
        assert_eq!(shown(&url(options)), "rediss://h:6379/3", "{options}");
        assert!(!read(&url(options)).ok().unwrap().tls.is_default());
    }
    for (options, why) in [
        ("tls_ca=a.pem", "tls_ca without an absolute path"),
        ("tls_key", "tls_key without an absolute path"),
        ("tls_ca=/a&tls_ca=/a", "two values of tls_ca"),
        ("tls_pin=12&tls_pin=34", "two values of tls_pin"),
        ("tls_S3CR3T=1", "known are db, tls_ca, tls_cert, tls_key"),
        ("tls_ca=/%ff", "not UTF-8"),
    ] {
        let said = shown(&url(options));
        assert!(said.contains(why) && !said.contains("S3CR3T"), "{said}");
    }
}

#[test]
fn shows_no_secret() {
    for (url, shown) in [
        ("redis://user:S3CR3T@host:7000/3", "redis://host:7000/3"),
        ("rediss://:S3CR3T@host", "rediss://host:6379"),
        ("unix:/r.sock?db=2&pass=S3CR3T", "unix:/r.sock/2"),
    ] {
        assert_eq!(
            Address::parse(url).map(|address| address.to_string()),
            Ok(shown.to_owned())
        );
    }
}

#[test]
fn refuses_without_showing_a_secret() {
    for url in [
        "redis://user:S3CR3T@host:99999/",
        "redis://:S3CR3T@",
        "redis://:S3CR3T@host/x",
        "rediss://:S3CR3T@host/#S3CR3T",
    ] {
        let refused = Address::parse(url)
            .map(|address| address.to_string())
            .unwrap_err()
            .to_string();
        assert!(
            !refused.contains("S3CR3T") && refused.contains("host[:port]"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn an_idle_connection_shows_a_sign_of_life_and_ends_without_one() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap());
    let stream = stream.await.unwrap();
    Address::tune(&stream).unwrap();
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    let idle = socket.tcp_keepalive_time().unwrap();
    let asks = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
    // Networks forget a connection after 350 s. A waiter is to notice a loss within 30 s.
    assert!(idle >= Duration::from_secs(10), "{idle:?}");
    assert!(
        idle + asks <= Duration::from_secs(30),
        "{idle:?} and {asks:?}"
    );
}
