//! Foreign locks that are not strings. The tests send the commands of these programs, since both need a runtime
//! that is not worth installing.

use std::time::Duration;

use leasehold::{Error, HolderIdentity, blocking};
use testkit::{RedisServer, Reply};

use crate::Tale;
use crate::scene::{EXPIRES_SOON, NAME as KEY, inspect, now};

pub(crate) const STORIES: &[Tale] = &[
    ("redisson shares_a_key", || shares_a_key(&REDISSON)),
    ("symfony shares_a_key", || shares_a_key(&SYMFONY)),
];

const WHO: &str = "9b2e6f0a-6f0c-4c52-a5a6-3a2f6f6f0e11:42";
const LONG: Duration = Duration::from_secs(30);

/// The commands of a program for taking and releasing its lock, from its own script.
struct Program {
    kind: &'static str,
    /// The format that `leasehold inspect` reports.
    format: &'static str,
    /// KEYS: the lock. ARGV: the TTL in ms, the holder.
    take: &'static str,
    /// KEYS: the lock. ARGV: the holder.
    free: &'static str,
    /// The answer when it got the lock.
    got: fn(&Reply) -> bool,
    /// The answer while Leasehold holds the lock.
    refused: fn(&Reply) -> bool,
}

/// Redisson 3: a hash with a field for the thread. While the key is a string its script fails with an error, so
/// it does not get the lock.
const REDISSON: Program = Program {
    kind: "hash",
    format: "Redisson",
    take: "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
           redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
           return redis.call('pttl', KEYS[1])",
    free: "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end \
           if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then redis.call('del', KEYS[1]) end return 1",
    got: Reply::is_nil,
    refused: |reply| {
        reply
            .error()
            .is_some_and(|error| error.contains("WRONGTYPE"))
    },
};

/// Symfony Lock since 5.2: a sorted set with the ends of the leases. It takes a string for the lock of an older
/// Symfony, and so for held.
const SYMFONY: Program = Program {
    kind: "zset",
    format: "Symfony Lock",
    take: "if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end \
           local time = redis.call('TIME') local now = time[1] * 1000 + math.floor(time[2] / 1000) \
           redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) \
           if redis.call('ZCARD', KEYS[1]) > 0 then return false end \
           local ends = string.format('%.0f', now + ARGV[1]) \
           redis.call('ZADD', KEYS[1], ends, ARGV[2], ends, '__write__') redis.call('PEXPIREAT', KEYS[1], ends) return true",
    free: "if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end \
           return redis.call('ZREM', KEYS[1], ARGV[1], '__write__')",
    got: |reply| *reply == Reply::Int(1),
    refused: Reply::is_nil,
};

fn shares_a_key(program: &Program) -> String {
    let server = RedisServer::start();
    let take = |ttl: Duration| {
        let ttl = ttl.as_millis().to_string();
        server.cli(&["EVAL", program.take, "1", KEY, &ttl, WHO])
    };
    let client = blocking::Client::connect(&server.url()).expect("a server");
    let lock = client.mutex(KEY).map(|mutex| mutex.ttl(LONG));

    // The foreign program holds: Leasehold reports busy with a name, and no error.
    assert!((program.got)(&take(LONG)));
    assert!(lock.try_acquire().expect("no exception").is_none());
    let Err(Error::Timeout(timeout)) = lock.acquire_within(Duration::from_secs(1)) else {
        panic!("taken from it");
    };
    let says = format!("foreign lock of type {}", program.kind);
    assert!(timeout.to_string().contains(&says), "{timeout}");
    let holder = client.inspect(KEY).expect("no exception").holder.unwrap();
    assert!(matches!(&holder.who, HolderIdentity::Foreign { kind, .. } if kind == program.kind));
    assert!(holder.expires_in.is_some_and(|left| left > LONG / 2));
    let seen = inspect(&server.url(), "{}", KEY);
    assert_eq!(seen["state"], "held", "{seen}");
    assert_eq!(seen["holder"]["type"], program.kind, "{seen}");
    assert_eq!(seen["holder"]["format"], program.format, "{seen}");

    // The foreign program releases and Leasehold holds: the foreign program is refused, and the key stays
    // unchanged.
    assert!(server.cli(&["EVAL", program.free, "1", KEY, WHO]).int() > 0);
    let lease = lock.try_acquire().expect("an answer").expect("free");
    let token = server.cli(&["GET", KEY]);
    let refused = take(LONG);
    assert!((program.refused)(&refused), "{refused:?}");
    let freed = server.cli(&["EVAL", program.free, "1", KEY, WHO]);
    assert!(
        freed.error().is_some() || freed == Reply::Int(0),
        "{freed:?}"
    );
    assert_eq!(server.cli(&["GET", KEY]), token, "left alone");
    lease.release().expect("held");

    // The foreign program dies.
    let began = now();
    assert!((program.got)(&take(EXPIRES_SOON)));
    let lease = lock.acquire_within(LONG).expect("its lease ended");
    let waited = now().since(began) + Duration::from_millis(2);
    assert!(waited >= EXPIRES_SOON, "not before its end: {waited:?}");
    lease.release().expect("held");
    format!(
        "a {}; while Leasehold holds it is answered {refused:?}",
        program.kind
    )
}
