//! Many held leases in one client: renewals, their cost, and their effect on an unrelated lock.

use std::time::Duration;

use leasehold::{Client, Lease};
use leasehold_bench::{Args, Connection, Histogram, cpu_used, emit, now_ns};

use crate::hold;

const PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn run(args: &Args) {
    let count = args.get("leases", 100_000);
    let ttl = args.millis("ttl_ms", 30_000.0);
    let time = args.millis("minutes", 5.0) * 60_000;
    let part = "renewal";
    let client = hold::connect(args).await;
    let mut redis = Connection::open(hold::port(args));

    let idle = probe(&client, time.min(Duration::from_secs(20))).await;
    idle.report("idle");

    let begun = now_ns();
    let leases = hold::take(&client, count, ttl).await;
    emit(part, "leases", leases.len() as f64);
    emit(part, "acquire_all_s", (now_ns() - begun) as f64 / 1e9);

    let mut calls = || redis.info("stats", "total_commands_processed");
    let before = calls();
    let busy = probe(&client, time).await;
    busy.report("renewing");
    emit(
        part,
        "redis_calls_s",
        (calls() - before) as f64 / time.as_secs_f64(),
    );
    emit(
        part,
        "renewals_s_expected",
        count as f64 * 3.0 / ttl.as_secs_f64(),
    );

    // A lease that is not lost after several TTLs was renewed.
    emit(part, "ttls_passed", time.as_secs_f64() / ttl.as_secs_f64());
    let share = |say: fn(&Lease) -> bool| leases.iter().filter(|lease| say(lease)).count() as f64;
    emit(part, "lost", share(Lease::is_lost));
    emit(part, "doubtful", share(Lease::is_doubtful));
    let shortest = leases.iter().map(Lease::valid_for).min();
    emit(
        part,
        "shortest_left_s",
        shortest.unwrap_or_default().as_secs_f64(),
    );
    let released = hold::give_back(leases).await;
    emit(part, "released_all", f64::from(u8::from(released.is_ok())));
    client.close().await;
}

struct Probe {
    pairs: Histogram,
    cpu: f64,
}

impl Probe {
    fn report(&self, when: &str) {
        emit(
            "renewal",
            &format!("{when}.probes"),
            self.pairs.total() as f64,
        );
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            emit(
                "renewal",
                &format!("{when}.pair_{name}_us"),
                self.pairs.quantile_us(share),
            );
        }
        emit(
            "renewal",
            &format!("{when}.cpu_percent_of_a_core"),
            100.0 * self.cpu,
        );
    }
}

/// Acquires and releases an unrelated lock every 10 ms or so for `time`; CPU is that of the whole process in cores.
async fn probe(client: &Client, time: Duration) -> Probe {
    let mutex = client.mutex("unrelated");
    let mut pairs = Histogram::default();
    let (start, cpu) = (now_ns(), cpu_used());
    let end = start + time.as_nanos() as u64;
    while now_ns() < end {
        let asked = now_ns();
        let lease = mutex.acquire().await.expect("nobody else wants it");
        lease.release().await.expect("it is held");
        pairs.add(now_ns() - asked);
        tokio::time::sleep(PAUSE).await;
    }
    let cpu = (cpu_used() - cpu).as_secs_f64() / ((now_ns() - start) as f64 / 1e9);
    Probe { pairs, cpu }
}
