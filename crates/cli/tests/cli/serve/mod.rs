//! `leasehold serve`: leases over HTTP, as a client in another process sees them.

#![cfg(all(target_os = "linux", feature = "serve"))]
#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests drive real processes in real time"
)]

mod client;
mod guard;
mod page;
mod ui;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{Reply, eventually};

use self::client::{Connection, Served, end, id, wanted};
use crate::common::{LIMIT, Store, on_each_store};

on_each_store! {
    a_lock_has_one_holder_and_a_rising_fence,
    a_waiter_gets_the_lock_after_its_holder,
    several_locks_are_taken_all_or_none,
    tokens_need_no_session,
    a_leader_is_the_holder_of_the_lock,
}

/// Waits until "x" is free.
fn is_free(served: &Served) {
    eventually(LIMIT, "x is free", || {
        served.get("/v1/locks/x").is(200)["locks"][0]["state"] == "free"
    });
}

/// Waits until so many wait for "x".
fn are_waiting(served: &Served, count: usize) {
    eventually(LIMIT, "the queue", || {
        let lock = &served.get("/v1/locks/x").is(200)["locks"][0];
        lock["queue"].as_array().map(Vec::len) == Some(count)
    });
}

/// A request of the session that waits for "x", which another process has. Callers of one server stand in one line, which the store does not
/// see.
fn wait(served: &Served, session: &str) -> Connection {
    let body = wanted(session, &json!({"wait_ms": 600_000}));
    let waiter = served.begin("POST", "/v1/leases", &body);
    are_waiting(served, 1);
    waiter
}

fn a_lock_has_one_holder_and_a_rising_fence(store: &Store) {
    let served = Served::start(store, "");
    let (one, other) = (served.session(), served.session());
    let first = served.acquire(&one, &json!({"note": "first"})).is(201);
    assert_eq!(
        (&first["held"], &first["mode"]),
        (&json!(true), &json!("exclusive"))
    );
    store.is_busy();

    // The holder may be this session: the answer to its first request was lost.
    for (session, held) in [(&one, &first["lease"]), (&other, &Value::Null)] {
        for wait_ms in [0, 20] {
            let busy = served.acquire(session, &json!({"wait_ms": wait_ms}));
            let (status, error) = [(409, "busy"), (408, "timeout")][usize::from(wait_ms > 0)];
            let busy = busy.refuses(status, error);
            assert_eq!(busy["holder"]["note"], "first");
            let says = (&busy["held"], &busy["lease"], &busy["may_retry"]);
            assert_eq!(says, (&json!(!held.is_null()), held, &json!(true)));
        }
    }
    let lease = id(&first, "lease");
    let checked = served.post(
        &format!("/v1/leases/{lease}/check"),
        &json!({"min_ms": 1_000}),
    );
    assert_eq!(checked.is(200)["fence"], first["fence"]);
    let short = served.post(
        &format!("/v1/leases/{lease}/check"),
        &json!({"min_ms": 3_600_000}),
    );
    let short = short.refuses(409, "short");
    // No renewal makes the lease that long.
    assert_eq!(
        (&short["held"], &short["may_retry"]),
        (&json!(true), &json!(false))
    );

    let released = served.delete(&format!("/v1/leases/{lease}")).is(200);
    assert_eq!(released["confirmed"], true);
    served
        .delete(&format!("/v1/leases/{lease}"))
        .refuses(404, "not_found");
    let second = served.acquire(&other, &json!({})).is(201);
    assert!(
        second["fence"].as_u64() > first["fence"].as_u64(),
        "{first} {second}"
    );
}

fn a_waiter_gets_the_lock_after_its_holder(store: &Store) {
    let served = Served::start(store, "");
    let session = served.session();
    let lease = served.held(&session);
    let timeout = served.acquire(&session, &json!({"wait_ms": 20}));
    assert_eq!(timeout.refuses(408, "timeout")["lock"], "x");

    let waiter = served.begin(
        "POST",
        "/v1/leases",
        &wanted(&session, &json!({"wait_ms": 600_000})),
    );
    // A waiter whose client goes leaves the queue.
    let gone = served.begin(
        "POST",
        "/v1/leases",
        &wanted(&session, &json!({"wait_ms": 600_000})),
    );
    drop(gone);
    served.delete(&format!("/v1/leases/{lease}")).is(200);
    let lease = id(&end(waiter).is(201), "lease");
    served.delete(&format!("/v1/leases/{lease}")).is(200);
    is_free(&served);
}

fn several_locks_are_taken_all_or_none(store: &Store) {
    let served = Served::start(store, "");
    let session = served.session();
    let lease = served.held(&session);
    let both = json!({"lock": "w", "also": ["x"]});
    let busy = served.acquire(&session, &both).refuses(409, "busy");
    assert_eq!(busy["lock"], "x");
    served.delete(&format!("/v1/leases/{lease}")).is(200);
    let held = served.acquire(&session, &both).is(201);
    let names: Vec<_> = held["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| &lock["name"])
        .collect();
    assert_eq!(names, ["w", "x"]);
    store.is_busy();
}

fn tokens_need_no_session(store: &Store) {
    let served = Served::start(store, "");
    let granted = served
        .post("/v1/tokens", &json!({"lock": "x", "ttl_ms": 3_600_000}))
        .is(201);
    let busy = served.post("/v1/tokens", &json!({"lock": "x", "ttl_ms": 3_600_000}));
    busy.refuses(409, "busy");
    let token = id(&granted, "token");
    let of = json!({"lock": "x", "token": token});
    let with = |field: &str, value: u64| {
        let mut of = of.clone();
        of[field] = value.into();
        of
    };
    let renewed = served
        .post("/v1/tokens/renew", &with("ttl_ms", 7_200_000))
        .is(200);
    assert!(
        renewed["expires_in_ms"].as_u64() > Some(3_600_000),
        "{renewed}"
    );
    let checked = served
        .post("/v1/tokens/check", &with("min_ms", 3_600_000))
        .is(200);
    assert_eq!(checked["fence"], granted["fence"]);
    let short = served
        .post("/v1/tokens/check", &with("min_ms", 7_200_000))
        .refuses(409, "short");
    // Nothing renews it.
    assert_eq!(
        (&short["held"], &short["may_retry"]),
        (&json!(true), &json!(false))
    );

    // The command knows the token too.
    let release = store.leasehold("release x").env("LEASEHOLD_TOKEN", &token);
    release.says_nothing(0);
    for verb in ["renew", "check", "release"] {
        let of = if verb == "renew" {
            with("ttl_ms", 3_600_000)
        } else {
            of.clone()
        };
        let lost = served
            .post(&format!("/v1/tokens/{verb}"), &of)
            .refuses(410, "lost");
        assert_eq!((&lost["held"], &lost["lock"]), (&json!(true), &json!("x")));
    }
    let of_none = json!({"lock": "x", "token": "secret-secret"});
    let refused = served
        .post("/v1/tokens/release", &of_none)
        .refuses(400, "invalid");
    assert!(!refused.to_string().contains("secret"), "{refused}");
}

fn a_leader_is_the_holder_of_the_lock(store: &Store) {
    let served = Served::start(store, "");
    let none = served.get("/v1/leaders/team/x").refuses(404, "not_found");
    assert_eq!(none["may_retry"], true);
    let session = served.session();
    let term = served
        .acquire(&session, &json!({"lock": "team/x", "note": "pod-7"}))
        .is(201);
    let leader = served.get("/v1/leaders/team/x").is(200);
    assert_eq!(
        (&leader["holder"]["note"], &leader["fence"]),
        (&json!("pod-7"), &term["fence"])
    );
    served.get("/v1/leaders/team%2Fx?note=pod-7").is(200);
    let other = served
        .get("/v1/leaders/team/x?note=pod-8")
        .refuses(409, "busy");
    assert_eq!(other["holder"]["note"], "pod-7");
}

#[test]
fn readers_and_permits_hold_beside_each_other() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let session = served.session();
    let as_reader = json!({"mode": "shared"});
    let reader = served.acquire(&session, &as_reader).is(201);
    let other = served.acquire(&session, &as_reader).is(201);
    assert_eq!(
        (&reader["mode"], &reader["fence"]),
        (&json!("shared"), &other["fence"])
    );
    served.acquire(&session, &json!({})).refuses(409, "busy");

    let as_permit = json!({"lock": "gpu", "mode": "slot/2"});
    let slots = [(); 2].map(|()| served.acquire(&session, &as_permit).is(201)["slot"].as_u64());
    assert_eq!(slots, [Some(1), Some(2)]);
    served.acquire(&session, &as_permit).refuses(409, "busy");
    let refused = json!({"mode": "shared", "also": ["y"]});
    served.acquire(&session, &refused).refuses(400, "invalid");
}

/// HS2: also the client's process is killed, which closes its connections.
#[test]
fn a_client_that_is_killed_holds_nothing() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let (session, mut stream) = served.session_with_stream();
    served.held(&session);
    assert_eq!(stream.tells("acquired")["lock"], "x");
    store.is_busy();
    drop(stream);
    is_free(&served);
    served
        .get(&format!("/v1/sessions/{session}"))
        .refuses(404, "not_found");

    let session = id(&served.post("/v1/sessions", &json!({})).is(201), "session");
    let url = format!("http://{}/v1/sessions/{session}/events", served.at);
    let token = format!("Authorization: Bearer {}", served.token.as_deref().unwrap());
    let curl = [
        "curl",
        "--silent",
        "--no-buffer",
        "--max-time",
        "60",
        "--header",
        &token,
        &url,
    ];
    let curl = store.program(&curl).start();
    served.held(&session);
    curl.until_it_writes("event: acquired\n");
    store.is_busy();
    curl.signal(Signal::SIGKILL);
    is_free(&served);
}

/// HS2: without beats, a session and its leases end.
#[test]
fn a_session_lives_by_its_beats() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let session = || {
        let opened = served.post("/v1/sessions", &json!({"ttl_ms": 6_000, "note": "web"}));
        id(&opened.is(201), "session")
    };
    let (alive, silent) = (session(), session());
    served.held(&silent);
    let busy = served.acquire(&alive, &json!({})).refuses(409, "busy");
    assert_eq!(busy["holder"]["note"], "web");
    served.acquire(&alive, &json!({"lock": "y"})).is(201);
    let beat = || {
        served
            .post(&format!("/v1/sessions/{alive}/beat"), &json!({}))
            .is(200)
    };
    eventually(LIMIT, "the silent session ends", || {
        beat();
        served.get(&format!("/v1/sessions/{silent}")).status == 404
    });
    is_free(&served);
    assert_eq!(beat()["leases"][0]["held"], true);
    served
        .acquire(&silent, &json!({}))
        .refuses(404, "not_found");
    let gone = format!("/v1/sessions/{silent}/beat");
    served.post(&gone, &json!({})).refuses(404, "not_found");
}

/// HS2: the client is frozen, and its connection is open. After a stray byte, the server would not see its end either.
#[test]
fn a_request_that_waits_does_not_keep_its_session() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let _holder = store.hold();
    let opened = served.post("/v1/sessions", &json!({"ttl_ms": 6_000}));
    let session = id(&opened.is(201), "session");
    served.acquire(&session, &json!({"lock": "y"})).is(201);
    let mut waiter = wait(&served, &session);
    waiter.write_all(b"x").unwrap();
    eventually(LIMIT, "y is free", || {
        served.get("/v1/locks/y").is(200)["locks"][0]["state"] == "free"
    });
    drop(waiter);
}

#[test]
fn a_stream_that_nobody_opens_ends_its_session() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let session = id(&served.post("/v1/sessions", &json!({})).is(201), "session");
    served.held(&session);
    is_free(&served);
}

/// HS1: a session that is ended leaves no request behind.
#[test]
fn the_end_of_a_session_ends_its_waiting_requests() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let holder = store.hold();
    let session = served.session();
    let waiter = wait(&served, &session);
    served.delete(&format!("/v1/sessions/{session}")).is(200);
    end(waiter).refuses(404, "not_found");
    are_waiting(&served, 0);
    store.let_go();
    holder.ends(0, &[]);
    is_free(&served);
}

#[test]
fn a_waiter_whose_client_goes_leaves_the_queue() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let _holder = store.hold();
    let waiter = wait(&served, &served.session());
    drop(waiter);
    are_waiting(&served, 0);
}

#[test]
fn a_broken_lock_is_told_as_a_loss() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let (session, mut stream) = served.session_with_stream();
    let held = served.acquire(&session, &json!({"ttl_ms": 6_000})).is(201);
    let lease = id(&held, "lease");
    stream.tells("acquired");
    let fence = held["fence"].to_string();
    store
        .leasehold(&["break", "--if-fence", &fence, "x"])
        .is(0, &[]);
    let lost = stream.tells("lost");
    assert_eq!(lost["lease"], lease);
    assert!(id(&lost, "cause").contains("no one holds it"), "{lost}");

    let path = format!("/v1/leases/{lease}");
    let check = format!("{path}/check");
    for answer in [
        served.get(&path),
        served.post(&check, &json!({})),
        served.delete(&path),
    ] {
        let lost = answer.refuses(410, "lost");
        assert_eq!(
            (&lost["held"], &lost["fence"]),
            (&json!(true), &held["fence"])
        );
    }
}

/// HS4: nobody gives the lease back.
#[test]
fn a_lease_that_is_lost_lets_go_of_its_other_locks() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let session = served.session();
    let both = json!({"lock": "w", "also": ["x"], "ttl_ms": 6_000});
    let held = served.acquire(&session, &both).is(201);
    let fence = held["fence"].to_string();
    store
        .leasehold(&["break", "--if-fence", &fence, "w"])
        .is(0, &[]);
    is_free(&served);
    let path = format!("/v1/leases/{}", id(&held, "lease"));
    served.get(&path).refuses(410, "lost");
    let session = served.get(&format!("/v1/sessions/{session}")).is(200);
    assert_eq!(session["leases"], json!([]));
}

/// The client may ask for the release before the server knows of the loss.
#[test]
fn a_release_of_a_broken_lock_is_told_as_a_loss() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let (session, mut stream) = served.session_with_stream();
    let lease = served.held(&session);
    stream.tells("acquired");
    // Without a word to its holder.
    store.server().cli(&["DEL", "x"]);
    served
        .delete(&format!("/v1/leases/{lease}"))
        .refuses(410, "lost");
    assert_eq!(stream.tells("lost")["lease"], lease);
}

#[test]
fn a_server_that_is_killed_leaves_its_locks_to_their_ttl() {
    let store = Store::redis();
    // Another program may take a port between the two servers.
    let address = format!("--socket {}", store.file("serve.sock").display());
    let served = Served::start(&store, &address);
    let session = served.session();
    let first = served.acquire(&session, &json!({})).is(201);
    served.running.signal(Signal::SIGKILL);
    drop(served);

    let served = Served::start(&store, &address);
    served
        .get(&format!("/v1/sessions/{session}"))
        .refuses(404, "not_found");
    served
        .get(&format!("/v1/leases/{}", id(&first, "lease")))
        .refuses(404, "not_found");
    let session = served.session();
    served.acquire(&session, &json!({})).refuses(409, "busy");
    store.ends_in("x", 500);
    let second = served
        .acquire(&session, &json!({"wait_ms": 600_000}))
        .is(201);
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
}

#[test]
fn a_server_that_ends_releases_and_says_so() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let _holder = store.hold();
    let (session, mut stream) = served.session_with_stream();
    served.acquire(&session, &json!({"lock": "y"})).is(201);
    stream.tells("acquired");
    let waiter = wait(&served, &session);
    served.running.signal(Signal::SIGTERM);
    assert_eq!(stream.tells("ended")["cause"], "the server ends");
    assert_eq!(stream.next(), None);
    // The session is gone, whoever runs the server again.
    let closing = end(waiter).refuses(503, "closing");
    assert_eq!(closing["may_retry"], false);
    served.running.ends(143, &[]);
    store.run("-n y true").is(0, &[]);
}

#[test]
fn a_server_that_ends_answers_a_token_that_waits() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let _holder = store.hold();
    let token = json!({"lock": "x", "ttl_ms": 3_600_000, "wait_ms": 600_000});
    let waiter = served.begin("POST", "/v1/tokens", &token);
    are_waiting(&served, 1);
    served.running.signal(Signal::SIGTERM);
    end(waiter).refuses(503, "closing");
    served.running.ends(143, &[]);
}

#[test]
fn a_store_that_is_away_is_no_busy_lock() {
    let store = Store::silent_at_times();
    let served = Served::start(&store, "");
    let (session, mut stream) = served.session_with_stream();
    served.acquire(&session, &json!({"ttl_ms": 18_000})).is(201);
    stream.tells("acquired");
    let token = json!({"lock": "t", "ttl_ms": 3_600_000});
    let token = id(&served.post("/v1/tokens", &token).is(201), "token");
    store.server().kill();
    let of_token = json!({"lock": "t", "token": token});
    for away in [
        served.acquire(&session, &json!({"lock": "y"})),
        // The client holds it, which only the store knows.
        served.post("/v1/tokens/check", &of_token),
    ] {
        let away = away.refuses(503, "store");
        assert_eq!(
            (&away["held"], &away["may_retry"]),
            (&json!(null), &json!(true))
        );
    }
    served.get("/v1/locks").refuses(503, "store");
    served.get("/v1/leaders/x").refuses(503, "store");
    assert_eq!(served.get("/healthz").status, 200);
    stream.tells("doubtful");
    let lost = stream.tells("lost");
    assert!(id(&lost, "cause").contains("deadline passed"), "{lost}");

    store.server().restart();
    eventually(LIMIT, "the store is back", || {
        served.acquire(&session, &json!({"lock": "y"})).status == 201
    });
}

/// HS3: what a reader missed is not told one by one.
#[test]
fn a_stream_that_is_not_read_holds_nobody_up() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let (session, mut stream) = served.session_with_stream();
    stream.reads_little();
    let note = "n".repeat(128);
    // Their events are more than the server's buffers take.
    let steps = 400;
    for _ in 0..steps {
        let lease = served.acquire(&session, &json!({"note": note})).is(201);
        served
            .delete(&format!("/v1/leases/{}", id(&lease, "lease")))
            .is(200);
    }
    let lease = served.acquire(&session, &json!({"lock": "last"})).is(201);
    let told = |event: &Value| event["event"] == "acquired" && event["lease"] == lease["lease"];
    let mut events = 0;
    while !told(&stream.next().unwrap()) {
        events += 1;
    }
    // Each step has two.
    assert!(events < 2 * steps, "{events}");
}

#[test]
fn a_thousand_sessions_hold_a_lock_each() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let sessions: Vec<String> = (0..1_000).map(|_| served.session()).collect();
    for (number, session) in sessions.iter().enumerate() {
        let lock = json!({"lock": format!("lock:{number}"), "wait_ms": 600_000});
        served.acquire(session, &lock).is(201);
    }
    for session in &sessions {
        let session = served.get(&format!("/v1/sessions/{session}")).is(200);
        assert_eq!(session["leases"][0]["held"], true, "{session}");
    }
    for session in &sessions[500..] {
        served.delete(&format!("/v1/sessions/{session}")).is(200);
    }
    served.running.signal(Signal::SIGTERM);
    served.running.ends(143, &[]);
    let keys = store.server().cli(&["KEYS", "lock:*"]);
    assert_eq!(keys, Reply::Array(Vec::new()));
}

#[test]
fn locks_are_those_that_inspect_shows() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let _holder = store.hold();
    let _waiter = wait(&served, &served.session());
    let without_times = |mut document: Value| {
        for field in ["held_for_ms", "lease_ms"] {
            document["locks"][0][field] = Value::Null;
        }
        document["locks"][0]["queue"][0]["alive_for_ms"] = Value::Null;
        document
    };
    let inspected = without_times(store.json("inspect", "", 0));
    assert_eq!(inspected["locks"][0]["name"], "x");
    assert_eq!(without_times(served.get("/v1/locks").is(200)), inspected);
    assert_eq!(without_times(served.get("/v1/locks/x").is(200)), inspected);
    let limited = served.get("/v1/locks?limit=0").is(200);
    assert_eq!(
        (&limited["locks"], &limited["omitted"]),
        (&json!([]), &json!(1))
    );
}

/// The value of a time series, such as `name{label="a",other="b"}`, in the text of `/metrics`.
fn number(served: &Served, series: &str) -> Option<u64> {
    // The order of the labels means nothing.
    let parts = |series: &str| -> BTreeSet<String> {
        let parts = series
            .split(['{', ',', '}'])
            .filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let answer = served.get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    let kind = "content-type: text/plain; version=0.0.4";
    assert!(answer.head.contains(kind), "{answer:?}");
    let wanted = parts(series);
    let mut lines = answer.body.lines().filter_map(|line| line.rsplit_once(' '));
    let found = lines.find(|(series, _)| parts(series) == wanted);
    found.map(|(_, value)| value.parse().unwrap())
}

#[test]
fn numbers_count_leases_sessions_and_requests() {
    let store = Store::redis();
    let served = Served::start(&store, "--metric-name x --metric-name order:*");
    assert_eq!(
        served
            .raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap()
            .status,
        401
    );
    let refused = "leasehold_serve_requests_total{status=\"401\"}";
    assert_eq!(number(&served, refused), Some(1));
    let (session, other) = (served.session(), served.session());
    served.held(&session);
    served.acquire(&session, &json!({})).refuses(409, "busy");
    for lock in ["order:1", "order:2", "y"] {
        served.acquire(&other, &json!({"lock": lock})).is(201);
    }
    let acquired = |lock: &str| {
        let series = "leasehold_acquire_total{outcome=\"acquired\",lock=";
        number(&served, &format!("{series}\"{lock}\"}}"))
    };
    assert_eq!(
        ["x", "order:*", "other"].map(acquired),
        [Some(1), Some(2), Some(1)]
    );
    let busy = "leasehold_acquire_total{outcome=\"busy\",lock=\"x\"}";
    assert_eq!(number(&served, busy), Some(1));
    let held = "leasehold_held{mode=\"exclusive\",lock=\"order:*\"}";
    assert_eq!(number(&served, held), Some(2));
    assert_eq!(number(&served, "leasehold_serve_sessions"), Some(2));
    served.delete(&format!("/v1/sessions/{other}")).is(200);
    assert_eq!(number(&served, "leasehold_serve_sessions"), Some(1));
    let is_released = || number(&served, held) == Some(0);
    eventually(LIMIT, "the leases of the session are released", is_released);
}

#[test]
fn a_socket_is_for_this_user_and_needs_no_token() {
    let store = Store::local();
    let path = store.file("serve.sock");
    let words = format!("--socket {}", path.display());
    let served = Served::start(&store, &words);
    assert_eq!(served.token, None);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let session = served.session();
    served.held(&session);
    store.is_busy();
    store
        .verb("serve", &words)
        .is(78, &["another program listens"]);

    // The socket of a server that was killed is replaced.
    served.running.signal(Signal::SIGKILL);
    drop(served);
    let served = Served::start(&store, &words);
    served.session();
    served.running.signal(Signal::SIGINT);
    served.running.ends(130, &[]);
    assert!(!path.exists());
    fs::write(&path, "no socket").unwrap();
    store.verb("serve", &words).is(78, &["is no socket"]);
}

/// A shell often allows 1,024 only.
#[test]
fn the_server_may_open_a_file_for_each_connection() {
    let store = Store::local();
    let few = "ulimit -Sn 100; exec \"$0\" \"$@\"";
    let run = store.program(&[
        "sh",
        "-c",
        few,
        "leasehold",
        "serve",
        "--listen",
        "127.0.0.1:0",
    ]);
    let running = run.env("LEASEHOLD_URL", &store.url).start();
    running.until_it_writes("token ");
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(numbers[0], numbers[1].min(4_096 + 64), "{line}");
}

#[test]
fn a_base_path_is_before_all_routes() {
    let store = Store::local();
    let served = Served::start(&store, "--base-path /team/locks");
    assert_eq!(served.base, "/team/locks");
    served.session();
    assert_eq!(served.get("/healthz").status, 200);
    let outside = b"GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(served.raw(outside).unwrap().status, 404);
}
