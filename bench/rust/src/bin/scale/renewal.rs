//! Many held leases in one client: renewals, their cost, and their effect on an unrelated lock.

use std::time::Duration;

use leasehold::{Client, Lease};
use leasehold_bench::{Args, Connection, Histogram, Part, cpu_used, nanos, now_ns, seconds_since};

use crate::hold;

const PART: Part<'_> = Part("renewal");
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn run(args: &Args) {
    let count = args.get("leases", 100_000);
    let ttl = args.millis("ttl_ms", 30_000.0);
    let time = args.millis("minutes", 5.0) * 60_000;
    let client = hold::connect(args).await;
    let mut redis = Connection::open(args.port());

    let idle = probe(&client, time.min(Duration::from_secs(20))).await;
    idle.report("idle");

    let begun = now_ns();
    let leases = hold::take(count, ttl, |n| hold::nth(&client, n)).await;
    PART.figure("leases", leases.len() as f64);
    PART.figure("acquire_all_s", seconds_since(begun));

    let mut calls = || redis.info::<u64>("stats", "total_commands_processed");
    let before = calls();
    let busy = probe(&client, time).await;
    busy.report("renewing");
    let called = (calls() - before) as f64;
    PART.figure("redis_calls_s", called / time.as_secs_f64());
    let renewals = count as f64 * 3.0 / ttl.as_secs_f64();
    PART.figure("renewals_s_expected", renewals);
    PART.figure(
        "client_cpu_us_renewal",
        (busy.cpu - idle.cpu) * 1e6 / renewals,
    );

    // A lease that is not lost after several TTLs was renewed.
    PART.figure("ttls_passed", time.as_secs_f64() / ttl.as_secs_f64());
    let share = |say: fn(&Lease) -> bool| leases.iter().filter(|lease| say(lease)).count() as f64;
    PART.figure("lost", share(Lease::is_lost));
    PART.figure("doubtful", share(Lease::is_doubtful));
    let shortest = leases.iter().map(Lease::valid_for).min();
    let shortest = shortest.unwrap_or_default();
    PART.figure("shortest_left_s", shortest.as_secs_f64());
    let released = hold::give_back(leases).await;
    PART.figure("released_all", f64::from(u8::from(released.is_ok())));
    client.close().await;
}

struct Probe {
    pairs: Histogram,
    cpu: f64,
}

impl Probe {
    fn report(&self, when: &str) {
        let probes = self.pairs.total() as f64;
        PART.figure(&format!("{when}.probes"), probes);
        PART.quantiles(&format!("{when}.pair"), &self.pairs);
        let percent = 100.0 * self.cpu;
        PART.figure(&format!("{when}.cpu_percent_of_a_core"), percent);
    }
}

/// Acquires and releases an unrelated lock every 10 ms or so for `time`; CPU is that of the whole process in cores.
async fn probe(client: &Client, time: Duration) -> Probe {
    let mutex = client.mutex("unrelated");
    let mut pairs = Histogram::default();
    let (start, cpu) = (now_ns(), cpu_used());
    let end = start + nanos(time);
    while now_ns() < end {
        pairs.add(hold::pair(&mutex).await);
        tokio::time::sleep(PAUSE).await;
    }
    let cpu = (cpu_used() - cpu).as_secs_f64() / seconds_since(start);
    Probe { pairs, cpu }
}
