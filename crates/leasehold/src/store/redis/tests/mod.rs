//! Tests on real servers: the scripts agree with `leasehold_core` and with `docs/reference/protocol.md`.

mod against_core;
mod vectors;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::ClientId;
use testkit::{RedisServer, Reply, RespConn};
use tokio::runtime::{Builder, Runtime};

use super::Address;
use super::cluster::{Server, Servers};
use super::connection::handshake::Seat;
use super::connection::link::Wire;
use super::connection::{Connection, Part};
use super::scripts::Scripts;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::Attach;

const PAGE: &str = include_str!("../../../../../../docs/reference/protocol.md");

/// In real time; only a hang takes this long.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A server whose clock the test sets, used through the production scripts and codec. One more connection is for plain commands, and one
/// hears all messages: as a program that watches every channel, it counts for no waiter.
pub(super) struct Scene {
    /// Keeps the connection.
    _sender: Server,
    pub(super) scripts: Arc<Scripts>,
    pub(super) wire: Wire,
    pub(super) runtime: Runtime,
    commands: RespConn,
    subscriber: RespConn,
    pub(super) server: RedisServer,
}

impl Scene {
    pub(super) fn start() -> Self {
        Self::on(None, Scripts::default(), None)
    }

    /// Another program than the installed server, if one is named, and these scripts, which may be broken.
    pub(super) fn on(binary: Option<&Path>, scripts: Scripts, seat: Option<Seat>) -> Self {
        let mut builder = RedisServer::builder().virtual_clock();
        if let Some(binary) = binary {
            builder = builder.binary(binary);
        }
        let server = builder.start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, wire) = connect(&server, &runtime, scripts, seat);
        let mut subscriber = server.connection();
        subscriber.send(&["PSUBSCRIBE", "*"]).unwrap();
        Self {
            commands: server.connection(),
            subscriber,
            scripts: sender.scripts.clone(),
            _sender: sender,
            wire,
            runtime,
            server,
        }
    }

    /// Resets the server to an empty one, at this time.
    pub(super) fn reset(&mut self, clock_us: u64) {
        self.set_clock(clock_us);
        self.command(&["FLUSHALL"]);
        self.messages();
    }

    pub(super) fn set_clock(&mut self, clock_us: u64) {
        self.server.clock().set(clock_us);
    }

    pub(super) fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        self.commands.command(words)
    }

    /// The replies to these commands, which are sent together.
    pub(super) fn commands(&mut self, commands: &[&[&str]]) -> Vec<Reply> {
        let bytes = |words: &&[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let commands: Vec<Vec<Vec<u8>>> = commands.iter().map(bytes).collect();
        self.commands.commands(&commands)
    }

    /// Clients subscribe to these channels, or leave them.
    pub(super) fn listen(&mut self, verb: &str, channels: &[String]) {
        let words: Vec<&str> = channels.iter().map(String::as_str).collect();
        self.subscriber
            .send(&[&[verb], &words[..]].concat())
            .unwrap();
        self.messages();
    }

    /// The messages published since the last call, each with its channel.
    pub(super) fn messages(&mut self) -> Vec<(String, String)> {
        self.heard("pmessage")
    }

    /// Those that arrived as a push of this kind. The reply to PING comes after all of them.
    pub(super) fn heard(&mut self, wanted: &str) -> Vec<(String, String)> {
        self.subscriber.send(&["PING"]).unwrap();
        let mut messages = Vec::new();
        loop {
            let push = self.subscriber.receive().unwrap();
            match push.array() {
                [kind, ..] if kind.text() == "pong" => return messages,
                [kind, .., channel, payload] if kind.text() == wanted => {
                    messages.push((channel.text(), payload.text()));
                }
                _ => {}
            }
        }
    }
}

/// A connection to the server, and what it sends.
pub(super) fn connect(
    server: &RedisServer,
    runtime: &Runtime,
    scripts: Scripts,
    seat: Option<Seat>,
) -> (Server, Wire) {
    let _inside = runtime.enter();
    let attach = Attach {
        client: ClientId::new(u64::MAX),
        listener: Arc::new(drop),
        clock: Clock::system(),
        tasks: Tasks::here().unwrap(),
        limit: LIMIT,
    };
    let address = Address::parse(&server.url()).unwrap();
    let part = seat.map_or_else(|| Part::Cluster(Weak::<Servers>::new()), Part::Quorum);
    let scripts = Arc::new(scripts);
    let connection = Connection::open(address, attach, scripts.clone(), part);
    let wire = connection.call(LIMIT, async |wire| Ok(wire));
    let wire = runtime.block_on(wire).unwrap();
    let server = Server {
        connection,
        confirming: None,
        scripts,
    };
    (server, wire)
}

/// The installed server (`None`), and each other one that a variable `REDIS_SERVER_BIN_<name>` names.
pub(super) fn servers() -> impl Iterator<Item = Option<PathBuf>> {
    let others = env::vars().filter(|(name, _)| name.starts_with("REDIS_SERVER_BIN_"));
    let paths = others.map(|(_, path)| PathBuf::from(path));
    let there = paths.filter(|path| path.exists()).map(Some);
    [None].into_iter().chain(there)
}

/// The rows of a table of `docs/reference/protocol.md`, without backquotes.
pub(super) fn rows(table: &str) -> Vec<Vec<String>> {
    let (_, from) = PAGE
        .split_once(&format!("<!-- vectors:{table} "))
        .expect("the table is in the document");
    let (body, _) = from.split_once("<!-- end -->").expect("it ends");
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let cells = |row: &str| row.trim_matches('|').split('|').map(cell).collect();
    let rows = body.lines().filter(|line| line.starts_with('|')).skip(2);
    let rows: Vec<_> = rows.map(cells).collect();
    assert!(rows.len() >= 2, "{table} has rows");
    rows
}

/// Counts what random steps have reached. Without it, a comparison could pass without comparing anything.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    pub(super) fn note(&mut self, what: &'static str, happened: bool) {
        self.add(what, usize::from(happened));
    }

    pub(super) fn add(&mut self, what: &'static str, times: usize) {
        *self.0.entry(what).or_default() += times;
    }

    /// Panics if something has happened less often than so many times.
    pub(super) fn check(&self, floors: impl IntoIterator<Item = (&'static str, usize)>) {
        for (what, floor) in floors {
            let times = self.0.get(what).copied().unwrap_or_default();
            assert!(times >= floor, "{what}: {times} of {floor} times; {self:?}");
        }
    }
}
