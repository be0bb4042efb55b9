//! What the server refuses, and what it survives.

use std::fs;
use std::io::{self, Read, Write};
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
        json!([session, "x"]),
    ] {
        served.post("/v1/leases", &body).refuses(400, "invalid");
    }
    for body in [
        json!({"ttl_ms": 10}),
        json!({"note": "n".repeat(129)}),
        json!([]),
    ] {
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

/// The seed of the gate. `scripts/soak` tries others.
const SEED: u64 = 42;

#[test]
fn malformed_requests_do_no_harm() {
    harm_nothing(SEED, 1_000);
}

mod in_soak {
    /// Also prints the seed.
    #[test]
    fn malformed_requests_do_no_harm() {
        let seed = std::env::var("LEASEHOLD_SEED").map(|seed| seed.parse().unwrap());
        let seed = seed.unwrap_or(super::SEED);
        println!(
            "repeat it: LEASEHOLD_SEED={seed} cargo test -p leasehold-cli --test cli -- serve::guard::in_soak"
        );
        super::harm_nothing(seed, 10_000);
    }
}

/// What comes in place of a number, a text or a document.
const VALUES: [&str; 18] = [
    "null",
    "true",
    "-1",
    "0",
    "1e309",
    "1e-400",
    "0.5",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "99999999999999999999999999999999999999999",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[]",
    "[[[[[[[[]]]]]]]]",
    "{}",
    "{\"a\":1,\"a\":2}",
];

/// Parts of requests that a program may send by mistake, or to do harm.
struct Malformed<'a> {
    rng: Rng,
    served: &'a Served,
    samples: Vec<(&'static str, String, String)>,
}

impl Malformed<'_> {
    fn coin(&mut self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    /// A request: most are wrong in one way, some in several, a few in none.
    fn request(&mut self) -> Vec<u8> {
        let at = self.rng.index(self.samples.len());
        let (mut method, mut path, mut body) = self.samples[at].clone();
        if self.coin(12) {
            method = self.rng.pick(&[
                "PATCH", "get", "", "CONNECT", "TRACE", "\0", "GET GET", "PRI",
            ]);
        }
        if self.coin(4) {
            method = self.rng.pick(&["GET", "POST", "DELETE"]);
            body.clear();
            let long = format!("/v1/locks/{}", "x".repeat(70_000));
            path = self
                .rng
                .pick(&[
                    "*",
                    "//",
                    "/v1/locks/%",
                    "/v1/locks/%zz%00%ff",
                    "/v1/locks/../../etc",
                    "/v1/locks?limit=99999999999999999999",
                    "/v1/leases/none.18446744073709551615",
                    "/v1/leases/none.18446744073709551616",
                    "/v1/leases/.",
                    "http://evil.example/v1/locks",
                    "/v1/locks/\u{202e}",
                    &long,
                ])
                .to_owned();
        }
        if self.coin(2) && !body.is_empty() {
            body = self.body(&body);
        }
        let mut request = self.framed(method, &path, &body);
        if self.coin(4) {
            self.damage(&mut request);
        }
        request
    }

    /// A body with another value in it, or none that is JSON.
    fn body(&mut self, body: &str) -> String {
        let value = self.rng.pick(&VALUES);
        let colons: Vec<usize> = body.match_indices(':').map(|(at, _)| at).collect();
        if colons.is_empty() || self.coin(4) {
            return value.to_owned();
        }
        let from = self.rng.pick(&colons) + 1;
        let length = body[from..].find([',', '}']).unwrap_or_default();
        format!("{}{value}{}", &body[..from], &body[from + length..])
    }

    /// The request with the length of its body, in chunks, or with a length that is wrong.
    fn framed(&mut self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let head = self.served.head(method, path);
        let length = body.len();
        let (more, body) = match self.rng.below(16) {
            0 => {
                let cut = self.rng.index(body.len() + 1);
                let chunk = format!("{length:x}\r\n{}", &body[..cut]);
                ("Transfer-Encoding: chunked".to_owned(), chunk)
            }
            1 => {
                let chunk = format!("ffffffffffffffffff\r\n{body}\r\n0\r\n\r\n");
                ("Transfer-Encoding: chunked".to_owned(), chunk)
            }
            2 => {
                let chunks = format!("{length:x};a=b\r\n{body}\r\n0\r\nA: b\r\n\r\n");
                ("Transfer-Encoding: chunked".to_owned(), chunks)
            }
            3 => {
                let both = format!("Transfer-Encoding: chunked\r\nContent-Length: {length}");
                (both, format!("{length:x}\r\n{body}\r\n0\r\n\r\n"))
            }
            4 => {
                let wrong = self
                    .rng
                    .pick(&["-1", "18446744073709551616", "0x10", "", "1, 2"]);
                (format!("Content-Length: {wrong}"), body.to_owned())
            }
            5 => (
                format!("Content-Length: {}", length + 1 + self.rng.index(9)),
                body.to_owned(),
            ),
            6 => {
                let header = self.header();
                let known = format!("{header}\r\nContent-Length: {length}");
                (known, body.to_owned())
            }
            _ => (format!("Content-Length: {length}"), body.to_owned()),
        };
        format!("{head}Content-Type: application/json\r\n{more}\r\n\r\n{body}").into_bytes()
    }

    /// A header that is long, one of many, or no header.
    fn header(&mut self) -> String {
        match self.rng.below(5) {
            0 => format!("X: {}", "x".repeat(self.rng.index(200_000))),
            1 => "X: y\r\n".repeat(self.rng.index(300)) + "X: y",
            2 => format!("{}: x", "X".repeat(1 + self.rng.index(70_000))),
            3 => "Expect: 100-continue\r\nUpgrade: websocket\r\nConnection: upgrade".to_owned(),
            _ => "no header\r\n: x\r\n X".to_owned(),
        }
    }

    /// Bytes cut, changed, doubled and moved.
    fn damage(&mut self, request: &mut Vec<u8>) {
        for _ in 0..=self.rng.below(3) {
            let at = self.rng.index(request.len());
            match self.rng.below(5) {
                0 => request.truncate(at + 1),
                1 => request[at] = u8::try_from(self.rng.below(256)).unwrap(),
                2 => {
                    let byte = self.rng.pick(b"\0\r\n:{}\"%\xff ".as_slice());
                    request.insert(at, byte);
                }
                3 => request[at] = b' ',
                _ => request.extend_from_within(at..),
            }
        }
    }
}

/// What the server said to a malformed request.
#[derive(Default, Debug)]
struct Answers {
    good: u32,
    refused: u32,
    none: u32,
}

/// Sends so many malformed requests. The server answers a good one at any time, says nothing of a bug, and does not grow.
fn harm_nothing(seed: u64, count: usize) {
    let store = Store::local();
    let served = Served::start(&store, "--max-rate 100000");
    let session = served.session();
    let lease = served.held(&session);
    let wanted =
        json!({"session": session, "lock": "y", "mode": "slot/2", "also": [], "wait_ms": 1});
    let of = |method, path: &str, body: &str| (method, path.to_owned(), body.to_owned());
    let samples = vec![
        of("POST", "/v1/leases", &wanted.to_string()),
        of(
            "POST",
            "/v1/sessions",
            r#"{"ttl_ms":60000,"note":"\u0000"}"#,
        ),
        of(
            "POST",
            "/v1/tokens",
            r#"{"lock":"z","ttl_ms":1000,"wait_ms":1,"note":""}"#,
        ),
        of(
            "POST",
            "/v1/tokens/renew",
            r#"{"lock":"z","token":"lh1.#1","ttl_ms":1000}"#,
        ),
        of(
            "POST",
            &format!("/v1/leases/{lease}/check"),
            r#"{"min_ms":1}"#,
        ),
        of("GET", "/v1/locks/%2e%2e/x?limit=1", ""),
        of("GET", "/v1/leaders/x?note=%F0%9F%98%80", ""),
        of("GET", "/metrics", ""),
        of("DELETE", &format!("/v1/leases/{session}.99"), ""),
    ];
    let mut malformed = Malformed {
        rng: Rng::new(seed),
        served: &served,
        samples,
    };
    let memory = || {
        let status = fs::read_to_string(format!("/proc/{}/status", served.running.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        kilobytes.unwrap()
    };
    let mut answers = Answers::default();
    let mut half = None;
    for sent in 0..count {
        // Some requests follow another one at once, on its connection.
        let mut request = malformed.request();
        while malformed.coin(5) {
            request.extend(malformed.request());
        }
        let mut connection = served.connect();
        // The server may have closed it by then.
        connection.write_all(&request).ok();
        // Some clients go without a word, and most only send no more.
        if malformed.coin(20) {
            continue;
        }
        connection.finish();
        let mut text = Vec::new();
        let read = connection.read_to_end(&mut text);
        // The limit of the connection.
        let hangs = read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        let shown = String::from_utf8_lossy(&request[..request.len().min(500)]);
        assert!(!hangs, "request {sent} of seed {seed}: {shown:?}");
        let said = String::from_utf8_lossy(&text);
        // Before the answer comes the permission to send a body, if it was asked for.
        let answer = said.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        match answer.as_bytes().get(9) {
            Some(b'2') => answers.good += 1,
            Some(b'4') => answers.refused += 1,
            Some(_) => panic!("request {sent} of seed {seed}: {shown:?} {said:?}"),
            None => answers.none += 1,
        }
        if sent % 100 == 0 {
            served.get(&format!("/v1/leases/{lease}")).is(200);
        }
        if sent == count / 2 {
            half = Some(memory());
        }
    }
    println!(
        "seed {seed}: {answers:?}, {half:?} kB, then {} kB",
        memory()
    );
    let each = u32::try_from(count).unwrap() / 20;
    assert!(
        answers.good > each && answers.refused > 5 * each,
        "{answers:?}"
    );
    served.get(&format!("/v1/sessions/{session}")).is(200);
    // A session that a request opened keeps a kilobyte or two until its TTL.
    let (half, end) = (half.unwrap(), memory());
    assert!(end < half + 16 * 1024, "{half} kB, then {end} kB");
    assert_eq!(served.running.said(), "");
}
