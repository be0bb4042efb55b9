//! The servers of a soak test: a primary that the workers reach through the network path, and a replica that may be promoted.
//! Workers never reach both.

use testkit::RedisServer;

use super::clock::ServerClock;
use super::network::NetworkPath;
use crate::server::{ANSWER, ask, connect, follow, time_us};

/// The fence counter: the last fence that was drawn.
pub(super) const COUNTER: &str = "leasehold:fence";

/// A primary, and perhaps its replica.
#[derive(Debug)]
pub(super) struct Servers {
    primary: RedisServer,
    replica: Option<RedisServer>,
    network: NetworkPath,
    /// The clock of both servers; or why they have the host's.
    clock: Result<ServerClock, String>,
}

impl Servers {
    /// Starts the servers with these options. A pair gets a virtual clock where that is possible.
    pub(super) fn start(options: &[&str], with_replica: bool) -> Result<Self, String> {
        let clock = if with_replica {
            ServerClock::make()
        } else {
            Err("nobody needs one".into())
        };
        let environment = clock
            .as_ref()
            .map_or_else(|_| Vec::new(), ServerClock::environment);
        let start = || {
            let builder = RedisServer::builder().args(options);
            builder.envs(environment.clone()).try_start()
        };
        let primary = start()?;
        let replica = if with_replica {
            let replica = start()?;
            follow(&replica, Some(primary.port()))?;
            Some(replica)
        } else {
            None
        };
        let network = NetworkPath::to(primary.port())?;
        let mut servers = Self {
            primary,
            replica,
            network,
            clock,
        };
        if servers.clock.is_ok() && !servers.show_the_clock()? {
            servers.clock =
                Err("the server asks the system past the library that answers for it".into());
        }
        Ok(servers)
    }

    /// The clock of both servers.
    ///
    /// # Errors
    /// Why they have the host's clock.
    pub(super) fn clock(&mut self) -> Result<&mut ServerClock, String> {
        self.clock.as_mut().map_err(|why| why.clone())
    }

    /// Why the servers' clock cannot be set, if so.
    pub(super) fn why_no_clock(&self) -> Option<&str> {
        self.clock.as_ref().err().map(String::as_str)
    }

    /// Whether both servers show their virtual clock.
    pub(super) fn show_the_clock(&self) -> Result<bool, String> {
        let clock = self.clock.as_ref()?;
        for server in [&self.primary, self.other()?] {
            if !clock.is_shown_by(server)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a loss of data keeps fences rising: the server's clock must have passed all of them.
    pub(super) fn may_forget(&self) -> Result<bool, String> {
        let clock = self.clock.as_ref();
        if clock.is_ok_and(|clock| !clock.has_caught_up()) {
            return Ok(false);
        }
        // While it was behind, fences rose from the last one at any time of the clock.
        let (last, now) = (self.counter()?, self.time_us()?);
        Ok(last.is_none_or(|last| last < now))
    }

    /// The last fence that was drawn, as the primary has it.
    pub(super) fn counter(&self) -> Result<Option<i64>, String> {
        ask(&self.primary, &["GET", COUNTER])
    }

    /// The last fence that was drawn, as the replica has it.
    pub(super) fn counter_that_follows(&self) -> Result<Option<i64>, String> {
        ask(self.other()?, &["GET", COUNTER])
    }

    /// The primary's time in microseconds, the unit of fences.
    pub(super) fn time_us(&self) -> Result<i64, String> {
        time_us(&self.primary)
    }

    /// The URL for workers.
    pub(super) fn url(&self) -> String {
        self.network.url()
    }

    /// The server to which the network path leads.
    pub(super) fn primary(&self) -> &RedisServer {
        &self.primary
    }

    /// The network path.
    pub(super) fn network(&self) -> &NetworkPath {
        &self.network
    }

    /// Writes to the primary, and waits a moment until the replica has it. Returns whether it has, and would keep it after a kill: the
    /// replica writes its first synchronisation to disk a moment later.
    pub(super) fn is_followed(&self) -> Result<bool, String> {
        let asked = |error: redis::RedisError| format!("is the server followed? {error}");
        let mut connection = connect(&self.primary.url(), ANSWER).map_err(asked)?;
        let count: u64 = redis::pipe()
            .cmd("SET")
            .arg(&["nemesis", "writes"])
            .ignore()
            .cmd("WAIT")
            .arg(&[1, 100])
            .query::<(u64,)>(&mut connection)
            .map_err(asked)?
            .0;
        if count == 0 {
            return Ok(false);
        }
        let info: String = ask(self.other()?, &["INFO", "persistence"])?;
        let says = |line: &str| info.lines().any(|said| said == line);
        Ok(says("aof_rewrite_in_progress:0") && says("aof_rewrite_scheduled:0"))
    }

    /// Stops the replication.
    pub(super) fn part(&self) -> Result<(), String> {
        follow(self.other()?, None)
    }

    /// Makes the servers unreachable until [`Servers::change`] has returned.
    pub(super) fn close_network(&self) {
        self.network.close();
    }

    /// Promotes the replica; the old primary forgets its data and follows it.
    pub(super) fn change(&mut self) -> Result<(), String> {
        let other = self.replica.take().ok_or(NO_REPLICA)?;
        let before = std::mem::replace(&mut self.primary, other);
        follow(&before, Some(self.primary.port()))?;
        self.replica = Some(before);
        self.network.lead_to(self.primary.port());
        Ok(())
    }

    fn other(&self) -> Result<&RedisServer, String> {
        self.replica.as_ref().ok_or_else(|| NO_REPLICA.into())
    }
}

const NO_REPLICA: &str = "no server follows";
