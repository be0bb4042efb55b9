//! Real clusters: formed, with slots that move and replicas that take over.

use std::time::Duration;

use super::builder::RedisServerBuilder;
use super::server::RedisServer;
use super::wait::{check, done, until};

const SLOTS: usize = 16_384;

/// How long nodes may take to agree.
const LIMIT: Duration = Duration::from_secs(30);

/// How long nodes may take to meet before all try again: a node gives a handshake up after its node timeout.
const MEETING: Duration = Duration::from_secs(2);

/// How long a replica tries to take over before it is asked again: a server gives up after 5 s.
const TAKEOVER: Duration = Duration::from_secs(6);

/// The number of keys that move together.
const TOGETHER: usize = 1_000;

/// A Redis Cluster on 127.0.0.1. Its nodes are servers like others, to pause, kill and restart.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisServerBuilder {
    /// Starts a cluster whose nodes have these options; see [`RedisCluster::start`].
    #[track_caller]
    pub fn start_cluster(self, primaries: usize, replicas: usize) -> RedisCluster {
        done(self.try_start_cluster(primaries, replicas))
    }

    /// Like [`start_cluster`](Self::start_cluster). An error names the node and says what it answered.
    pub fn try_start_cluster(
        mut self,
        primaries: usize,
        replicas: usize,
    ) -> Result<RedisCluster, String> {
        self.options.bus = true;
        let node = self.peer(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
        let mut nodes = vec![node.clone().try_start()?];
        let others = node.trusting(&nodes[0]);
        nodes.extend(others.start_all(primaries + replicas - 1)?);
        let cluster = RedisCluster { nodes };
        cluster.form(primaries)?;
        Ok(cluster)
    }
}

impl RedisCluster {
    /// Starts a cluster: each primary has an equal part of the slots, and the replicas, so many in all, follow the primaries in turn.
    /// Returns when it has [settled](Self::settle). That takes 2 s: so long, a primary that has started refuses all keys.
    ///
    /// The node timeout is 1 s; the option `cluster-node-timeout` changes it.
    #[track_caller]
    pub fn start(primaries: usize, replicas: usize) -> Self {
        RedisServer::builder().start_cluster(primaries, replicas)
    }

    /// The nodes: first those that started as primaries, in the order of their slots.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The [addresses](RedisServer::address) of the nodes, separated by commas.
    pub fn addresses(&self) -> String {
        addresses(&self.nodes)
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        let node = self.running().next().expect("a node runs");
        let slot = done(node.try_cli(&["CLUSTER", "KEYSLOT", key])).int();
        u16::try_from(slot).expect("a slot")
    }

    /// The primary of a slot by its own word, and of several the one with the highest epoch. Waits for one, as after a kill.
    #[track_caller]
    pub fn primary(&self, slot: u16) -> &RedisServer {
        done(until(LIMIT, || self.try_primary(slot)))
    }

    /// Waits until all nodes that run agree on nodes and slots, and each says that the cluster is well and its replication goes on.
    #[track_caller]
    pub fn settle(&self) {
        done(self.try_settle());
    }

    /// Moves a slot with its keys.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: &RedisServer) {
        self.begin_move(slot, to);
        self.move_keys(slot, to);
        self.end_move(slot, to);
    }

    /// The first step of a move: the target imports, then the primary migrates. Keys of the slot that it lacks are at the target.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: &RedisServer) {
        let from = self.primary(slot);
        done(set_slot(to, slot, "IMPORTING", from));
        done(set_slot(from, slot, "MIGRATING", to));
    }

    /// Moves one key of a slot whose move has begun. False if the primary of the slot has no such key.
    #[track_caller]
    pub fn move_key(&self, key: &str, to: &RedisServer) -> bool {
        done(migrate(self.primary(self.slot(key)), &[key.as_bytes()], to))
    }

    /// Moves all keys of a slot whose move has begun.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, to: &RedisServer) {
        let from = self.primary(slot);
        loop {
            let keys = done(from.ask(&format!("CLUSTER GETKEYSINSLOT {slot} {TOGETHER}")));
            let keys: Vec<&[u8]> = keys.array().iter().map(|key| key.bytes()).collect();
            if keys.is_empty() {
                return;
            }
            done(migrate(from, &keys, to));
        }
    }

    /// The last step of a move, when the source has no key left: the target has the slot, then every primary that runs knows it, and
    /// all nodes know its epoch. Replicas hear of the slot later.
    #[track_caller]
    pub fn end_move(&self, slot: u16, to: &RedisServer) {
        done(set_slot(to, slot, "NODE", to));
        for node in self.running() {
            if node.port() != to.port() && done(is_primary(node)) {
                done(set_slot(node, slot, "NODE", to));
            }
        }
        // The next target draws no epoch if it believes to have the last one. Two nodes would then contradict each other for ever.
        done(until(LIMIT, || {
            let epoch = epoch(to, to)?;
            self.running().try_for_each(|node| {
                let seen = self::epoch(node, to)?;
                check(seen == epoch, || {
                    format!("{} knows epoch {seen} of {epoch}", node.address())
                })
            })
        }));
    }

    /// Makes a replica a primary by `CLUSTER FAILOVER` with an option: `FORCE`, `TAKEOVER`, or none, for which its primary must run.
    /// Returns when it is one by its own word.
    #[track_caller]
    pub fn failover(&self, replica: &RedisServer, option: &str) {
        let promoted = || {
            check(is_primary(replica)?, || {
                format!("{} is a replica", replica.address())
            })
        };
        done(until(LIMIT, || {
            if promoted().is_err() {
                replica.ask(format!("CLUSTER FAILOVER {option}").trim_end())?;
            }
            until(TAKEOVER, promoted)
        }));
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn form(&self, primaries: usize) -> Result<(), String> {
        let (first, replicas) = self.nodes.split_at(primaries);
        for (at, node) in first.iter().enumerate() {
            // Else they would find out by collisions, which takes seconds.
            node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1))?;
            let slots = SLOTS * at / primaries..SLOTS * (at + 1) / primaries;
            let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            // Redis 6.2 knows no ranges.
            node.ask(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))?;
        }
        until(LIMIT, || self.meet())?;
        for (at, replica) in replicas.iter().enumerate() {
            let primary = id(&first[at % primaries])?;
            replica.ask(&format!("CLUSTER REPLICATE {primary}"))?;
        }
        self.try_settle()
    }

    /// Each node meets all others, since gossip is slower.
    fn meet(&self) -> Result<(), String> {
        for (at, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[at + 1..] {
                node.ask(&format!("CLUSTER MEET 127.0.0.1 {}", other.peer_port()))?;
            }
        }
        let has_met = |node| {
            let lines = lines(node)?;
            let met = lines.iter().filter(|words| !words[2].contains("handshake"));
            let all = met.count() == self.nodes.len();
            check(all, || format!("{} knows only {lines:?}", node.address()))
        };
        until(MEETING, || self.nodes.iter().try_for_each(has_met))
    }

    fn try_primary(&self, slot: u16) -> Result<&RedisServer, String> {
        let mut claims = Vec::new();
        for node in self.running() {
            for words in lines(node)? {
                let has = |range: &String| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    let ends = (first.parse::<u16>(), last.parse::<u16>());
                    matches!(ends, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
                };
                if words[2].starts_with("myself,master") && words[8..].iter().any(has) {
                    claims.push((words[6].parse::<u64>().expect("an epoch"), node));
                }
            }
        }
        let claim = claims.into_iter().max_by_key(|(epoch, _)| *epoch);
        claim
            .map(|(_, node)| node)
            .ok_or_else(|| format!("slot {slot} has no primary that runs"))
    }

    fn try_settle(&self) -> Result<(), String> {
        until(LIMIT, || {
            let mut before: Option<(String, Vec<String>)> = None;
            for node in self.running() {
                let (name, view) = (node.address(), view(node)?);
                if let Some((other, seen)) = before.filter(|(_, seen)| *seen != view) {
                    return Err(format!("{other} sees {seen:?}, {name} sees {view:?}"));
                }
                before = Some((name, view));
            }
            Ok(())
        })
    }
}

/// The nodes of a cluster with their addresses, primaries and slots, as this node sees them if all is well with it.
fn view(node: &RedisServer) -> Result<Vec<String>, String> {
    let cluster = node.ask("CLUSTER INFO")?.text();
    let replication = node.ask("INFO replication")?.text();
    let serves = cluster.contains("cluster_state:ok") && cluster.contains("cluster_slots_ok:16384");
    let links = replication.matches("state=").count();
    let follow = links == replication.matches("state=online").count()
        && !replication.contains("master_link_status:down");
    check(serves && follow, || {
        format!("{} says\n{cluster}{replication}", node.address())
    })?;
    // Flags, times and epochs of a node differ from view to view.
    let seen = |words: Vec<String>| [&words[..2], &words[3..4], &words[8..]].concat().join(" ");
    let mut view: Vec<String> = lines(node)?.into_iter().map(seen).collect();
    view.sort();
    Ok(view)
}

/// The words of `CLUSTER NODES`: id, address, flags, primary, times of ping and pong, epoch, link, and slots.
fn lines(node: &RedisServer) -> Result<Vec<Vec<String>>, String> {
    let nodes = node.ask("CLUSTER NODES")?.text();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    Ok(nodes.lines().map(words).collect())
}

fn id(node: &RedisServer) -> Result<String, String> {
    Ok(node.ask("CLUSTER MYID")?.text())
}

/// The epoch of a node, as another one sees it.
fn epoch(by: &RedisServer, of: &RedisServer) -> Result<String, String> {
    let id = id(of)?;
    let mut lines = lines(by)?.into_iter();
    let line = lines.find(|words| words[0] == id);
    let line = line.ok_or_else(|| format!("{} does not know {id}", by.address()))?;
    Ok(line[6].clone())
}

fn is_primary(node: &RedisServer) -> Result<bool, String> {
    Ok(node.ask("ROLE")?.array()[0].text() == "master")
}

fn set_slot(node: &RedisServer, slot: u16, state: &str, other: &RedisServer) -> Result<(), String> {
    let other = id(other)?;
    node.ask(&format!("CLUSTER SETSLOT {slot} {state} {other}"))
        .map(drop)
}

/// Moves keys from a node to another; false if there is none of them.
fn migrate(from: &RedisServer, keys: &[&[u8]], to: &RedisServer) -> Result<bool, String> {
    let port = to.peer_port().to_string();
    let mut words: Vec<&[u8]> = vec![
        b"MIGRATE",
        b"127.0.0.1",
        port.as_bytes(),
        b"",
        b"0",
        b"5000",
    ];
    if let Some(password) = to.password() {
        words.extend([b"AUTH".as_slice(), password.as_bytes()]);
    }
    words.push(b"KEYS");
    words.extend(keys);
    Ok(from.try_cli(&words)?.text() != "NOKEY")
}

pub(crate) fn addresses(servers: &[RedisServer]) -> String {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    addresses.join(",")
}
