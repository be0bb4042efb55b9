//! No text shows a secret of a URL, and passwords and options go to the right place.

use testkit::rows;

use super::*;

#[test]
fn no_form_of_a_url_shows_its_password() {
    let table = "
        redis://:S3CR3T@host:7000/3              | redis://host:7000/3
        rediss://user:S3CR3T@[::1]               | rediss://[::1]
        redis://host                             | redis://host
        redis://u:S3/CR@3T@host/                 | redis://...
        redis://u:S3CR3T                         | redis://...
        redis://:S3CR3T                          | redis://...
        redis://host/?S3CR3T                     | redis://...
        unix:/run/r.sock?db=1&pass=S3CR3T        | unix:/run/r.sock
        unix:/run/r.sock&pass=S3CR3T             | unix:...
        valkeys://:S3CR3T@host/                  | valkeys://host/
        redis://:S3CR3T@host/?db=3               | redis://host/?db=3
        redis://u:S3CR3T?db=3                    | redis://...
        rediss://u:S3CR3T@h?tls_ca=/a.pem        | rediss://h
        rediss://h/?tls_name=a.b&db=3&tls_pin=ab | rediss://h/?db=3
        redis://u:123?tls_S3CR3T@h               | redis://...
        rediss://h?tls_ca=/a&S3CR3T              | rediss://...
        redis+unix://:S3CR3T@/r.sock             | unix:...
        redis+unix:///r.sock?pass=S3CR3T         | unix:/r.sock
        local:/a/b?c                             | local:/a/b?c
        redis://:S3CR3T@a redis://b              | redis://a redis://b
        redis://:S3CR3T@a memory:                | redis://a memory:
        redis://a S3CR3T://b                     | redis://...
        redis://a S3CR3T                         | redis://...
        S3CR3T@host                              | ...
        S3CR3T:S3CR3T@host                       | ...
    ";
    for [url, as_shown] in rows(table) {
        assert_eq!(shown(url), as_shown, "{url}");
    }
}

#[test]
fn a_password_goes_where_the_store_wants_it() {
    let table = "
        redis://h:1/2                | redis://:p%40%3A%20@h:1/2
        redis://h                    | redis://:p%40%3A%20@h
        rediss://me@h/               | rediss://me:p%40%3A%20@h/
        redis://me:@h/               | redis://me:p%40%3A%20@h/
        rediss://h?tls_ca=/passport  | rediss://:p%40%3A%20@h?tls_ca=/passport
        valkey://h/?db=2             | valkey://:p%40%3A%20@h/?db=2
        redis+unix:///s              | redis+unix:///s?pass=p%40%3A%20
        redis+unix://me@/s           | redis+unix://me@/s?pass=p%40%3A%20
        redis://a valkey://b unix:/c | redis://:p%40%3A%20@a valkey://:p%40%3A%20@b unix:/c?pass=p%40%3A%20
        unix:/s                      | unix:/s?pass=p%40%3A%20
        unix:///s?db=1               | unix:///s?db=1&pass=p%40%3A%20
    ";
    for [url, whole] in rows(table) {
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

#[test]
fn url_of_a_quorum_is_shown_without_secrets() {
    let table = "
        redis+quorum://a,b:1,c                       | redis+quorum://a,b:1,c
        rediss+quorum://u:S3CR3T@a,:S3CR3T@[::1]:7,c/2?max_ttl=60s&durable=1&db=2 | rediss+quorum://a,[::1]:7,c/2?max_ttl=60s&durable=1&db=2
        rediss+quorum://:S3CR3T@a,b,c?tls_ca=/a.pem&max_ttl=9s | rediss+quorum://a,b,c?tls_ca=/a.pem&max_ttl=9s
        redis+quorum://u:1?tls_S3CR3T@a,b,c          | redis+quorum://...
        redis+quorum://u:S3CR3T,b,c                  | redis+quorum://...
        redis+quorum://u:123,S3CR3T@b,c,d            | redis+quorum://...
        redis+quorum://u:S3/CR3T@b,c,d               | redis+quorum://...
        redis+quorum://a,b,c/?pass=S3CR3T            | redis+quorum://...
        redis+quorum://a,b,c/S3CR3T                  | redis+quorum://...
        redis+quorum://a,b,c#S3CR3T                  | redis+quorum://...
        redis+sentinel://a,b:S3CR3T                  | ...
    ";
    for [url, as_shown] in rows(table) {
        assert_eq!(shown(url), as_shown, "{url}");
    }
}

#[test]
fn password_goes_to_each_server_of_a_quorum() {
    let table = "
        redis+quorum://a,me@b:1,c/2?max_ttl=60s | redis+quorum://:p%2Cq@a,me:p%2Cq@b:1,:p%2Cq@c/2?max_ttl=60s
        valkeys+quorum://[::1]:7,b,c            | valkeys+quorum://:p%2Cq@[::1]:7,:p%2Cq@b,:p%2Cq@c
    ";
    for [url, whole] in rows(table) {
        assert!(takes_password(url) && !has_password(url), "{url}");
        let with = with_password(url, "p,q");
        assert_eq!(with, whole);
        assert!(has_password(&with), "{with}");
    }
    assert!(has_password("redis+quorum://a,b:1,u:S3CR3T@c"));
}

#[test]
fn longest_ttl_is_that_of_a_quorum() {
    for (url, longest) in [
        (
            "redis+quorum://a,b,c/2?durable=1&max_ttl=500ms",
            Some("500ms"),
        ),
        ("rediss+quorum://u:p@a,b,c?max_ttl=2m&tls_ca=/a", Some("2m")),
        ("redis+quorum://a,b,c", None),
        ("redis://a redis://b redis://c", None),
        ("redis://a?max_ttl=5s", None),
    ] {
        assert_eq!(max_ttl(url), longest, "{url}");
    }
}
