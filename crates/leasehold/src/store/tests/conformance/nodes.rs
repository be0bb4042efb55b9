//! A quorum of three real servers, one of which may be down all the time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::quorum::{QuorumTerms, bucket, quarantine};
use leasehold_core::{Fence, LockName, Step, Ttl};
use testkit::{RedisServer, Reply};

use super::peer::name;
use super::worlds::World;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::store::contract::{Attach, Capabilities, Done, Store};
use crate::store::opened::Opened;
use crate::store::quorum::QuorumStore;
use crate::store::redis::QuorumAddress;

/// The key of a node's mark. Those of its counters begin with it.
const MARK: &str = "leasehold:quorum";

/// The longest TTL of a lease: the default of a quorum, and longer than those of the behaviours.
const LONGEST_TTL: Duration = Duration::from_secs(60);

/// Three servers, so many of which are up. Their clocks agree.
pub(super) struct Servers<const UP: usize> {
    /// Those that are up.
    up: Vec<RedisServer>,
    url: String,
}

/// All servers are up.
pub(super) type OnQuorum = Servers<3>;

/// The server that would lead the lock of most tests is down.
pub(super) type OnMajority = Servers<2>;

fn terms() -> QuorumTerms {
    QuorumTerms {
        nodes: 3,
        longest_ttl: Ttl::new(LONGEST_TTL).unwrap(),
    }
}

/// The mark of a node that was made at this time.
fn mark(made_at_ms: u64, id: &str) -> String {
    format!("3 {} {made_at_ms} {}", LONGEST_TTL.as_millis(), &id[..16])
}

fn run_id(server: &RedisServer) -> String {
    let info = server.cli(&["INFO", "server"]).text();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    run_id.unwrap().to_owned()
}

impl<const UP: usize> Servers<UP> {
    fn cli(&self, command: &[&str]) -> Vec<Reply> {
        self.up.iter().map(|server| server.cli(command)).collect()
    }
}

impl<const UP: usize> World for Servers<UP> {
    const WAKES_SAY_ALL: bool = false;
    const DRAWS_FENCES: bool = false;
    const KNOWS_QUEUE: bool = false;

    fn start() -> Self {
        let start = |_| RedisServer::builder().virtual_clock().start();
        let mut up: Vec<RedisServer> = (0..3).map(start).collect();
        let now = up[0].clock().now();
        for server in &up {
            server.clock().set(now);
            let mark = mark(0, &run_id(server));
            assert_eq!(server.cli(&["SET", MARK, &mark]).text(), "OK");
        }
        // In the order of the leads.
        up.sort_by_key(|server| server.port().to_string());
        let ports: Vec<String> = up
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()))
            .collect();
        let lead = usize::from(bucket(&name())) % up.len();
        if UP < up.len() {
            up.remove(lead).kill();
        }
        let url = format!("redis+quorum://{}/", ports.join(","));
        Self { up, url }
    }

    fn open(&self, attach: Attach) -> Opened {
        let address = QuorumAddress::parse(&self.url).unwrap();
        let tasks = crate::runtime::Tasks::here().unwrap();
        let limit = Duration::from_secs(20);
        let store =
            crate::store::redis::open_quorum(address, &attach, &Clock::system(), &tasks, limit);
        Opened::new(Arc::new(Settled(Arc::new(store))))
    }

    fn advance(&self, by: Duration) {
        for server in &self.up {
            server.clock().advance(by);
        }
    }

    /// Also marks the servers, as the first client would, and waits until they give votes again.
    fn forget_everything(&self) {
        for server in &self.up {
            let mark = mark(server.clock().now() / 1_000, &run_id(server));
            assert_eq!(server.cli(&["FLUSHALL"]).text(), "OK");
            assert_eq!(server.cli(&["SET", MARK, &mark]).text(), "OK");
        }
        self.advance(quarantine(terms().longest_ttl));
    }

    fn set_counter(&self, last: Option<Fence>) {
        let counter = format!("{MARK}:3:{}:{}", LONGEST_TTL.as_millis(), bucket(&name()));
        match last {
            Some(last) => drop(self.cli(&["SET", &counter, &last.to_string()])),
            None => drop(self.cli(&["DEL", &counter])),
        }
    }

    fn remains(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for reply in self.cli(&["KEYS", "*"]) {
            let of_locks = reply.array().iter().map(Reply::text);
            keys.extend(of_locks.filter(|key| !key.starts_with(MARK)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Answers when all nodes have answered. The quorum itself answers as soon as a majority decides, and then the virtual
/// clocks could go on before the last node has its request.
struct Settled(Arc<QuorumStore>);

impl Store for Settled {
    fn send(&self, name: &LockName, step: Step, done: Done) {
        let (store, name) = (self.0.clone(), name.clone());
        let tasks = crate::runtime::Tasks::here().unwrap();
        tasks.spawn_aside(async move {
            // On one connection, earlier messages arrive before these answers.
            store.settled(&name).await;
            let answer = store.apply(&name, step).await;
            store.settled(&name).await;
            done.answer(answer);
        });
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn longest_ttl(&self) -> Duration {
        self.0.longest_ttl()
    }

    fn label(&self) -> &str {
        self.0.label()
    }

    /// Afterwards the client knows which servers are down.
    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.0.ready().await?;
            self.0.apply(&name(), Step::Inspect).await?;
            self.0.settled(&name()).await;
            Ok(())
        }
        .boxed()
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.0.index(remember)
    }
}
