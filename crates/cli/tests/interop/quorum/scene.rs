//! A scene: three servers that are prepared as a quorum, a server for the counter, a foreign library and Leasehold.

use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use testkit::{RedisServer, eventually};

use crate::foreign::Foreign;
use crate::peer::Peer;
use crate::scene::{EXPIRES_SOON, NAME, inspect, requests, unconfigured};
use crate::servers::Servers;
use crate::side;

const NODES: usize = 3;

/// A time limit that no working program reaches. More than [`LONG`]: a request of a library may come after its release, and the vote
/// then stays until its TTL ends.
const PLENTY: Duration = Duration::from_secs(60);

/// Longer than any story.
pub(super) const LONG: &str = "30000";

/// Whether a vote is one for a foreign client.
pub(super) fn is_foreign(vote: &[u8]) -> bool {
    !vote.starts_with(b"lh1.")
}

pub(super) struct QuorumScene {
    pub(super) nodes: Vec<RedisServer>,
    pub(super) counter: RedisServer,
    pub(super) foreign: &'static Foreign,
    /// The node that is down.
    down: Option<usize>,
}

impl QuorumScene {
    pub(super) fn new(foreign: &'static Foreign) -> Self {
        let scene = Self {
            nodes: (0..NODES).map(|_| RedisServer::start()).collect(),
            counter: RedisServer::start(),
            foreign,
            down: None,
        };
        let done = scene.leasehold(&["quorum", "init"], &[]);
        assert!(done.status.success(), "{done:?}");
        scene
    }

    /// A scene with all nodes, and one without each of them.
    pub(super) fn with_and_without_each_node(
        foreign: &'static Foreign,
    ) -> impl Iterator<Item = Self> {
        [None, Some(0), Some(1), Some(2)]
            .into_iter()
            .map(move |down| {
                let mut scene = Self::new(foreign);
                if let Some(node) = down {
                    scene.kill(node);
                }
                scene
            })
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
        self.down = Some(node);
    }

    fn servers(&self) -> Servers {
        Servers {
            nodes: self.nodes.iter().map(RedisServer::port).collect(),
            counter: self.counter.port(),
        }
    }

    /// Runs `leasehold` with this quorum.
    pub(super) fn leasehold(&self, verb: &[&str], words: &[&str]) -> Output {
        let mut command = unconfigured(env!("CARGO_BIN_EXE_leasehold"));
        command.args(verb).args(["--url", &self.servers().url()]);
        command.args(words).output().expect("it runs")
    }

    /// A process with Leasehold that uses the keys of the foreign library.
    pub(super) fn leasehold_peer(&self) -> Peer {
        let template = self.foreign.template;
        Peer::start(&side::command("leasehold", self.servers(), template))
    }

    /// A process with the foreign library.
    pub(super) fn foreign_peer(&self) -> Peer {
        Peer::start(&self.foreign.command(self.servers()))
    }

    /// A process with the foreign library that uses this node only.
    pub(super) fn foreign_peer_with(&self, node: usize) -> Peer {
        Peer::start(&self.foreign.command(self.nodes[node].port()))
    }

    /// The nodes that are up.
    fn up(&self) -> impl Iterator<Item = (usize, &RedisServer)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(node, _)| Some(*node) != self.down)
    }

    /// For each node that is up, the owner in the lock's key. The lead may have given its vote to a waiter with a fence of its own.
    pub(super) fn votes(&self) -> Vec<Option<Vec<u8>>> {
        let key = self.foreign.key(NAME);
        let owner = |value: &[u8]| {
            let end = value.iter().position(|byte| *byte == b'#');
            value[..end.filter(|_| !is_foreign(value)).unwrap_or(value.len())].to_vec()
        };
        let vote = |(_, server): (usize, &RedisServer)| {
            let value = server.cli(&["GET", &key]);
            (!value.is_nil()).then(|| owner(value.bytes()))
        };
        self.up().map(vote).collect()
    }

    /// Whether a majority holds the lock for a foreign client, of which there is one.
    pub(super) fn is_held_by_foreign(&self) -> bool {
        let votes = self.votes();
        let foreign = votes.iter().flatten().filter(|vote| is_foreign(vote));
        foreign.count() > NODES / 2
    }

    /// Waits until all nodes that are up have the same vote, and returns it.
    pub(super) fn all_vote(&self) -> Vec<u8> {
        let mut vote = None;
        eventually(PLENTY, "all nodes vote for one owner", || {
            let mut votes = self.votes();
            let is_one = votes.windows(2).all(|pair| pair[0] == pair[1]);
            vote = votes.pop().flatten().filter(|_| is_one);
            vote.is_some()
        });
        vote.unwrap()
    }

    /// Waits until no node has a vote, nor a late one.
    pub(super) fn are_free(&self) {
        let mut looks = 0;
        eventually(PLENTY, "no node has a vote", || {
            let is_free = self.votes().iter().all(Option::is_none);
            looks = if is_free { looks + 1 } else { 0 };
            looks >= 5
        });
    }

    /// Waits until a node has given no vote to one side, while the others hold the lock for the other side.
    pub(super) fn gives_no_vote(&self, node: usize, to_foreign: bool) {
        let mut looks = 0;
        eventually(PLENTY, "the node gives no vote", || {
            let votes = self.votes();
            let is_given = votes[node]
                .as_ref()
                .is_some_and(|vote| is_foreign(vote) == to_foreign);
            looks = if is_given { 0 } else { looks + 1 };
            looks >= 5
        });
    }

    /// Lets the votes for a foreign or a Leasehold client end soon. That client is dead.
    pub(super) fn expire_soon(&self, for_foreign: bool) {
        let (key, rest) = (self.foreign.key(NAME), EXPIRES_SOON.as_millis().to_string());
        for ((_, server), vote) in self.up().zip(self.votes()) {
            if vote.is_some_and(|vote| is_foreign(&vote) == for_foreign) {
                server.cli(&["PEXPIRE", &key, &rest]);
            }
        }
    }

    /// Makes a node forget the lock.
    pub(super) fn forget(&self, node: usize) {
        self.nodes[node].cli(&["DEL", &self.foreign.key(NAME)]);
    }

    /// Makes all nodes that are up forget the lock.
    pub(super) fn forget_all(&self) {
        self.up().for_each(|(node, _)| self.forget(node));
    }

    /// The node that queues the waiters of Leasehold, if there are any.
    pub(super) fn lead(&self) -> Option<usize> {
        let queue = format!("{{{}}}:lh-queue", self.foreign.key(NAME));
        let queues = |(_, server): &(usize, &RedisServer)| server.cli(&["ZCARD", &queue]).int() > 0;
        self.up().find(queues).map(|(node, _)| node)
    }

    /// Waits until a Leasehold client is in the queue of the lead, and returns the lead.
    pub(super) fn leasehold_waits(&self) -> usize {
        let mut lead = None;
        eventually(PLENTY, "Leasehold is in line", || {
            lead = self.lead();
            lead.is_some()
        });
        lead.unwrap()
    }

    /// Waits until a Leasehold client waits that may have got the vote of this node.
    pub(super) fn leasehold_waits_beside(&self, node: usize) {
        eventually(PLENTY, "Leasehold waits", || {
            // As the vote of the lead, it is kept.
            let votes = self.votes();
            let has_vote = votes[node].as_ref().is_some_and(|vote| !is_foreign(vote));
            has_vote || self.lead().is_some()
        });
    }

    /// For each node that is up and holds the lock, how long its vote lasts; the shortest first.
    pub(super) fn left(&self) -> Vec<Duration> {
        let key = self.foreign.key(NAME);
        let left = self
            .up()
            .map(|(_, server)| server.cli(&["PTTL", &key]).int());
        let left = left.filter_map(|left| u64::try_from(left).ok());
        let mut left: Vec<Duration> = left.map(Duration::from_millis).collect();
        left.sort_unstable();
        left
    }

    /// Tells a peer to wait, and returns after its first refused requests.
    pub(super) fn starts_to_wait(&self, peer: &mut Peer, ttl: &str) {
        let asked = || self.up().map(|(_, server)| requests(server));
        let before: Vec<u64> = asked().collect();
        peer.tell(&format!("wait {NAME} {ttl}"));
        eventually(PLENTY, "it has asked each node", || {
            asked().zip(&before).all(|(now, before)| now > *before)
        });
    }

    /// The output of `leasehold inspect` for the lock.
    pub(super) fn inspect(&self) -> Value {
        inspect(&self.servers().url(), self.foreign.template, NAME)
    }
}
