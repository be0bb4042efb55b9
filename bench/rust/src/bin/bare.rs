//! The bare requests, by hand, sent to all servers at once over one multiplexed connection each: `SET NX PX` and a compare-and-delete
//! script, or with `scripts=votes` the two scripts of Leasehold's quorum. `await=majority` (default) goes on after a majority of the
//! answers, `await=all` after all of them. It is no lock: it has no retries, and never gives back the votes of a lost round.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use leasehold_bench::{Peer, RELEASE, Section, drive};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value, cmd};

const PROPOSE: &str = include_str!("../../../../crates/leasehold/lua/quorum/propose.lua");
const SETTLE: &str = include_str!("../../../../crates/leasehold/lua/mutex/settle.lua");

/// The mark of a node, which the runner of the benchmark sets.
const MARK: &str = "leasehold:quorum";

#[derive(Clone)]
struct Node {
    connection: MultiplexedConnection,
    /// The last argument of the scripts of a vote; empty without them.
    server: Arc<str>,
}

#[derive(Clone)]
struct Bare {
    nodes: Vec<Node>,
    requests: Requests,
    ttl: Duration,
    /// How many answers are awaited.
    awaited: usize,
}

/// The requests of a cycle, with the hashes of their scripts.
#[derive(Clone)]
enum Requests {
    Commands { release: Arc<str> },
    Votes { propose: Arc<str>, settle: Arc<str> },
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
    async fn all(&self, lock: &mut Lock, command: impl Fn(&Node) -> Cmd) -> Result<(), String> {
        lock.round += 1;
        let round = lock.round;
        for node in &self.nodes {
            let (mut connection, command) = (node.connection.clone(), command(node));
            let ask = async move {
                let answer: RedisResult<Value> = command.query_async(&mut connection).await;
                (round, answer.is_ok_and(|value| agrees(&value)))
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

    /// The request for the lock. `token` rises with each cycle.
    fn acquire(&self, node: &Node, key: &str, token: u64) -> Cmd {
        let ttl = u64::try_from(self.ttl.as_millis()).expect("a short TTL");
        match &self.requests {
            Requests::Commands { .. } => {
                let mut set = cmd("SET");
                set.arg(key).arg(token).arg("NX").arg("PX").arg(ttl);
                set
            }
            Requests::Votes { propose, .. } => {
                let (counter, queue) = (format!("{key}:fence"), format!("{key}:queue"));
                let mut vote = cmd("EVALSHA");
                vote.arg(&**propose).arg(4).arg(MARK).arg(counter).arg(key);
                vote.arg(queue).arg(owner(token)).arg(ttl).arg(token);
                vote.arg(1).arg(&*node.server);
                vote
            }
        }
    }

    fn release(&self, node: &Node, key: &str, token: u64) -> Cmd {
        let mut script = cmd("EVALSHA");
        match &self.requests {
            Requests::Commands { release } => {
                script.arg(&**release).arg(1).arg(key).arg(token);
            }
            Requests::Votes { settle, .. } => {
                let held = format!("{}#{token}", owner(token));
                script.arg(&**settle).arg(2).arg(MARK).arg(key).arg(held);
                script.arg(0).arg(&*node.server);
            }
        }
        script
    }

    /// Lets the node vote for numbers on this key.
    async fn prepare(&self, key: &str) {
        for node in &self.nodes {
            let mut set = cmd("SET");
            set.arg(format!("{key}:fence")).arg(0);
            let set: RedisResult<()> = set.query_async(&mut node.connection.clone()).await;
            set.expect("a counter");
        }
    }
}

/// Whether a node took the lock, or gave it back.
fn agrees(value: &Value) -> bool {
    match value {
        Value::Okay | Value::Int(1) => true,
        // One answer for all.
        Value::BulkString(reply) => reply == b"done",
        Value::Array(replies) => *replies == [Value::BulkString(b"done".to_vec())],
        _ => false,
    }
}

/// An owner token, of the length of Leasehold's.
fn owner(token: u64) -> String {
    format!("{token:032x}")
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
        let key = lock.key.clone();
        if lock.round == 0 && matches!(self.requests, Requests::Votes { .. }) {
            self.prepare(&key).await;
        }
        // In microseconds, as a fence: a node refuses a number far ahead of its clock.
        let token = now_us();
        let taken = self.all(lock, |node| self.acquire(node, &key, token)).await;
        if taken.is_ok() {
            section.run().await;
        }
        let released = self.all(lock, |node| self.release(node, &key, token)).await;
        taken.and(released)
    }
}

/// The time of the wall clock.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_micros()).expect("before the year 500000")
}

/// Loads a script, and returns its hash.
async fn load(node: &mut MultiplexedConnection, script: &str) -> Arc<str> {
    let mut load = cmd("SCRIPT");
    let hash: RedisResult<String> = load.arg("LOAD").arg(script).query_async(node).await;
    hash.expect("a script").into()
}

/// Reads the last argument of the scripts of a vote from the mark of a node: `<nodes> <longest TTL in ms> <server>`.
async fn server(node: &mut MultiplexedConnection) -> Arc<str> {
    let mark: RedisResult<String> = cmd("GET").arg(MARK).query_async(node).await;
    let mark = mark.expect("the mark of a node");
    match mark.split(' ').collect::<Vec<_>>()[..] {
        [nodes, longest, _made_at, server] => format!("{nodes} {longest} {server}").into(),
        _ => panic!("no mark: {mark}"),
    }
}

fn main() {
    drive(async |args, of| {
        let votes = match args.text("scripts") {
            None => false,
            Some("votes") => true,
            Some(other) => panic!("scripts={other}: votes, or nothing"),
        };
        let mut requests = Requests::Commands {
            release: Arc::default(),
        };
        let mut nodes = Vec::new();
        for url in &of.urls {
            let client = redis::Client::open(url.as_str()).expect("a URL");
            let connection = client.get_multiplexed_async_connection().await;
            let mut connection = connection.expect("redis-server answers");
            // Each server gets them; the hashes are alike.
            requests = if votes {
                Requests::Votes {
                    propose: load(&mut connection, PROPOSE).await,
                    settle: load(&mut connection, SETTLE).await,
                }
            } else {
                Requests::Commands {
                    release: load(&mut connection, RELEASE).await,
                }
            };
            let server = if votes {
                server(&mut connection).await
            } else {
                Arc::default()
            };
            nodes.push(Node { server, connection });
        }
        Bare {
            awaited: match args.text("await") {
                None | Some("majority") => nodes.len() / 2 + 1,
                Some("all") => nodes.len(),
                Some(other) => panic!("await={other}: majority or all"),
            },
            nodes,
            requests,
            ttl: of.ttl,
        }
    });
}
