//! The real servers of a replay, and the model's commands for them. Keys of other programs are not touched, and passwords are not
//! shown.

use std::time::Duration;

use redis::{Client, Connection};
use testkit::RedisServer;

use crate::host_time;
use crate::ladder::redis::{Key, RedisCommand, Tick};
use crate::ladder::words::Writing;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);

/// The servers, open for use.
#[derive(Debug)]
pub(super) struct RealServers {
    servers: Vec<RealServer>,
    /// Whether they are private, and can be killed.
    pub(super) are_own: bool,
}

#[derive(Debug)]
struct RealServer {
    client: Client,
    /// `None` for a foreign server.
    own: Option<RedisServer>,
}

impl RealServers {
    /// Opens these servers, or starts as many as are needed. An error if there are not as many URLs, one is not valid, or no server
    /// can be started.
    pub(super) fn open(urls: &[String], count: u8) -> Result<Self, String> {
        let count = usize::from(count);
        let own = || {
            let own = RedisServer::builder().try_start()?;
            RealServer::at(&own.url(), Some(own))
        };
        let foreign = |url: &String| RealServer::at(url, None);
        let servers: Result<_, String> = match urls.len() {
            0 => (0..count).map(|_| own()).collect(),
            given if given == count => urls.iter().map(foreign).collect(),
            given => Err(format!(
                "this rung needs {count} servers, and {given} were given: give --url {count} times, \
                 or leave it out for servers of the lab's own"
            )),
        };
        Ok(Self {
            servers: servers?,
            are_own: urls.is_empty(),
        })
    }

    /// A prefix for all key names that keeps concurrent runs apart; empty on private servers.
    pub(super) fn prefix(&self) -> String {
        if self.are_own {
            return String::new();
        }
        let run = host_time::up_ns() ^ u64::from(std::process::id()) << 40;
        format!("lab:{run:x}:")
    }

    /// The addresses, without passwords.
    pub(super) fn addresses(&self) -> Vec<String> {
        let address = |server: &RealServer| server.client.get_connection_info().addr().to_string();
        self.servers.iter().map(address).collect()
    }

    /// A new connection to a server.
    pub(super) fn connect(&self, server: u8) -> Result<Connection, String> {
        let client = &self.servers[usize::from(server)].client;
        let connection = client
            .get_connection_with_timeout(CONNECT)
            .and_then(|connection| {
                connection.set_read_timeout(Some(ANSWER))?;
                Ok(connection)
            });
        let address = client.get_connection_info().addr();
        connection.map_err(|error| format!("cannot connect to {address}: {error}"))
    }

    /// Kills a server and starts it empty; on a foreign server it only deletes the lab's keys. It executes the commands `first` before
    /// any of a client that connects afterwards.
    pub(super) fn restart_empty(
        &mut self,
        server: u8,
        wire: Writing,
        first: &[RedisCommand],
    ) -> Result<(), String> {
        if let Some(own) = &self.servers[usize::from(server)].own {
            own.try_restart()?;
        }
        // The clients stay connected to a foreign server.
        forget(&mut self.connect(server)?, wire, first)
    }

    /// Deletes the lab's keys on all servers.
    pub(super) fn clear(&self, wire: Writing) -> Result<(), String> {
        let mut servers = (0..).take(self.servers.len());
        servers.try_for_each(|server| forget(&mut self.connect(server)?, wire, &[]))
    }
}

impl RealServer {
    fn at(url: &str, own: Option<RedisServer>) -> Result<Self, String> {
        // Neither the URL nor the parser's message: either may contain a password.
        let client = Client::open(url).map_err(
            |_| "not a URL of a Redis server: redis://[user:password@]host:port/[database] is one",
        )?;
        Ok(Self { client, own })
    }
}

/// The keys of one server: value and remaining TTL.
pub type Keys = Vec<(Key, String, Option<Duration>)>;

/// Sends a command and waits for its answer, which is written on one line as `redis-cli` shows it.
///
/// # Errors
/// When the connection fails: the command may have been executed.
pub fn ask(
    connection: &mut Connection,
    wire: Writing,
    command: RedisCommand,
) -> Result<String, String> {
    let words = wire.words(command);
    let answer = if let [only] = words.as_slice() {
        cmd(only).query(connection)
    } else {
        let mut transaction = redis::pipe();
        transaction.atomic();
        for part in &words {
            transaction.add_command(cmd(part));
        }
        transaction.query(connection)
    };
    match answer {
        Ok(value) => Ok(said(&value)),
        Err(error)
            if error.is_io_error() || error.is_connection_dropped() || error.is_timeout() =>
        {
            Err(format!("no answer: {error}"))
        }
        Err(error) => Ok(error.to_string()),
    }
}

/// The lab's keys on a server: value and remaining TTL.
///
/// # Errors
/// When it does not answer.
pub fn look(connection: &mut Connection, wire: Writing) -> Result<Keys, String> {
    let mut ask = redis::pipe();
    ask.atomic();
    for key in Key::ALL.map(|key| wire.key(key)) {
        ask.cmd("GET").arg(&key).cmd("PTTL").arg(&key);
    }
    let answers: Vec<(Option<String>, i64)> = ask
        .query(connection)
        .map_err(|error| format!("cannot read the keys: {error}"))?;
    let there = |(key, (value, left)): (_, (Option<String>, i64))| {
        // -1 without a TTL.
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        Some((key, value?, left))
    };
    Ok(Key::ALL
        .into_iter()
        .zip(answers)
        .filter_map(there)
        .collect())
}

/// Simulates a jump of a server's clock: shortens the TTLs of the lab's keys by that much.
pub(super) fn jump(connection: &mut Connection, wire: Writing, by: Tick) -> Result<(), String> {
    let by = wire.tick * u32::try_from(by).unwrap_or_default();
    for (key, _, left) in look(connection, wire)? {
        let Some(left) = left else { continue };
        // A TTL that is not positive deletes the key.
        let left = u64::try_from(left.saturating_sub(by).as_millis()).unwrap_or_default();
        let mut shorten = redis::cmd("PEXPIRE");
        let shorten = shorten.arg(wire.key(key)).arg(left);
        let shortened = shorten.exec(connection);
        shortened.map_err(|error| format!("cannot shorten a TTL: {error}"))?;
    }
    Ok(())
}

/// Deletes the lab's keys and executes these commands, in one step.
fn forget(
    connection: &mut Connection,
    wire: Writing,
    first: &[RedisCommand],
) -> Result<(), String> {
    let mut step = redis::pipe();
    step.atomic();
    step.cmd("DEL").arg(&Key::ALL.map(|key| wire.key(key)));
    for words in first.iter().flat_map(|&command| wire.words(command)) {
        step.add_command(cmd(&words));
    }
    step.exec(connection)
        .map_err(|error| format!("cannot delete the keys: {error}"))
}

fn cmd(words: &[String]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command
}

/// An answer, on one line as `redis-cli` shows it.
fn said(value: &redis::Value) -> String {
    match value {
        redis::Value::Nil => "(nil)".into(),
        redis::Value::Okay => "OK".into(),
        redis::Value::Int(number) => format!("(integer) {number}"),
        redis::Value::SimpleString(word) => word.clone(),
        redis::Value::BulkString(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        redis::Value::Array(all) => {
            let each = (1..)
                .zip(all)
                .map(|(nth, one)| format!("{nth}) {}", said(one)));
            each.collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    }
}
