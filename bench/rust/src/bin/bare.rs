//! The bare commands, by hand: `SET NX PX` and a compare-and-delete script, sent to all servers at once over one multiplexed
//! connection each. `await=majority` (default) goes on after a majority of the answers, `await=all` after all of them.
//! It is no lock: it has no fences, no retries, and never gives back the votes of a lost round.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use leasehold_bench::{Peer, Section, drive, now_ns};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

#[derive(Clone)]
struct Bare {
    nodes: Vec<MultiplexedConnection>,
    release: Arc<str>,
    ttl: Duration,
    /// How many answers are awaited.
    awaited: usize,
}

struct Lock {
    key: String,
    /// The requests that are not answered yet, with the number of their round. Those of earlier rounds are kept, since redis-rs
    /// may skip a request whose answer nobody awaits.
    open: FuturesUnordered<BoxFuture<'static, (u64, bool)>>,
    round: u64,
}

impl Bare {
    /// Sends a command to all servers, and waits for enough agreement.
    async fn all(&self, lock: &mut Lock, command: Cmd) -> Result<(), String> {
        lock.round += 1;
        let (round, command) = (lock.round, Arc::new(command));
        for node in &self.nodes {
            let (mut node, command) = (node.clone(), command.clone());
            let ask = async move {
                let answer: RedisResult<Value> = command.query_async(&mut node).await;
                (round, matches!(answer, Ok(Value::Okay | Value::Int(1))))
            };
            lock.open.push(ask.boxed());
        }
        let (mut answers, mut agree) = (0, 0);
        while let Some((of, agrees)) = lock.open.next().await {
            if of == round {
                answers += 1;
                agree += usize::from(agrees);
                if agree >= self.awaited || answers == self.nodes.len() {
                    break;
                }
            }
        }
        let enough = agree > self.nodes.len() / 2;
        enough.then_some(()).ok_or_else(|| format!("{agree} agree"))
    }
}

impl Peer for Bare {
    type Lock = Lock;

    fn lock(&self, key: &str) -> Lock {
        Lock {
            key: key.to_owned(),
            open: FuturesUnordered::new(),
            round: 0,
        }
    }

    async fn cycle(&self, lock: &mut Lock, section: &mut Section) -> Result<(), String> {
        let token = now_ns();
        let mut set = redis::cmd("SET");
        set.arg(&lock.key).arg(token);
        let ttl = u64::try_from(self.ttl.as_millis()).expect("a short TTL");
        set.arg("NX").arg("PX").arg(ttl);
        let taken = self.all(lock, set).await;
        if taken.is_ok() {
            section.run().await;
        }
        let mut release = redis::cmd("EVALSHA");
        release.arg(&*self.release).arg(1).arg(&lock.key).arg(token);
        let released = self.all(lock, release).await;
        taken.and(released)
    }

    async fn hold(&self, _: &str) {
        unimplemented!("no workload with waiters")
    }
}

fn main() {
    drive(async |args, load| {
        let (mut nodes, mut release) = (Vec::new(), String::new());
        for url in &load.urls {
            let client = redis::Client::open(url.as_str()).expect("a URL");
            let node = client.get_multiplexed_async_connection().await;
            let mut node = node.expect("redis-server answers");
            let mut script = redis::cmd("SCRIPT");
            let sha: RedisResult<String> =
                script.arg("LOAD").arg(RELEASE).query_async(&mut node).await;
            release = sha.expect("a script");
            nodes.push(node);
        }
        Bare {
            awaited: match args.text("await") {
                None | Some("majority") => nodes.len() / 2 + 1,
                Some("all") => nodes.len(),
                Some(other) => panic!("await={other}: majority or all"),
            },
            nodes,
            release: release.into(),
            ttl: load.ttl,
        }
    });
}
