//! The virtual clock of a server, and a clock with an offset.
#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "compares with real time, as does the kit"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use leasehold_testkit::{ClockOffset, RedisServer, Reply, RespConn, TestTime, eventually};

const SOON: Duration = Duration::from_secs(20);
const START: u64 = 1_234_567_890_123_456;

fn server() -> RedisServer {
    let server = RedisServer::builder().virtual_clock().start();
    server.clock().set(START);
    server
}

fn micros(reply: &Reply) -> u64 {
    let parts = reply.array();
    u64::try_from(parts[0].int() * 1_000_000 + parts[1].int()).expect("after 1970")
}

#[test]
fn set_time_is_returned_and_does_not_advance() {
    let server = server();
    let clock = server.clock();
    for now in [START, START + 1, 1, 4_000_000_000_999_999, START] {
        clock.set(now);
        assert_eq!(clock.now(), now);
        for _ in 0..50 {
            assert_eq!(micros(&server.cli(&["TIME"])), now);
        }
    }
    thread::sleep(Duration::from_millis(250));
    assert_eq!(micros(&server.cli(&["TIME"])), START);
    clock.advance(Duration::from_micros(5));
    assert_eq!(micros(&server.cli(&["TIME"])), START + 5);
}

#[test]
fn test_time_moves_all_servers_and_the_clients() {
    let servers = [server(), server()];
    let clients = Arc::new(AtomicU64::new(0));
    let moved = clients.clone();
    let time = TestTime::new(servers.iter().map(RedisServer::clock), move |by| {
        moved.fetch_add(by.as_secs(), Ordering::SeqCst);
    });
    for second in 1..=3 {
        time.pass(Duration::from_secs(1));
        for server in &servers {
            let now = START + second * 1_000_000;
            assert_eq!(micros(&server.cli(&["TIME"])), now);
        }
        assert_eq!(clients.load(Ordering::SeqCst), second);
    }
}

#[test]
fn starts_at_the_real_time() {
    let server = RedisServer::builder().virtual_clock().start();
    let real = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_micros();
    let lag = real - u128::from(server.clock().now());
    assert!(lag < 60_000_000, "{lag} microseconds behind");
}

#[test]
fn an_offset_is_added_to_the_hosts_time() {
    let offset = ClockOffset::try_new().expect("a C compiler");
    let server = RedisServer::builder().envs(offset.environment()).start();
    let host = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        i64::try_from(now.expect("after 1970").as_micros()).expect("a clock")
    };
    for micros_ahead in [0, 3_600_000_001, -3_600_000_001] {
        offset.try_set(micros_ahead).expect("a clock");
        let asked = host();
        let shown = micros(&server.cli(&["TIME"])).cast_signed() - micros_ahead;
        // A server may use the system's coarse clock, which ticks less often.
        assert!((asked - 10_000..=host()).contains(&shown), "{shown}");
    }
}

#[test]
fn a_key_expires_after_its_last_millisecond() {
    let server = server();
    let clock = server.clock();
    server.cli(&["SET", "k", "v", "PX", "100"]);
    for _ in 0..500 {
        assert_eq!(server.cli(&["PTTL", "k"]).int(), 100);
    }
    clock.advance(Duration::from_millis(100));
    // The pause is long enough for several rounds of active expiry, which must not delete the key early.
    thread::sleep(Duration::from_millis(250));
    assert_eq!(server.cli(&["PTTL", "k"]).int(), 0);
    assert_eq!(server.cli(&["GET", "k"]).text(), "v");
    clock.advance(Duration::from_millis(1));
    assert!(server.cli(&["GET", "k"]).is_nil());
    assert_eq!(server.cli(&["PTTL", "k"]).int(), -2);
}

#[test]
fn scripts_see_the_same_time() {
    let server = server();
    let script = "local a = redis.call('TIME') \
                  for i = 1, 1000 do redis.call('INCR', 'n') end \
                  local b = redis.call('TIME') \
                  return {a[1], a[2], b[1], b[2]}";
    let reply = server.cli(&["EVAL", script, "0"]);
    let parts: Vec<i64> = reply.array().iter().map(Reply::int).collect();
    assert_eq!(parts, [1_234_567_890, 123_456, 1_234_567_890, 123_456]);
}

#[test]
fn a_set_is_seen_at_once_and_never_in_part() {
    let server = server();
    let clock = server.clock();
    let mut connection = RespConn::connect(server.port());
    // The two values differ in all bytes but the top one.
    let (low, high) = (0x0000_5555_5555_5555, 0x0000_6aaa_aaaa_aaaa);
    clock.set(low);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            for _ in 0..3_000 {
                let seen = micros(&connection.command(&["TIME"]));
                assert!(seen == low || seen == high, "{seen:#x}");
            }
        });
        while !reader.is_finished() {
            clock.set(high);
            assert_eq!(micros(&server.cli(&["TIME"])), high);
            clock.set(low);
        }
        reader.join().expect("no panic");
    });
}

#[test]
fn each_server_has_its_own_clock_also_after_a_restart() {
    let (first, second) = (server(), server());
    first.clock().advance(Duration::from_secs(3600));
    assert_eq!(micros(&second.cli(&["TIME"])), START);
    first.restart();
    assert_eq!(micros(&first.cli(&["TIME"])), START + 3_600_000_000);
    // Only this command shows `time()`. The server reads it at its start.
    assert_eq!(first.cli(&["LASTSAVE"]).int(), 1_234_567_890 + 3600);
    let maps = fs::read_to_string("/proc/self/maps").expect("own maps");
    assert!(
        !maps.contains("clockshim"),
        "the test's own clock is left alone"
    );
}

#[test]
fn jobs_go_on_and_limits_of_blocking_commands_follow_the_clock() {
    let server = server();
    server.cli(&["SET", "k", "v", "PX", "5000"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| server.cli(&["BLPOP", "none", "5"]));
        eventually(SOON, "the client blocks", || {
            server
                .cli(&["INFO", "clients"])
                .text()
                .contains("blocked_clients:1")
        });
        server.clock().advance(Duration::from_millis(5001));
        assert!(waiter.join().expect("no panic").is_nil());
    });
    // No command reads the key: only the server's own job can remove it.
    eventually(SOON, "active expiry", || server.cli(&["DBSIZE"]).int() == 0);
}

#[test]
#[should_panic(expected = "without `.virtual_clock()`")]
fn a_server_on_the_real_clock_has_none_to_set() {
    drop(RedisServer::start().clock());
}
