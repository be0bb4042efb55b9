//! Calls at random times (a Poisson process) or all at once, and their results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_bench::{Args, Histogram, Random, nanos, now_ns, sleep_until_async};
use tokio::task::JoinSet;

use crate::source::{Floor, Source, begun};
use crate::{How, Keep, Policy};

/// One call.
struct Call {
    took: u64,
    ended: u64,
    how: Result<How, String>,
    /// The answer was reported as fresh, but older than an invalidation that had ended before the call.
    old: bool,
}

/// `callers` at `t0`, and `rate` a second from then on for `secs`. Calls without an answer after another `give_up_ms` are
/// abandoned. Returns one line of JSON.
pub(crate) async fn offer(policy: Arc<Policy>, order: &Args, folder: &Arc<str>) -> String {
    let source = Source {
        folder: folder.clone(),
        key: order.text("key").expect("key=").to_owned(),
        takes: order.millis("takes_ms", 5.0),
        fails: order.get("fails", 0) == 1,
    };
    let (keep, floor) = (Keep::of(order), Arc::new(Floor::open(folder)));
    let mut calls = JoinSet::new();
    let start = |calls: &mut JoinSet<Call>| {
        calls.spawn(call(policy.clone(), keep, source.clone(), floor.clone()));
    };
    let t0 = order.get("t0", now_ns());
    sleep_until_async(t0).await;
    for _ in 0..order.get("callers", 0) {
        start(&mut calls);
    }
    let rate: f64 = order.get("rate", 0.0);
    let end = t0 + nanos(order.millis("secs", 0.0) * 1000);
    let mut random = Random::new(0);
    let mut next = t0.saturating_add(pause(&mut random, rate));
    let mut done = Vec::new();
    while next < end {
        sleep_until_async(next).await;
        start(&mut calls);
        while let Some(call) = calls.try_join_next() {
            done.push(call.expect("a call does not panic"));
        }
        next = next.saturating_add(pause(&mut random, rate));
    }
    let give_up = end + nanos(order.millis("give_up_ms", 15_000.0));
    let left = Duration::from_nanos(give_up.saturating_sub(now_ns()));
    let rest = async {
        while let Some(call) = calls.join_next().await {
            done.push(call.expect("a call does not panic"));
        }
    };
    // Calls without an answer by then are counted and abandoned.
    drop(tokio::time::timeout(left, rest).await);
    let unanswered = calls.len();
    calls.shutdown().await;
    report(&done, unanswered)
}

async fn call(policy: Arc<Policy>, keep: Keep, source: Source, floor: Arc<Floor>) -> Call {
    let key = source.key.clone();
    let (floor, asked) = (floor.now(), now_ns());
    let answer = policy.get(&key, keep, source).await;
    let ended = now_ns();
    let old = matches!(&answer, Ok((value, how)) if *how != How::Stale && begun(value) < floor);
    Call {
        took: ended - asked,
        ended,
        how: answer.map(|(_, how)| how),
        old,
    }
}

fn report(calls: &[Call], unanswered: usize) -> String {
    let mut all = Histogram::default();
    let mut by: BTreeMap<How, Histogram> = BTreeMap::new();
    let (mut errors, mut error) = (0_u64, "");
    for call in calls {
        match &call.how {
            Ok(how) => {
                all.add(call.took);
                by.entry(*how).or_default().add(call.took);
            }
            Err(why) => (errors, error) = (errors + 1, why),
        }
    }
    let quantiles = |times: &Histogram| {
        format!(
            "{{\"n\":{},\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1}}}",
            times.total(),
            times.quantile_us(0.5),
            times.quantile_us(0.99),
            times.max_us()
        )
    };
    let by: Vec<_> = by
        .iter()
        .map(|(how, times)| format!("\"{}\":{}", how.word(), quantiles(times)))
        .collect();
    let ends: Vec<_> = calls
        .iter()
        .filter(|call| call.how.is_ok())
        .take(1000)
        .map(|call| call.ended.to_string())
        .collect();
    let error: String = error
        .chars()
        .filter(|c| !c.is_control() && !"\"\\".contains(*c))
        .take(200)
        .collect();
    format!(
        "{{\"all\":{},\"by\":{{{}}},\"old\":{},\"unanswered\":{unanswered},\"errors\":{errors},\"error\":\"{error}\",\"ends\":[{}]}}",
        quantiles(&all),
        by.join(","),
        calls.iter().filter(|call| call.old).count(),
        ends.join(",")
    )
}

/// The nanoseconds to the next call of a Poisson process with `rate` calls a second. A rate of 0 gives the longest time.
fn pause(random: &mut Random, rate: f64) -> u64 {
    (-(1.0 - random.share()).ln() / rate * 1e9) as u64
}
