//! Compares the code with the test vectors in `docs/reference/protocol.md`, `docs/compatibility.md`, `docs/reference/cache-protocol.md` and
//! `docs/reference/timestamp.md`.

use std::time::Duration;

use leasehold::{Client, Error};
use leasehold_core::cache::{
    Commit, CommitOutcome, Control, EntryState, Format, Header, Standing, Token, Value, Version,
};
use leasehold_core::timestamp::{self, Content, Unit};
use leasehold_core::{
    Block, ClientId, Counter, Fence, LockName, Now, Owner, Ttl, cache, poll_after, quorum,
};
use testkit::{RedisServer, Reply};
use tokio::runtime::Builder;

const PROTOCOL: &str = include_str!("../../../docs/reference/protocol.md");
const COMPATIBILITY: &str = include_str!("../../../docs/compatibility.md");
const CACHE: &str = include_str!("../../../docs/reference/cache-protocol.md");
const TIMESTAMP: &str = include_str!("../../../docs/reference/timestamp.md");

/// The rows of a vector table of `docs/reference/protocol.md`, without the backquotes.
fn vectors(table: &str) -> Vec<Vec<String>> {
    vectors_of(PROTOCOL, table)
}

fn vectors_of(text: &str, table: &str) -> Vec<Vec<String>> {
    let begin = text
        .find(&format!("<!-- vectors:{table} "))
        .expect("the table is in the document");
    let body = text[begin..].split("<!-- end -->").next().expect("it ends");
    let rows: Vec<_> = body
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect();
    assert!(rows.len() >= 2, "{table} has rows");
    rows
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|')
        .split('|')
        .map(|cell| cell.trim().trim_matches('`').to_owned())
        .collect()
}

#[test]
fn keys() {
    for row in vectors("keys") {
        let name = LockName::new(&row[0]).expect("a good name");
        assert_eq!([name.key(), &name.beside(":lh-queue")], [&row[1], &row[2]]);
    }
}

/// Checks the rules themselves, and a client that takes the lock on a real server.
#[test]
fn templates() {
    let server = RedisServer::start();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let set = |cell: &str| Some(cell.to_owned()).filter(|cell| !cell.is_empty());
    for row in vectors_of(COMPATIBILITY, "templates") {
        server.cli(&["FLUSHALL"]);
        let mut builder = Client::builder();
        if let Some(template) = set(&row[0]) {
            builder = builder.key_template(template);
        }
        if let Some(namespace) = set(&row[1]) {
            builder = builder.namespace(namespace);
        }
        let taken = runtime.block_on(async {
            let client = builder.connect(&server.url()).await?;
            client.mutex(&row[2]).try_acquire().await
        });
        if row[3] == "refused" {
            assert!(
                matches!(taken, Err(Error::Invalid(_))),
                "{row:?}: {taken:?}"
            );
            assert_eq!(server.cli(&["DBSIZE"]).int(), 0, "{row:?}");
            continue;
        }
        let _lease = taken.expect("an answer").expect("free");
        let keys = server.cli(&["KEYS", "*"]);
        let mut keys: Vec<String> = keys.array().iter().map(Reply::text).collect();
        keys.sort_by_key(|key| key == "leasehold:fence");
        assert_eq!(keys, [&row[3], "leasehold:fence"], "{row:?}");
    }
}

#[test]
fn tokens() {
    for row in vectors("tokens") {
        let number = |at: usize| row[at].parse::<u32>().expect("a number");
        let (random, client) = (u128::from(number(0)), ClientId::new(number(1).into()));
        let owner = Owner::new(random, client, &row[2], number(3), &row[4]).expect("a good owner");
        assert_eq!(owner.token(), row[5]);
        assert_eq!(Owner::parse(&row[5]), Some(owner));
    }
}

#[test]
fn tokens_with_fence() {
    for row in vectors("tokens_with_fence") {
        let read = Owner::parse_with_fence(&row[0]);
        if row[2] == "refused" {
            assert_eq!(read, None, "{row:?}");
            continue;
        }
        let (owner, fence) = read.expect("a token with a fence");
        assert_eq!(
            (owner.token(), fence.to_string()),
            (&*row[1], row[2].clone())
        );
        assert_eq!(owner.with_fence(fence), row[0]);
    }
}

#[test]
fn fences() {
    for row in vectors("fences") {
        let number = |at: usize| row[at].parse::<u64>().expect("a number");
        let mut counter = Counter(row[0].parse().ok().map(Fence::new));
        let drawn = counter.draw(Block::nearest(number(2)), number(1));
        assert_eq!(drawn.first.get(), number(3), "{row:?}");
        assert_eq!(drawn.block.get(), number(2), "{row:?}");
        assert_eq!(counter, Counter(Some(Fence::new(number(4)))), "{row:?}");
    }
}

#[test]
fn buckets() {
    for row in vectors("buckets") {
        let name = LockName::new(&row[0]).expect("a good name");
        assert_eq!(quorum::bucket(&name).to_string(), row[1], "{row:?}");
    }
}

#[test]
fn quarantines() {
    for row in vectors("quarantines") {
        let longest = Duration::from_millis(row[0].parse().expect("a number"));
        let quarantine = quorum::quarantine(Ttl::new(longest).expect("a good TTL"));
        assert_eq!(quarantine.as_secs_f64().to_string(), row[1], "{row:?}");
    }
}

#[test]
fn polls() {
    for row in vectors("polls") {
        let left = row[1].parse().ok().map(Duration::from_millis);
        let (foreign, listening) = (row[2] == "foreign", row[3] == "yes");
        let ahead = row[0].parse().expect("a number");
        let after = poll_after(ahead, left, foreign, listening);
        assert_eq!(after.as_millis().to_string(), row[4], "{row:?}");
    }
}

#[test]
fn entries_of_a_cache() {
    for row in vectors_of(CACHE, "entries") {
        let number = |at: usize| row[at].parse::<u64>().expect("a number");
        let text = format!("{}\nthe value", row[0]);
        let Some(Value { header, body }) = Value::read(text.as_bytes()) else {
            assert_eq!(row[6], "foreign");
            continue;
        };
        assert_eq!(
            [
                header.version.get(),
                header.stored_ms,
                header.soft_ms,
                header.load_ms
            ],
            [number(1), number(2), number(3), number(4)]
        );
        assert_eq!(header.line().trim_end(), row[0]);
        assert_eq!(&*body, b"the value");
        let standing = match header.standing(number(5)) {
            Standing::Fresh => "fresh",
            Standing::Stale => "stale",
        };
        assert_eq!(standing, row[6], "{row:?}");
    }
}

#[test]
fn versions_of_a_cache() {
    for row in vectors_of(CACHE, "versions") {
        let number = |at: usize| row[at].parse::<u64>().expect("a number");
        let next = Version::after(Version::new(number(0)), number(1));
        assert_eq!(next.get(), number(2));
    }
}

#[test]
fn commits_to_a_cache() {
    for row in vectors_of(CACHE, "commits") {
        let version = |text: &str| text.parse().ok().map(Version::new);
        let (stored, mark) = row[0].split_once(", ").unwrap_or((&row[0], ""));
        let value = version(stored).map(|version| Value {
            header: Header {
                invalidated: mark == "invalidated",
                version,
                stored_ms: 1,
                soft_ms: 1_000,
                load_ms: 1,
                format: Format::Raw,
            },
            body: b"before"[..].into(),
        });
        let control = version(&row[1]).map(|epoch| Control {
            last: version(&row[2]).expect("a number"),
            epoch,
            loader: None,
            back_off: None,
            failures: 0,
            waiting: std::iter::empty().collect(),
            forget_at_ms: 1_000,
        });
        let mut state = EntryState {
            value: value.map(|value| (value, 1_000)),
            control,
            foreign: None,
        };
        let commit = cache::Step::Commit(Commit {
            token: Token(1),
            version: version(&row[3]).expect("a number"),
            fresh_ms: 500,
            stale_ms: 500,
            load_ms: 1,
            format: Format::Raw,
            body: b"after"[..].into(),
        });
        let kept = match state.apply(Now::at_micros(1_000), &commit).reply {
            cache::Reply::Committed(CommitOutcome::Fresh(_)) => "fresh",
            cache::Reply::Committed(CommitOutcome::Stale) => "stale",
            cache::Reply::Committed(CommitOutcome::Overtaken) => "overtaken",
            other => panic!("{other:?}"),
        };
        let after = state.value.map(|(after, _)| after.header.version);
        assert_eq!((kept, after), (&*row[4], version(&row[5])), "{row:?}");
    }
}

/// The value in a cell of `docs/reference/timestamp.md`.
fn content(cell: &str) -> Content {
    match cell {
        "nothing" => Content::Nothing,
        value => Content::Text(value.into()),
    }
}

#[test]
fn values_of_the_timestamp_protocol() {
    for row in vectors_of(TIMESTAMP, "values") {
        let unit = match row[1].as_str() {
            "s" => Unit::Seconds,
            _ => Unit::Millis,
        };
        let deadline = unit.read(row[0].as_bytes());
        assert_eq!(deadline, row[2].parse().ok(), "{row:?}");
    }
}

#[test]
fn scripts_of_the_timestamp_protocol() {
    for row in vectors_of(TIMESTAMP, "scripts") {
        let arguments: Vec<u64> = (row[1].split(' '))
            .map(|number| number.parse().expect("a number"))
            .collect();
        let unit = match arguments[0] {
            1_000_000 => Unit::Seconds,
            _ => Unit::Millis,
        };
        let ttl = || {
            let ttl = Duration::from_micros(arguments[1] * unit.micros());
            Ttl::new(ttl).expect("a good TTL")
        };
        let step = match row[0].as_str() {
            "acquire" => timestamp::Step::Acquire { ttl: ttl() },
            "extend" => timestamp::Step::Extend {
                to: arguments[2],
                ttl: ttl(),
                mine: arguments[3..].to_vec(),
            },
            _ => timestamp::Step::Release {
                mine: arguments[1..].to_vec(),
            },
        };
        let mut key = content(&row[3]);
        let now_us = row[2].parse().expect("a number");
        let reply = match timestamp::apply(unit, now_us, &mut key, &step) {
            timestamp::Reply::Held { deadline, .. } => format!("held {deadline}"),
            timestamp::Reply::Busy { deadline, .. } => format!("busy {deadline}"),
            timestamp::Reply::Foreign(_) => "foreign".into(),
            timestamp::Reply::Again { .. } => "again".into(),
            timestamp::Reply::BadClock { .. } => "bad-clock".into(),
            timestamp::Reply::NotHeld { .. } => "not-held".into(),
            timestamp::Reply::Released => "released".into(),
        };
        assert_eq!((reply, key), (row[4].clone(), content(&row[5])), "{row:?}");
    }
}
