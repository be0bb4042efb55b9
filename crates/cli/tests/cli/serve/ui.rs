//! `leasehold ui`: what the page asks for, and the page in a browser.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::{RedisServer, eventually};

use super::client::{Connection, Served, end};
use crate::common::{LEASEHOLD, LIMIT, Store, json as parsed};

/// `leasehold ui` on a free port.
fn start(store: &Store, words: &str) -> Served {
    let mut served = Served::by("ui", store, &format!("--interval 50ms {words}"));
    assert_eq!(served.base, "/ui/");
    // The requests of the page are beside it.
    served.base.clear();
    served
}

/// The stream of a page.
struct Listening(BufReader<Connection>);

impl Listening {
    fn to(served: &Served) -> Self {
        Self::at(served, "looks")
    }

    fn at(served: &Served, path: &str) -> Self {
        let stream = served.begin("GET", &format!("/api/v1/{path}"), &Value::Null);
        Self(BufReader::new(stream))
    }

    /// The next event, with its name.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).expect("it lives"), 0);
            if let Some(event) = line.trim().strip_prefix("event: ") {
                event.clone_into(&mut name);
            }
            if let Some(data) = line.trim().strip_prefix("data: ") {
                return (name, parsed(data));
            }
        }
    }

    /// The next look that is so.
    fn look(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (name, document) = self.next();
            if name == "look" && is_so(&document) {
                return document;
            }
        }
    }
}

/// The locks that a look tells of.
fn told(look: &Value) -> Vec<&str> {
    let locks = look["locks"].as_array().expect("locks").iter();
    locks
        .map(|lock| lock["name"].as_str().expect("a name"))
        .collect()
}

fn has_event(look: &Value, event: &str) -> bool {
    let mut changes = look["changes"].as_array().expect("changes").iter();
    changes.any(|change| change["event"] == event && change["initial"] == false)
}

#[test]
fn a_stream_has_the_whole_picture_and_then_what_changes() {
    let store = Store::local();
    let holder = store.hold();
    let fence = store.number("fence");
    let served = start(&store, "");
    let mut page = Listening::to(&served);
    let (name, hello) = page.next();
    assert_eq!(
        (name.as_str(), &hello["may_break"]),
        ("hello", &json!(false))
    );
    let whole = page.look(|look| look["full"] == true);
    assert_eq!(told(&whole), ["x"]);
    assert_eq!(whole["locks"][0]["fence"], fence);
    assert_eq!(whole["changes"][0]["initial"], true);
    // Nothing but the time changes.
    assert_eq!(told(&page.look(|look| look["full"] == false)), [""; 0]);

    let waiter = store.script("x", "true").start();
    let queued = page.look(|look| has_event(look, "queue"));
    assert_eq!(queued["locks"][0]["queue"][0]["place"], 1);
    // Another page begins with the state of now.
    let mut other = Listening::to(&served);
    let whole = other.look(|look| look["full"] == true);
    assert_eq!(whole["locks"][0]["queue"][0]["place"], 1);
    store.let_go();
    holder.ends(0, &[]);
    waiter.ends(0, &[]);
    for page in [&mut page, &mut other] {
        let gone = page.look(|look| look["gone"] == json!(["x"]));
        assert!(has_event(&gone, "released"), "{gone}");
    }
}

/// The documents of locks have no times that two requests would see alike.
fn without_times(mut document: Value) -> Value {
    for lock in document["locks"].as_array_mut().expect("locks") {
        for time in ["held_for_ms", "lease_ms"] {
            lock[time] = Value::Null;
        }
    }
    document
}

#[test]
fn programs_get_the_documents_of_inspect_and_watch() {
    let store = Store::silent_at_times();
    let holder = store.hold();
    let fence = store.number("fence");
    store
        .server()
        .cli(&["ZADD", "leasehold:index", "9e15", "x"]);
    let served = start(&store, "");
    let shown = served.get("/api/v1/locks").is(200);
    assert_eq!(
        without_times(shown),
        without_times(store.json("inspect", &[] as &[&str], 0))
    );
    let none = served.get("/api/v1/locks?limit=0").is(200);
    assert_eq!((&none["locks"], &none["omitted"]), (&json!([]), &json!(1)));

    let mut program = Listening::at(&served, "events");
    let mut is = |event: &str, initial: Value| {
        let (name, document) = program.next();
        assert_eq!(
            (name.as_str(), &document["schema"]),
            ("", &json!("leasehold.watch/1"))
        );
        assert_eq!(
            (&document["event"], &document["initial"]),
            (&json!(event), &initial)
        );
        document
    };
    assert_eq!(is("acquired", json!(true))["fence"], fence);
    // Another one begins with the state of now, though nothing changes.
    assert_eq!(Listening::at(&served, "events").next().1["fence"], fence);
    holder.stop();
    store.server().pause();
    is("unanswered", Value::Null);
    store.server().resume();
    is("answered", Value::Null);
    store.json("break", &format!("--if-fence {fence} x"), 0);
    assert_eq!(is("released", json!(false))["before"]["fence"], fence);
}

/// How often the server was asked for its delays, as each examination does once.
fn examinations(store: &Store) -> u64 {
    let stats = store.server().cli(&["INFO", "commandstats"]).text();
    let calls = stats
        .split_once("cmdstat_latency|latest:calls=")
        .map(|(_, rest)| rest.split(',').next());
    calls.flatten().map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn the_store_is_examined_once_for_all_pages_and_only_read() {
    let store = Store::redis();
    let replica = RedisServer::builder()
        .replica_of(store.server().port())
        .start();
    eventually(LIMIT, "the replica is in step", || {
        let told = store.server().cli(&["INFO", "replication"]).text();
        told.contains("state=online")
    });
    let served = start(&store, "");
    let mut pages: Vec<_> = (0..8).map(|_| Listening::to(&served)).collect();
    for page in &mut pages {
        page.look(|look| look["full"] == true);
    }
    assert_eq!(examinations(&store), 0);
    let asked: Vec<_> = (0..8)
        .map(|_| served.begin("GET", "/api/v1/store", &Value::Null))
        .collect();
    for answer in asked.into_iter().map(end) {
        let document = answer.is(200);
        assert!(answer.head.contains("\r\nage: "), "{answer:?}");
        assert_eq!(
            (&document["schema"], &document["quick"]),
            (&json!("leasehold.doctor/1"), &json!(true))
        );
        let ids: Vec<_> = document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["id"].as_str().unwrap())
            .collect();
        assert!(
            ids.contains(&"mem.policy") && !ids.contains(&"acl.probe"),
            "{ids:?}"
        );
        let [node] = &document["nodes"].as_array().unwrap()[..] else {
            panic!("{document}");
        };
        assert_eq!(
            (&node["role"], &node["error"]),
            (&json!("master"), &Value::Null)
        );
        let follower = format!("127.0.0.1:{}", replica.port());
        assert_eq!(
            (
                &node["replicas"][0]["server"],
                &node["replicas"][0]["state"]
            ),
            (&json!(follower), &json!("online"))
        );
    }
    assert_eq!(examinations(&store), 1);
    assert_eq!(store.server().cli(&["DBSIZE"]).int(), 0);
}

#[test]
fn each_node_of_a_quorum_has_a_state() {
    let store = Store::quorum();
    let served = start(&store, "--request-timeout 6s");
    store.quorum[2].pause();
    let document = served.get("/api/v1/store").is(200);
    store.quorum[2].resume();
    let nodes = document["nodes"].as_array().unwrap();
    let states: Vec<_> = nodes
        .iter()
        .map(|node| (node["votes_in_ms"].as_u64(), node["error"].is_null()))
        .collect();
    assert_eq!(
        states,
        [(Some(0), true), (Some(0), true), (None, false)],
        "{document}"
    );
    let mut findings = document["findings"].as_array().unwrap().iter();
    let of_nodes = findings.find(|finding| finding["id"] == "q.nodes").unwrap();
    assert_eq!(of_nodes["state"], "warn", "{document}");
}

/// How many scripts the server has run: each look at some lock is one.
fn looks(store: &Store) -> u64 {
    let stats = store.server().cli(&["INFO", "commandstats"]).text();
    let calls = |line: &str| -> Option<u64> {
        let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
        calls.split(',').next()?.parse().ok()
    };
    stats.lines().filter_map(calls).sum()
}

#[test]
fn pages_share_one_watcher_that_rests_without_them() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", "theirs"]);
    let index = ["ZADD", "leasehold:index", "9e15", "x"];
    store.server().cli(&index);
    let served = start(&store, "");
    let mut pages: Vec<_> = (0..8).map(|_| Listening::to(&served)).collect();
    for page in &mut pages {
        page.look(|look| look["full"] == true);
    }
    let (begun, before) = (Instant::now(), looks(&store));
    for _ in 0..20 {
        pages[0].look(|_| true);
    }
    let (asked, took) = (looks(&store) - before, begun.elapsed());
    // One watcher for each of the 8 pages would ask eight times as often.
    let most = took.as_millis() / 50 + 2;
    assert!(u128::from(asked) <= most, "{asked} looks in {took:?}");

    drop(pages);
    // Once no page listens, the watcher forgets what it has seen, and asks nothing. The next page begins with a first look.
    eventually(LIMIT, "it rests", || {
        let whole = Listening::to(&served).look(|look| look["full"] == true);
        whole["changes"][0]["initial"] == true
    });
}

#[test]
fn a_lock_is_broken_by_flag_token_origin_and_fence_only() {
    let store = Store::redis();
    let holder = store.hold();
    let fence = store.number("fence");
    let order = |fence: u64| json!({"name": "x", "fence": fence, "who": "ann", "reason": "its host is gone"});
    let right = order(fence);
    let without = start(&store, "");
    let refused = without
        .post("/api/v1/break", &right)
        .refuses(403, "forbidden");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("--allow-break")
    );

    let mut served = start(&store, "--allow-break");
    let ask = |served: &Served, headers: &str| {
        let body = right.to_string();
        let request = format!(
            "POST /api/v1/break HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        served.raw(request.as_bytes()).unwrap().status
    };
    assert_eq!(ask(&served, ""), 401);
    let bearer = format!(
        "Authorization: Bearer {}\r\n",
        served.token.as_deref().unwrap()
    );
    let other_site = format!("{bearer}Origin: http://evil.example\r\n");
    assert_eq!(ask(&served, &other_site), 403);
    assert_eq!(served.get("/api/v1/break").status, 405);
    for (field, value) in [
        ("fence", Value::Null),
        ("who", json!(" ")),
        ("reason", json!("")),
        ("reason", json!("x".repeat(201))),
    ] {
        let mut order = order(fence);
        order[field] = value;
        served.post("/api/v1/break", &order).refuses(400, "invalid");
    }
    let wrong = served.post("/api/v1/break", &order(fence - 1)).is(200);
    assert_eq!(wrong["broken"], false);
    assert!(store.is_held("x"));

    // The holder cannot learn of the break for now.
    holder.stop();
    let done = served.post("/api/v1/break", &right).is(200);
    assert_eq!(done, json!({"name": "x", "fence": fence, "broken": true}));
    assert!(!store.is_held("x"));
    let line =
        format!("break \"x\", fence {fence}, by \"ann\", because \"its host is gone\": broken\n");
    served.running.until_it_says(&line);
    served.token = None;
    assert_eq!(served.post("/api/v1/break", &right).status, 401);
}

#[test]
fn page_is_small_and_loads_nothing_from_elsewhere() {
    let store = Store::local();
    let mut served = start(&store, "");
    // The files are no secret: they are loaded before the token can be sent.
    served.token = None;
    let page = served.get("/ui/");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'"),
        "{}",
        page.head
    );
    for elsewhere in [
        "http://",
        "https://",
        "src=",
        "href=",
        "innerHTML",
        "eval(",
        "{script}",
        "{style}",
    ] {
        assert!(!page.body.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.body.len() <= 60_000, "{} bytes", page.body.len());
    for path in ["looks", "locks", "events", "store"] {
        assert_eq!(served.get(&format!("/api/v1/{path}")).status, 401, "{path}");
    }
}

/// Runs a story of `tests/ui/stories.js` in a browser.
fn in_a_browser(told: &str) {
    let browser = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if let Some(missing) = [browser.as_str(), "node"].iter().find(|it| !is_there(it)) {
        println!("SKIPPED {told} in a browser: {missing} is not installed");
        return;
    }
    let store = Store::redis();
    let stories = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui/stories.js");
    let run = store.program(&["node", stories, told]);
    let run = run.env("CHROMIUM", &browser).env("LEASEHOLD", LEASEHOLD);
    let done = run.env("STORE", &store.url).output();
    done.is(0, &[]);
    println!("{}", done.stdout);
}

/// Makes a test of each story.
macro_rules! in_a_browser {
    ($($story:ident)*) => {
        $(
            #[test]
            fn $story() {
                in_a_browser(stringify!($story));
            }
        )*
    };
}

in_a_browser! {
    the_table_follows_acquire_and_release
    locks_stand_in_the_order_of_their_risk
    a_timeline_has_holders_hand_overs_and_losses
    the_store_is_examined_while_its_view_is_seen
    a_page_says_what_it_does_not_show
    the_colours_are_those_of_the_system_or_of_the_key
    a_thousand_locks_are_few_requests_and_few_rows
    names_of_any_kind_are_text
    keys_alone_find_show_and_break_a_lock
    a_narrow_screen_needs_no_sideways_scrolling
    a_store_or_server_that_is_away_is_said_so_and_comes_back
    a_hidden_page_asks_nothing
    a_link_has_search_and_lock_but_no_token
}
