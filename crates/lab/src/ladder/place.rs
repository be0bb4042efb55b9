//! The real servers for a replay. Keys of other programs are not touched, and passwords are not shown.

use std::time::Duration;

use redis::{Client, Connection};
use testkit::RedisServer;

use super::redis::{Key, RedisCommand, Tick, Value};
use super::wire::{Wire, stored};
use crate::host_time;

/// Where a replay runs.
#[derive(Debug, Clone)]
pub enum Place {
    /// Private servers, started for it and stopped afterwards.
    Own,
    /// These servers, one for each that the rung needs. All keys get a unique prefix and are deleted afterwards.
    Urls(Vec<String>),
}

/// The servers of a place, open for use.
#[derive(Debug)]
pub struct RealServers {
    servers: Vec<RealServer>,
    prefix: String,
}

#[derive(Debug)]
struct RealServer {
    client: Client,
    /// `None` for a foreign server.
    own: Option<RedisServer>,
}

/// The keys of one server: value and remaining TTL.
pub type Keys = Vec<(Key, Option<Value>, Option<Duration>)>;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);

impl RealServers {
    /// Opens so many servers.
    ///
    /// # Errors
    /// When there are not as many URLs, one is not valid, or no server can be started.
    pub fn open(place: &Place, count: u8) -> Result<Self, String> {
        let count = usize::from(count);
        let servers: Vec<RealServer> = match place {
            Place::Own => {
                let all = (0..count).map(|_| RealServer::own());
                all.collect::<Result<_, _>>()?
            }
            Place::Urls(urls) if urls.len() == count => {
                let all = urls.iter().map(|url| RealServer::at(url, None));
                all.collect::<Result<_, _>>()?
            }
            Place::Urls(urls) => {
                return Err(format!(
                    "this rung needs {count} servers, and {} were given: give --url {count} times, \
                     or leave it out for servers of the lab's own",
                    urls.len()
                ));
            }
        };
        let is_foreign = servers.iter().any(|server| server.own.is_none());
        let prefix = if is_foreign {
            format!("lab:{:x}:", random())
        } else {
            String::new()
        };
        Ok(Self { servers, prefix })
    }

    /// The prefix of all key names; empty on private servers.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The addresses, without passwords.
    pub fn addresses(&self) -> Vec<String> {
        let address = |server: &RealServer| server.client.get_connection_info().addr().to_string();
        self.servers.iter().map(address).collect()
    }

    /// Whether they can be killed.
    pub fn are_own(&self) -> bool {
        self.servers.iter().all(|server| server.own.is_some())
    }

    /// A new connection to a server.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connect(&self, server: u8) -> Result<Connection, String> {
        let client = &self.servers[usize::from(server)].client;
        let address = client.get_connection_info().addr();
        let failed = |error| format!("cannot connect to {address}: {error}");
        let connection = client
            .get_connection_with_timeout(CONNECT)
            .map_err(failed)?;
        connection.set_read_timeout(Some(ANSWER)).map_err(failed)?;
        Ok(connection)
    }

    /// Kills a server and starts it empty; on a foreign server it only deletes the lab's keys. It executes the commands `first` before
    /// any of a client that connects afterwards.
    ///
    /// # Errors
    /// When it cannot be started again.
    pub fn restart_empty(
        &mut self,
        server: u8,
        wire: &Wire,
        first: &[RedisCommand],
    ) -> Result<(), String> {
        match &self.servers[usize::from(server)].own {
            Some(own) => own.try_restart()?,
            // The clients stay connected to a foreign server.
            None => return forget(&mut self.connect(server)?, wire, first),
        }
        let mut connection = self.connect(server)?;
        for &command in first {
            wire.ask(&mut connection, command)?;
        }
        Ok(())
    }

    /// Deletes the lab's keys on all servers.
    ///
    /// # Errors
    /// When a server does not answer.
    pub fn clear(&self, wire: &Wire) -> Result<(), String> {
        for server in (0..).take(self.servers.len()) {
            forget(&mut self.connect(server)?, wire, &[])?;
        }
        Ok(())
    }
}

impl RealServer {
    fn own() -> Result<Self, String> {
        let own = RedisServer::builder().try_start()?;
        Self::at(&own.url(), Some(own))
    }

    fn at(url: &str, own: Option<RedisServer>) -> Result<Self, String> {
        // Neither the URL nor the parser's message: either may contain a password.
        let client = Client::open(url).map_err(
            |_| "not a URL of a Redis server: redis://[user:password@]host:port/[database] is one",
        )?;
        Ok(Self { client, own })
    }
}

/// The lab's keys on a server.
///
/// # Errors
/// When it does not answer.
pub fn look(connection: &mut Connection, wire: &Wire) -> Result<Keys, String> {
    let mut ask = redis::pipe();
    ask.atomic();
    for key in Key::ALL {
        ask.cmd("GET").arg(wire.key(key));
        ask.cmd("PTTL").arg(wire.key(key));
    }
    let answers: Vec<redis::Value> = ask
        .query(connection)
        .map_err(|error| format!("cannot read the keys: {error}"))?;
    let pairs = Key::ALL.into_iter().zip(answers.chunks_exact(2));
    let there = pairs.filter_map(|(key, answer)| {
        let redis::Value::BulkString(bytes) = &answer[0] else {
            return None;
        };
        let left = match answer[1] {
            redis::Value::Int(millis) => u64::try_from(millis).ok(),
            _ => None,
        };
        Some((key, stored(bytes), left.map(Duration::from_millis)))
    });
    Ok(there.collect())
}

/// Simulates a jump of a server's clock: shortens the TTLs of the lab's keys by that much.
///
/// # Errors
/// When it does not answer.
pub fn jump(connection: &mut Connection, wire: &Wire, by: Tick) -> Result<(), String> {
    let by = wire.tick() * u32::try_from(by).unwrap_or_default();
    for (key, _, left) in look(connection, wire)? {
        let Some(left) = left else { continue };
        let mut shorten = redis::cmd("PEXPIRE");
        // A TTL that is not positive deletes the key.
        let left = u64::try_from(left.saturating_sub(by).as_millis()).unwrap_or_default();
        shorten
            .arg(wire.key(key))
            .arg(left)
            .exec(connection)
            .map_err(|error| format!("cannot shorten a TTL: {error}"))?;
    }
    Ok(())
}

/// Deletes the lab's keys and executes these commands, in one step.
fn forget(connection: &mut Connection, wire: &Wire, first: &[RedisCommand]) -> Result<(), String> {
    let mut step = redis::pipe();
    if !first.is_empty() {
        step.atomic();
    }
    step.cmd("DEL")
        .arg(Key::ALL.map(|key| wire.key(key)).as_slice());
    for words in first.iter().flat_map(|&command| wire.words(command)) {
        let mut command = redis::Cmd::new();
        command.arg(words);
        step.add_command(command);
    }
    step.exec(connection)
        .map_err(|error| format!("cannot delete the keys: {error}"))
}

/// Keeps concurrent runs apart.
fn random() -> u64 {
    let seed = host_time::up_ns() ^ u64::from(std::process::id()) << 40;
    crate::rng::Rng::new(seed).next()
}
