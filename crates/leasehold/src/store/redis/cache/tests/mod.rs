//! Behaviour of cache entries on servers only: lookups, full memory, missing permissions, a different clock after a failover.

mod against_core;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, Format, POLL_UNSUBSCRIBED, Reply, Step, Token, Value, Version,
};
use leasehold_core::{ClientId, LockName, Ttl};
use testkit::RedisServer;

use super::super::{Address, RedisStore};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Store};
use crate::store::entries::{EntryStore, Looked};

const LIMIT: Duration = Duration::from_secs(20);

fn open(url: &str) -> RedisStore {
    let attach = Attach {
        client: ClientId::new(7),
        listener: Arc::new(drop),
        clock: Clock::system(),
        tasks: Tasks::here().unwrap(),
        limit: LIMIT,
    };
    RedisStore::open(Address::parse(url).unwrap(), attach)
}

/// Opened by a user with these rules.
fn open_as(server: &RedisServer, rules: &[&str]) -> RedisStore {
    let user = ["ACL", "SETUSER", "user", "on", ">pass", "~*"];
    server.cli(&[&user[..], rules].concat());
    open(&format!("redis://user:pass@127.0.0.1:{}", server.port()))
}

fn key(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

async fn takes(store: &RedisStore, name: &str, step: Step) -> Result<Reply, StoreError> {
    let taken = store.take(&key(name), &step).await;
    taken.map(|taken| taken.reply)
}

async fn looks(store: &RedisStore, names: &[&str]) -> Looked {
    let names: Vec<_> = names.iter().map(|name| key(name)).collect();
    store.look(&names, false).await.unwrap()
}

fn begin(token: u128) -> Step {
    Step::Begin(Begin {
        token: Token(token),
        seen: Version::default(),
        over: false,
        lease: lease(),
        listener: Some(ClientId::new(7)),
    })
}

fn commit(token: u128, version: Version, bytes: usize) -> Step {
    Step::Commit(Commit {
        token: Token(token),
        version,
        fresh_ms: 60_000,
        stale_ms: 0,
        load_ms: 1,
        format: Format::Raw,
        body: vec![b'x'; bytes].into(),
    })
}

fn lease() -> Ttl {
    Ttl::new(Duration::from_secs(30)).unwrap()
}

async fn loads(store: &RedisStore, name: &str, token: u128) -> Version {
    match takes(store, name, begin(token)).await {
        Ok(Reply::Load { version, .. }) => version,
        other => panic!("{other:?}"),
    }
}

/// How often the server executed this command, inside and outside scripts.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).text();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    let number = line.and_then(|line| line.split(',').next());
    number.map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn full_server_renews_abandons_invalidates_and_refuses_cleanly() {
    let server = RedisServer::builder()
        .option("maxmemory-policy", "noeviction")
        .start();
    let store = open(&server.url());
    store.ready().await.unwrap();
    let stored = loads(&store, "stored", 1).await;
    takes(&store, "stored", commit(1, stored, 3)).await.unwrap();
    for (name, token) in [("renewed", 2), ("abandoned", 3), ("invalidated", 4)] {
        loads(&store, name, token).await;
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = server.cli(&["DBSIZE"]).int();
    let refused = [("new", begin(9)), ("renewed", commit(2, stored, 3))];
    for (name, step) in refused {
        let error = takes(&store, name, step).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Full);
        assert!(!error.may_have_taken_effect, "{error:?}");
    }
    assert_eq!(server.cli(&["DBSIZE"]).int(), before);
    let renew = |token| Step::Renew {
        token: Token(token),
        lease: lease(),
    };
    let reply = takes(&store, "renewed", renew(2)).await.unwrap();
    assert_eq!(reply, Reply::Renewed, "a refused commit ends nothing");
    let abandon = Step::Abandon {
        token: Token(3),
        back_off: Some((lease(), "the source is down".into())),
    };
    let reply = takes(&store, "abandoned", abandon).await.unwrap();
    assert_eq!(reply, Reply::Abandoned);
    let invalidate = Step::Invalidate { remove: false };
    for name in ["invalidated", "stored", "nothing"] {
        let reply = takes(&store, name, invalidate.clone()).await.unwrap();
        assert_eq!(reply, Reply::Invalidated);
    }
    let reply = takes(&store, "invalidated", renew(4)).await.unwrap();
    assert_eq!(reply, Reply::NotLoading);
    let found = looks(&store, &["stored"]).await;
    assert!(found.values[0].as_ref().unwrap().header.invalidated);

    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let reply = takes(&store, "abandoned", begin(9)).await.unwrap();
    assert!(matches!(reply, Reply::BackOff { .. }), "{reply:?}");
    for name in server.cli(&["KEYS", "*"]).array() {
        let left = server.cli(&["PTTL", &name.text()]).int();
        assert!(left > 0, "{name:?}: {left}");
    }
}

#[tokio::test]
async fn look_is_one_command_and_samples_clock_now_and_then() {
    let server = RedisServer::start();
    let store = open(&server.url());
    store.ready().await.unwrap();
    // The handshake tries a script that reads the clock.
    let tried = calls(&server, "time");
    for _ in 0..20 {
        looks(&store, &["a"]).await;
        looks(&store, &["a", "b", "c"]).await;
    }
    let times = ["get", "mget", "time"].map(|command| calls(&server, command));
    assert_eq!(times, [20, 20, tried + 1]);
    // The answer of a script also tells the clock.
    let other = open(&server.url());
    loads(&other, "a", 1).await;
    let told = calls(&server, "time");
    looks(&other, &["a"]).await;
    assert_eq!(calls(&server, "time"), told);
}

#[tokio::test]
async fn many_entries_are_looked_up_by_few_commands() {
    let server = RedisServer::start();
    let store = open(&server.url());
    let names: Vec<_> = (0..1_200).map(|at| format!("entry {at}")).collect();
    let there = [0, 511, 512, 1_199];
    for at in there {
        let version = loads(&store, &names[at], 1).await;
        takes(&store, &names[at], commit(1, version, at + 1))
            .await
            .unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = looks(&store, &names).await.values;
    let bytes = |value: &Value| value.body.len();
    let found: Vec<_> = found
        .iter()
        .map(|value| value.as_ref().map(bytes))
        .collect();
    let expected: Vec<_> = (0..1_200)
        .map(|at| there.contains(&at).then_some(at + 1))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(calls(&server, "mget"), 3);
    assert!(looks(&store, &[]).await.values.is_empty());
}

#[tokio::test]
async fn what_is_no_entry_is_looked_up_as_nothing() {
    let server = RedisServer::start();
    let store = open(&server.url());
    server.cli(&["SET", "text", "{}"]);
    server.cli(&["HSET", "hash", "a", "1"]);
    server.cli(&["SET", "{entry}:lh-cache", "1"]);
    for names in [&["text"][..], &["hash"], &["text", "hash", "entry"]] {
        assert!(
            looks(&store, names)
                .await
                .values
                .iter()
                .all(Option::is_none)
        );
    }
}

#[tokio::test]
async fn a_value_of_some_megabytes_comes_back_as_it_was() {
    let server = RedisServer::start();
    let store = open(&server.url());
    let version = loads(&store, "a", 1).await;
    let kept = takes(&store, "a", commit(1, version, 5_000_000)).await;
    assert!(
        matches!(kept, Ok(Reply::Committed(CommitOutcome::Fresh(_)))),
        "{kept:?}"
    );
    let found = looks(&store, &["a"]).await;
    let body = &found.values[0].as_ref().unwrap().body;
    assert!(body.len() == 5_000_000 && body.iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn user_without_time_permission_reads_everything_as_stale() {
    let server = RedisServer::start();
    let version = loads(&open(&server.url()), "a", 1).await;
    let owner = open(&server.url());
    takes(&owner, "a", commit(1, version, 3)).await.unwrap();
    let reader = open_as(&server, &["&*", "+@all", "-time"]);
    let found = looks(&reader, &["a"]).await;
    assert!(found.values[0].is_some());
    assert_eq!(found.now_ms, u64::MAX);
}

#[tokio::test]
async fn waiter_that_cannot_subscribe_polls_more_often() {
    let server = RedisServer::start();
    let store = open_as(&server, &["resetchannels", "+@all"]);
    store.ready().await.unwrap();
    loads(&store, "a", 1).await;
    let reply = takes(&store, "a", begin(2)).await.unwrap();
    let Reply::Busy { poll_after, .. } = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(poll_after, POLL_UNSUBSCRIBED);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_clock_is_that_of_the_server_at_the_other_end() {
    let server = RedisServer::builder().virtual_clock().start();
    let store = open(&server.url());
    let server_ms = || server.clock().now() / 1_000;
    let before = server_ms();
    let now_ms = looks(&store, &["a"]).await.now_ms;
    assert!(
        (before..before + 20_000).contains(&now_ms),
        "{now_ms} {before}"
    );
    // A failover to a server whose clock is ahead.
    server.clock().advance(Duration::from_secs(3_600));
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let found = loop {
        match store.look(&[key("a")], false).await {
            // Still on the old connection.
            Ok(found) if found.now_ms < server_ms() => tokio::task::yield_now().await,
            Ok(found) => break found,
            Err(error) => assert_ne!(error.kind, StoreErrorKind::TimedOut, "{error}"),
        }
    };
    assert!(found.now_ms < server_ms() + 20_000);
}

/// Fields of a control that no script wrote; T is the token of the asking load.
const SPOILED: [&str; 12] = [
    "last 5 epoch 5 token T",
    "last 5 epoch 5 token T until x version 5",
    "last 5 epoch 5 token T until 9999999999999 version x",
    "last 5 epoch 5 token other until 1e300 version 5",
    "last 5 epoch 5 back_off_until x error e",
    "last 5 epoch 5 back_off_until 1e30 error e",
    "last 5 epoch 5 back_off_until 9007199254740991 error e",
    "last 5 epoch 5 failures x",
    "last inf epoch 5",
    "last nan epoch nan",
    "last 0x10 epoch 1e3",
    "last 1 epoch 4503599627370496",
];

/// A script may fail on them. But it changes the value only as its step says, and every key keeps a TTL.
#[tokio::test]
async fn a_spoiled_control_makes_no_value_fresh() {
    let server = RedisServer::start();
    let store = open(&server.url());
    let steps = [
        begin(1),
        Step::Renew {
            token: Token(1),
            lease: lease(),
        },
        commit(1, Version::new(5), 3),
        Step::Abandon {
            token: Token(1),
            back_off: Some((lease(), "down".into())),
        },
        Step::Invalidate { remove: false },
    ];
    for fields in SPOILED {
        for step in &steps {
            server.cli(&["FLUSHALL"]);
            let version = loads(&store, "a", 1).await;
            takes(&store, "a", commit(1, version, 3)).await.unwrap();
            let invalidate = Step::Invalidate { remove: false };
            takes(&store, "a", invalidate).await.unwrap();
            server.cli(&["EXPIRE", "a", "60"]);
            let fields = fields.replace('T', &format!("{:032x}", 1));
            let words: Vec<_> = fields.split(' ').collect();
            server.cli(&["DEL", "{a}:lh-cache"]);
            server.cli(&[&["HSET", "{a}:lh-cache"], &words[..]].concat());
            server.cli(&["EXPIRE", "{a}:lh-cache", "60"]);
            let before = server.cli(&["GET", "a"]).text();
            let told = takes(&store, "a", step.clone()).await;
            let after = server.cli(&["GET", "a"]).text();
            assert_eq!(before, after, "{fields}: {step:?} -> {told:?}");
            let fresh = matches!(
                told,
                Ok(Reply::Fresh(_) | Reply::Committed(CommitOutcome::Fresh(_)))
            );
            assert!(!fresh, "{fields}: {step:?} -> {told:?}");
            for key in ["a", "{a}:lh-cache"] {
                let left = server.cli(&["PTTL", key]).int();
                assert!(left > 0, "{key} {left}: {fields}: {step:?} -> {told:?}");
            }
        }
    }
}
