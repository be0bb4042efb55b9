//! One server behind a bad network, while a lock is acquired, held and released. No caller has to wait for that server.

use std::time::Duration;

use leasehold::{Client, Lease};
use testkit::{FaultProxy, RedisServer};
use tokio::time::{sleep, timeout};

use crate::common::{LONG, eventually};
use crate::scene::{NAME, Timed, lock, millis, take};

/// A fault between the clients and one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Each byte takes 300 ms, in each direction.
    Slow,
    /// No byte arrives, and no close.
    BlackHole,
    /// The connections so far are dead, and neither side is told. New ones work.
    HalfOpen,
    /// Requests are carried out, and their replies are lost.
    LosesReplies,
    /// The process is stopped.
    Paused,
    /// Connections are refused.
    Refused,
}

impl Fault {
    /// Clients get answers of the server, perhaps late and on new connections.
    fn lets_answer(self) -> bool {
        matches!(self, Self::Slow | Self::HalfOpen)
    }
}

/// Three servers, each behind a proxy.
struct Proxied {
    nodes: Timed,
    proxies: Vec<FaultProxy>,
}

impl Proxied {
    fn start() -> Self {
        let nodes = Timed::start();
        let proxies = nodes
            .0
            .iter()
            .map(|server| FaultProxy::start(server.port()));
        let proxies = proxies.collect();
        Self { nodes, proxies }
    }

    /// A client with a connection to each server.
    async fn client(&self) -> Client {
        let hosts = self
            .proxies
            .iter()
            .map(|proxy| format!("127.0.0.1:{}", proxy.port()));
        let hosts: Vec<String> = hosts.collect();
        let before: Vec<usize> = self.proxies.iter().map(FaultProxy::connections).collect();
        let url = format!("redis+quorum://{}/", hosts.join(","));
        let client = self.nodes.connect(&url).await;
        eventually("all are connected", async || {
            let seen = client.inspect_nodes("any").await.expect("it is open");
            seen.nodes.iter().all(|view| view.seen.is_ok())
        })
        .await;
        let more = self.proxies.iter().zip(before);
        assert!(
            more.into_iter()
                .all(|(proxy, before)| proxy.connections() > before)
        );
        client
    }

    fn begin(&self, fault: Fault, node: usize) {
        let proxy = &self.proxies[node];
        match fault {
            Fault::Slow => proxy.delay(millis(300)),
            Fault::BlackHole => proxy.blackhole(true),
            Fault::HalfOpen => proxy.strand(),
            Fault::LosesReplies => proxy.swallow_replies(true),
            Fault::Paused => self.nodes.0[node].pause(),
            Fault::Refused => {
                proxy.refuse(true);
                proxy.cut();
            }
        }
    }

    fn end(&self, fault: Fault, node: usize) {
        let proxy = &self.proxies[node];
        match fault {
            Fault::Slow => proxy.delay(Duration::ZERO),
            Fault::BlackHole => proxy.blackhole(false),
            Fault::HalfOpen => {}
            Fault::LosesReplies => proxy.cut_and_answer(),
            Fault::Paused => self.nodes.0[node].resume(),
            Fault::Refused => proxy.refuse(false),
        }
    }

    /// True if a server whose answers arrive has queued a waiter, or has given it its vote: `lease` may lack that one, and a waiter
    /// with the vote of the lead waits in no queue.
    fn have_a_waiter(&self, fault: Fault, node: usize, lease: &Lease) -> bool {
        let queue = format!("{{{NAME}}}:lh-queue");
        let token = lease.token();
        let (owner, _) = token.rsplit_once('#').expect("a fence");
        let waits_at = |server: &RedisServer| {
            let vote = server.cli(&["GET", NAME]);
            let is_of_another = !vote.is_nil() && !vote.text().starts_with(owner);
            is_of_another || server.cli(&["ZCARD", &queue]).int() > 0
        };
        let servers = self.nodes.0.iter().enumerate();
        let mut answering = servers.filter(|(other, _)| fault.lets_answer() || *other != node);
        answering.any(|(_, server)| waits_at(server))
    }
}

/// The lock is acquired, held, handed on and released while one server has this fault. Each step ends before the limit of a request that
/// the server does not answer.
async fn is_not_noticed(fault: Fault, node: usize) {
    let what = format!("{fault:?} at {node}");
    let servers = Proxied::start();
    let nodes = &servers.nodes;
    let (one, two) = (servers.client().await, servers.client().await);

    // Released during the fault.
    let before = take(&one).await;
    nodes.vote(&[0, 1, 2]).await;
    servers.begin(fault, node);
    let fence = before.fence();
    nodes.release(before).await;

    // Acquired and held during the fault. The vote of before may be left at the server.
    let lease = nodes.passing("the lock", lock(&one).acquire()).await;
    let lease = lease.expect("two servers answer");
    assert!(lease.fence() > fence, "{what}");
    for _ in 0..4 {
        nodes.renewed(&lease).await;
        assert!(!lease.is_doubtful(), "{what}: {:?}", lease.doubt());
    }

    // Another client waits for it. If the server leads the lock, that client waits for the limit of one request, and another one leads.
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(lock(&two).acquire_owned());
    let in_line = eventually("it is in line", async || {
        // An answer that only takes long must arrive before a leap of time ends its request: the slow server's takes 0.6 s.
        let polls = if fault.lets_answer() { 500 } else { 20 };
        for _ in 0..polls {
            if servers.have_a_waiter(fault, node, &lease) {
                return true;
            }
            sleep(millis(10)).await;
        }
        nodes.renewed(&lease).await;
        false
    });
    in_line.await;
    let fence = lease.fence();
    nodes.release(lease).await;
    // If a request of the waiter overtakes the release at one of the other servers, its answer needs the silent server, or its limit.
    let turn = nodes.passing("its turn", waiting.join_next());
    let next = if let Ok(next) = timeout(millis(500), turn).await {
        next
    } else {
        nodes.time.pass(LONG);
        nodes.passing("its turn", waiting.join_next()).await
    };
    let next = next.expect("one waits").expect("no panic");
    let next = next.expect("two servers answer");
    assert!(next.fence() > fence, "{what}");

    // When the server is back, it has nothing of all this.
    nodes.release(next).await;
    servers.end(fault, node);
    nodes.are_clean().await;
}

/// At each of the servers, one of which leads the lock.
async fn at_no_server(fault: Fault) {
    for node in 0..3 {
        is_not_noticed(fault, node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_noticed_by_time_only() {
    at_no_server(Fault::Slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_holed_server_is_noticed_by_time_only() {
    at_no_server(Fault::BlackHole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_noticed_by_time_only() {
    at_no_server(Fault::HalfOpen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_replies_are_lost_is_noticed_by_time_only() {
    at_no_server(Fault::LosesReplies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_is_noticed_by_time_only() {
    at_no_server(Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_noticed_by_time_only() {
    at_no_server(Fault::Refused).await;
}

/// Acquires and releases the lock often. The clock of the clients stands still, so no step may wait for a limit or a pause.
async fn cycles(client: &Client) {
    let mutex = lock(client);
    let cycles = async {
        for _ in 0..100 {
            let lease = mutex.acquire().await.expect("a majority answers");
            lease.release().await.expect("a majority confirms it");
        }
    };
    let done = timeout(LONG, cycles).await;
    done.expect("nobody waits for the silent server");
}

/// `bench` measures the median, which stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_silent_server_delays_no_acquisition() {
    let servers = Proxied::start();
    let client = servers.client().await;
    for node in 0..3 {
        cycles(&client).await;
        servers.begin(Fault::BlackHole, node);
        cycles(&client).await;
        // From now on, the server is known to be silent, if it did not answer in between.
        servers.nodes.time.pass(LONG);
        cycles(&client).await;
        servers.end(Fault::BlackHole, node);
        servers.nodes.are_clean().await;
    }
}
