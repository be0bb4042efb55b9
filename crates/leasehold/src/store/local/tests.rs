//! What only a store on one host does; the rules themselves are tested in core, and stamped out in the conformance suite.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use leasehold_core::{ClientId, Fence, Mode, Owner, Ttl, Wait};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::store::Notice;

const SOON: Duration = Duration::from_secs(20);

/// A directory with one lock file, and the clock of all who open it.
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
        let store = LocalStore::open(
            path,
            Attach {
                client: ClientId::new(client),
                listener,
            },
            self.clock.clone(),
        )?;
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
        let sql = format!("SELECT count(*) FROM {table}");
        Connection::open(self.file())
            .unwrap()
            .query_row(&sql, [], |row| row.get(0))
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
            wait,
        })
        .await
    }

    async fn release(&self, keep: Option<Ttl>) -> Reply {
        self.step(Step::Release {
            owner: self.owner(1),
            keep,
        })
        .await
    }

    async fn fence(&self) -> Option<Fence> {
        match self.step(Step::Inspect).await {
            Reply::Seen(snapshot) => snapshot.fence,
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

/// A process that has been there and is gone.
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
        let Notice::Granted { key, owner } = b.heard.recv_timeout(SOON).unwrap() else {
            panic!()
        };
        assert_eq!((key.as_str(), owner), ("orders:42", b.owner(1)));
        assert!(held(
            &b.step(Step::Extend {
                owner: b.owner(1),
                ttl: seconds(30)
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
fn a_waiter_of_the_same_client_is_told_directly() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    pollster::block_on(async {
        assert!(held(&a.acquire(30).await));
        let other = Step::Acquire {
            owner: a.owner(2),
            mode: Mode::Exclusive,
            ttl: seconds(30),
            wait: Some(Wait { listening: true }),
        };
        assert!(busy(&a.step(other).await));
        assert_eq!(a.release(None).await, Reply::Released);
    });
    assert!(matches!(a.heard.try_recv(), Ok(Notice::Granted { owner, .. }) if owner == a.owner(2)));
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_process_that_is_gone_is_free_at_once() {
    for gone in [
        format!("pid = {}", reaped()),
        "started = started + 1".into(),
    ] {
        let host = Host::new(Clock::virtual_time());
        let (a, b) = (host.peer(1), host.peer(2));
        assert!(held(&a.acquire(3600).await));
        assert!(busy(&b.acquire(30).await));
        host.sql(&format!("UPDATE clients SET {gone} WHERE client = 1"));
        assert!(held(&b.acquire(30).await), "{gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_process_is_gone_is_passed_over() {
    let host = Host::new(Clock::virtual_time());
    let (a, b, c) = (host.peer(1), host.peer(2), host.peer(3));
    assert!(held(&a.acquire(30).await) && busy(&b.acquire(30).await) && busy(&c.acquire(30).await));
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 2",
        reaped()
    ));
    a.release(None).await;
    assert!(held(&c.acquire(30).await));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_be_seen_counts_until_its_deadline() {
    for hidden in [
        "UPDATE clients SET namespace = 'pid:[1]', pid = 1, started = 1",
        "DELETE FROM clients",
    ] {
        let host = Host::new(Clock::virtual_time());
        let (a, b) = (host.peer(1), host.peer(2));
        assert!(held(&a.acquire(3600).await));
        host.sql(&format!("{hidden} WHERE client = 1"));
        host.clock.suspend(Duration::from_secs(3599));
        assert!(busy(&b.acquire(30).await));
        host.clock.suspend(Duration::from_secs(2));
        assert!(held(&b.acquire(30).await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_kept_after_its_release_outlives_the_process() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    assert_eq!(a.release(Some(seconds(60))).await, Reply::Released);
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 1",
        reaped()
    ));
    host.clock.suspend(Duration::from_secs(59));
    let c = host.peer(3);
    assert!(busy(&b.acquire(30).await) && busy(&c.acquire(30).await));
    host.clock.suspend(Duration::from_secs(2));
    assert!(held(&b.acquire(30).await));
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_in_order_whoever_leaves_it() {
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
fn a_boot_clears_all_locks_and_fences_go_on() {
    let host = Host::new(Clock::system());
    let (a, b) = (host.peer(1), host.peer(2));
    let before = pollster::block_on(async {
        assert!(held(&a.acquire(3600).await));
        assert!(busy(&b.acquire(3600).await));
        a.fence().await.unwrap()
    });
    // As a clock that was further on when the locks were taken would have it; and a fence above any wall time.
    let high = before.get() + 1_000_000_000_000;
    host.sql(&format!(
        "UPDATE holders SET expires_at_ms = expires_at_ms + 100000000;
         UPDATE waiters SET seen_until_ms = seen_until_ms + 100000000;
         UPDATE fences SET forget_at_ms = forget_at_ms + 100000000, fence = {high};"
    ));
    let c = host.peer(3);
    assert_eq!(
        (
            host.count("holders"),
            host.count("waiters"),
            host.count("clients")
        ),
        (0, 0, 1)
    );
    pollster::block_on(async {
        assert!(held(&c.acquire(30).await));
        assert_eq!(c.fence().await.unwrap().get(), high + Fence::BLOCK);
    });
}

#[test]
fn the_same_boot_clears_nothing() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    pollster::block_on(async {
        assert!(held(&a.acquire(3600).await));
        assert!(busy(&host.peer(2).acquire(30).await));
    });
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_any_more_is_tidied_away() {
    let host = Host::new(Clock::virtual_time());
    let a = host.peer(1);
    assert!(held(&a.acquire(3600).await));
    host.sql(&format!(
        "UPDATE clients SET pid = {} WHERE client = 1",
        reaped()
    ));
    drop(a);
    assert_eq!(
        (host.count("holders"), host.count("clients")),
        (1, 1),
        "the row tells that the process is gone"
    );
    drop(host.peer(2));
    assert_eq!(
        (
            host.count("holders"),
            host.count("clients"),
            host.count("fences")
        ),
        (0, 0, 1)
    );
    host.clock.suspend(Duration::from_secs(25 * 60 * 60));
    drop(host.peer(2));
    assert_eq!(host.count("fences"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_removed_is_a_data_loss() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    let before = a.fence().await.unwrap();
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        fs::remove_file(host.dir.path().join(file)).unwrap();
    }
    host.clock.suspend(Duration::from_secs(1));
    assert!(held(&b.acquire(30).await));
    assert!(b.fence().await.unwrap() > before);
    assert!(matches!(
        a.step(Step::Extend {
            owner: a.owner(1),
            ttl: seconds(30)
        })
        .await,
        Reply::NotHeld(Some(_))
    ));
    fs::remove_dir_all(host.dir.path()).unwrap();
    let lost = a.store.apply(&name(), Step::Inspect).await.unwrap_err();
    assert_eq!(lost.kind, StoreErrorKind::Unreachable);
    assert!(lost.store.contains(&host.file()), "{lost}");
}

#[test]
fn a_locked_file_is_an_answer_in_bounded_time() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    let stuck = Connection::open(host.file()).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = pollster::block_on(a.store.apply(
        &name(),
        Step::Release {
            owner: a.owner(1),
            keep: None,
        },
    ))
    .unwrap_err();
    assert_eq!(
        (refused.kind, refused.may_have_taken_effect),
        (StoreErrorKind::TimedOut, false)
    );
    assert!(refused.to_string().contains(&host.file()), "{refused}");
    assert_eq!(
        pollster::block_on(a.fence()),
        None,
        "looking waits for nobody"
    );
    stuck.execute_batch("COMMIT").unwrap();
    assert!(held(&pollster::block_on(a.acquire(30))));
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

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_alone() {
    let host = Host::new(Clock::system());
    let refused = |why: &str| match host.refused(&host.file()) {
        Error::Store(error) => {
            assert_eq!(error.kind, StoreErrorKind::Protocol);
            assert!(error.to_string().contains(why), "{error}");
        }
        other => panic!("{other}"),
    };
    fs::write(
        host.file(),
        "not a database, but long enough to look at: ".repeat(100),
    )
    .unwrap();
    refused("not a database");
    fs::remove_file(host.file()).unwrap();

    host.sql("CREATE TABLE theirs (x)");
    let before = fs::read(host.file()).unwrap();
    refused("another program");
    assert_eq!(fs::read(host.file()).unwrap(), before);
    fs::remove_file(host.file()).unwrap();

    drop(host.peer(1));
    host.sql("PRAGMA user_version = 2");
    refused("newer version");
}

#[test]
fn a_mode_of_a_newer_version_is_refused() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    assert!(held(&pollster::block_on(a.acquire(30))));
    host.sql("UPDATE holders SET mode = 'shared'");
    let refused = pollster::block_on(a.store.apply(&name(), Step::Inspect)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("\"shared\"; was it written by a newer version?"),
        "{refused}"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_refused() {
    let host = Host::new(Clock::system());
    assert!(matches!(
        host.refused(&format!("{}/missing/locks.db", host.dir.path().display())),
        Error::Invalid(_)
    ));
    // The rights of files do not stop root; a file system of the kernel does.
    let closed = if nix::unistd::getuid().is_root() {
        "/sys".to_owned()
    } else {
        format!("{}/closed", host.dir.path().display())
    };
    if !fs::exists(&closed).unwrap() {
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    }
    match host.refused(&format!("{closed}/locks.db")) {
        Error::Store(error) => assert_eq!(error.kind, StoreErrorKind::Denied, "{error}"),
        other => panic!("{other}"),
    }
}

#[test]
fn the_files_are_for_their_owner_only() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    assert!(held(&pollster::block_on(a.acquire(30))));
    for file in fs::read_dir(host.dir.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(
            file.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{file:?}"
        );
    }
}
