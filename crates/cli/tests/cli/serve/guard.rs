//! What the server refuses, and what it survives.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::{Rng, eventually, rows};

use super::client::{Served, end};
use crate::common::{LIMIT, Store};

const CLOSE: &str = "Connection: close\r\n";

/// The answer to a request for sessions with these lines in place of its headers.
fn with(served: &Served, lines: &str) -> (u16, String) {
    let lines = lines.replace("TOKEN", served.token.as_deref().unwrap());
    let request = format!("POST /v1/sessions HTTP/1.1\r\n{lines}{CLOSE}\r\n");
    let answer = served.raw(request.as_bytes()).unwrap();
    (answer.status, answer.body)
}

#[test]
fn a_request_needs_the_token_and_a_known_host_and_origin() {
    let store = Store::local();
    let allowed = "--allow-host Locks.example --allow-origin https://admin.example";
    let served = Served::start(&store, allowed);
    let bearer = "Authorization: Bearer TOKEN\r\n";
    for [status, headers] in rows(
        r"
        201 | Host: localhost; Authorization: Bearer TOKEN
        201 | Host: LOCALHOST:7787; authorization: bearer TOKEN
        201 | Host: 10.0.0.7:80; Authorization: Bearer TOKEN
        201 | Host: [::1]:7787; Authorization: Bearer TOKEN
        201 | Host: locks.example; Authorization: Bearer TOKEN
        201 | Host: locks.example; Authorization: Bearer TOKEN; Origin: https://locks.example
        201 | Host: localhost:7787; Authorization: Bearer TOKEN; Origin: http://localhost:7787
        201 | Host: localhost; Authorization: Bearer TOKEN; Origin: https://admin.example
        401 | Host: localhost
        401 | Host: localhost; Authorization: Bearer
        401 | Host: localhost; Authorization: Bearer TOKENx
        401 | Host: localhost; Authorization: Basic TOKEN
        401 | Host: localhost; Authorization: TOKEN
        401 | Host: localhost; Cookie: TOKEN
        400 | Host: localhost; Authorization: Bearer TOKEN; Authorization: Bearer TOKEN
        400 | Host: localhost; Host: locks.example; Authorization: Bearer TOKEN
        400 | Authorization: Bearer TOKEN
        421 | Host: evil.example; Authorization: Bearer TOKEN
        421 | Host: localhost.evil.example; Authorization: Bearer TOKEN
        421 | Host: 127.0.0.1.evil.example:7787; Authorization: Bearer TOKEN
        403 | Host: localhost; Authorization: Bearer TOKEN; Origin: http://evil.example
        403 | Host: localhost; Authorization: Bearer TOKEN; Origin: null
        403 | Host: localhost:7787; Authorization: Bearer TOKEN; Origin: http://localhost:7788
        403 | Host: localhost; Authorization: Bearer TOKEN; Origin: https://admin.example.evil.example
    ",
    ) {
        let lines = headers.replace("; ", "\r\n") + "\r\n";
        let (answered, body) = with(&served, &lines);
        assert_eq!(answered.to_string(), status, "{headers}: {body}");
        assert!(!body.contains(served.token.as_deref().unwrap()), "{body}");
    }
    // Also for what does not exist; health needs neither.
    let (answered, _) = with(&served, bearer);
    assert_eq!(answered, 400);
    let ask = |head: &str| {
        let request = format!("{head} HTTP/1.1\r\nHost: evil.example\r\n{CLOSE}\r\n");
        served.raw(request.as_bytes()).unwrap().status
    };
    assert_eq!((ask("GET /none"), ask("GET /healthz")), (421, 200));
}

/// As a browser does: it asks, sends the request, and shows the page an answer that names its origin.
#[test]
fn a_page_of_a_listed_origin_can_send_requests() {
    let store = Store::local();
    let served = Served::start(&store, "--allow-origin https://admin.example");
    let ask = |origin: &str| {
        let wanted = "Access-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: authorization\r\n";
        let request = format!(
            "OPTIONS /v1/sessions/none HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n{wanted}{CLOSE}\r\n"
        );
        served.raw(request.as_bytes()).unwrap()
    };
    let may = ask("https://admin.example");
    assert_eq!((may.status, may.body.as_str()), (204, ""), "{may:?}");
    let names = "access-control-allow-origin: https://admin.example\r\n";
    for header in [
        names,
        "access-control-allow-methods: get, post, delete\r\n",
        "access-control-allow-headers: authorization, content-type\r\n",
        "vary: origin\r\n",
    ] {
        assert!(may.head.contains(header), "{header}: {may:?}");
    }
    let other = ask("https://evil.example");
    other.refuses(403, "forbidden");
    assert!(!other.head.contains("access-control"), "{other:?}");

    // Also the page that is refused can read why.
    for (token, status) in [(served.token.as_deref().unwrap(), 201), ("none", 401)] {
        let request = format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://admin.example\r\nAuthorization: Bearer {token}\r\n{CLOSE}\r\n"
        );
        let answer = served.raw(request.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.head.contains(names), "{answer:?}");
    }
    let without = served.get("/v1/locks");
    assert!(
        !without.head.contains("access-control") && without.head.contains("vary: origin\r\n"),
        "{without:?}"
    );
}

#[test]
fn no_get_changes_anything() {
    let store = Store::local();
    let served = Served::start(&store, "");
    let session = served.session();
    let lease = served.held(&session);
    let sessions = format!("/v1/sessions/{session}");
    for path in [
        "/v1/sessions".to_owned(),
        format!("{sessions}/beat"),
        "/v1/leases".to_owned(),
        format!("/v1/leases/{lease}/check"),
        "/v1/tokens".to_owned(),
        "/v1/tokens/renew".to_owned(),
        "/v1/tokens/check".to_owned(),
        "/v1/tokens/release".to_owned(),
    ] {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
            let answer = served.ask(method, &path, &Value::Null);
            assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
            assert!(answer.head.contains("allow: post"), "{answer:?}");
        }
    }
    // It would open the stream of events and close it again, which ends a session.
    let head = served.ask("HEAD", &format!("{sessions}/events"), &Value::Null);
    assert_eq!(head.status, 405, "{head:?}");
    served.get(&format!("/v1/leases/{lease}")).is(200);
}

#[test]
fn bodies_are_json_with_known_fields() {
    let store = Store::local();
    let served = Served::start(&store, "");
    let session = served.session();
    for body in [
        json!({"session": session, "lock": "x", "ttl": 30}),
        json!({"session": session}),
        json!({"session": session, "lock": 7}),
        json!({"session": session, "lock": ""}),
        json!({"session": session, "lock": "x", "ttl_ms": 1}),
        json!({"session": session, "lock": "x", "ttl_ms": -1}),
        json!({"session": session, "lock": "x", "wait_ms": 86_400_000}),
        json!({"session": session, "lock": "x", "mode": "slot/0"}),
        json!({"session": session, "lock": "x", "note": "n".repeat(129)}),
        json!({"session": session, "lock": "x", "also": ["x"]}),
        json!([]),
    ] {
        served.post("/v1/leases", &body).refuses(400, "invalid");
    }
    for body in [json!({"ttl_ms": 10}), json!({"note": "n".repeat(129)})] {
        served.post("/v1/sessions", &body).refuses(400, "invalid");
    }
    served
        .post("/v1/sessions", &json!({"note": "n".repeat(128)}))
        .is(201);
    served.get("/v1/locks?limit=many").refuses(400, "invalid");
    served.get("/v1/locks?all=yes").refuses(400, "invalid");
    served.get("/v1/locks/%ff").refuses(400, "invalid");
    served.get("/v1/leases/none").refuses(404, "not_found");
    served.get("/none").refuses(404, "not_found");

    // A form of another site sends such a body without being asked first.
    let body = r#"{"ttl_ms":60000}"#;
    let send = |kind: &str, length: usize, body: &str| {
        let head = served.head("POST", "/v1/sessions");
        let head = format!("{head}{CLOSE}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        served.raw((head + body).as_bytes()).unwrap()
    };
    send("text/plain", body.len(), body).refuses(415, "invalid");
    send("application/json; charset=utf-8", body.len(), body).is(201);
    let long = format!("{body}{}", " ".repeat(70_000));
    send("application/json", long.len(), &long).refuses(413, "too_large");
    // Such a body would hide the end of a stream.
    let head = served.head("GET", "/v1/locks");
    let unfinished = format!("{head}{CLOSE}Content-Length: 1\r\n\r\n");
    served
        .raw(unfinished.as_bytes())
        .unwrap()
        .refuses(400, "invalid");
    let mut nested = served.connect();
    let deep = "[".repeat(60_000);
    let head = served.head("POST", "/v1/sessions");
    let request = format!(
        "{head}{CLOSE}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{deep}",
        deep.len()
    );
    nested.write_all(request.as_bytes()).unwrap();
    end(nested).refuses(400, "invalid");
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let store = Store::local();
    let served = Served::start(&store, "");
    let mut connection = served.connect();
    let head = served.head("POST", "/v1/sessions");
    let head = format!("{head}{CLOSE}Content-Type: application/json\r\nContent-Length: 10\r\n\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    end(connection).refuses(408, "slow");
}

#[test]
fn requests_over_the_rate_are_refused_for_a_moment() {
    let store = Store::local();
    let served = Served::start(&store, "--max-rate 1");
    served.get("/none").refuses(404, "not_found");
    let mut refused = None;
    eventually(LIMIT, "a refusal", || {
        let answer = served.get("/none");
        let is_refused = answer.status == 429;
        refused = is_refused.then_some(answer);
        is_refused
    });
    let refused = refused.unwrap();
    assert_eq!(refused.refuses(429, "too_many")["may_retry"], true);
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    eventually(LIMIT, "the next second", || {
        served.get("/none").status == 404
    });
}

/// Who has no token takes nothing from those who have it.
#[test]
fn questions_of_browsers_have_a_rate_of_their_own() {
    let store = Store::local();
    let words = "--max-rate 1 --allow-origin https://admin.example";
    let served = Served::start(&store, words);
    let question = "OPTIONS /v1/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Origin: https://admin.example\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    eventually(LIMIT, "a refusal", || {
        served.raw(question.as_bytes()).unwrap().status == 429
    });
    served.get("/none").refuses(404, "not_found");
}

#[test]
fn names_that_no_request_has_are_refused() {
    let store = Store::local();
    for (word, name) in [
        ("--allow-host", "locks.example:443"),
        ("--allow-host", "https://locks.example"),
        ("--allow-origin", "https://admin.example/"),
        ("--allow-origin", "admin.example"),
        ("--allow-origin", "https://Admin.example"),
    ] {
        store
            .verb("serve", &format!("{word} {name}"))
            .is(64, &[name]);
    }
}

#[test]
fn other_addresses_need_a_word_and_a_token_file() {
    let store = Store::local();
    let words = "--listen 0.0.0.0:0";
    store
        .verb("serve", words)
        .is(64, &["other hosts can reach", "--listen-anywhere"]);
    let words = format!("{words} --listen-anywhere");
    store.verb("serve", &words).is(64, &["--token-file"]);
    let file = store.file("token");
    let words = format!("{words} --token-file {}", file.display());
    store
        .verb("serve", &words)
        .is(78, &["cannot use the token file"]);
    fs::write(&file, "too short\n").unwrap();
    let refused = store.verb("serve", &words).output();
    refused.is(78, &["at least 32 visible ASCII characters"]);
    assert!(!refused.stderr.contains("too short"), "{refused:?}");

    let token = "0123456789abcdef0123456789abcdef";
    fs::write(&file, format!("{token}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut served = Served::start(&store, &words);
    assert_eq!(served.token, None, "the token is printed nowhere");
    served.get("/v1/locks").refuses(401, "unauthorized");
    served.at = served.at.replace("0.0.0.0", "127.0.0.1");
    served.token = Some(token.to_owned());
    served.session();
}

/// Fixed seeds: requests with bytes cut, changed, doubled and moved. The server answers the next one, and says nothing of a bug.
#[test]
fn malformed_requests_do_no_harm() {
    let store = Store::local();
    let served = Served::start(&store, "--max-rate 100000");
    let session = served.session();
    let body = json!({"session": session, "lock": "x", "mode": "slot/2", "wait_ms": 1}).to_string();
    let whole = |method: &str, path: &str, body: &str| {
        let head = served.head(method, path);
        let length = body.len();
        format!(
            "{head}{CLOSE}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let samples = [
        whole("POST", "/v1/leases", &body),
        whole(
            "POST",
            "/v1/sessions",
            r#"{"ttl_ms":60000,"note":"\u0000"}"#,
        ),
        whole("POST", "/v1/tokens", r#"{"lock":"y","ttl_ms":1000}"#),
        whole(
            "POST",
            "/v1/tokens/check",
            r#"{"lock":"y","token":"lh1.#1"}"#,
        ),
        whole("GET", "/v1/locks/%2e%2e/x?limit=1", ""),
        whole("GET", "/v1/leaders/x?note=%F0%9F%98%80", ""),
        whole("DELETE", &format!("/v1/leases/{session}.1"), ""),
    ];
    let mut rng = Rng::new(42);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let mut request = samples[rng.index(samples.len())].clone().into_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.index(request.len());
            match rng.below(5) {
                0 => request.truncate(at + 1),
                1 => request[at] = u8::try_from(rng.below(256)).unwrap(),
                2 => request.insert(at, rng.pick(b"\0\r\n:{}\"%\xff ".as_slice())),
                3 => drop(request.remove(at)),
                _ => request.extend_from_within(at..),
            }
            if request.is_empty() {
                request.push(b'\n');
            }
        }
        let mut connection = served.connect();
        // The server may have closed it by then.
        connection.write_all(&request).ok();
        connection.finish();
        let mut text = Vec::new();
        connection.read_to_end(&mut text).ok();
        match text.get(9) {
            Some(b'2') => answered += 1,
            Some(_) => refused += 1,
            None => {}
        }
    }
    assert!(answered > 250 && refused > 5_000, "{answered} {refused}");
    served.get(&format!("/v1/sessions/{session}")).is(200);
    assert_eq!(served.running.said(), "");
}
