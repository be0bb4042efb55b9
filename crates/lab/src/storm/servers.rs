//! The servers of a storm: one that the workers reach by a road, and one that follows it and may take its place. Must never lead
//! anybody to both.

use super::road::Road;
use crate::server::OwnServer;

/// What makes a server a good leader, too: without this, one that follows waits for 5 s.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// A server, and perhaps one that follows it.
#[derive(Debug)]
pub(super) struct Servers {
    primary: OwnServer,
    replica: Option<OwnServer>,
    road: Road,
}

impl Servers {
    /// Starts them with these options.
    pub(super) fn start(options: &[&str], with_replica: bool) -> Result<Self, String> {
        let options = [options, &AT_ONCE].concat();
        let primary = OwnServer::start(&options)?;
        let replica = if with_replica {
            let replica = OwnServer::start(&options)?;
            follow(&replica, Some(primary.port()))?;
            Some(replica)
        } else {
            None
        };
        let road = Road::to(primary.port())?;
        Ok(Self {
            primary,
            replica,
            road,
        })
    }

    /// Where workers connect.
    pub(super) fn url(&self) -> String {
        self.road.url()
    }

    /// The one that the road leads to.
    pub(super) fn primary(&mut self) -> &mut OwnServer {
        &mut self.primary
    }

    /// The way to it.
    pub(super) fn road(&self) -> &Road {
        &self.road
    }

    /// Has the server write something, and waits for a moment until the other one has it. Whether it has, and would after a kill: it
    /// writes all that it got at first to its disk a moment later.
    pub(super) fn is_followed(&self) -> Result<bool, String> {
        let asked = |error: redis::RedisError| format!("is the server followed? {error}");
        let mut connection = connect(&self.primary).map_err(asked)?;
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
        let mut other = connect(self.other()?).map_err(asked)?;
        let info = redis::cmd("INFO").arg("persistence").query(&mut other);
        let info: String = info.map_err(asked)?;
        let says = |line: &str| info.lines().any(|said| said == line);
        Ok(says("aof_rewrite_in_progress:0") && says("aof_rewrite_scheduled:0"))
    }

    /// From now on the other one hears nothing new.
    pub(super) fn part(&self) -> Result<(), String> {
        follow(self.other()?, None)
    }

    /// Nobody reaches a server until [`Servers::change`] has returned.
    pub(super) fn close_road(&self) {
        self.road.close();
    }

    /// The other one takes the place of the server, which forgets what it has and follows it.
    pub(super) fn change(&mut self) -> Result<(), String> {
        let other = self.replica.take().ok_or(NO_REPLICA)?;
        let before = std::mem::replace(&mut self.primary, other);
        follow(&before, Some(self.primary.port()))?;
        self.replica = Some(before);
        self.road.lead_to(self.primary.port());
        Ok(())
    }

    fn other(&self) -> Result<&OwnServer, String> {
        self.replica.as_ref().ok_or_else(|| NO_REPLICA.into())
    }
}

const NO_REPLICA: &str = "no server follows";

fn follow(server: &OwnServer, port: Option<u16>) -> Result<(), String> {
    let whom = port.map_or_else(
        || ["NO".to_owned(), "ONE".to_owned()],
        |port| ["127.0.0.1".to_owned(), port.to_string()],
    );
    let told = connect(server)
        .and_then(|mut connection| redis::cmd("REPLICAOF").arg(&whom).query(&mut connection));
    told.map_err(|error| format!("REPLICAOF {}: {error}", whom.join(" ")))
}

fn connect(server: &OwnServer) -> redis::RedisResult<redis::Connection> {
    let limit = std::time::Duration::from_secs(10);
    let connection = redis::Client::open(server.url())?.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    Ok(connection)
}
