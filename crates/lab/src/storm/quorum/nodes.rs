//! The five servers of a quorum. Workers reach each of them over a network path of its own.

use std::time::Duration;

use testkit::RedisServer;

use crate::server::{ANSWER, ask, connect, follow, time_us};
use crate::storm::clock::ServerClock;
use crate::storm::network::NetworkPath;

/// How many servers vote.
pub(super) const NODES: usize = 5;

/// The nodes whose clocks are set. They never lose their memory, since their clocks go back.
const WITH_CLOCK: [usize; 2] = [0, 1];

/// The key of a node's mark, and the length of the identifier in it.
const MARK: &str = "leasehold:quorum";
const MARK_ID: usize = 16;

/// How long a node that lost its memory gives no vote: a second longer than any lease, and at least 13 s.
const QUARANTINE: Duration = Duration::from_secs(13);

/// Confirmed writes are in memory only.
const OPTIONS: [&str; 2] = ["--maxmemory-policy", "noeviction"];

/// One server.
#[derive(Debug)]
pub(super) struct QuorumNode {
    pub(super) server: RedisServer,
    pub(super) network: NetworkPath,
    pub(super) clock: Option<ServerClock>,
    /// A fault is under way.
    pub(super) is_unwell: bool,
}

/// All servers.
#[derive(Debug)]
pub(super) struct Nodes {
    all: Vec<QuorumNode>,
    longest_ttl: Duration,
    no_clock: Option<String>,
}

impl Nodes {
    /// Starts the servers, two of them with clocks that can be set where that is possible.
    pub(super) fn start(longest_ttl: Duration, with_clocks: bool) -> Result<Self, String> {
        let mut no_clock = None;
        let mut all = Vec::new();
        for node in 0..NODES {
            let mut clock = None;
            if with_clocks && WITH_CLOCK.contains(&node) && no_clock.is_none() {
                match ServerClock::make() {
                    Ok(made) => clock = Some(made),
                    Err(why) => no_clock = Some(why),
                }
            }
            let environment = clock
                .as_ref()
                .map_or_else(Vec::new, ServerClock::environment);
            let builder = RedisServer::builder().args(OPTIONS);
            let server = builder.envs(environment).try_start()?;
            let network = NetworkPath::to(server.port())?;
            all.push(QuorumNode {
                server,
                network,
                clock,
                is_unwell: false,
            });
        }
        let mut nodes = Self {
            all,
            longest_ttl,
            no_clock,
        };
        nodes.check_clocks()?;
        Ok(nodes)
    }

    /// A clock starts ahead, which shows whether its server follows it. Then all are set to the host's time.
    fn check_clocks(&mut self) -> Result<(), String> {
        for node in WITH_CLOCK {
            if self.all[node].clock.is_none() {
                continue;
            }
            if !self.shows_its_clock(node)? {
                let why = "a server asks the system past the library that answers for it";
                self.no_clock = Some(why.into());
            }
            if let Some(clock) = &mut self.all[node].clock {
                clock.show_the_hosts()?;
            }
        }
        Ok(())
    }

    /// Why the clocks of two nodes cannot be set, if so.
    pub(super) fn why_no_clock(&self) -> Option<&str> {
        self.no_clock.as_deref()
    }

    /// The URL of a quorum of these nodes.
    pub(super) fn url(&self, nodes: &[usize]) -> String {
        let hosts: Vec<String> = nodes
            .iter()
            .map(|&node| format!("127.0.0.1:{}", self.all[node].network.port()))
            .collect();
        let longest_ms = self.longest_ttl.as_millis();
        format!("redis+quorum://{}/?max_ttl={longest_ms}ms", hosts.join(","))
    }

    pub(super) fn at(&mut self, node: usize) -> &mut QuorumNode {
        &mut self.all[node]
    }

    /// Marks all as the nodes of a new quorum of so many, as `leasehold quorum init` does.
    pub(super) fn mark_all(&self, count: usize) -> Result<(), String> {
        for node in 0..NODES {
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
        let connection = connect(&self.all[node].server.url(), ANSWER);
        let done = connection.and_then(|mut connection| both.query(&mut connection));
        done.map_err(|error| format!("{}: FLUSHALL: {error}", name(node)))
    }

    fn new_mark(&self, node: usize, count: usize) -> Result<String, String> {
        let run = self.info(node, "server", "run_id")?;
        let id = run.get(..MARK_ID).unwrap_or(&run);
        Ok(format!("{count} {} 0 {id}", self.longest_ttl.as_millis()))
    }

    /// Whether a node that lost its memory votes again: a client has marked it, and the quarantine is over.
    pub(super) fn votes_again(&self, node: usize) -> Result<bool, String> {
        let mark: Option<String> = self.ask(node, &["GET", MARK])?;
        let made_at = mark.as_deref().and_then(|mark| mark.split(' ').nth(2));
        let Some(made_at_ms) = made_at.and_then(|made_at| made_at.parse::<u128>().ok()) else {
            return Ok(false);
        };
        let now_ms = time_us(&self.all[node].server)? / 1_000;
        Ok(made_at_ms + QUARANTINE.as_millis() < u128::from(now_ms.unsigned_abs()))
    }

    /// Deletes all data of a node.
    pub(super) fn flush(&self, node: usize) -> Result<(), String> {
        self.ask(node, &["FLUSHALL"])
    }

    /// Makes a node a replica of another one, or a primary.
    pub(super) fn follow(&self, node: usize, whom: Option<usize>) -> Result<(), String> {
        let port = whom.map(|other| self.all[other].server.port());
        follow(&self.all[node].server, port)
    }

    /// Whether a replica has the data of its primary.
    pub(super) fn has_followed(&self, node: usize) -> Result<bool, String> {
        Ok(self.info(node, "replication", "master_link_status")? == "up")
    }

    /// Whether a node shows its virtual clock.
    pub(super) fn shows_its_clock(&self, node: usize) -> Result<bool, String> {
        let Some(clock) = &self.all[node].clock else {
            return Ok(false);
        };
        clock.is_shown_by(&self.all[node].server)
    }

    fn info(&self, node: usize, section: &str, field: &str) -> Result<String, String> {
        let text: String = self.ask(node, &["INFO", section])?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(name, _)| *name == field);
        let value = found.next().map_or("", |(_, value)| value);
        Ok(value.trim().to_owned())
    }

    /// Asks a node past its network path.
    fn ask<T: redis::FromRedisValue>(&self, node: usize, words: &[&str]) -> Result<T, String> {
        let answer = ask(&self.all[node].server, words);
        answer.map_err(|why| format!("{}: {why}", name(node)))
    }
}

/// The name of a node in histories.
pub(super) fn name(node: usize) -> String {
    format!("node-{}", node + 1)
}
