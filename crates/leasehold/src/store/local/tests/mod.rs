//! Behaviour of the store on one host only. Core tests the rules, and the conformance suite tests the common behaviour.

mod clients;
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

use leasehold_core::{Block, ClientId, Fence, LockName, Mode, Owner, Reply, Step, Ttl, Wait};
use rusqlite::Connection;
use tempfile::TempDir;

use super::LocalStore;
use crate::clock::Clock;
use crate::error::{Error, Replaced, StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Notice, Store};

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
    heard: Receiver<Notice>,
}

impl Host {
    fn new(clock: Clock) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock,
        }
    }

    fn file(&self) -> String {
        format!("{}/locks.db", self.dir.path().display())
    }

    fn open(&self, path: &str, client: u64) -> Result<Peer, Error> {
        let (tell, heard) = channel();
        let listener = Arc::new(move |notice| drop(tell.send(notice)));
        let attach = Attach {
            client: ClientId::new(client),
            listener,
            clock: self.clock.clone(),
            tasks: Tasks::explored(),
            limit: Duration::ZERO,
        };
        let store = LocalStore::open(path, attach)?;
        Ok(Peer {
            store,
            client,
            heard,
        })
    }

    fn peer(&self, client: u64) -> Peer {
        self.open(&self.file(), client).unwrap()
    }

    fn refused(&self, path: &str) -> Error {
        let error = self.open(path, 1).err().unwrap();
        assert!(
            error.to_string().contains(&path[..path.len().min(40)]),
            "names the path: {error}"
        );
        error
    }

    fn sql(&self, sql: &str) {
        Connection::open(self.file())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }

    fn count(&self, table: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {table}"))
    }

    fn number(&self, sql: &str) -> i64 {
        Connection::open(self.file())
            .unwrap()
            .query_row(sql, [], |row| row.get(0))
            .unwrap()
    }
}

impl Peer {
    fn owner(&self, number: u128) -> Owner {
        Owner::new(number, ClientId::new(self.client), "h", 1, "").unwrap()
    }

    async fn step(&self, step: Step) -> Reply {
        self.store.apply(&name(), step).await.unwrap()
    }

    async fn acquire(&self, ttl: u64) -> Reply {
        let wait = Some(Wait { listening: true });
        self.step(Step::Acquire {
            owner: self.owner(1),
            mode: Mode::Exclusive,
            ttl: seconds(ttl),
            block: Block::ONE,
            wait,
        })
        .await
    }

    async fn release(&self, keep: Option<Ttl>) -> Reply {
        self.step(Step::Release {
            owner: self.owner(1),
            keep,
            fence: None,
        })
        .await
    }

    /// The fence that identifies the holder.
    async fn fence(&self) -> Option<Fence> {
        match self.step(Step::Inspect).await {
            Reply::Seen(snapshot) => snapshot.holder?.fence,
            other => panic!("{other:?}"),
        }
    }
}

fn name() -> LockName {
    LockName::new("orders:42").unwrap()
}

fn seconds(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

fn held(reply: &Reply) -> bool {
    matches!(reply, Reply::Held(_))
}

fn busy(reply: &Reply) -> bool {
    matches!(reply, Reply::Busy(_))
}

/// A process that has ended and was reaped.
fn reaped() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn two_clients_exclude_each_other_and_hand_over() {
    let host = Host::new(Clock::system());
    let (a, b) = (host.peer(1), host.peer(2));
    pollster::block_on(async {
        assert!(held(&a.acquire(30).await));
        assert!(busy(&b.acquire(30).await));
        assert_eq!(b.store.index(None).await.unwrap(), ["orders:42"]);
        assert_eq!(a.release(None).await, Reply::Released);
        let Notice::Granted { key, wake } = b.heard.recv_timeout(SOON).unwrap() else {
            panic!()
        };
        assert_eq!((key.as_str(), wake.owner), ("orders:42", b.owner(1)));
        assert!(held(
            &b.step(Step::Extend {
                owner: b.owner(1),
                ttl: seconds(30),
                fence: None,
            })
            .await
        ));
        assert!(busy(&a.acquire(30).await));
    });
    assert_eq!(
        (a.heard.try_iter().count(), b.heard.try_iter().count()),
        (0, 0)
    );
}

#[test]
fn waiter_of_same_client_is_woken_directly() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    pollster::block_on(async {
        assert!(held(&a.acquire(30).await));
        let other = Step::Acquire {
            owner: a.owner(2),
            mode: Mode::Exclusive,
            ttl: seconds(30),
            block: Block::ONE,
            wait: Some(Wait { listening: true }),
        };
        assert!(busy(&a.step(other).await));
        assert_eq!(a.release(None).await, Reply::Released);
    });
    assert!(
        matches!(a.heard.try_recv(), Ok(Notice::Granted { wake, .. }) if wake.owner == a.owner(2))
    );
}

#[tokio::test(start_paused = true)]
async fn queue_stays_in_order_when_waiters_leave() {
    let host = Host::new(Clock::virtual_time());
    let peers: Vec<_> = (1..=5).map(|client| host.peer(client)).collect();
    for peer in &peers {
        peer.acquire(30).await;
    }
    peers[2].release(None).await;
    assert!(busy(&peers[2].acquire(30).await), "joins again at the end");
    for at in [0, 1, 3, 4, 2] {
        assert!(held(&peers[at].acquire(30).await), "{at}");
        assert_eq!(peers[at].release(None).await, Reply::Released);
    }
}

#[test]
fn many_open_a_new_file_at_once_and_count_together() {
    let host = Host::new(Clock::system());
    let (threads, rounds) = (6, 20);
    let counter = host.dir.path().join("counter");
    fs::write(&counter, "0").unwrap();
    thread::scope(|scope| {
        for client in 1..=threads {
            let (host, counter) = (&host, &counter);
            scope.spawn(move || {
                let peer = host.peer(client);
                for _ in 0..rounds {
                    while !held(&pollster::block_on(peer.acquire(30))) {
                        drop(peer.heard.recv_timeout(Duration::from_millis(250)));
                    }
                    let count: u64 = fs::read_to_string(counter).unwrap().parse().unwrap();
                    fs::write(counter, (count + 1).to_string()).unwrap();
                    pollster::block_on(peer.release(None));
                }
            });
        }
    });
    assert_eq!(
        fs::read_to_string(&counter).unwrap(),
        (threads * rounds).to_string()
    );
}
