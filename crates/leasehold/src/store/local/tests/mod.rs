//! Behaviour of the store on one host only: its file, its threads, and what it knows of processes. Core tests the rules, and
//! `tests/conformance` what all stores do alike.

#[cfg(feature = "entries")]
mod entries;
mod files;
mod processes;
mod replaced;
mod unwritable;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use leasehold_core::{
    Block, Busy, ClientId, Fence, Held, LockName, Mode, Owner, Reply, Step, Ttl, Wait,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::LocalStore;
use crate::Client;
use crate::clock::Clock;
use crate::error::{Error, Replaced, StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, IndexRequest, Notice, Store};

const SOON: Duration = Duration::from_secs(20);

/// A directory with one lock file, and the clock of all its clients.
struct Host {
    dir: TempDir,
    clock: Clock,
}

/// A client of the file, as one process would have it.
struct Peer {
    store: LocalStore,
    client: u64,
    /// Of its lock and its cache entry.
    name: &'static str,
    heard: Receiver<Notice>,
}

impl Host {
    /// The test moves the clock, and each step is executed on the thread that asks for it.
    fn still() -> Self {
        Self::with(Clock::virtual_time())
    }

    /// Each client has a thread, which also looks for grants of other clients.
    fn running() -> Self {
        Self::with(Clock::system())
    }

    fn with(clock: Clock) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, clock }
    }

    fn file(&self) -> String {
        self.beside("")
    }

    /// A file that SQLite or a test keeps beside the file.
    fn beside(&self, suffix: &str) -> String {
        format!("{}/locks.db{suffix}", self.dir.path().display())
    }

    fn open(&self, path: &str, client: u64) -> Result<Peer, Error> {
        let (tell, heard) = channel();
        let attach = Attach {
            client: ClientId::new(client),
            listener: Arc::new(move |notice| drop(tell.send(notice))),
            clock: self.clock.clone(),
            tasks: Tasks::explored(),
            limit: Duration::ZERO,
        };
        let store = LocalStore::open(path, attach)?;
        Ok(Peer {
            store,
            client,
            name: NAME,
            heard,
        })
    }

    fn peer(&self, client: u64) -> Peer {
        self.open(&self.file(), client).unwrap()
    }

    /// The error of a client that opens the file at this path.
    fn refused(&self, path: &str) -> Error {
        let error = self.open(path, 1).err().unwrap();
        assert!(
            error.to_string().contains(&path[..path.len().min(40)]),
            "names the path: {error}"
        );
        error
    }

    fn sql(&self, sql: &str) {
        let db = Connection::open(self.file()).unwrap();
        db.execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(self.file()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn count(&self, table: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {table}"))
    }

    /// The process of this client has ended.
    fn ends(&self, client: i64) {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let reaped = child.id();
        self.sql(&format!(
            "UPDATE clients SET pid = {reaped} WHERE client = {client}"
        ));
    }

    fn passes(&self, seconds: u64) {
        self.clock.suspend(Duration::from_secs(seconds));
    }
}

impl Peer {
    fn owner(&self, number: u128) -> Owner {
        Owner::new(number, ClientId::new(self.client), "h", 1, "").unwrap()
    }

    fn asks(&self, name: &str, step: Step) -> Result<Reply, StoreError> {
        let name = LockName::new(name).unwrap();
        crate::block_on(self.store.apply(&name, step))
    }

    fn step(&self, step: Step) -> Reply {
        self.asks(self.name, step).unwrap()
    }

    /// The owner with this number asks for some fences, and waits.
    fn acquires(&self, number: u128, name: &str, ttl: u64, fences: u64) -> Reply {
        let step = Step::Acquire {
            owner: self.owner(number),
            mode: Mode::Exclusive,
            ttl: seconds(ttl),
            block: Block::nearest(fences),
            wait: Some(Wait { listening: true }),
        };
        self.asks(name, step).unwrap()
    }

    fn takes(&self, ttl: u64) -> bool {
        matches!(self.acquires(1, self.name, ttl, 1), Reply::Held(_))
    }

    fn waits(&self, ttl: u64) -> bool {
        matches!(self.acquires(1, self.name, ttl, 1), Reply::Busy(_))
    }

    fn extend(&self) -> Result<Reply, StoreError> {
        let (owner, ttl, fence) = (self.owner(1), seconds(30), None);
        self.asks(self.name, Step::Extend { owner, ttl, fence })
    }

    fn extends(&self) -> bool {
        matches!(self.extend().unwrap(), Reply::Held(_))
    }

    fn release(&self, keep: Option<Ttl>) -> Result<Reply, StoreError> {
        let (owner, fence) = (self.owner(1), None);
        self.asks(self.name, Step::Release { owner, keep, fence })
    }

    fn releases(&self) {
        assert_eq!(self.release(None).unwrap(), Reply::Released);
    }

    /// The fence that identifies the holder.
    fn fence(&self) -> Option<Fence> {
        match self.step(Step::Inspect) {
            Reply::Seen(snapshot) => snapshot.holder?.fence,
            other => panic!("{other:?}"),
        }
    }

    fn names(&self) -> Vec<String> {
        crate::block_on(self.store.index(IndexRequest::Read)).unwrap()
    }
}

const NAME: &str = "orders:42";

fn seconds(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

#[test]
fn two_clients_exclude_each_other_and_hand_over() {
    let host = Host::running();
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(a.takes(30) && b.waits(30));
    assert_eq!(b.names(), [NAME]);
    a.releases();
    let Notice::Granted { key, wake } = b.heard.recv_timeout(SOON).unwrap() else {
        panic!()
    };
    assert_eq!((key.as_str(), wake.owner), (NAME, b.owner(1)));
    assert!(b.extends() && a.waits(30));
    let told = [a, b].map(|peer| peer.heard.try_iter().count());
    assert_eq!(told, [0, 0]);
}

#[test]
fn waiter_of_same_client_is_woken_directly() {
    let host = Host::running();
    let a = host.peer(1);
    assert!(a.takes(30));
    assert!(matches!(a.acquires(2, NAME, 30, 1), Reply::Busy(_)));
    a.releases();
    assert!(
        matches!(a.heard.try_recv(), Ok(Notice::Granted { wake, .. }) if wake.owner == a.owner(2))
    );
}

/// The time of a refusal is that of the boot clock, which the file has of each lock.
#[tokio::test(start_paused = true)]
async fn times_and_fences_are_those_of_the_file() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    let draws = |peer: &Peer, name, fences| match peer.acquires(1, name, 30, fences) {
        Reply::Held(Held { fence, block, .. }) => (fence.unwrap().get(), block.get()),
        other => panic!("{other:?}"),
    };
    let (first, _) = draws(&a, NAME, 64);
    assert_eq!(draws(&b, "{another} name", 17), (first + 64, 17));
    assert_eq!(draws(&host.peer(3), "a third", 1), (first + 81, 1));
    let refused = |passed: u64| {
        host.passes(passed);
        let Reply::Busy(busy) = b.acquires(1, NAME, 30, 1) else {
            panic!("it is held")
        };
        let Busy { holder, at_us, .. } = *busy;
        (holder.held_for, holder.expires_in, at_us)
    };
    let (held_for, left, at_us) = refused(10);
    assert_eq!(held_for, Some(Duration::from_secs(10)));
    assert_eq!(left, Some(Duration::from_secs(20)));
    assert_eq!(refused(2).2 - at_us, 2_000_000);
}

#[test]
fn many_open_a_new_file_at_once_and_count_together() {
    let host = Host::running();
    let (threads, rounds) = (6, 20);
    let counter = host.dir.path().join("counter");
    fs::write(&counter, "0").unwrap();
    thread::scope(|scope| {
        for client in 1..=threads {
            let (host, counter) = (&host, &counter);
            scope.spawn(move || {
                let peer = host.peer(client);
                for _ in 0..rounds {
                    while !peer.takes(30) {
                        drop(peer.heard.recv_timeout(Duration::from_millis(250)));
                    }
                    let count: u64 = fs::read_to_string(counter).unwrap().parse().unwrap();
                    fs::write(counter, (count + 1).to_string()).unwrap();
                    peer.releases();
                }
            });
        }
    });
    let total = fs::read_to_string(&counter).unwrap();
    assert_eq!(total, (threads * rounds).to_string());
}

/// The step that grants the lock delivers the wake. The woken client takes steps itself.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs must not hang the test"
)]
fn woken_client_in_virtual_time_may_take_a_step() {
    let (ended, end) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(breaks_for_waiter_that_left());
        ended.send(()).unwrap();
    });
    end.recv_timeout(SOON)
        .expect("a step takes no lock that its thread holds");
}

/// The first waiter leaves, and the next has other terms: the grant to the first is given back, and the next asks for
/// its own.
async fn breaks_for_waiter_that_left() {
    let host = Host::still();
    let url = format!("local:{}", host.file());
    let client = async || {
        let builder = Client::builder().clock(host.clock.clone());
        builder.connect(&url).await.unwrap()
    };
    let (holder, waiters) = (client().await, client().await);
    let lease = holder.mutex("m").acquire().await.unwrap();
    let waits = |ttl: u64| {
        let mutex = waiters.mutex("m").ttl(Duration::from_secs(ttl));
        tokio::runtime::Handle::current().spawn(async move { mutex.acquire().await.unwrap() })
    };
    let (first, second) = (waits(30), waits(10));
    tokio::task::yield_now().await;
    first.abort();
    tokio::task::yield_now().await;
    assert!(waiters.break_lock("m", lease.fence()).await.unwrap());
    let granted = second.await.unwrap();
    assert!(granted.fence() > lease.fence());
    granted.release().await.unwrap();
}
