//! The faults of the proxy, each between a client and a real server.
#![allow(
    clippy::disallowed_methods,
    reason = "compares with real time, as does the kit"
)]

use std::io::ErrorKind;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{FaultProxy, Hole, RedisServer, Reply, RespConn, eventually};

const SOON: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

fn setup() -> (RedisServer, FaultProxy, RespConn) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let mut connection = RespConn::connect(proxy.port());
    assert_eq!(connection.command(&["PING"]).text(), "PONG");
    (server, proxy, connection)
}

fn is_silent(connection: &mut RespConn) -> bool {
    connection.set_timeout(SHORT);
    let outcome = connection.receive();
    connection.set_timeout(SOON);
    let error = outcome.expect_err("silence was expected");
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn is_closed(connection: &mut RespConn) -> bool {
    connection.set_timeout(SOON);
    let error = connection.receive();
    let kind = error.expect_err("a closed connection was expected").kind();
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

/// A new connection through the proxy works.
#[track_caller]
fn takes_connections(proxy: &FaultProxy) {
    let mut new = RespConn::connect(proxy.port());
    assert_eq!(new.command(&["PING"]).text(), "PONG");
}

fn value(server: &RedisServer, key: &str) -> Reply {
    server.cli(&["GET", key])
}

#[test]
fn passes_on_and_counts() {
    let (_server, proxy, mut first) = setup();
    assert_eq!(proxy.url(), format!("redis://127.0.0.1:{}/", proxy.port()));
    let large = vec![b'x'; 3 << 20];
    first.command(&[b"SET".as_slice(), b"large", &large]);
    assert_eq!(first.command(&["GET", "large"]).bytes(), large);
    let mut second = RespConn::connect(proxy.port());
    second.command(&["PING"]);
    assert_eq!((proxy.connections(), proxy.accepted()), (2, 2));
    drop(second);
    eventually(SOON, "one connection is left", || proxy.connections() == 1);
    assert_eq!(proxy.accepted(), 2);
    assert_eq!(first.command(&["PING"]).text(), "PONG");
}

#[test]
fn swallowed_command_is_applied_and_its_reply_lost() {
    let (server, proxy, mut present) = setup();
    proxy.swallow_replies(true);
    let mut new = RespConn::connect(proxy.port());
    for (connection, key) in [(&mut present, "a"), (&mut new, "b")] {
        let before = proxy.swallowed();
        connection.send(&["SET", key, "1"]).expect("sent");
        // A missing reply does not show whether the server has executed the command.
        let lost = "+OK\r\n".len() as u64;
        eventually(SOON, "the reply is thrown away", || {
            proxy.swallowed() - before >= lost
        });
        assert!(is_silent(connection));
        assert_eq!(value(&server, key).int(), 1);
        assert_eq!(proxy.swallowed() - before, lost);
    }
    proxy.swallow_replies(false);
    for connection in [&mut present, &mut new] {
        let reply = connection.command(&["ECHO", "mine"]);
        assert_eq!(reply.text(), "mine", "not an older reply");
    }
}

#[test]
fn blackhole_delays_both_directions_and_loses_nothing() {
    let (server, proxy, mut present) = setup();
    let mut subscriber = RespConn::connect(proxy.port());
    subscriber.command(&["SUBSCRIBE", "news"]);
    proxy.blackhole(true);
    let mut new = RespConn::connect(proxy.port());
    present.send(&["SET", "a", "1"]).expect("sent");
    new.send(&["SET", "b", "2"]).expect("sent");
    server.cli(&["PUBLISH", "news", "hello"]);
    assert!(is_silent(&mut present) && is_silent(&mut new) && is_silent(&mut subscriber));
    assert!(value(&server, "a").is_nil() && value(&server, "b").is_nil());
    proxy.blackhole(false);
    assert_eq!(present.receive().expect("late").text(), "OK");
    assert_eq!(new.receive().expect("late").text(), "OK");
    let message = subscriber.receive().expect("late");
    assert_eq!(message.array()[2].text(), "hello");
    assert_eq!(value(&server, "a").int(), 1);
    assert_eq!(value(&server, "b").int(), 2);
}

#[test]
fn hole_delays_one_direction_on_every_second_connection() {
    let (server, proxy, mut first) = setup();
    let mut second = RespConn::connect(proxy.port());
    second.command(&["PING"]);
    for (requests, replies) in [(true, true), (true, false), (false, true)] {
        server.cli(&["DEL", "a"]);
        let half = Some(1);
        let hole = Hole {
            requests,
            replies,
            half,
        };
        assert_eq!(proxy.hold_up(Some(hole)), 1);
        first.send(&["SET", "a", "1"]).expect("sent");
        assert_eq!(second.command(&["PING"]).text(), "PONG");
        assert!(is_silent(&mut first));
        assert_eq!(value(&server, "a").is_nil(), requests);
        assert_eq!(proxy.hold_up(None), 0);
        assert_eq!(first.receive().expect("late").text(), "OK");
    }
}

#[test]
fn strand_silences_present_connections_only() {
    let (server, proxy, mut present) = setup();
    proxy.strand();
    present.send(&["SET", "a", "1"]).expect("sent");
    assert!(is_silent(&mut present));
    let mut new = RespConn::connect(proxy.port());
    assert_eq!(new.command(&["PING"]).text(), "PONG");
    // It never learns that the server has gone.
    server.kill();
    assert!(is_closed(&mut new));
    assert!(is_silent(&mut present));
    server.restart();
    assert!(value(&server, "a").is_nil());
    proxy.cut();
    assert!(is_closed(&mut present));
}

#[test]
fn cut_ends_blackholed_connections_and_drops_held_bytes() {
    let (server, proxy, mut connection) = setup();
    proxy.blackhole(true);
    connection.send(&["SET", "a", "1"]).expect("sent");
    thread::sleep(SHORT);
    proxy.cut();
    assert!(is_closed(&mut connection));
    proxy.blackhole(false);
    thread::sleep(SHORT);
    assert!(value(&server, "a").is_nil());
}

#[test]
fn delay_is_per_direction_and_not_per_message() {
    let (server, proxy, mut connection) = setup();
    let (each, messages) = (Duration::from_millis(100), 250);
    proxy.delay(each);
    let started = Instant::now();
    // Sent separately, so that they are separate chunks in transit; so many that their added delays would be 25 s.
    for n in 0..messages {
        connection.send(&["ECHO", &n.to_string()]).expect("sent");
        thread::sleep(Duration::from_millis(2));
    }
    for n in 0..messages {
        assert_eq!(connection.receive().expect("late").int(), n.into());
        assert!(started.elapsed() >= 2 * each);
    }
    let took = started.elapsed();
    assert!(took < messages * each, "{took:?}: delays must not add up");
    // The proxy delays each direction, so the command has not reached the server yet.
    proxy.delay(Duration::from_secs(600));
    connection.send(&["SET", "a", "1"]).expect("sent");
    assert!(is_silent(&mut connection));
    assert!(value(&server, "a").is_nil());
    proxy.delay(Duration::ZERO);
    assert_eq!(connection.receive().expect("at once").text(), "OK");
    // Ten minutes later, if the delay were still there.
    assert_eq!(connection.command(&["PING"]).text(), "PONG");
}

#[test]
fn close_arrives_after_sent_bytes() {
    let (server, proxy, mut connection) = setup();
    proxy.delay(SHORT);
    connection.send(&["SET", "a", "1"]).expect("sent");
    drop(connection);
    eventually(SOON, "the command arrives", || {
        value(&server, "a") == Reply::Str(b"1".to_vec())
    });
    eventually(SOON, "the connection ends", || proxy.connections() == 0);
}

#[test]
fn cut_closes_both_sides_of_present_connections() {
    let (server, proxy, mut connection) = setup();
    let id = connection.command(&["CLIENT", "ID"]).int();
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    assert!(is_closed(&mut connection));
    eventually(SOON, "the server sees it too", || {
        let clients = server.cli(&["CLIENT", "LIST"]).text();
        !clients.contains(&format!("id={id} "))
    });
    takes_connections(&proxy);
}

#[test]
fn cut_does_not_wait_for_a_stuck_peer() {
    let (server, proxy, mut connection) = setup();
    server.pause();
    let large = vec![b'x'; 16 << 20];
    connection.set_timeout(SHORT);
    // The kernel chooses the size of its buffers, and grows them. So write until it takes no more.
    let stuck = (0..64).any(|_| connection.send(&[b"SET".as_slice(), b"a", &large]).is_err());
    assert!(stuck, "the buffers are full");
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    drop(proxy);
}

#[test]
fn refuse_closes_new_connections_only() {
    let (_server, proxy, mut present) = setup();
    proxy.refuse(true);
    assert!(is_closed(&mut RespConn::connect(proxy.port())));
    assert_eq!(present.command(&["PING"]).text(), "PONG");
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 2));
    proxy.refuse(false);
    takes_connections(&proxy);
}

#[test]
fn follows_a_server_that_dies_and_comes_back() {
    let (server, proxy, mut connection) = setup();
    server.kill();
    assert!(is_closed(&mut connection));
    assert!(is_closed(&mut RespConn::connect(proxy.port())));
    eventually(SOON, "nothing is open", || proxy.connections() == 0);
    server.restart();
    takes_connections(&proxy);
}

#[test]
fn drop_closes_everything_in_every_state() {
    for fault in [
        FaultProxy::swallow_replies,
        FaultProxy::blackhole,
        FaultProxy::refuse,
    ] {
        let (_server, proxy, mut connection) = setup();
        fault(&proxy, true);
        proxy.delay(Duration::from_secs(600));
        connection.send(&["PING"]).expect("sent");
        let port = proxy.port();
        // Joins its threads, so it would hang here if one did not end.
        drop(proxy);
        assert!(is_closed(&mut connection));
        // A process that another test is about to start has the listening socket until it executes its program.
        eventually(SOON, "nobody listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_err()
        });
    }
}

#[test]
fn hold_after_keeps_the_next_command_until_it_may_go_on() {
    let (server, proxy, mut connection) = setup();
    let mut beside = RespConn::connect(proxy.port());
    proxy.hold_after("GET");
    // The name as an argument is no command.
    connection.command(&["SET", "a", "0", "GET"]);
    assert_eq!(connection.command(&["GET", "a"]).int(), 0);
    assert!(!proxy.is_holding());
    connection.send(&["SET", "a", "1"]).expect("sent");
    connection.send(&["SET", "b", "1"]).expect("sent");
    eventually(SOON, "it is held", || proxy.is_holding());
    assert_eq!(beside.command(&["GET", "a"]).int(), 0);
    assert!(is_silent(&mut connection) && value(&server, "b").is_nil());
    proxy.go_on();
    for _ in 0..2 {
        assert_eq!(connection.receive().expect("late").text(), "OK");
    }
    assert_eq!(connection.command(&["GET", "a"]).int(), 1);
    assert_eq!(connection.command(&["SET", "a", "2"]).text(), "OK");
}

#[test]
fn hold_at_keeps_the_command_itself_and_a_cut_drops_it() {
    let (server, proxy, mut connection) = setup();
    for is_cut in [false, true] {
        proxy.hold_at("SET");
        connection.command(&["ECHO", "SET"]);
        connection.send(&["SET", "a", "1"]).expect("sent");
        eventually(SOON, "it is held", || proxy.is_holding());
        assert!(is_silent(&mut connection) && value(&server, "a").is_nil());
        if is_cut {
            proxy.cut();
            assert!(is_closed(&mut connection) && !proxy.is_holding());
        } else {
            proxy.go_on();
            assert_eq!(connection.receive().expect("late").text(), "OK");
            assert_eq!(connection.command(&["DEL", "a"]).int(), 1);
        }
    }
    let mut new = RespConn::connect(proxy.port());
    assert_eq!(new.command(&["SET", "b", "1"]).text(), "OK");
    assert!(value(&server, "a").is_nil());
}
