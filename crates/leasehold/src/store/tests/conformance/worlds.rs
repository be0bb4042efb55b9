//! The stores under test, one row each, and the powers of a test over them. Time passes only when a test says so.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::Clock;
use crate::store::contract::{Attach, Store};
use crate::store::local::LocalStore;
use crate::store::memory::Memory;

/// An empty store, and the powers of a test over it.
pub(super) trait World {
    /// True if a wake contains the fence, the time and the number of waiters. If not, it may.
    const WAKES_SAY_ALL: bool = true;

    /// The clock stands still until [`World::advance`].
    fn start() -> Self;

    /// Starts a store whose time runs, for behaviours that depend on polling.
    fn running() -> Self
    where
        Self: Sized,
    {
        Self::start()
    }

    /// The clock of its clients.
    fn clock(&self) -> Clock;

    fn open(&self, attach: Attach) -> Arc<dyn Store>;
    /// Advances the store's clock.
    fn advance(&self, by: Duration);

    /// The keys that remain for names, apart from the counter.
    fn remains(&self) -> Vec<String>;
}

pub(super) struct InMemory {
    memory: Memory,
    clock: Clock,
}

impl World for InMemory {
    fn start() -> Self {
        let clock = Clock::virtual_time();
        Self {
            memory: Memory::new(clock.clone()),
            clock,
        }
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn open(&self, attach: Attach) -> Arc<dyn Store> {
        Arc::new(self.memory.attach(attach))
    }

    fn advance(&self, by: Duration) {
        self.clock.suspend(by);
    }

    fn remains(&self) -> Vec<String> {
        let keys = |world: &mut leasehold_core::World| {
            world.names().map(|name| name.key().to_owned()).collect()
        };
        self.memory.meddle(keys)
    }
}

pub(super) struct Local {
    dir: TempDir,
    clock: Clock,
}

impl Local {
    fn new(clock: Clock) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, clock }
    }

    fn file(&self) -> String {
        format!("{}/locks.db", self.dir.path().display())
    }
}

impl World for Local {
    /// Another process only sees the holder.
    const WAKES_SAY_ALL: bool = false;

    fn start() -> Self {
        Self::new(Clock::virtual_time())
    }

    fn running() -> Self {
        Self::new(Clock::system())
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn open(&self, attach: Attach) -> Arc<dyn Store> {
        Arc::new(LocalStore::open(&self.file(), attach).unwrap())
    }

    fn advance(&self, by: Duration) {
        self.clock.suspend(by);
    }

    fn remains(&self) -> Vec<String> {
        let db = rusqlite::Connection::open(self.file()).unwrap();
        let mut select = db.prepare("SELECT key FROM locks").unwrap();
        let keys = select.query_map([], |row| row.get(0)).unwrap();
        keys.collect::<Result<_, _>>().unwrap()
    }
}

/// Its clock is controlled through the dynamic linker.
#[cfg(target_os = "linux")]
pub(super) struct OnRedis(testkit::RedisServer);

/// The key of the last fence drawn.
#[cfg(target_os = "linux")]
const COUNTER: &str = "leasehold:fence";

#[cfg(target_os = "linux")]
impl World for OnRedis {
    fn start() -> Self {
        Self(testkit::RedisServer::builder().virtual_clock().start())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn open(&self, attach: Attach) -> Arc<dyn Store> {
        use crate::store::redis::{Address, RedisStore};

        let address = Address::parse(&self.0.url()).unwrap();
        Arc::new(RedisStore::open(address, attach))
    }

    fn advance(&self, by: Duration) {
        self.0.clock().advance(by);
    }

    fn remains(&self) -> Vec<String> {
        let keys = self.0.cli(&["KEYS", "*"]);
        let keys = keys.array().iter().map(testkit::Reply::text);
        keys.filter(|key| key != COUNTER).collect()
    }
}
