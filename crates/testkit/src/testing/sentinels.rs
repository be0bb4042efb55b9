//! Real sentinels, which watch a real primary and its replicas.

use std::time::Duration;

use super::builder::RedisServerBuilder;
use super::cluster::addresses;
use super::resp::Reply;
use super::server::RedisServer;
use super::wait::{check, done, until};

/// How long servers may take to agree. A restarted sentinel, and one of Redis 6.2, does nothing for 30 s after a stall.
const LIMIT: Duration = Duration::from_secs(60);

/// A primary with replicas and the sentinels that watch it, on 127.0.0.1. All are servers like others, to pause, kill and restart. They
/// have configuration files, so that a restarted one has the role that a sentinel gave it.
#[derive(Debug)]
pub struct Sentinels {
    nodes: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisServerBuilder {
    /// Starts a primary and replicas with these options, and sentinels with other options; see [`Sentinels::start`]. The sentinels get
    /// the password of the primary, and TLS if that has it.
    #[track_caller]
    pub fn start_watched(self, replicas: usize, sentinel: Self, sentinels: usize) -> Sentinels {
        done(self.try_start_watched(replicas, sentinel, sentinels))
    }

    /// Like [`start_watched`](Self::start_watched). An error names the server and says what it answered.
    pub fn try_start_watched(
        self,
        replicas: usize,
        sentinel: Self,
        sentinels: usize,
    ) -> Result<Sentinels, String> {
        let with_file = |mut server: Self, text: String, args: &[&str]| {
            server.options.file = Some(text);
            server.peer(args)
        };
        let primary = with_file(self.clone(), String::new(), &[]).try_start()?;
        let port = primary.peer_port();
        let replica = self.trusting(&primary);
        let replica = with_file(replica, format!("replicaof 127.0.0.1 {port}\n"), &[]);
        let mut nodes = vec![primary];
        nodes.extend(replica.start_all(replicas)?);
        // Sentinels ask the primary for its replicas when they start, and again only after 10 s.
        until(LIMIT, || {
            let info = nodes[0].ask("INFO replication")?.text();
            let online = info.matches("state=online").count();
            check(online == replicas, || {
                format!("{} says\n{info}", nodes[0].address())
            })
        })?;
        let name = Sentinels::NAME;
        let quorum = sentinels / 2 + 1;
        let mut text = format!(
            "sentinel monitor {name} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 2000\n"
        );
        if let Some(password) = nodes[0].password() {
            text.extend(["sentinel auth-pass ", name, " ", password, "\n"]);
        }
        let sentinel = with_file(sentinel.trusting(&nodes[0]), text, &["--sentinel"]);
        let sentinels = sentinel.start_all(sentinels)?;
        let started = Sentinels { nodes, sentinels };
        // How often they tell of themselves.
        started.debug("publish-period 100");
        until(LIMIT, || {
            started
                .sentinels
                .iter()
                .try_for_each(|sentinel| started.knows_all(sentinel))
        })?;
        // How long they do nothing after a stall of 2 s, as on a busy machine.
        started.debug("publish-period 2000 tilt-period 1000");
        Ok(started)
    }
}

impl Sentinels {
    /// The name of the primary in the sentinels' words.
    pub const NAME: &str = "main";

    /// Starts a primary, so many replicas and so many sentinels. Returns when each sentinel knows the replicas and the other sentinels.
    ///
    /// A primary is down after 500 ms, in the words of a majority. A failover may take 2 s before another is tried.
    #[track_caller]
    pub fn start(replicas: usize, sentinels: usize) -> Self {
        RedisServer::builder().start_watched(replicas, RedisServer::builder(), sentinels)
    }

    /// The servers with the data: first that which started as the primary.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The [addresses](RedisServer::address) of the sentinels, separated by commas.
    pub fn addresses(&self) -> String {
        addresses(&self.sentinels)
    }

    /// The primary in the words of a majority of the sentinels.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        done(until(LIMIT, || self.named()))
    }

    /// Waits until a majority of the sentinels name another primary than this one.
    #[track_caller]
    pub fn successor(&self, of: &RedisServer) -> &RedisServer {
        let found: Result<_, String> = until(LIMIT, || {
            let named = self.named()?;
            let is_other = named.port() != of.port();
            check(is_other, || {
                format!("sentinels still name {}", of.address())
            })?;
            Ok(named)
        });
        // Their answers do not say what hinders a failover.
        let logs = || {
            self.sentinels
                .iter()
                .map(RedisServer::log)
                .collect::<String>()
        };
        done(found.map_err(|why| format!("{why}\n{}", logs())))
    }

    fn named(&self) -> Result<&RedisServer, String> {
        let mut named = Vec::new();
        for sentinel in self
            .sentinels
            .iter()
            .filter(|sentinel| sentinel.is_running())
        {
            let address =
                sentinel.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Self::NAME))?;
            named.push(address.array()[1].int());
        }
        let is_named = |node: &&RedisServer| {
            let votes = named
                .iter()
                .filter(|port| **port == i64::from(node.peer_port()));
            votes.count() > self.sentinels.len() / 2
        };
        let found = self.nodes.iter().find(is_named);
        found.ok_or_else(|| format!("no majority of sentinels for one primary: {named:?}"))
    }

    /// Changes periods of the sentinels, in ms. Redis 6.2 cannot: it is ready some seconds later, and after a stall it waits longer.
    fn debug(&self, periods: &str) {
        for sentinel in &self.sentinels {
            let _told: Result<Reply, String> = sentinel.ask(&format!("SENTINEL DEBUG {periods}"));
        }
    }

    /// Whether this sentinel is connected to all servers and finds nothing wrong with them.
    fn knows_all(&self, sentinel: &RedisServer) -> Result<(), String> {
        let name = Self::NAME;
        for (question, flags, count) in [
            ("MASTERS".to_owned(), "master", 1),
            (format!("REPLICAS {name}"), "slave", self.nodes.len() - 1),
            (
                format!("SENTINELS {name}"),
                "sentinel",
                self.sentinels.len() - 1,
            ),
        ] {
            let answer = sentinel.ask(&format!("SENTINEL {question}"))?;
            let is_well = |server: &Reply| {
                let mut words = server.array().iter().map(Reply::text);
                words.any(|word| word == "flags") && words.next().as_deref() == Some(flags)
            };
            let well = answer.array().iter().filter(|server| is_well(server));
            check(well.count() == count, || {
                let address = sentinel.address();
                format!("{address} to `SENTINEL {question}`: {answer:?}")
            })?;
        }
        Ok(())
    }
}
