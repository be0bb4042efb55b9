//! Bytes per held lock, reader and permit, per used name and per waiter, and growth over many cycles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::kind::Kind;
use leasehold::{Error, Lock};
use leasehold_bench::{Args, Connection, Part, join, now_ns, resident_bytes, seconds_since};

use crate::hold;

const PART: Part<'_> = Part("memory");

fn redis_bytes(redis: &mut Connection) -> u64 {
    redis.info("memory", "used_memory")
}

fn per(after: u64, before: u64, count: usize) -> f64 {
    (after as f64 - before as f64) / count as f64
}

/// `leases=N` of so many locks.
pub(crate) async fn held(args: &Args) {
    let client = hold::connect(args).await;
    let mut redis = Connection::open(args.port());
    let figures = ["client_bytes_per_held_lease", "redis_bytes_per_held_lock"];
    let (used, count) = hold_all(args, &mut redis, figures, |n| hold::nth(&client, n)).await;
    client.close().await;
    // The fence counter stays, and the names stay in the index for a day.
    PART.figure(
        "redis_bytes_per_used_name",
        per(redis_bytes(&mut redis), used, count),
    );
    let mut counted = |command: &[&str]| redis.ask(command).parse::<f64>().expect("a number");
    let keys = counted(&["DBSIZE"]);
    PART.figure("redis_keys_per_used_name", keys / count as f64);
    let shown = counted(&["ZCARD", "leasehold:index"]);
    PART.figure("index_entries_per_used_name", shown / count as f64);
}

/// `leases=N` of readers of one lock.
pub(crate) async fn readers(args: &Args) {
    let client = hold::connect(args).await;
    let mut redis = Connection::open(args.port());
    let figures = ["client_bytes_per_reader", "redis_bytes_per_reader"];
    hold_all(args, &mut redis, figures, |_| client.rw_lock("one").read()).await;
    client.close().await;
}

/// `leases=N` of the slots of semaphores with 100 slots each.
pub(crate) async fn permits(args: &Args) {
    const SLOTS: u16 = 100;
    let client = hold::connect(args).await;
    let mut redis = Connection::open(args.port());
    let semaphore = |n| client.semaphore(format!("slots:{}", n / usize::from(SLOTS)), SLOTS);
    let figures = ["client_bytes_per_permit", "redis_bytes_per_permit"];
    hold_all(args, &mut redis, figures, semaphore).await;
    client.close().await;
}

/// Holds `leases=N` at once, and releases them. `renewed=1`: measures also after the first renewal of all. Returns the bytes that
/// Redis used before, and N.
async fn hold_all<K: Kind>(
    args: &Args,
    redis: &mut Connection,
    [of_client, of_redis]: [&str; 2],
    lock: impl Fn(usize) -> Lock<K>,
) -> (u64, usize) {
    let count = args.get("leases", 100_000);
    let ttl = Duration::from_secs(120);
    // The first acquisition allocates shared state, which later ones do not.
    let first = lock(count).acquire().await.expect("it is free");
    first.release().await.expect("it is held");
    let (rss, used) = (resident_bytes(), redis_bytes(redis));
    let mut report = |when: &str| {
        PART.figure(
            &format!("{of_client}{when}"),
            per(resident_bytes(), rss, count),
        );
        PART.figure(
            &format!("{of_redis}{when}"),
            per(redis_bytes(redis), used, count),
        );
    };
    let leases = hold::take(count, ttl, lock).await;
    report("");
    if args.get("renewed", 1) == 1 {
        tokio::time::sleep(ttl / 3 + Duration::from_secs(5)).await;
        report("_once_renewed");
    }
    hold::give_back(leases).await.expect("all are held");
    (used, count)
}

/// `waiters=N` tasks that wait for one lock.
pub(crate) async fn waiters(args: &Args) {
    let count = args.get("waiters", 100_000);
    let client = hold::connect(args).await;
    let mut redis = Connection::open(args.port());
    let mutex = client.mutex("one").ttl(Duration::from_secs(120));
    let lease = mutex.acquire().await.expect("it is free");
    // Waits until the server has freed the buffers of new connections.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (rss, used) = (resident_bytes(), redis_bytes(&mut redis));

    let served = Arc::new(AtomicU64::new(0));
    let tasks = (0..count)
        .map(|_| {
            let (mutex, served) = (mutex.clone(), served.clone());
            tokio::spawn(async move {
                let lease = mutex.acquire().await?;
                served.fetch_add(1, Ordering::Relaxed);
                lease.release().await
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let client_each = per(resident_bytes(), rss, count);
    PART.figure("client_bytes_per_waiter", client_each);
    let redis_all = per(redis_bytes(&mut redis), used, 1);
    PART.figure("redis_bytes_for_all_waiters", redis_all);

    let begun = now_ns();
    lease.release().await.expect("it is held");
    let all: Result<(), Error> = join(tasks).await.into_iter().collect();
    all.expect("every waiter is served");
    let served = served.load(Ordering::Relaxed);
    PART.figure("waiters_served", served as f64);
    PART.figure("waiters_served_s", seconds_since(begun));
    client.close().await;
}

/// `cycles=N` acquire and release, `how=linger` or `how=drop`, by 64 workers with a key each, sampled `samples` times.
pub(crate) async fn cycles(args: &Args) {
    const WORKERS: u64 = 64;
    let total: u64 = args.get("cycles", 10_000_000);
    let samples: u64 = args.get("samples", 10);
    let how = args.text("how").unwrap_or("linger").to_owned();
    let linger = match how.as_str() {
        "linger" => Duration::from_secs(1),
        "drop" => Duration::ZERO,
        other => panic!("how={other}: linger or drop"),
    };
    let client = hold::connect(args).await;
    let mut redis = Connection::open(args.port());
    let part = format!("memory.cycles.{how}");
    let part = Part(&part);
    let (mut first, mut last) = (None, (0, 0));
    let begun = now_ns();
    for sample in 1..=samples {
        let workers = (0..WORKERS).map(|worker| {
            let mutex = client.mutex(format!("cycle:{worker}")).linger(linger);
            tokio::spawn(async move {
                for turn in 0..total / samples / WORKERS {
                    drop(mutex.acquire().await.expect("nobody else wants it"));
                    if turn % 128 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        join(workers.collect()).await;
        last = (resident_bytes(), redis_bytes(&mut redis));
        first.get_or_insert(last);
        let done = total / samples * sample;
        part.figure(&format!("client_rss_bytes.{done}"), last.0 as f64);
        part.figure(&format!("redis_used_bytes.{done}"), last.1 as f64);
    }
    let first = first.unwrap_or(last);
    part.figure("cycles_s", total as f64 / seconds_since(begun));
    part.figure("client_growth_bytes", per(last.0, first.0, 1));
    part.figure("redis_growth_bytes", per(last.1, first.1, 1));
    client.close().await;
}
