//! Servers whose replicas take over: a cluster of three primaries, each with a replica, or what three sentinels watch.
//!
//! Workers reach all of them by themselves. The nemesis knows a server by its number, from 0.

use testkit::{RedisCluster, RedisServer, Reply, Sentinels};

/// Confirmed writes of a server outlive a kill.
pub(super) const DURABLE: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--maxmemory-policy",
    "noeviction",
];

/// The password for a primary without one, which refuses it: a replica that has it cannot follow.
const WRONG: &str = "cut-off";

/// In `Confirmed`, a primary without its replica refuses to write.
const WITH_REPLICA: [&str; 4] = [
    "--min-replicas-to-write",
    "1",
    "--min-replicas-max-lag",
    "1",
];

#[derive(Debug)]
enum Kind {
    /// With the slots of the locks.
    Cluster(RedisCluster, Vec<u16>),
    Watched(Sentinels),
}

/// The servers, and the locks on them.
#[derive(Debug)]
pub(super) struct Fleet {
    kind: Kind,
    pub(super) locks: Vec<String>,
    /// A replica confirms each lease: no failover loses one.
    pub(super) confirms: bool,
}

impl Fleet {
    pub(super) fn cluster(locks: u64, confirms: bool) -> Result<Self, String> {
        let builder = RedisServer::builder().args(options(confirms));
        let cluster = builder.try_start_cluster(3, 3)?;
        let locks = names(locks);
        let slots = locks.iter().map(|lock| cluster.slot(lock)).collect();
        Ok(Self {
            kind: Kind::Cluster(cluster, slots),
            locks,
            confirms,
        })
    }

    pub(super) fn watched(locks: u64, replicas: usize, confirms: bool) -> Result<Self, String> {
        let builder = RedisServer::builder().args(options(confirms));
        let watched = builder.try_start_watched(replicas, RedisServer::builder(), 3)?;
        Ok(Self {
            kind: Kind::Watched(watched),
            locks: names(locks),
            confirms,
        })
    }

    /// The URL for workers.
    pub(super) fn url(&self) -> String {
        let query = if self.confirms { "?replicas=1" } else { "" };
        match &self.kind {
            Kind::Cluster(cluster, _) => {
                format!("redis+cluster://{}/{query}", cluster.addresses())
            }
            Kind::Watched(watched) => {
                let (addresses, name) = (watched.addresses(), Sentinels::NAME);
                format!("redis+sentinel://{addresses}/{name}{query}")
            }
        }
    }

    pub(super) fn nodes(&self) -> &[RedisServer] {
        match &self.kind {
            Kind::Cluster(cluster, _) => cluster.nodes(),
            Kind::Watched(watched) => watched.nodes(),
        }
    }

    /// The primary of each lock.
    pub(super) fn primaries(&self) -> Result<Vec<usize>, String> {
        let primaries: Vec<&RedisServer> = match &self.kind {
            Kind::Cluster(cluster, slots) => {
                slots.iter().map(|slot| cluster.primary(*slot)).collect()
            }
            Kind::Watched(watched) => vec![watched.primary(); self.locks.len()],
        };
        let number = |server: &RedisServer| {
            let mut nodes = self.nodes().iter();
            nodes.position(|node| node.port() == server.port())
        };
        let numbers = primaries.into_iter().map(number);
        numbers
            .collect::<Option<_>>()
            .ok_or_else(|| "a primary that nobody started".into())
    }

    /// The primaries that have slots, also without a lock.
    pub(super) fn all_primaries(&self) -> Result<Vec<usize>, String> {
        let mut found = Vec::new();
        for node in 0..self.nodes().len() {
            if self.role(node)?.is_none() {
                found.push(node);
            }
        }
        Ok(found)
    }

    /// Cuts a primary off from its replicas, which stay so.
    pub(super) fn cut(&self, primary: usize) -> Result<Vec<usize>, String> {
        let port = self.nodes()[primary].port();
        let mut replicas = Vec::new();
        for (at, node) in self.nodes().iter().enumerate() {
            if self.role(at)? == Some(port) {
                tell(node, &["CONFIG", "SET", "masterauth", WRONG])?;
                replicas.push(at);
            }
        }
        tell(
            &self.nodes()[primary],
            &["CLIENT", "KILL", "TYPE", "replica"],
        )?;
        if replicas.is_empty() {
            return Err("no replica to take over".into());
        }
        Ok(replicas)
    }

    /// Lets all replicas follow again. A sentinel had the password written to the file of its server.
    pub(super) fn mend(&self) -> Result<(), String> {
        for node in self.nodes().iter().filter(|node| node.is_running()) {
            tell(node, &["CONFIG", "SET", "masterauth", ""])?;
        }
        Ok(())
    }

    /// Has a replica of this primary take over, whether the primary runs or not. Returns whether one has, to be asked again.
    pub(super) fn take_over(&self, primary: usize, replicas: &[usize]) -> Result<bool, String> {
        let before = &self.nodes()[primary];
        match &self.kind {
            Kind::Cluster(cluster, _) => {
                let replica = replicas.first().ok_or("no replica to take over")?;
                cluster.failover(&self.nodes()[*replica], "TAKEOVER");
                Ok(true)
            }
            Kind::Watched(watched) => {
                let name = Sentinels::NAME;
                let sentinel = &watched.sentinels()[0];
                let asked = tell(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name])?;
                // They find out by themselves that one is dead. It may have heard the order already, or know no replica to take yet.
                if before.is_running() && asked.array()[1].int() == i64::from(before.port()) {
                    let _refused: Result<Reply, String> =
                        sentinel.try_cli(&["SENTINEL", "FAILOVER", name]);
                }
                Ok(watched.primary().port() != before.port())
            }
        }
    }

    /// Tells a former primary at once what sentinels tell it ten seconds later.
    pub(super) fn demote(&self, former: usize) -> Result<(), String> {
        if let Kind::Watched(watched) = &self.kind {
            let port = watched.primary().port().to_string();
            tell(&self.nodes()[former], &["REPLICAOF", "127.0.0.1", &port])?;
        }
        Ok(())
    }

    /// Whether this server is a replica.
    pub(super) fn follows(&self, node: usize) -> Result<bool, String> {
        Ok(self.role(node)?.is_some())
    }

    /// Whether all agree, and all replicas follow.
    pub(super) fn is_settled(&self) -> Result<bool, String> {
        match &self.kind {
            Kind::Cluster(cluster, _) => cluster.settle(),
            Kind::Watched(watched) => {
                let primary = watched.primary().port();
                for (at, node) in self.nodes().iter().enumerate() {
                    let is_primary = node.port() == primary;
                    let role = self.role(at)?;
                    let info = info(node)?;
                    let has_link = info.contains("master_link_status:up");
                    if is_primary != role.is_none() || !is_primary && !has_link {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Moves the slot of a lock, with a pause while it is between two primaries.
    pub(super) fn move_slot(
        &self,
        lock: usize,
        to: usize,
        pause: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let Kind::Cluster(cluster, slots) = &self.kind else {
            return Err("only a cluster has slots".into());
        };
        let (slot, to) = (slots[lock], &self.nodes()[to]);
        cluster.begin_move(slot, to);
        pause()?;
        cluster.move_keys(slot, to);
        cluster.end_move(slot, to);
        Ok(())
    }

    /// The port of its primary, if it is a replica.
    fn role(&self, node: usize) -> Result<Option<u16>, String> {
        let info = info(&self.nodes()[node])?;
        let mut lines = info.lines();
        let port = lines.find_map(|line| line.strip_prefix("master_port:"));
        Ok(port.and_then(|port| port.parse().ok()))
    }
}

/// Asks again if there is no answer: a sentinel that changes the role of a server cuts its connections.
pub(super) fn tell(node: &RedisServer, words: &[&str]) -> Result<Reply, String> {
    node.try_cli(words).or_else(|_| node.try_cli(words))
}

fn info(node: &RedisServer) -> Result<String, String> {
    Ok(tell(node, &["INFO", "replication"])?.text())
}

fn options(confirms: bool) -> impl Iterator<Item = &'static str> {
    let confirms = confirms.then_some(WITH_REPLICA);
    DURABLE.into_iter().chain(confirms.into_iter().flatten())
}

fn names(locks: u64) -> Vec<String> {
    (1..=locks).map(|lock| format!("m{lock}")).collect()
}
