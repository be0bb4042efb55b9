//! Sends the scripts' test vectors in `docs/reference/protocol.md` to a real server whose clock the test controls. Only
//! the page defines the right answers.

use std::env;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockName;
use redis::{Cmd, Value};
use testkit::{RedisServer, RespConn};
use tokio::runtime::{Builder, Runtime};

use super::super::Address;
use super::super::connection::dial::Dial;
use super::super::connection::link::Wire;
use super::super::scripts::{ACQUIRE_MANY, BREAK, INSPECT, SETTLE, SETTLE_MANY, Scripts, TAKE};
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::Listener;

const PAGE: &str = include_str!("../../../../../../docs/reference/protocol.md");

/// The server's clock at the beginning of a table.
const START_US: u64 = 1_795_203_291_536_740;

/// The lock of a request that names none.
const LOCK: &str = "x";

/// Always subscribed to, which keeps the connection in subscriber mode.
const NO_CHANNEL: &str = "vectors";

/// The rows of a table of the page, without backquotes.
fn rows(table: &str) -> Vec<Vec<String>> {
    let (_, from) = PAGE
        .split_once(&format!("<!-- vectors:{table} "))
        .expect("the table is in the document");
    let (body, _) = from.split_once("<!-- end -->").expect("it ends");
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let cells = |row: &str| row.trim_matches('|').split('|').map(cell).collect();
    let rows: Vec<_> = (body.lines().filter(|line| line.starts_with('|')))
        .skip(2)
        .map(cells)
        .collect();
    assert!(rows.len() >= 2, "{table} has rows");
    rows
}

/// A letter, its client, and the token that it stands for.
struct Short {
    letter: String,
    client: String,
    token: String,
}

fn shorts() -> Vec<Short> {
    let short = |row: Vec<String>| {
        let mut cells = row.into_iter();
        let mut next = || cells.next().expect("three cells");
        let (letter, client, token) = (next(), next(), next());
        Short {
            letter,
            client,
            token,
        }
    };
    rows("letters").into_iter().map(short).collect()
}

/// Expands the short forms in `text`: `@N` and `@Nms` for times, `w:B` for a channel, and a letter for a token where it
/// is a word or begins a value.
fn spelled(text: &str) -> String {
    let shorts = shorts();
    let token = |word: &str| {
        let (letter, rest) = word.split_at(word.len().min(1));
        let short = shorts.iter().find(|short| short.letter == letter)?;
        (rest.is_empty() || rest.starts_with('#')).then(|| short.token.clone() + rest)
    };
    let wake = |word: &str| {
        let letter = word.strip_prefix("w:")?;
        let short = shorts.iter().find(|short| short.letter == letter)?;
        Some(channel(&short.client))
    };
    let spell = |part: &str| {
        let word = part.trim_end_matches([' ', '"']);
        match token(word).or_else(|| wake(word)) {
            Some(spelled) => spelled + &part[word.len()..],
            None => part.to_owned(),
        }
    };
    let words: String = text.split_inclusive([' ', '"']).map(spell).collect();
    timed(&words)
}

/// Replaces the times in `text` by numbers.
fn timed(text: &str) -> String {
    let mut parts = text.split('@');
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c != '-' && !c.is_ascii_digit());
        let (offset, rest) = part.split_at(end.unwrap_or(part.len()));
        let offset: i64 = offset.parse().expect("a number after @");
        let (start, rest) = match rest.strip_prefix("ms") {
            Some(rest) => (START_US / 1000, rest),
            None => (START_US, rest),
        };
        let time = start.checked_add_signed(offset).expect("a time");
        write!(all, "{time}{rest}").expect("a String takes all");
    }
    all
}

/// The script, the locks and the arguments of a request: `take[x y] A 30000 1`.
fn read(request: &str) -> (&str, Vec<&str>, Vec<String>) {
    let (head, arguments) = match request.split_once("] ") {
        Some(both) => both,
        None => request.split_once(' ').unwrap_or((request, "")),
    };
    let (script, locks) = head.split_once('[').unwrap_or((head, LOCK));
    let argument = |word| match word {
        "''" => String::new(),
        word => spelled(word),
    };
    let arguments = arguments.split_whitespace().map(argument).collect();
    (script, locks.split(' ').collect(), arguments)
}

/// A server, the subscribed clients of the vectors, and the asking client.
struct Scene {
    runtime: Runtime,
    scripts: Scripts,
    wire: Wire,
    commands: RespConn,
    subscriber: RespConn,
    server: RedisServer,
    /// The time of the last row.
    at: u64,
}

/// A connection to the server at this URL, for the tests of one thread.
pub(crate) async fn wire_to(url: &str) -> Wire {
    let dial = Dial {
        address: &Address::parse(url).unwrap(),
        limit: Duration::from_secs(60),
        clock: &Clock::system(),
        scripts: &Arc::default(),
        listener: &(Arc::new(drop) as Listener),
        placement: None,
    };
    let (mut link, wire) = dial.open().await.unwrap();
    Tasks::here()
        .unwrap()
        .spawn_aside(async move { drop(link.run().await) });
    wire
}

impl Scene {
    fn on(binary: Option<&PathBuf>) -> Self {
        let builder = RedisServer::builder().virtual_clock();
        let server = match binary {
            Some(binary) => builder.binary(binary).start(),
            None => builder.start(),
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            wire: runtime.block_on(wire_to(&server.url())),
            commands: server.connection(),
            subscriber: server.connection(),
            scripts: Scripts::default(),
            runtime,
            server,
            at: 0,
        }
    }

    /// Empties the server.
    fn begin(&mut self) {
        self.at = 0;
        self.server.clock().set(START_US);
        self.commands.command(&["FLUSHALL"]);
        let mut subscribe = vec!["SUBSCRIBE".to_owned(), NO_CHANNEL.to_owned()];
        // The client of the last letter has left.
        let shorts = shorts();
        let (_, listening) = shorts.split_last().unwrap();
        subscribe.extend(listening.iter().map(|short| channel(&short.client)));
        self.subscriber.send(&subscribe).unwrap();
        self.published();
    }

    /// Valkey 9 reads the time once per real millisecond, so the test does not control its microseconds.
    fn has_a_clock_of_its_own(&mut self) -> bool {
        let info = self.commands.command(&["INFO", "server"]).text();
        info.contains("valkey_version")
    }

    /// Sends a row at its time. If the answer or the messages differ from the row, returns them as an error.
    fn plays(&mut self, row: &[String]) -> Result<(), String> {
        let [at, request, reply, published] = row else {
            panic!("{row:?}");
        };
        if !at.is_empty() {
            self.at = at.parse().expect("milliseconds");
        }
        self.server.clock().set(START_US + self.at * 1000);
        let (got, heard) = (self.answer(request), self.published());
        let same = match spelled(reply).split_once("...") {
            // The text of an error, which differs between servers.
            Some((begins, ends)) => got.starts_with(begins) && got.ends_with(ends),
            None => got == spelled(reply),
        };
        if same && heard == spelled(published) {
            return Ok(());
        }
        Err(format!("  answered {got}\n  published {heard}"))
    }

    /// The server's answer to a request, in the notation of the page.
    fn answer(&mut self, request: &str) -> String {
        const BESIDE: [&str; 2] = [":lh-queue", ":lh-waiters"];
        let (script, locks, arguments) = read(request);
        // True if the script takes the counter; then the keys that it takes beside each lock.
        let (number, counts, beside) = match script {
            "take" => (TAKE, true, &BESIDE[..1]),
            "settle" => (SETTLE, false, &BESIDE[..0]),
            "acquire_many" => (ACQUIRE_MANY, true, &BESIDE[..]),
            "settle_many" => (SETTLE_MANY, true, &BESIDE[..]),
            "break" => (BREAK, true, &BESIDE[..]),
            "inspect" => (INSPECT, true, &BESIDE[..]),
            _ => {
                let command: Vec<String> = request.split(' ').map(spelled).collect();
                return shown_reply(&self.commands.command(&command));
            }
        };
        let mut keys = Vec::new();
        if counts {
            keys.push("leasehold:fence".to_owned());
        }
        for lock in locks {
            let name = LockName::new(lock).expect("a good name");
            keys.push(name.key().to_owned());
            keys.extend(beside.iter().map(|suffix| name.beside(suffix)));
        }
        let write = |command: &mut Cmd| {
            command.arg(keys.len()).arg(&keys).arg(&arguments);
        };
        let sending = self.scripts.run(number, &mut self.wire, write);
        match self.runtime.block_on(sending) {
            Ok(value) => shown(&value),
            Err(error) => format!("error {error}"),
        }
    }

    /// The messages published since the last call, in the notation of the page. The reply to PING comes after all of
    /// them.
    fn published(&mut self) -> String {
        self.subscriber.send(&["PING"]).unwrap();
        let shorts = shorts();
        let mut all = Vec::new();
        loop {
            let push = self.subscriber.receive().unwrap();
            match push.array() {
                [kind, ..] if kind.text() == "pong" => return all.join("; "),
                [kind, to, payload] if kind.text() == "message" => {
                    let to = shorts
                        .iter()
                        .find(|short| channel(&short.client) == to.text());
                    all.push(format!("{}: {}", to.unwrap().letter, payload.text()));
                }
                _ => {}
            }
        }
    }
}

fn channel(client: &str) -> String {
    format!("leasehold:wake:{client}")
}

/// A reply in JSON: a string in quotes, an integer without.
fn shown(value: &Value) -> String {
    match value {
        Value::Nil => "null".into(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => quoted(&String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) => quoted(text),
        Value::Array(items) => listed(items.iter().map(shown)),
        other => panic!("{other:?}"),
    }
}

fn shown_reply(reply: &testkit::Reply) -> String {
    match reply {
        testkit::Reply::Nil => "null".into(),
        testkit::Reply::Int(number) => number.to_string(),
        testkit::Reply::Str(_) => quoted(&reply.text()),
        testkit::Reply::Array(items) => listed(items.iter().map(shown_reply)),
        testkit::Reply::Err(error) => panic!("{error}"),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn listed(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// The installed server (`None`), and each other one that a variable `REDIS_SERVER_BIN_<name>` names.
pub(crate) fn servers() -> impl Iterator<Item = Option<PathBuf>> {
    let others = env::vars().filter(|(name, _)| name.starts_with("REDIS_SERVER_BIN_"));
    let paths = others.map(|(_, path)| PathBuf::from(path));
    let there = paths.filter(|path| path.exists()).map(Some);
    [None].into_iter().chain(there)
}

/// Plays the table on each server whose clock the test controls.
fn play(table: &str) {
    let (mut wrong, mut played) = (String::new(), 0);
    for binary in servers() {
        let mut scene = Scene::on(binary.as_ref());
        if scene.has_a_clock_of_its_own() {
            println!("SKIPPED {binary:?}: between two looks at the clock it counts by itself");
            continue;
        }
        scene.begin();
        for row in rows(table) {
            if let Err(said) = scene.plays(&row) {
                let _written = writeln!(wrong, "{binary:?} {row:?}\n{said}");
            }
        }
        played += 1;
    }
    assert!(wrong.is_empty(), "{table}:\n{wrong}");
    assert!(played > 0, "no server was tried");
}

macro_rules! tables {
    ($($table:ident),* $(,)?) => {
        $(#[test] fn $table() { play(stringify!($table)); })*

        #[test]
        fn no_table_is_left_out() {
            let tables = PAGE.matches("\n| ms | request |").count();
            assert_eq!(tables, [$(stringify!($table)),*].len());
        }
    };
}

tables!(
    one_owner,
    a_line,
    a_short_claim,
    foreign_locks,
    counter,
    rolled_back,
    batches
);
