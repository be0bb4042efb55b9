//! Servers that are killed or stopped.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use leasehold::{Client, Error, Lease, LossCause, Mutex};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::common::{LONG, eventually, stand_in_line, timed};
use crate::scene::{NAME, Nodes, TTL, Timed, exists, host, lock, millis, refusal, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_one_of_three_is_killed() {
    for killed in 0..3 {
        let nodes = Timed::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        let lease = take(&one).await;
        nodes.vote(&[0, 1, 2]).await;
        nodes.0[killed].kill();
        nodes.outlives_its_ttl(&lease).await;
        let fence = lease.fence();
        let busy = nodes.passing("an answer", lock(&two).try_acquire()).await;
        assert!(busy.expect("two servers answer").is_none(), "{killed}");
        nodes.release(lease).await;
        let next = nodes.passing("the lock", lock(&two).acquire()).await;
        let next = next.expect("it is free");
        assert!(next.fence() > fence);
        nodes.release(next).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_when_any_one_server_is_killed() {
    for killed in 0..3 {
        let nodes = Timed::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        let lease = take(&one).await;
        nodes.vote(&[0, 1, 2]).await;
        let mut waiting = JoinSet::new();
        stand_in_line(&mut waiting, 0, lock(&two)).await;
        nodes.0[killed].kill();
        nodes.release(lease).await;
        // Long before the vote at the killed server would have ended.
        let next = nodes.passing("its turn", waiting.join_next()).await;
        let (_, next) = next.expect("one waits").expect("no panic");
        nodes.release(next.expect("its turn")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_a_writer_go_on_when_any_one_server_is_killed() {
    for killed in 0..3 {
        let nodes = Timed::start();
        let (one, two, three) = (
            nodes.client().await,
            nodes.client().await,
            nodes.client().await,
        );
        let reads = |client: &Client| client.rw_lock(NAME).read().ttl(TTL).acquire_owned();
        let first = nodes.passing("the first", reads(&one)).await;
        let first = first.expect("it is free");
        nodes.vote(&[0, 1, 2]).await;
        nodes.0[killed].kill();
        let other = nodes.passing("the other", reads(&two)).await;
        let other = other.expect("beside the first");
        let extended = nodes.passing("a renewal", first.extend(TTL)).await;
        extended.expect("a majority has it");
        let busy = nodes.passing("an answer", lock(&three).try_acquire()).await;
        assert!(busy.expect("two servers answer").is_none(), "{killed}");
        for reader in [first, other] {
            let released = nodes.passing("a release", reader.release()).await;
            released.expect("a majority has it");
        }
        let writer = nodes.passing("the lock", lock(&three).acquire()).await;
        let writer = writer.expect("no reader is left");
        let late = one.rw_lock(NAME).read();
        let busy = nodes.passing("an answer", late.try_acquire()).await;
        assert!(busy.expect("two servers answer").is_none(), "{killed}");
        nodes.release(writer).await;
    }
}

/// Three servers, of which those of a mask are killed, and two clients.
struct Masked {
    nodes: Timed,
    mask: u32,
    one: Client,
    two: Client,
}

impl Masked {
    async fn start(mask: u32) -> Self {
        let nodes = Timed::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        Self {
            nodes,
            mask,
            one,
            two,
        }
    }

    fn kill(&self) {
        let servers = self.nodes.0.iter().enumerate();
        let killed = servers.filter(|(at, _)| self.mask >> at & 1 == 1);
        killed.for_each(|(_, server)| server.kill());
    }

    fn up(&self) -> usize {
        3 - usize::try_from(self.mask.count_ones()).expect("at most 3")
    }

    fn has_majority(&self) -> bool {
        self.up() >= 2
    }

    /// A lock that stays with the first client for a while.
    fn lingering(&self, name: &str) -> Mutex {
        self.one.mutex(name).ttl(TTL).linger(TTL)
    }

    /// A lease with the votes of all servers.
    async fn lease(&self, mutex: Mutex) -> Lease {
        let taken = mutex.try_acquire().await;
        let lease = taken.expect("all are up").expect("it is free");
        let name = lease.name();
        eventually(name, async || {
            self.nodes.0.iter().all(|server| exists(server, name))
        })
        .await;
        lease
    }

    /// Waits until the first client knows of the waiters of its lock. On each connection, the notice of a waiter comes before the answer
    /// to a later request. A release before that notice would linger, without a request.
    async fn knows_of_waiters(&self, name: &str) {
        eventually("an answer of each server", async || {
            let seen = self.one.inspect_nodes(name).await.expect("it is open");
            seen.nodes.iter().all(|view| view.seen.is_ok())
        })
        .await;
    }

    /// The output of a verb, which works if and only if a majority is up.
    async fn works<T: Debug>(
        &self,
        what: &str,
        verb: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let outcome = verb.await;
        let what = format!("{what}, {:03b}", self.mask);
        match outcome {
            Ok(output) => {
                assert!(self.has_majority(), "{what}: {output:?}");
                Some(output)
            }
            Err(Error::Store(error)) => {
                let said = error.to_string();
                assert!(!self.has_majority(), "{what}: {said}");
                assert!(said.contains("(2 of 3 nodes are needed)"), "{what}: {said}");
                None
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }

    /// The verbs that change nothing, of a lock that is held.
    async fn looks(&self, lease: &Lease) {
        let (name, mask) = (lease.name(), self.mask);
        let seen = self.works("inspect", self.two.inspect(name)).await;
        let fence = seen.and_then(|seen| seen.holder?.fence);
        assert_eq!(fence, self.has_majority().then(|| lease.fence()));
        let is_down = |at: usize| mask >> at & 1 == 1;
        let mut views = Vec::new();
        // A look waits only briefly for a server that is slower than a majority: the client may still connect to it.
        eventually("all servers that are up", async || {
            let seen = self.two.inspect_nodes(name).await;
            views = seen.expect("it is open").nodes;
            let mut seen = views.iter().enumerate();
            seen.all(|(at, view)| is_down(at) || view.seen.is_ok())
        })
        .await;
        for (at, view) in views.iter().enumerate() {
            assert_eq!(view.seen.is_err(), is_down(at), "{mask:03b}: {view:?}");
        }
        let names = self.two.names().await;
        assert_eq!(names.is_ok(), self.up() > 0, "{mask:03b}: {names:?}");
    }
}

/// Each set of servers that are down.
const MASKS: std::ops::Range<u32> = 0..8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verb_works_while_any_two_of_three_servers_are_up() {
    for mask in MASKS {
        let scene = Masked::start(mask).await;
        let (one, two) = (&scene.one, &scene.two);
        let lease = async |name: &str| scene.lease(one.mutex(name).ttl(TTL)).await;
        let (held, broken) = (lease("held").await, lease("broken").await);
        let (released, kept) = (lease("released").await, lease("kept").await);
        let detached = lease("detached").await;
        let token = lease("token").await.detach(TTL).await;
        let (token, _) = token.expect("all are up");
        scene.kill();

        let does = scene.has_majority().then_some(true);
        let (free, busy) = (one.mutex("free").ttl(TTL), two.mutex("held"));
        let tries = async {
            let tried = scene.works("a free lock", free.try_acquire()).await;
            assert_eq!(tried.map(|lease| lease.is_some()), does, "{mask:03b}");
            let tried = scene.works("a held lock", busy.try_acquire()).await;
            assert_eq!(tried.map(|lease| lease.is_none()), does, "{mask:03b}");
        };
        let breaks = scene.works("break", two.break_lock("broken", broken.fence()));
        let ends = async {
            tokio::join!(
                scene.works("extend", held.extend(TTL)),
                scene.works("keep", kept.release_after(TTL)),
                scene.works("release", released.release()),
                scene.works("detach", detached.detach(TTL)),
            )
        };
        let token = two.detached("token", token.token()).expect("a token");
        let verbs_of_token = async {
            scene.works("check", token.check()).await;
            scene.works("renew", token.renew(TTL)).await;
            scene
                .works("release of a token", token.clone().release())
                .await;
        };
        let all = async { tokio::join!(tries, breaks, ends, verbs_of_token, scene.looks(&held)) };
        let ((), is_broken, ..) = scene.nodes.passing("all verbs", Box::pin(all)).await;
        assert_eq!(is_broken, does, "{mask:03b}");
        assert!(!held.is_lost(), "{mask:03b}");
        // Without a majority, no time is enough.
        let limit = does.map_or(millis(100), |_| LONG);
        let is_closed = scene.nodes.passing("close", one.close_within(limit)).await;
        assert_eq!(is_closed, scene.has_majority(), "{mask:03b}");
    }
}

/// To a task of the same client without a request, and to another client by the votes of a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_on_while_any_two_of_three_servers_are_up() {
    for mask in MASKS {
        let scene = Masked::start(mask).await;
        let lease = scene.lease(scene.lingering("here")).await;
        let mutex = scene.lingering("here");
        let mut here = pin!(mutex.acquire());
        let before = timeout(Duration::ZERO, &mut here).await;
        assert!(before.is_err(), "it is held");
        let lingering = scene.lease(scene.lingering("lingering")).await;
        lingering.release().await.expect("it lingers");
        let wanted = scene.lease(scene.lingering("wanted")).await;
        let mut waiting = JoinSet::new();
        stand_in_line(&mut waiting, 0, scene.two.mutex("wanted").ttl(TTL)).await;
        scene.knows_of_waiters("wanted").await;
        scene.kill();

        let fence = lease.fence();
        lease.release().await.expect("it is handed on");
        let next = scene.nodes.passing("here", here).await.expect("its turn");
        assert!(next.fence() > fence && !next.is_lost(), "{mask:03b}");
        let mutex = scene.lingering("lingering");
        let again = scene.nodes.passing("again", mutex.acquire()).await;
        let again = again.expect("it lingers");

        let fence = wanted.fence();
        let released = async {
            tokio::join!(
                again.release(),
                scene.works("the release", wanted.release())
            )
        };
        let (released, _) = scene.nodes.passing("the releases", released).await;
        // A client that has noticed that it cannot hear of waiters lets no lock linger.
        assert!(released.is_ok() || !scene.has_majority(), "{released:?}");
        if scene.has_majority() {
            let served = scene.nodes.passing("its turn", waiting.join_next()).await;
            let (_, served) = served.expect("one waits").expect("no panic");
            assert!(served.expect("its turn").fence() > fence, "{mask:03b}");
            // A waiter ends the time for which a lock lingers.
            let mutex = scene.two.mutex("lingering").ttl(TTL);
            let ended = scene.nodes.passing("its end", mutex.acquire()).await;
            drop(ended.expect("two servers answer"));
        }
    }
}

/// The clock of the client stands still. So no step waits for a time limit or for a pause, and each ends by the answers of two servers.
/// The client has used the lock before: one that knows nothing of it would wait 25 ms for a silent lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_delays_no_one() {
    let nodes = Timed::start();
    let client = nodes.client().await;
    let mutex = lock(&client);
    let cycles = async |count: u32| {
        for _ in 0..count {
            let lease = mutex.acquire().await.expect("two servers answer");
            lease.release().await.expect("two servers confirm it");
        }
    };
    cycles(1).await;
    nodes.are_clean().await;
    for stopped in &nodes.0 {
        stopped.pause();
        let done = timeout(LONG, cycles(30)).await;
        done.expect("nobody waits for the stopped server");
        stopped.resume();
        nodes.are_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_without_a_majority_is_lost_on_time() {
    let nodes = Timed::start_with(|server| {
        server
            .option("appendonly", "yes")
            .option("appendfsync", "always")
    });
    let url = nodes.url("?durable=1");
    let (holder, two) = (nodes.connect(&url).await, nodes.connect(&url).await);
    let lease = take(&holder).await;
    nodes.vote(&[0, 1, 2]).await;
    nodes.0[0].kill();
    nodes.0[1].kill();
    let one = millis(1);
    nodes.time.pass(lease.valid_for().saturating_sub(one));
    // Its renewals fail. That is no loss.
    let lost = timeout(millis(100), lease.lost()).await;
    assert!(lost.is_err() && !lease.is_lost(), "{lost:?}");
    nodes.time.pass(one);
    assert!(lease.is_lost());
    let lost = timeout(LONG, lease.lost()).await.expect("it is told");
    assert!(matches!(lost.cause, LossCause::Deadline(_)), "{lost}");

    // An acquisition, a look and a new client say the same.
    let asked = nodes.passing("an answer", refusal(&two)).await;
    let looked = nodes.passing("an answer", two.inspect(NAME)).await;
    let connecting = timed(&nodes.clock).connect(&url);
    let connected = nodes.passing("an answer", connecting).await;
    for said in [
        asked.to_string(),
        looked.expect_err("one server is up").to_string(),
        connected.expect_err("one server is up").to_string(),
    ] {
        let (_, why) = said.split_once("no majority (2 of 3 nodes").expect(&said);
        let is_named = |node: usize| why.contains(&host(&nodes.0[node]));
        assert_eq!([0, 1, 2].map(is_named), [true, true, false], "{said}");
    }

    nodes.0[0].restart();
    // The vote of the third server was renewed.
    nodes.time.pass(TTL);
    let mutex = lock(&two);
    let next = nodes.passing("two servers are back", mutex.acquire_within(TTL));
    let next = next.await;
    let next = next.expect("the lease has ended");
    assert!(next.fence() > lease.fence());
    nodes.release(next).await;
}

/// The client is not closed, and a majority has answered everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_dropped_leaves_no_vote_at_a_late_server() {
    for late in 0..3 {
        let nodes = Nodes::start();
        let client = nodes.client().await;
        let first = take(&client).await;
        nodes.vote(&[0, 1, 2]).await;
        first.release().await.expect("it is held");
        nodes.are_clean().await;
        nodes.0[late].pause();
        let lease = take(&client).await;
        drop((lease, client));
        // Longer than the other two take to answer, and shorter than the limit of a request.
        sleep(millis(100)).await;
        nodes.0[late].resume();
        nodes.are_clean().await;
    }
}
