//! Compares the cost of a lock with the cost of the bare commands: `cargo bench -p leasehold --bench cost`.
//!
//! It starts its own redis-server. Compare only ratios within one run: each is the median of five rounds, and the variants take turns. The
//! last part starts two more processes of this program. They measure the time from a release to the next hold.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, Mutex};
use nix::time::{ClockId, clock_gettime};
use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};
use testkit::RedisServer;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;
const CYCLES: u32 = 3_000;
const TURNS: usize = 300;
const HELD: Duration = Duration::from_millis(2);

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--turns") {
        return take_turns(&arguments[at + 1]).await;
    }
    let server = RedisServer::start();
    uncontended(&server).await?;
    hand_over(&server)
}

/// One task acquires and releases a lock repeatedly.
async fn uncontended(server: &RedisServer) -> Outcome {
    let (redis, memory) = (Client::connect(&server.url()).await?, Client::embedded()?);
    let file = tempfile::tempdir()?;
    let local =
        Client::connect(&format!("local:{}", file.path().join("locks.db").display())).await?;
    let locks = [
        redis.mutex("bench"),
        memory.mutex("bench"),
        local.mutex("bench"),
    ];
    let mut bare = bare_connection(server).await?;
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(bare_cycles(&mut bare).await?);
        for (lock, times) in locks.iter().zip(&mut times[1..]) {
            times.push(lock_cycles(lock).await?);
        }
    }
    let [bare, redis, memory, local] = times.map(median);
    println!("acquire + release, one task, median of {ROUNDS} x {CYCLES}:");
    println!("  bare SET NX PX + compare-and-delete script  {bare:7.1} us  1.00");
    for (name, time) in [("redis", redis), ("local", local), ("memory", memory)] {
        println!("  {name:<42}  {time:7.1} us  {:.2}", time / bare);
    }
    Ok(())
}

async fn lock_cycles(lock: &Mutex) -> Outcome<f64> {
    let begun = Instant::now();
    for _ in 0..CYCLES {
        lock.acquire().await?.release().await?;
    }
    Ok(micros(begun.elapsed()) / f64::from(CYCLES))
}

async fn bare_connection(server: &RedisServer) -> Outcome<MultiplexedConnection> {
    let client = redis::Client::open(format!("{}?protocol=resp3", server.url()))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// The two commands that every lock needs, on the same kind of connection.
async fn bare_cycles(connection: &mut MultiplexedConnection) -> Outcome<f64> {
    let release = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    );
    let begun = Instant::now();
    for _ in 0..CYCLES {
        let () = cmd("SET")
            .arg("bare")
            .arg("token")
            .arg("NX")
            .arg("PX")
            .arg(30_000)
            .query_async(connection)
            .await?;
        let () = release
            .key("bare")
            .arg("token")
            .invoke_async(connection)
            .await?;
    }
    Ok(micros(begun.elapsed()) / f64::from(CYCLES))
}

/// Two processes contend for one lock. Measures the gap between the release of one and the hold of the other.
fn hand_over(server: &RedisServer) -> Outcome {
    let start = || {
        let program = std::env::current_exe()?;
        Command::new(program)
            .args(["--turns", &server.url()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let (first, second) = (start()?, start()?);
    let mut turns = Vec::new();
    for (who, process) in [first, second].into_iter().enumerate() {
        for line in String::from_utf8(process.wait_with_output()?.stdout)?.lines() {
            let (acquired, released) = line.split_once(' ').ok_or("two stamps a line")?;
            turns.push((acquired.parse::<u64>()?, released.parse::<u64>()?, who));
        }
    }
    turns.sort_unstable();
    let pairs = turns.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let mut gaps: Vec<f64> = pairs
        .map(|pair| micros(Duration::from_nanos(pair[1].0.saturating_sub(pair[0].1))))
        .collect();
    gaps.sort_by(f64::total_cmp);
    let count = gaps.len();
    let (p50, p99) = (gaps[count / 2], gaps[count * 99 / 100]);
    println!(
        "release to the next holder's start, two processes, {count} hand-overs: p50 {p50:.0} us, p99 {p99:.0} us"
    );
    Ok(())
}

async fn take_turns(url: &str) -> Outcome {
    let client = Client::connect(url).await?;
    let lock = client.mutex("turns");
    for _ in 0..TURNS {
        let lease = lock.acquire().await?;
        let acquired = stamp()?;
        tokio::time::sleep(HELD).await;
        let released = stamp()?;
        lease.release().await?;
        println!("{acquired} {released}");
    }
    client.close().await;
    Ok(())
}

/// Nanoseconds on a clock that all processes of this host share.
fn stamp() -> nix::Result<u64> {
    Ok(
        u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?).as_nanos())
            .unwrap_or(u64::MAX),
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
