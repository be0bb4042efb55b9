//! A sketch of the requests of Redisson's `RReadWriteLock` and `RPermitExpirableSemaphore`, after their documentation; no code is theirs.
//! It favours them: requests share one connection, a waiter stays subscribed, the holders of a lock have one expiry, and no hold of these
//! workloads lasts long enough to be renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_bench::{Load, Peer, Section, Take, drive, text};
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, Script};
use tokio::sync::Notify;

// KEYS: the lock, and another key of it. ARGV: the holder, the TTL in ms, the slots. An acquire returns nil, or how many ms to wait.

/// One hash for each lock: `mode`, and a field for each holder.
const READ: &str = "
    local mode = redis.call('HGET', KEYS[1], 'mode')
    if mode == 'write' then return redis.call('PTTL', KEYS[1]) end
    if not mode then redis.call('HSET', KEYS[1], 'mode', 'read') end
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))";
const WRITE: &str = "
    if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
    redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])";
const UNLOCK: &str = "
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
    if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 then redis.call('HDEL', KEYS[1], ARGV[1]) end
    if redis.call('HLEN', KEYS[1]) == 1 then
        redis.call('DEL', KEYS[1])
        redis.call('PUBLISH', KEYS[1] .. ':free', 1)
    end
    return 1";

/// A counter of free slots, and a sorted set of holders by the end of each.
const TAKE_SLOT: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local expired = redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    local free = (redis.call('GET', KEYS[1]) or ARGV[3]) + expired
    if free < 1 then return redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] - now end
    redis.call('SET', KEYS[1], free - 1)
    redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])";
const GIVE_SLOT: &str = "
    if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
    redis.call('INCR', KEYS[1])
    redis.call('PUBLISH', KEYS[1] .. ':free', 1)
    return 1";

#[derive(Clone)]
struct Redisson {
    connection: MultiplexedConnection,
    /// Wakes the waiters of this process.
    freed: Arc<Notify>,
    acquire: Arc<Script>,
    release: Arc<Script>,
    ttl: Duration,
    slots: u16,
}

struct Lock {
    key: String,
    holder: String,
}

impl Redisson {
    async fn run<T: redis::FromRedisValue>(&self, script: &Script, lock: &Lock) -> RedisResult<T> {
        let mut call = script.key(&lock.key);
        call.key(format!("{}:timeout", lock.key)).arg(&lock.holder);
        call.arg(self.ttl.as_millis() as u64).arg(self.slots);
        call.invoke_async(&mut self.connection.clone()).await
    }
}

impl Peer for Redisson {
    type Lock = Lock;

    fn lock(&self, key: &str) -> Lock {
        static HOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = HOLDERS.fetch_add(1, Ordering::Relaxed);
        Lock {
            key: key.to_owned(),
            holder: format!("{}:{number}", std::process::id()),
        }
    }

    async fn cycle(&self, lock: &mut Lock, section: &mut Section) -> Result<(), String> {
        loop {
            let freed = self.freed.notified();
            let wait: Option<u64> = self.run(&self.acquire, lock).await.map_err(text)?;
            let Some(wait) = wait else { break };
            // The message, or the end of a holder that has crashed.
            let _ = tokio::time::timeout(Duration::from_millis(wait), freed).await;
        }
        section.run().await;
        match self.run(&self.release, lock).await.map_err(text)? {
            1 => Ok(()),
            _ => Err("it was not held".to_owned()),
        }
    }
}

/// Hears of the releases of the one key. As in Redisson, a free slot wakes one waiter of each process, and a free lock all of them.
async fn listen(client: &Client, load: &Load) -> Arc<Notify> {
    let freed = Arc::new(Notify::new());
    let mut messages = client
        .get_async_pubsub()
        .await
        .expect("redis-server answers");
    messages
        .subscribe(format!("{}:free", load.key(0)))
        .await
        .expect("a subscription");
    let (freed_too, one) = (freed.clone(), matches!(load.take, Take::Slot(_)));
    tokio::spawn(async move {
        let mut messages = messages.into_on_message();
        while messages.next().await.is_some() {
            if one {
                freed_too.notify_one();
            } else {
                freed_too.notify_waiters();
            }
        }
    });
    freed
}

fn main() {
    drive(async |_, load| {
        let client = Client::open(load.url.as_str()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let (acquire, release, slots) = match load.take {
            Take::Mutex => (WRITE, UNLOCK, 0),
            Take::Read => (READ, UNLOCK, 0),
            Take::Slot(slots) => (TAKE_SLOT, GIVE_SLOT, slots),
            Take::Several(_) => panic!("take=mutex, read or slot/<how many>"),
        };
        Redisson {
            connection: connection.expect("redis-server answers"),
            freed: listen(&client, load).await,
            acquire: Arc::new(Script::new(acquire)),
            release: Arc::new(Script::new(release)),
            ttl: load.ttl,
            slots,
        }
    });
}
