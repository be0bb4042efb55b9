//! One lock and a rising number of clients, with an empty critical section: the gap from a release to the next holder, the
//! commands, and the fairness.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Mutex};
use leasehold_bench::{Args, Connection, Histogram, Part, join, nanos, now_ns};
use tokio::sync::Barrier;

use crate::hold;

/// requested, acquired, release called
type Turn = (u64, u64, u64);

/// `waiting=N`: N clients wait while one holds, each with a separate connection.
pub(crate) async fn run(args: &Args) {
    let waiting: usize = args.get("waiting", 10);
    let time = args.millis("secs", 10.0) * 1000;
    let mut clients = Vec::new();
    for _ in 0..=waiting {
        clients.push(hold::connect(args).await);
    }
    // All clients join the queue before the clock starts, to leave out a thousand first connections.
    let turns = compete(&clients, time).await;
    let part = format!("curve.{waiting}");
    let part = Part(&part);
    report(&part, turns);
    let (sent, hand_overs) = count(args, &clients, time.min(Duration::from_secs(2))).await;
    part.figure("sent_handoff", sent as f64 / hand_overs.max(1) as f64);
    for client in clients {
        client.close().await;
    }
}

async fn compete(clients: &[Client], time: Duration) -> Vec<Vec<Turn>> {
    let start = Arc::new(Barrier::new(clients.len()));
    let tasks = clients
        .iter()
        .map(|client| {
            let (mutex, start) = (client.mutex("curve"), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                take_turns(&mutex, now_ns() + nanos(time)).await
            })
        })
        .collect();
    join(tasks).await
}

async fn take_turns(mutex: &Mutex, end: u64) -> Vec<Turn> {
    let mut turns = Vec::new();
    loop {
        let requested = now_ns();
        if requested >= end {
            return turns;
        }
        let lease = mutex.acquire().await.expect("the lock is in order");
        let acquired = now_ns();
        let called = now_ns();
        turns.push((requested, acquired, called));
        lease.release().await.expect("it is held");
    }
}

/// All turns by the time of their acquisition, each with its client.
fn in_order(all: Vec<Vec<Turn>>) -> Vec<(Turn, usize)> {
    let owned = all.into_iter().enumerate();
    let mut line: Vec<_> = owned
        .flat_map(|(owner, turns)| turns.into_iter().map(move |turn| (turn, owner)))
        .collect();
    line.sort_unstable_by_key(|((_, acquired, _), _)| *acquired);
    line
}

fn report(part: &Part<'_>, all: Vec<Vec<Turn>>) {
    let workers = all.len();
    let fewest = all.iter().map(Vec::len).min().unwrap_or(0);
    let most = all.iter().map(Vec::len).max().unwrap_or(0);
    let line = in_order(all);
    let (mut gaps, mut waits, mut overlaps) = (Histogram::default(), Histogram::default(), 0_u32);
    for pair in line.windows(2) {
        let (((_, _, called), owner), ((_, acquired, _), next)) = (pair[0], pair[1]);
        overlaps += u32::from(acquired < called);
        if owner != next {
            gaps.add(acquired.saturating_sub(called));
        }
    }
    for ((requested, acquired, _), _) in &line {
        waits.add(acquired - requested);
    }
    let first = line.first().map_or(0, |((_, acquired, _), _)| *acquired);
    let last = line.last().map_or(0, |((_, acquired, _), _)| *acquired);
    let seconds = (last - first).max(1) as f64 / 1e9;
    part.figure("clients", workers as f64);
    part.figure("handoffs_s", gaps.total() as f64 / seconds);
    part.quantiles("gap", &gaps);
    let mean = waits.mean_us().max(1e-9);
    part.figure("wait_max_over_mean", waits.max_us() / mean);
    part.figure("fewest_turns", fewest as f64);
    part.figure("most_turns", most as f64);
    part.figure("violations", f64::from(overlaps));
}

/// Repeats the run under MONITOR, which separates commands of clients from those of scripts: commands sent, and hand-overs.
async fn count(args: &Args, clients: &[Client], time: Duration) -> (u64, u64) {
    let port = args.port();
    let mut monitor = Connection::open(port);
    monitor.ask(&["MONITOR"]);
    let reader = std::thread::spawn(move || {
        let mut sent = 0;
        loop {
            let line = monitor.reply();
            if line.contains("end-of-count") {
                return sent;
            }
            sent += u64::from(!line.contains(" lua] "));
        }
    });
    let turns = compete(clients, time).await;
    Connection::open(port).ask(&["ECHO", "end-of-count"]);
    let sent = reader.join().expect("no panic");
    let line = in_order(turns);
    let changes = line
        .windows(2)
        .filter(|pair| pair[0].1 != pair[1].1)
        .count();
    (sent, changes as u64)
}
