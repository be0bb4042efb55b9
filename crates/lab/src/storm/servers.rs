//! The servers of a soak test: one, with a replica that may be promoted, or the five *nodes* of a quorum. Workers reach each over a
//! network path of its own, and never the replica. Or a [`Fleet`], whose servers workers reach by themselves.

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use redis::FromRedisValue;
use testkit::{FaultProxy, RedisServer};

use super::clock::ServerClock;
use super::fleet::{DURABLE, Fleet};
use crate::server::{ANSWER, ask, connect, follow, time_us};

/// The fence counter: the last fence that was drawn.
pub(super) const COUNTER: &str = "leasehold:fence";

/// How many servers vote.
pub(super) const NODES: usize = 5;

/// How many of them have clocks that are set. They never lose their memory, since their clocks go back.
const WITH_CLOCK: usize = 2;

/// The key of a node's mark, and the length of the identifier in it.
const MARK: &str = "leasehold:quorum";
const MARK_ID: usize = 16;

/// How long a node that lost its memory gives no vote: a second longer than any lease, and at least 13 s.
const QUARANTINE: Duration = Duration::from_secs(13);

/// Confirmed writes of a node are in memory only, but for snapshots.
const IN_MEMORY: [&str; 2] = ["--maxmemory-policy", "noeviction"];

/// What workers reach at one address.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: RedisServer,
    pub(super) network: FaultProxy,
    pub(super) clock: Option<ServerClock>,
    /// A fault is under way.
    pub(super) is_unwell: bool,
}

impl Node {
    /// Cuts all connections, and refuses new ones.
    pub(super) fn close(&self) {
        self.network.refuse(true);
        self.network.cut();
    }

    /// Connects to the present server again.
    pub(super) fn open(&self) {
        self.network.redirect(self.server.port());
        self.network.refuse(false);
    }
}

/// All servers; none if the storm has no server of its own.
#[derive(Debug, Default)]
pub(super) struct Servers {
    nodes: Vec<Node>,
    /// The one that follows a single server, with the same clock.
    replica: Option<RedisServer>,
    pub(super) fleet: Option<Fleet>,
    longest_ttl: Duration,
    /// Why the clocks cannot be set.
    no_clock: Option<String>,
}

impl Servers {
    /// Starts one server. If faults await it, it has a replica, and where that is possible a clock that can be set.
    pub(super) fn one(has_faults: bool) -> Result<Self, String> {
        let mut servers = Self::default();
        servers.add(&DURABLE, has_faults)?;
        if has_faults {
            let node = servers.at(0);
            let replica = start(&DURABLE, node.clock.as_ref())?;
            follow(&replica, Some(node.server.port()))?;
            servers.replica = Some(replica);
        }
        servers.check_clocks()?;
        Ok(servers)
    }

    /// Starts the nodes of a quorum. If faults await them, two have clocks that can be set where that is possible.
    pub(super) fn quorum(longest_ttl: Duration, has_faults: bool) -> Result<Self, String> {
        let mut servers = Self {
            longest_ttl,
            ..Self::default()
        };
        for node in 0..NODES {
            servers.add(&IN_MEMORY, has_faults && node < WITH_CLOCK)?;
        }
        servers.check_clocks()?;
        // Set for the first time by a fault.
        for clock in servers
            .nodes
            .iter_mut()
            .filter_map(|node| node.clock.as_mut())
        {
            clock.show_the_hosts()?;
        }
        Ok(servers)
    }

    pub(super) fn of_a_fleet(fleet: Fleet) -> Self {
        Self {
            fleet: Some(fleet),
            ..Self::default()
        }
    }

    fn add(&mut self, options: &[&str], with_clock: bool) -> Result<(), String> {
        let mut clock = None;
        if with_clock && self.no_clock.is_none() {
            match ServerClock::make() {
                Ok(made) => clock = Some(made),
                Err(why) => self.no_clock = Some(why),
            }
        }
        let server = start(options, clock.as_ref())?;
        self.nodes.push(Node {
            network: FaultProxy::start(server.port()),
            server,
            clock,
            is_unwell: false,
        });
        Ok(())
    }

    /// A clock starts ahead, which shows whether its server follows it.
    fn check_clocks(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            if self.nodes[node].clock.is_some() && !self.shows_its_clock(node)? {
                let why = "the server asks the system past the library that answers for it";
                self.no_clock = Some(why.into());
                self.nodes[node].clock = None;
            }
        }
        Ok(())
    }

    /// Whether these are the nodes of a quorum.
    pub(super) fn is_quorum(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Whether clocks can be set.
    pub(super) fn have_clocks(&self) -> bool {
        self.no_clock.is_none()
    }

    /// The faults that are not possible here, and why.
    pub(super) fn left_out(&self) -> Option<String> {
        let why = self.no_clock.as_ref()?;
        Some(format!("clock-forward, clock-back: {why}"))
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn at(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }

    /// The name of a server in histories.
    pub(super) fn name(&self, node: usize) -> String {
        if self.is_quorum() || self.fleet.is_some() {
            format!("node-{}", node + 1)
        } else {
            "server".into()
        }
    }

    /// The URL for workers: of the server, or of a quorum of these nodes.
    pub(super) fn url(&self, nodes: Range<usize>) -> String {
        if let Some(fleet) = &self.fleet {
            return fleet.url();
        }
        let ports = self.nodes[nodes].iter().map(|node| node.network.port());
        let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let hosts = hosts.join(",");
        if self.is_quorum() {
            let longest_ms = self.longest_ttl.as_millis();
            format!("redis+quorum://{hosts}/?max_ttl={longest_ms}ms")
        } else {
            format!("redis://{hosts}/")
        }
    }

    /// Asks a server past its network path.
    pub(super) fn ask<T: FromRedisValue>(&self, node: usize, words: &[&str]) -> Result<T, String> {
        let answer = ask(&self.nodes[node].server, words);
        answer.map_err(|why| format!("{}: {why}", self.name(node)))
    }

    /// Whether a server, and the one that follows it, shows its clock that can be set.
    pub(super) fn shows_its_clock(&self, node: usize) -> Result<bool, String> {
        let Node { server, clock, .. } = &self.nodes[node];
        let Some(clock) = clock else {
            return Ok(false);
        };
        for server in std::iter::once(server).chain(&self.replica) {
            if !clock.is_shown_by(server)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn start(options: &[&str], clock: Option<&ServerClock>) -> Result<RedisServer, String> {
    let environment = clock.map_or_else(Vec::new, ServerClock::environment);
    let builder = RedisServer::builder().args(options);
    builder.envs(environment).try_start()
}

/// One server.
impl Servers {
    /// Whether its clock shows a time that it has shown before.
    pub(super) fn clock_is_behind(&self) -> bool {
        let mut clocks = self.nodes.iter().filter_map(|node| node.clock.as_ref());
        // Those of a quorum are put right at the end of each fault.
        !self.is_quorum() && clocks.any(|clock| !clock.has_caught_up())
    }

    /// Whether a loss of data keeps fences rising: the server's clock must have passed all of them.
    pub(super) fn may_forget(&self) -> Result<bool, String> {
        if self.clock_is_behind() {
            return Ok(false);
        }
        // While it was behind, fences rose from the last one at any time of the clock.
        let (last, now) = (self.counter()?, self.time_us(0)?);
        Ok(last.is_none_or(|last| last < now))
    }

    /// The last fence that was drawn.
    pub(super) fn counter(&self) -> Result<Option<i64>, String> {
        self.ask(0, &["GET", COUNTER])
    }

    /// The last fence that was drawn, as the replica has it.
    pub(super) fn counter_that_follows(&self) -> Result<Option<i64>, String> {
        ask(self.replica()?, &["GET", COUNTER])
    }

    /// A server's time in microseconds, the unit of fences.
    pub(super) fn time_us(&self, node: usize) -> Result<i64, String> {
        time_us(&self.nodes[node].server)
    }

    /// Writes to the server, and waits a moment until the replica has it. Returns whether it has, and would keep it after a kill: the
    /// replica writes its first synchronisation to disk a moment later.
    pub(super) fn is_followed(&self) -> Result<bool, String> {
        let mut writes = redis::pipe();
        writes.cmd("SET").arg(&["nemesis", "writes"]).ignore();
        writes.cmd("WAIT").arg(&[1, 100]);
        let (count,): (u64,) = self.ask_all(0, &writes, "is the server followed?")?;
        if count == 0 {
            return Ok(false);
        }
        let info: String = ask(self.replica()?, &["INFO", "persistence"])?;
        let says = |line: &str| info.lines().any(|said| said == line);
        Ok(says("aof_rewrite_in_progress:0") && says("aof_rewrite_scheduled:0"))
    }

    /// Stops the replication.
    pub(super) fn part(&self) -> Result<(), String> {
        follow(self.replica()?, None)
    }

    /// Promotes the replica, to which the closed network path then leads. The old server forgets its data and follows.
    pub(super) fn promote_replica(&mut self) -> Result<(), String> {
        let other = self.replica.take().ok_or(NO_REPLICA)?;
        let node = &mut self.nodes[0];
        let before = std::mem::replace(&mut node.server, other);
        follow(&before, Some(node.server.port()))?;
        node.open();
        self.replica = Some(before);
        Ok(())
    }

    fn replica(&self) -> Result<&RedisServer, String> {
        self.replica.as_ref().ok_or_else(|| NO_REPLICA.into())
    }

    /// Sends these commands on one connection.
    fn ask_all<T: FromRedisValue>(
        &self,
        node: usize,
        commands: &redis::Pipeline,
        what: &str,
    ) -> Result<T, String> {
        let connection = connect(&self.nodes[node].server.url(), ANSWER);
        let asked = connection.and_then(|mut connection| commands.query(&mut connection));
        asked.map_err(|error| format!("{}: {what} {error}", self.name(node)))
    }
}

const NO_REPLICA: &str = "no server follows";

/// The nodes of a quorum.
impl Servers {
    /// Writes a snapshot of a node's data to its disk. Returns whether it did: not while another one is being written.
    pub(super) fn snapshot(&self, node: usize) -> bool {
        self.ask::<()>(node, &["SAVE"]).is_ok()
    }

    /// Kills a node, and starts it again on its last snapshot, or without data.
    pub(super) fn restart(&self, node: usize, on_snapshot: bool) -> Result<(), String> {
        let (_, directory): (String, String) = self.ask(node, &["CONFIG", "GET", "dir"])?;
        let dump = Path::new(&directory).join("dump.rdb");
        let remove = || match fs::remove_file(&dump) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("{}: {error}", dump.display()))
            }
            _ => Ok(()),
        };
        let server = &self.nodes[node].server;
        server.kill();
        // A node that was a replica for a moment has written one, too.
        if !on_snapshot {
            remove()?;
        }
        server.try_restart()?;
        remove()
    }

    /// Marks all as the nodes of a new quorum of so many, as `leasehold quorum init` does.
    pub(super) fn mark_all(&self, count: usize) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            let mark = self.new_mark(node, count)?;
            self.ask::<()>(node, &["SET", MARK, &mark])?;
        }
        Ok(())
    }

    /// Empties a node and marks it as new in one step: the mistake that operators are warned of.
    pub(super) fn flush_and_mark(&self, node: usize) -> Result<(), String> {
        let mark = self.new_mark(node, NODES)?;
        let mut both = redis::pipe();
        both.atomic().cmd("FLUSHALL").ignore();
        both.cmd("SET").arg(MARK).arg(mark).ignore();
        self.ask_all(node, &both, "FLUSHALL:")
    }

    fn new_mark(&self, node: usize, count: usize) -> Result<String, String> {
        let id = self.start_of(node)?;
        Ok(format!("{count} {} 0 {id}", self.longest_ttl.as_millis()))
    }

    /// The start of a node, as its mark names it.
    fn start_of(&self, node: usize) -> Result<String, String> {
        let run = self.info(node, "server", "run_id")?;
        Ok(run.get(..MARK_ID).unwrap_or(&run).to_owned())
    }

    /// Whether a node that lost its memory votes again: a client has marked it, and the quarantine is over.
    pub(super) fn votes_again(&self, node: usize) -> Result<bool, String> {
        let mark: Option<String> = self.ask(node, &["GET", MARK])?;
        let fields: Vec<&str> = mark.iter().flat_map(|mark| mark.split(' ')).collect();
        let [_, _, made_at, id, ..] = fields[..] else {
            return Ok(false);
        };
        // A mark of before the loss may have come with old data.
        let made_at_ms = made_at.parse::<u128>().map_err(|error| error.to_string())?;
        if id != self.start_of(node)? {
            return Ok(false);
        }
        let now_ms = self.time_us(node)? / 1_000;
        Ok(made_at_ms + QUARANTINE.as_millis() < u128::from(now_ms.unsigned_abs()))
    }

    /// Makes a node a replica of another one, or a primary.
    pub(super) fn follow(&self, node: usize, whom: Option<usize>) -> Result<(), String> {
        let port = whom.map(|other| self.nodes[other].server.port());
        follow(&self.nodes[node].server, port)
    }

    /// Whether a replica has the data of its primary.
    pub(super) fn has_followed(&self, node: usize) -> Result<bool, String> {
        Ok(self.info(node, "replication", "master_link_status")? == "up")
    }

    fn info(&self, node: usize, section: &str, field: &str) -> Result<String, String> {
        let text: String = self.ask(node, &["INFO", section])?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(name, _)| *name == field);
        let value = found.next().map_or("", |(_, value)| value);
        Ok(value.trim().to_owned())
    }
}
