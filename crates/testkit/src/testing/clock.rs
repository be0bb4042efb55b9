//! The wall clock of a server under test, on Linux: one that only the test advances, or the host's plus an offset. The clocks of
//! the test process and of other servers are not affected.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::wait::lock;
use crate::directory::Directory;

const SHIM_SOURCE: &str = include_str!("../../clockshim.c");

const LIBRARY: &str = "clockshim.so";

/// The places of the two copies in the file that leads a clock.
const FIRST: u64 = 0;
const SECOND: u64 = 8;

/// The clock of a server started with
/// [`virtual_clock`](crate::RedisServerBuilder::virtual_clock), on Linux.
///
/// It advances only when the test moves it, and all commands, scripts and expiries of the server
/// see one time. It starts at the real time of the server's start, survives restarts, and can be
/// set backwards. Clones are handles to the same clock.
///
/// Times that Redis measures by its wall clock do not advance either: the limits of blocking
/// commands (`BLPOP`, `WAIT`, `CLIENT PAUSE`) and replication timeouts end only when the clock is
/// moved. Its event loop, `hz` jobs and script time limits use the monotonic clock and go on.
#[derive(Clone, Debug)]
pub struct ServerClock {
    state: Arc<Mutex<ClockState>>,
}

#[derive(Debug)]
struct ClockState {
    file: File,
    micros: u64,
}

impl ServerClock {
    /// Creates the clock's file in `dir`, set to the real time.
    pub(crate) fn create(dir: &Path) -> Self {
        let file = File::create(clock_file(dir)).expect("create the clock file");
        let clock = Self {
            state: Arc::new(Mutex::new(ClockState { file, micros: 0 })),
        };
        let real = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock after 1970");
        clock.set(u64::try_from(real.as_micros()).expect("a clock before the year 586000"));
        clock
    }

    /// Sets the server's clock to `micros` since 1970. The next command sees it.
    pub fn set(&self, micros: u64) {
        lock(&self.state).set(micros);
    }

    /// Moves the clock forward, counting whole microseconds.
    pub fn advance(&self, by: Duration) {
        let mut state = lock(&self.state);
        let micros = state.after(by);
        state.set(micros);
    }

    /// The server's clock in microseconds since 1970.
    pub fn now(&self) -> u64 {
        lock(&self.state).micros
    }
}

impl ClockState {
    fn after(&self, by: Duration) -> u64 {
        let by = u64::try_from(by.as_micros()).expect("at most 584000 years");
        let after = self.micros.checked_add(by);
        after.expect("a clock below 2^64 microseconds")
    }

    fn set(&mut self, micros: u64) {
        self.begin(micros);
        self.end();
    }

    /// Writes the first of two copies. The shim reads again while they differ, so it never sees half of a write, and no command
    /// goes on that asks for the time.
    fn begin(&mut self, micros: u64) {
        self.micros = micros;
        self.write(FIRST);
    }

    /// Writes the second copy. From now on, the server sees the new time.
    fn end(&self) {
        self.write(SECOND);
    }

    fn write(&self, place: u64) {
        self.file
            .write_all_at(&self.micros.to_ne_bytes(), place)
            .expect("write the clock file");
    }
}

/// The one time of a test: the clocks of its servers and of its clients, which only the test moves.
///
/// Limits of requests stay in real time, so give the clients a generous one.
pub struct TestTime {
    servers: Vec<ServerClock>,
    clients: Box<dyn Fn(Duration) + Send + Sync>,
}

impl TestTime {
    /// Of servers with these clocks. `clients` moves the clock of the clients.
    pub fn new(
        servers: impl IntoIterator<Item = ServerClock>,
        clients: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Self {
        Self {
            servers: servers.into_iter().collect(),
            clients: Box::new(clients),
        }
    }

    /// Lets time pass, for clients and servers in one step: commands that ask for the time meanwhile wait. So no client relies on a
    /// lease that its server has ended, and no lease begins at the new time of its client and the old one of its server.
    pub fn pass(&self, by: Duration) {
        let mut servers: Vec<_> = self
            .servers
            .iter()
            .map(|clock| lock(&clock.state))
            .collect();
        for server in &mut servers {
            let micros = server.after(by);
            server.begin(micros);
        }
        (self.clients)(by);
        for server in &servers {
            server.end();
        }
    }
}

impl fmt::Debug for TestTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestTime")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// The offset of a wall clock from the host's: servers with its [`environment`](Self::environment) show the host's time plus the
/// offset, on Linux.
#[derive(Debug)]
pub struct ClockOffset {
    file: File,
    directory: Directory,
}

impl ClockOffset {
    /// An offset of nothing at first. An error says why there can be none here.
    pub fn try_new() -> Result<Self, String> {
        let refused = |error: io::Error| format!("cannot make a clock: {error}");
        let directory = Directory::make("leasehold-clock-").map_err(refused)?;
        library(directory.path())?;
        let file = File::create(clock_file(directory.path())).map_err(refused)?;
        let offset = Self { file, directory };
        offset.try_set(0)?;
        Ok(offset)
    }

    /// The environment of a server that follows it.
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let directory = self.directory.path();
        vec![
            ("LD_PRELOAD", directory.join(LIBRARY)),
            ("LEASEHOLD_CLOCK_OFFSET", clock_file(directory)),
        ]
    }

    /// Sets the offset to so many microseconds. The servers' next reading of the clock includes it.
    pub fn try_set(&self, micros: i64) -> Result<(), String> {
        for place in [FIRST, SECOND] {
            self.file
                .write_all_at(&micros.to_ne_bytes(), place)
                .map_err(|error| format!("cannot set a clock: {error}"))?;
        }
        Ok(())
    }
}

/// Puts the shim into `dir` and makes `command` run under the clock of that directory.
pub(crate) fn preload(dir: &Path, command: &mut Command) {
    let library = library(dir).unwrap_or_else(|why| panic!("no virtual clock: {why}"));
    command
        .env("LD_PRELOAD", library)
        .env("LEASEHOLD_CLOCK_FILE", clock_file(dir));
}

fn clock_file(dir: &Path) -> PathBuf {
    dir.join("clock")
}

/// The path of the shim in `dir`, where it is put.
fn library(dir: &Path) -> Result<PathBuf, String> {
    /// Built once per process. Kept as bytes, since a directory held by a static would never be removed.
    static SHIM: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    let shim = SHIM.get_or_init(build).as_ref().map_err(String::clone)?;
    let library = dir.join(LIBRARY);
    if !library.exists() {
        fs::write(&library, shim).map_err(|error| format!("cannot write {LIBRARY}: {error}"))?;
    }
    Ok(library)
}

fn build() -> Result<Vec<u8>, String> {
    if !cfg!(target_os = "linux") {
        return Err("a server's clock can be led only on Linux".into());
    }
    let refused = |error: io::Error| format!("cannot make a clock: {error}");
    let directory = Directory::make("leasehold-clock-").map_err(refused)?;
    let source = directory.path().join("clockshim.c");
    let library = directory.path().join(LIBRARY);
    fs::write(&source, SHIM_SOURCE).map_err(refused)?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .output()
        .map_err(|error| format!("no C compiler, cc: {error}"))?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        let first = said.lines().next().unwrap_or_default();
        return Err(format!("cc cannot compile it: {first}"));
    }
    fs::read(&library).map_err(refused)
}
