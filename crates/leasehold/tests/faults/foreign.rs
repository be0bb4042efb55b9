//! Locks of other programs on the same key. Both sides exclude each other, and neither breaks the lock of the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Client, Error, HolderIdentity, Lease, Permit, Semaphore};
use testkit::{RedisServer, RespConn, eventually};
use tokio::task::JoinHandle;

use crate::common::lost;
use crate::scene::{
    LONG, PLENTY, Timed, beside, connect, has_its_turn, is_free, joined, kill_connections, millis,
    queue_up, queued, take,
};

/// The release script of redlock clients in every language.
const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Puts waiters into the queue of a lock. They send nothing, and the store would notify them on `channel`. Returns the keys of the queue.
fn play_waiters(server: &RedisServer, name: &str, count: u32, channel: &str) -> [String; 2] {
    let keys = ["lh-queue", "lh-waiters"].map(|end| format!("{{{name}}}:{end}"));
    for number in 1..=count {
        let token = format!("lh1.{number:032x}.{number:016x}.h:1:");
        let record = format!("exclusive 30000 1 {channel} 9999999999999");
        server.cli(&["ZADD", &keys[0], &number.to_string(), &token]);
        server.cli(&["HSET", &keys[1], &token, &record]);
    }
    keys
}

/// Waits for a lock, and counts the replies.
fn wait_for(client: &Client, name: &str) -> (Answers, JoinHandle<Result<Lease, Error>>) {
    let answers = Answers::default();
    let lock = client.mutex(name).ttl(LONG).on_wait({
        let answers = answers.clone();
        move |_| {
            answers.0.fetch_add(1, Ordering::SeqCst);
        }
    });
    (answers, beside(async move { lock.acquire().await }))
}

/// The number of replies to a waiter.
#[derive(Clone, Default)]
struct Answers(Arc<AtomicUsize>);

impl Answers {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn more_than(&self, before: usize) {
        eventually(PLENTY, "an answer", || self.count() > before);
    }
}

/// Checks that a waiter asks each 50 ms, like every first waiter in a queue. Clients add up to a tenth.
fn looks_often(timed: &Timed, answers: &Answers) {
    answers.more_than(0);
    for _ in 0..20 {
        let before = answers.count();
        timed.pass(millis(55));
        answers.more_than(before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lease_is_waited_for_until_it_ends() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.client().await;
    let set = server.cli(&["SET", "orders", "somebody", "NX", "PX", "30000"]);
    assert_eq!(set.text(), "OK");
    assert!(
        client
            .mutex("orders")
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    let waiter = queue_up(server, &client, "orders", LONG);
    timed.pass(millis(29_999));
    tokio::time::sleep(millis(100)).await;
    assert!(!waiter.is_finished(), "never taken");
    timed.has_its_turn(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lock_without_an_end_is_waited_for_and_never_taken() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.client().await;
    server.cli(&["SET", "orders", "somebody"]);
    let (answers, waiter) = wait_for(&client, "orders");
    looks_often(&timed, &answers);
    assert_eq!(server.cli(&["GET", "orders"]).text(), "somebody");
    assert_eq!(server.cli(&["PTTL", "orders"]).int(), -1);

    server.cli(&["DEL", "orders"]);
    timed.has_its_turn(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_any_type_are_busy_and_named_and_left_alone() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.client().await;
    for (kind, make) in [
        ("string", &["SET", "k", "7"][..]),
        ("hash", &["HSET", "k", "somebody:1", "1"]),
        ("zset", &["ZADD", "k", "9", "somebody"]),
        ("list", &["RPUSH", "k", "somebody"]),
        ("set", &["SADD", "k", "somebody"]),
        ("stream", &["XADD", "k", "*", "who", "somebody"]),
    ] {
        server.cli(make);
        let dump = server.cli(&["DUMP", "k"]);
        let lock = client.mutex("k").ttl(LONG);
        assert!(
            lock.try_acquire().await.expect("no exception").is_none(),
            "{kind}"
        );
        // A waiter far behind asks only once. If its last reply were late at the time limit, the result would be a store error.
        let aux = play_waiters(server, "k", 50, "-");
        let answers = Answers::default();
        let told = answers.clone();
        let waits = lock.clone().on_wait(move |_| {
            told.0.fetch_add(1, Ordering::SeqCst);
        });
        let waiter = beside(async move { waits.acquire_within(millis(900)).await });
        answers.more_than(0);
        timed.pass(millis(900));
        let refused = joined("the limit", waiter).await;
        let Err(Error::Timeout(timeout)) = refused else {
            panic!("{kind}: {refused:?}");
        };
        assert!(
            timeout
                .to_string()
                .contains(&format!("foreign lock of type {kind}")),
            "{timeout}"
        );
        let holder = timeout.holder.expect("somebody holds it");
        assert!(
            matches!(&holder.who, HolderIdentity::Foreign { kind: seen, .. } if seen == kind),
            "{holder:?}"
        );
        assert!(holder.fence.is_none() && holder.expires_in.is_none());
        let seen = client
            .inspect("k")
            .await
            .expect("no exception")
            .holder
            .expect("seen");
        assert!(
            matches!(&seen.who, HolderIdentity::Foreign { kind: seen, .. } if seen == kind),
            "{seen:?}"
        );
        timed
            .eventually("it waits no more", || queued(server, "k") == 50)
            .await;
        assert_eq!(server.cli(&["DEL", &aux[0], &aux[1]]).int(), 2);
        assert_eq!(server.cli(&["DUMP", "k"]), dump, "{kind}: left alone");
        let waiter = queue_up(server, &client, "k", LONG);
        server.cli(&["DEL", "k"]);
        timed.has_its_turn(waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_clients_are_excluded_and_read_our_token() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lease = take(&client, "orders", LONG).await;
    let theirs = || server.cli(&["SET", "orders", "theirs", "NX", "PX", "30000"]);
    let delete = |token: &str| {
        server
            .cli(&["EVAL", COMPARE_AND_DELETE, "1", "orders", token])
            .int()
    };
    assert!(theirs().is_nil(), "we hold it");
    assert_eq!(delete("theirs"), 0);
    lease.extend(LONG).await.expect("held");
    assert_eq!(delete(&lease.token()), 1);
    assert_eq!(theirs().text(), "OK");
    let lost = lost(lease.extend(LONG).await);
    assert!(
        lost.to_string().contains("foreign lock of type string"),
        "{lost}"
    );
    assert!(lease.release().await.is_err());
    assert_eq!(server.cli(&["GET", "orders"]).text(), "theirs");

    // The other program's lock ends while no client is connected, so no client notifies the waiter.
    let waiter = queue_up(&server, &client, "orders", LONG);
    kill_connections(&server);
    assert_eq!(delete("theirs"), 1);
    has_its_turn(waiter).await;
    assert!(is_free(&server, "orders"));
}

/// Of readers and permits, a foreign client finds a key that is not its own, as of a mutex.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_clients_are_excluded_by_readers_and_permits() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let theirs = || server.cli(&["SET", "orders", "theirs", "NX", "PX", "30000"]);
    let delete = |token: &str| {
        server
            .cli(&["EVAL", COMPARE_AND_DELETE, "1", "orders", token])
            .int()
    };
    let (readers, seats) = (
        client.rw_lock("orders").read().ttl(LONG),
        client.semaphore("orders", 2).ttl(LONG),
    );
    let read = readers.acquire().await.expect("free");
    assert!(theirs().is_nil() && delete("theirs") == 0, "we read");
    read.extend(LONG).await.expect("held");
    let marker = server.cli(&["GET", "orders"]);
    assert_eq!(delete(marker.text().as_ref()), 1);
    assert_eq!(theirs().text(), "OK");
    lost(read.extend(LONG).await);
    assert!(readers.try_acquire().await.is_ok_and(|busy| busy.is_none()));
    assert!(read.release().await.is_err());
    assert_eq!(server.cli(&["GET", "orders"]).text(), "theirs");
    // What the reader left in the queue is no holder for the next ones.
    assert_eq!(delete("theirs"), 1);
    let permits = [seats.acquire().await, seats.acquire().await];
    let permits = permits.map(|permit| permit.expect("free"));
    assert!(seats.try_acquire().await.is_ok_and(|busy| busy.is_none()));
    assert!(theirs().is_nil() && delete("theirs") == 0, "we hold slots");
    assert_eq!(server.cli(&["DEL", "orders"]).int(), 1);
    assert_eq!(theirs().text(), "OK");
    for permit in permits {
        lost(permit.extend(LONG).await);
        assert!(permit.release().await.is_err());
    }
    let waiter = joined_queue(&server, seats);
    assert_eq!(delete("theirs"), 1);
    let permit = waiter.await.expect("no panic").expect("its turn");
    assert_eq!(permit.slot().number, 1);
    permit.release().await.expect("held");
    let keys = ["orders", "{orders}:lh-queue", "{orders}:lh-waiters"];
    assert_eq!(server.cli(&[&["EXISTS"], &keys[..]].concat()).int(), 0);
}

/// Waits for a permit, in the queue.
fn joined_queue(server: &RedisServer, seats: Semaphore) -> JoinHandle<Result<Permit, Error>> {
    let waiter = beside(seats.acquire_owned());
    eventually(PLENTY, "it waits alone", || queued(server, "orders") == 1);
    waiter
}

/// The waiter stood so far back in the queue that it would ask again only after ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_left_alone_behind_a_foreign_lock_looks_often() {
    let timed = Timed::start();
    let server = &*timed.server;
    server.cli(&["SET", "orders", "somebody"]);
    let mut before = Vec::new();
    for _ in 0..9 {
        let client = timed.client().await;
        before.push((queue_up(server, &client, "orders", LONG), client));
    }
    let client = timed.client().await;
    let (answers, waiter) = wait_for(&client, "orders");
    eventually(PLENTY, "ten wait", || queued(server, "orders") == 10);
    for (waiter, _) in &before {
        waiter.abort();
    }
    eventually(PLENTY, "one waits", || queued(server, "orders") == 1);
    looks_often(&timed, &answers);
    server.cli(&["DEL", "orders"]);
    timed.has_its_turn(waiter).await;
}

/// The clients before it in the queue die at the moment of the release, so none of them notifies it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_left_when_those_before_it_die_has_the_lock_in_100_ms() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.client().await;
    for round in 0..5 {
        let name = format!("orders:{round}");
        server.cli(&["SET", &name, "somebody"]);
        let others = format!("others:{round}");
        play_waiters(server, &name, 24, &others);
        let mut ears = server.connection();
        let id = ears.command(&["CLIENT", "ID"]).int();
        ears.command(&["SUBSCRIBE", &others]);
        let (answers, waiter) = wait_for(&client, &name);
        answers.more_than(0);
        assert_eq!(queued(server, &name), 25);
        // Right after a reply, the next request is furthest away. With 50 ms for each place in the queue, it would be 1.25 s.
        let mut connection = server.connection();
        kill_and_delete(&mut connection, id, &name);
        timed.pass(millis(100));
        has_its_turn(waiter).await;
    }
}

/// Ends a connection and deletes a lock in one transaction.
fn kill_and_delete(connection: &mut RespConn, id: i64, name: &str) {
    let words = |text: &str| text.split(' ').map(Into::into).collect();
    let kill = format!("CLIENT KILL ID {id}");
    let delete = format!("DEL {name}");
    let replies = connection.commands(&["MULTI", &kill, &delete, "EXEC"].map(words));
    let done: Vec<_> = replies[3].array().iter().map(|reply| reply.int()).collect();
    assert_eq!(done, [1, 1]);
}

/// A reply with the whole value would exceed the server's buffer for a subscribed client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_foreign_value_costs_no_other_lease_anything() {
    let timed = Timed::start();
    let server = &*timed.server;
    server.cli(&["SETRANGE", "big", "40000000", "x"]);
    let client = timed.client().await;
    let lease = take(&client, "good", LONG).await;
    let connection = || {
        let clients = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
        clients.split(' ').next().map(str::to_owned)
    };
    let first = connection();
    assert!(first.is_some());
    let lock = client.mutex("big");
    let tried = lock.try_acquire().await.expect("an answer");
    assert!(tried.is_none());
    let (answers, waiter) = wait_for(&client, "big");
    looks_often(&timed, &answers);
    waiter.abort();
    let seen = client.inspect("big").await.expect("an answer").holder;
    let Some(HolderIdentity::Foreign { kind, value }) = seen.map(|holder| holder.who) else {
        panic!("no foreign holder is seen");
    };
    assert_eq!((kind.as_str(), value.len()), ("string", 1024));
    assert_eq!(connection(), first, "it was never cut");
    lease.release().await.expect("held");
    assert_eq!(server.cli(&["STRLEN", "big"]).int(), 40_000_001);
}
