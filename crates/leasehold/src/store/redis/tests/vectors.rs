//! Sends the scripts' test vectors in `docs/reference/protocol.md` to a real server whose clock the test controls. Only
//! the page defines the right answers.

use std::fmt::Write;

use leasehold_core::LockName;
use redis::{Cmd, Value, cmd};

use super::super::scripts::{ACQUIRE_MANY, BREAK, INSPECT, SETTLE, SETTLE_MANY, Scripts, TAKE};
use super::{PAGE, Scene, rows, servers};

/// The server's clock at the beginning of a table.
const START_US: u64 = 1_795_203_291_536_740;

/// The lock of a request that names none.
const LOCK: &str = "x";

/// A letter, its client, and the token that it stands for, for each.
fn letters() -> Vec<[String; 3]> {
    let letter = |row: Vec<String>| row.try_into().expect("three cells");
    rows("letters").into_iter().map(letter).collect()
}

/// Expands the short forms in `text`: `@N` and `@Nms` for times, `w:B` for a channel, and a letter for a token where it
/// is a word or begins a value.
fn spelled(text: &str) -> String {
    let letters = letters();
    let find = |wanted: &str| letters.iter().find(|[letter, ..]| letter == wanted);
    let token = |word: &str| {
        let (letter, rest) = word.split_at(word.len().min(1));
        let [_, _, token] = find(letter)?;
        (rest.is_empty() || rest.starts_with('#')).then(|| token.clone() + rest)
    };
    let wake = |word: &str| {
        let [_, client, _] = find(word.strip_prefix("w:")?)?;
        Some(channel(client))
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

/// The script, the locks and the arguments of a request: `take[x y] A B 30000`. A comma stands for a space.
fn read(request: &str) -> (&str, Vec<&str>, Vec<String>) {
    let (head, arguments) = match request.split_once("] ") {
        Some(both) => both,
        None => request.split_once(' ').unwrap_or((request, "")),
    };
    let (script, locks) = head.split_once('[').unwrap_or((head, LOCK));
    let argument = |word| match word {
        "''" => String::new(),
        word => spelled(&word.replace(',', " ")),
    };
    let arguments = arguments.split_whitespace().map(argument).collect();
    (script, locks.split(' ').collect(), arguments)
}

/// A table in progress.
struct Table {
    scene: Scene,
    /// The time of the last row.
    at: u64,
}

impl Table {
    /// Valkey 9 reads the time once per real millisecond, so the test does not control its microseconds.
    fn has_a_clock_of_its_own(&mut self) -> bool {
        let info = self.scene.command(&["INFO", "server"]).text();
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
        self.scene.set_clock(START_US + self.at * 1000);
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
                let words: Vec<String> = request.split(' ').map(spelled).collect();
                let mut command = cmd(&words[0]);
                command.arg(&words[1..]);
                let sending = command.query_async::<Value>(&mut self.scene.wire);
                return shown(&self.scene.runtime.block_on(sending).unwrap());
            }
        };
        let mut keys = Vec::new();
        if counts {
            keys.push("leasehold:fence".to_owned());
        }
        let names: Vec<_> = (locks.iter())
            .map(|lock| LockName::new(lock).expect("a good name"))
            .collect();
        let with = |suffix: &str, name: &LockName| match suffix {
            "" => name.key().to_owned(),
            suffix => name.beside(suffix),
        };
        let suffixes = [&[""], beside].concat();
        if script == "take" {
            keys.extend(
                suffixes
                    .iter()
                    .flat_map(|suffix| names.iter().map(|name| with(suffix, name))),
            );
        } else {
            keys.extend(
                names
                    .iter()
                    .flat_map(|name| suffixes.iter().map(|suffix| with(suffix, name))),
            );
        }
        let write = |command: &mut Cmd| {
            command.arg(keys.len()).arg(&keys).arg(&arguments);
        };
        let scripts: &Scripts = &self.scene.scripts;
        let sending = scripts.run(number, &mut self.scene.wire, write);
        match self.scene.runtime.block_on(sending) {
            Ok(value) => shown(&value),
            Err(error) => format!("error {error}"),
        }
    }

    /// The messages published since the last call, in the notation of the page.
    fn published(&mut self) -> String {
        let letters = letters();
        let shown = |(to, payload): (String, String)| {
            let mut all = letters.iter();
            let known = all.find(|[_, client, _]| channel(client) == to);
            format!("{}: {payload}", known.unwrap()[0])
        };
        let all: Vec<_> = self.scene.messages().into_iter().map(shown).collect();
        all.join("; ")
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
        Value::BulkString(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) => format!("\"{text}\""),
        Value::Okay => "\"OK\"".into(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        other => panic!("{other:?}"),
    }
}

/// Plays the table on each server whose clock the test controls.
fn play(table: &str) {
    let (mut wrong, mut played) = (String::new(), 0);
    for binary in servers() {
        let scene = Scene::on(binary.as_deref(), Scripts::default(), None);
        let mut playing = Table { scene, at: 0 };
        if playing.has_a_clock_of_its_own() {
            println!("SKIPPED {binary:?}: between two looks at the clock it counts by itself");
            continue;
        }
        playing.scene.reset(START_US);
        // The client of the last letter has left.
        let mut listening: Vec<_> = letters()
            .iter()
            .map(|[_, client, _]| channel(client))
            .collect();
        listening.pop();
        playing.scene.listen("SUBSCRIBE", &listening);
        for row in rows(table) {
            if let Err(said) = playing.plays(&row) {
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
    readers,
    slots_of_two,
    foreign_locks,
    counter,
    rolled_back,
    batches
);
