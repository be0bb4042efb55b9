//! The cost of the bare commands on blocking sockets: a limit for every client library.
//! `limits port=<port> secs=<seconds>` prints JSON lines `{part, metric, value}`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold_bench::{Args, Connection, Histogram, Part, RELEASE, encode, now_ns};

const HAND_OVER: &str =
    "redis.call('SET',KEYS[1],ARGV[1],'PX',10000) return redis.call('PUBLISH',ARGV[1],KEYS[1])";
const PIPELINE: usize = 64;

fn main() {
    let args = Args::parse();
    let port = args.port();
    let time = args.get("secs", 4.0);
    two_round_trips(port, time);
    release_with_next(port, time);
    pipelined(port, time);
    publish("publish", port, time, Duration::ZERO);
    publish("publish.held5ms", port, time, Duration::from_millis(5));
}

/// Repeats `work` for `time` seconds, which does `each` cycles, and reports the time of each and the server's CPU for a cycle.
fn repeat(
    part: &str,
    time: f64,
    each: usize,
    redis: &mut Connection,
    work: impl Fn(&mut Connection),
) {
    let mut times = Histogram::default();
    let cpu = redis.server_cpu();
    let start = now_ns();
    let end = start + (time * 1e9) as u64;
    let mut now = start;
    while now < end {
        work(redis);
        let after = now_ns();
        times.add(after - now);
        now = after;
    }
    let seconds = (now - start) as f64 / 1e9;
    let cpu = redis.server_cpu() - cpu;
    let part = Part(part);
    let done = (times.total() as usize * each) as f64;
    part.figure("ops_s", done / seconds);
    part.figure("redis_cpu_us_op", cpu * 1e6 / done);
    part.quantiles("pair", &times);
}

fn set(key: &str) -> Vec<u8> {
    let mut buffer = Vec::new();
    encode(&mut buffer, &["SET", key, "token", "NX", "PX", "10000"]);
    buffer
}

fn release(sha: &str, key: &str) -> Vec<u8> {
    let mut buffer = Vec::new();
    encode(&mut buffer, &["EVALSHA", sha, "1", key, "token"]);
    buffer
}

/// `SET NX PX`, then compare-and-delete by a script.
fn two_round_trips(port: u16, time: f64) {
    let mut redis = Connection::open(port);
    let sha = redis.ask(&["SCRIPT", "LOAD", RELEASE]);
    let (set, release) = (set("limits:1"), release(&sha, "limits:1"));
    repeat("two-round-trips", time, 1, &mut redis, |redis| {
        redis.send_bytes(&set);
        redis.reply();
        redis.send_bytes(&release);
        redis.reply();
    });
}

/// Sends each release together with the next acquire.
fn release_with_next(port: u16, time: f64) {
    let mut redis = Connection::open(port);
    let sha = redis.ask(&["SCRIPT", "LOAD", RELEASE]);
    let both = [release(&sha, "limits:2"), set("limits:2")].concat();
    repeat("release-with-next", time, 1, &mut redis, |redis| {
        redis.send_bytes(&both);
        redis.reply();
        redis.reply();
    });
}

/// 64 workers with a key each, in step on one connection.
fn pipelined(port: u16, time: f64) {
    let mut redis = Connection::open(port);
    let sha = redis.ask(&["SCRIPT", "LOAD", RELEASE]);
    let key = |worker| format!("limits:w{worker}");
    let sets: Vec<_> = (0..PIPELINE).flat_map(|w| set(&key(w))).collect();
    let releases: Vec<_> = (0..PIPELINE).flat_map(|w| release(&sha, &key(w))).collect();
    repeat("pipelined64", time, PIPELINE, &mut redis, |redis| {
        for batch in [&sets, &releases] {
            redis.send_bytes(batch);
            for _ in 0..PIPELINE {
                redis.reply();
            }
        }
    });
}

/// Two connections hand a lock to each other: a script sets the new owner and publishes to it. Each holds it for `held`.
/// Measures the time from sending the script to receiving the message.
fn publish(part: &str, port: u16, time: f64, held: Duration) {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let sha = Connection::open(port).ask(&["SCRIPT", "LOAD", HAND_OVER]);
    let (a, b) = (format!("{part}:a"), format!("{part}:b"));
    let side = |mine: String, other: String| {
        let sha = sha.clone();
        let mut hears = Connection::open(port);
        hears.ask(&["SUBSCRIBE", &mine]);
        let mut says = Connection::open(port);
        move || {
            let mut times = Histogram::default();
            let end = now_ns() + (time * 1e9) as u64;
            hears.time_limit(Duration::from_millis(500));
            while now_ns() < end && hears.has_more() {
                hears.reply();
                times.add(now_ns() - SENT.load(Ordering::SeqCst));
                if !held.is_zero() {
                    thread::sleep(held);
                }
                SENT.store(now_ns(), Ordering::SeqCst);
                says.ask(&["EVALSHA", &sha, "1", "limits:h", &other]);
            }
            times
        }
    };
    let (first, second) = (side(a.clone(), b.clone()), side(b, a.clone()));
    let (first, second) = (thread::spawn(first), thread::spawn(second));
    SENT.store(now_ns(), Ordering::SeqCst);
    Connection::open(port).ask(&["EVALSHA", &sha, "1", "limits:h", &a]);
    let mut times = first.join().expect("no panic");
    times.merge(&second.join().expect("no panic"));
    let part = Part(part);
    part.figure("handoffs_s", times.total() as f64 / time);
    part.quantiles("gap", &times);
}
