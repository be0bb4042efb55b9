//! Each way to fail counts once, in the right numbers under the right labels, and in no other. On virtual time, with a store that fails as
//! a test demands.

use std::collections::BTreeMap;

use leasehold::testing::Faults;
use leasehold::{Client, Clock, Error, Lease, Memory, Mutex, StoreErrorKind};
use tokio::time::{sleep, timeout};

use crate::common::{Place, TTL, take};
use crate::millis;
use crate::recorder::Numbers;

const KINDS: [(StoreErrorKind, &str); 11] = [
    (StoreErrorKind::Unreachable, "unreachable"),
    (StoreErrorKind::TimedOut, "timed_out"),
    (StoreErrorKind::Denied, "denied"),
    (StoreErrorKind::ReadOnly, "read_only"),
    (StoreErrorKind::Full, "full"),
    (StoreErrorKind::Unavailable, "unavailable"),
    (StoreErrorKind::Protocol, "protocol"),
    (StoreErrorKind::Misconfigured, "misconfigured"),
    (StoreErrorKind::Closed, "closed"),
    (StoreErrorKind::Exhausted, "exhausted"),
    (StoreErrorKind::Untrusted, "untrusted"),
];

/// A client whose numbers are read, and another client of its store, which meets no faults.
struct Pair {
    clock: Clock,
    faults: Faults,
    numbers: Numbers,
    client: Client,
    other: Client,
}

impl Pair {
    /// Locks other than `x` have the label `other`.
    async fn new() -> Self {
        let (clock, numbers) = (Clock::virtual_time(), Numbers::default());
        let memory = Memory::new(clock.clone());
        let way = memory.by_another_way();
        let faults = way.faults();
        let builder = || Client::builder().clock(clock.clone());
        let counted = builder().metric_names(["x"]);
        let client = numbers.client(&Place::Memory(way), counted).await;
        let other = builder().embedded(&memory).expect("a paused runtime");
        Self {
            clock,
            faults,
            numbers,
            client,
            other,
        }
    }

    fn lock(&self) -> Mutex {
        self.client.mutex("x").ttl(TTL).max_hold(TTL * 4)
    }

    /// The other client breaks this lease, and takes the lock.
    async fn broken(&self, lease: &Lease) -> Lease {
        let broken = self.other.break_lock("x", lease.fence()).await;
        assert!(broken.expect("an answer"));
        take(&self.other, "x").await
    }

    /// How often each series was counted.
    fn all(&self) -> BTreeMap<String, u64> {
        let counted = |series: String| {
            let count = self.numbers.count(&series);
            (series, count)
        };
        self.numbers.all().into_iter().map(counted).collect()
    }

    /// Checks that `work` counts in these series only, once in each, or `several` times.
    async fn counts<T>(&self, case: &str, expected: &[&str], work: impl Future<Output = T>) -> T {
        let before = self.all();
        let output = work.await;
        let mut counted = Vec::new();
        for (series, count) in self.all() {
            let short = series.trim_start_matches("leasehold_").replace('"', "");
            match count - before.get(&series).copied().unwrap_or(0) {
                0 => {}
                1 => counted.push(short),
                _ => counted.push(format!("several {short}")),
            }
        }
        assert_eq!(counted, expected, "{case}");
        output
    }
}

/// Checks the numbers of `happens`.
async fn asking(case: &str, expected: &[&str], happens: impl AsyncFnOnce(&Pair)) {
    let pair = Pair::new().await;
    pair.counts(case, expected, happens(&pair)).await;
}

/// Checks the numbers of what `happens` to a lease. A lease that is returned ends uncounted.
async fn holding(
    case: &str,
    expected: &[&str],
    happens: impl AsyncFnOnce(&Pair, Lease) -> Option<Lease>,
) {
    let pair = Pair::new().await;
    let lease = pair.lock().acquire().await.expect("free");
    // The first renewal also puts the name into the index, in a task of its own.
    lease.extend(TTL).await.expect("held");
    sleep(millis(1)).await;
    let _left = pair.counts(case, expected, happens(&pair, lease)).await;
}

#[tokio::test(start_paused = true)]
async fn each_outcome_of_a_request_counts_once() {
    let acquired = [
        "acquire_total{lock=x,outcome=acquired}",
        // Up and down.
        "several held{lock=x,mode=exclusive}",
        "hold_seconds{lock=x,mode=exclusive}",
        "wait_seconds{lock=x,mode=exclusive,outcome=acquired}",
    ];
    asking("acquired", &acquired, async |pair| {
        drop(pair.lock().acquire().await.expect("free"));
    })
    .await;

    let busy = ["acquire_total{lock=x,outcome=busy}"];
    asking("busy", &busy, async |pair| {
        let _held = take(&pair.other, "x").await;
        let refused = pair.lock().try_acquire().await;
        assert!(refused.expect("an answer").is_none());
    })
    .await;
    holding("busy here", &busy, async |pair, lease| {
        let refused = pair.lock().try_acquire().await;
        assert!(refused.expect("an answer").is_none());
        Some(lease)
    })
    .await;

    let timed_out = [
        "acquire_total{lock=x,outcome=timeout}",
        "wait_seconds{lock=x,mode=exclusive,outcome=timeout}",
    ];
    asking("busy until the limit", &timed_out, async |pair| {
        let _held = take(&pair.other, "x").await;
        let waited = pair.lock().acquire_within(millis(50)).await;
        assert!(matches!(waited, Err(Error::Timeout(_))), "{waited:?}");
        let series = "leasehold_wait_seconds{lock=\"x\",mode=\"exclusive\",outcome=\"timeout\"}";
        assert!(pair.numbers.seconds(series) >= 0.05);
    })
    .await;

    let cancelled = [
        "acquire_total{lock=x,outcome=cancelled}",
        "wait_seconds{lock=x,mode=exclusive,outcome=cancelled}",
    ];
    asking("dropped while it waits", &cancelled, async |pair| {
        let _held = take(&pair.other, "x").await;
        let waited = timeout(millis(50), pair.lock().acquire()).await;
        waited.expect_err("busy");
    })
    .await;

    let no_name = ["acquire_total{lock=other,outcome=invalid}"];
    asking("no name", &no_name, async |pair| {
        let refused = pair.client.mutex("").acquire().await;
        refused.expect_err("no name");
    })
    .await;
    let invalid = ["acquire_total{lock=x,outcome=invalid}"];
    asking("a short TTL", &invalid, async |pair| {
        let refused = pair.lock().ttl(millis(1)).acquire().await;
        refused.expect_err("too short");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_request_without_a_verdict_counts_once() {
    for (kind, word) in KINDS {
        let is_denied = kind == StoreErrorKind::Denied;
        let outcome = if is_denied { "denied" } else { "unavailable" };
        let acquire = format!("acquire_total{{lock=x,outcome={outcome}}}");
        // The client retries for two seconds what may succeed then.
        let several = if kind.is_transient() { "several " } else { "" };
        let errors = format!("{several}store_errors_total{{kind={word}}}");
        asking(word, &[&acquire, &errors], async |pair| {
            pair.faults.fail(kind);
            pair.lock().try_acquire().await.expect_err("it fails");
        })
        .await;

        let error = format!("store_errors_total{{kind={word}}}");
        asking("a failed look", &[&error], async |pair| {
            pair.faults.fail(kind);
            pair.client.inspect("x").await.expect_err("it fails");
        })
        .await;
    }

    let unavailable = "acquire_total{lock=x,outcome=unavailable}";
    let unknown = [unavailable, "store_errors_total{kind=timed_out}"];
    asking("an unknown outcome", &unknown, async |pair| {
        pair.faults.lose_replies();
        let waited = pair.lock().acquire_within(millis(500)).await;
        let is_unknown =
            |error: &Error| matches!(error, Error::Store(error) if error.may_have_taken_effect);
        assert!(waited.is_err_and(|error| is_unknown(&error)));
        pair.faults.heal();
        // Until the limit of the request itself.
        sleep(TTL / 10).await;
    })
    .await;

    asking("a closed client", &[unavailable], async |pair| {
        assert!(pair.client.close().await);
        pair.lock().try_acquire().await.expect_err("closed");
    })
    .await;
    asking("closed while it waits", &[unavailable], async |pair| {
        let _held = take(&pair.other, "x").await;
        let lock = pair.lock();
        let closing = async {
            sleep(millis(50)).await;
            pair.client.close().await
        };
        let (refused, closed) = tokio::join!(lock.acquire(), closing);
        refused.expect_err("closed");
        assert!(closed);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_loss_counts_once_by_its_cause() {
    let (held, seconds) = (
        "held{lock=x,mode=exclusive}",
        "hold_seconds{lock=x,mode=exclusive}",
    );
    let (renew, several) = ("renew_seconds{lock=x}", "several renew_seconds{lock=x}");
    let by_deadline = [held, seconds, "lost_total{cause=deadline,lock=x}"];
    holding("released late", &by_deadline, async |pair, lease| {
        // No timer of the client has fired.
        pair.clock.suspend(TTL);
        lease.release().await.expect_err("lost");
        None
    })
    .await;
    let in_outage = [
        held,
        seconds,
        "lost_total{cause=deadline,lock=x}",
        several,
        "several store_errors_total{kind=unreachable}",
    ];
    holding("an outage", &in_outage, async |pair, lease| {
        pair.faults.fail(StoreErrorKind::Unreachable);
        lease.lost().await;
        Some(lease)
    })
    .await;

    let to_another = [held, seconds, "lost_total{cause=not_held,lock=x}", renew];
    holding("lost to another", &to_another, async |pair, lease| {
        let _theirs = pair.broken(&lease).await;
        lease.lost().await;
        lease.release().await.expect_err("lost");
        None
    })
    .await;
    holding("lost unnoticed", &to_another[..3], async |pair, lease| {
        let _theirs = pair.broken(&lease).await;
        lease.release().await.expect_err("lost");
        None
    })
    .await;

    let by_limit = [held, seconds, "lost_total{cause=max_hold,lock=x}", several];
    holding("held for too long", &by_limit, async |_, lease| {
        lease.lost().await;
        drop(lease);
        None
    })
    .await;
    let by_closing = [held, seconds, "lost_total{cause=closed,lock=x}"];
    holding("closed", &by_closing, async |pair, lease| {
        assert!(pair.client.close().await);
        drop(lease);
        None
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_or_release_is_no_loss() {
    let renew = "renew_seconds{lock=x}";
    let refused = [renew, "store_errors_total{kind=full}"];
    holding("a refused renewal", &refused, async |pair, lease| {
        pair.faults.fail(StoreErrorKind::Full);
        lease.extend(TTL).await.expect_err("full");
        Some(lease)
    })
    .await;
    let unknown = [renew, "store_errors_total{kind=timed_out}"];
    holding("an unanswered renewal", &unknown, async |pair, lease| {
        pair.faults.lose_replies();
        lease.extend(TTL).await.expect_err("no reply");
        Some(lease)
    })
    .await;

    let (held, seconds) = (
        "held{lock=x,mode=exclusive}",
        "hold_seconds{lock=x,mode=exclusive}",
    );
    let refused = [held, seconds, "store_errors_total{kind=denied}"];
    holding("a refused release", &refused, async |pair, lease| {
        pair.faults.fail(StoreErrorKind::Denied);
        lease.release().await.expect_err("denied");
        None
    })
    .await;
    let unknown = [held, seconds, "store_errors_total{kind=timed_out}"];
    holding("an unanswered release", &unknown, async |pair, lease| {
        pair.faults.lose_replies();
        lease.release().await.expect_err("no reply");
        None
    })
    .await;
    let in_outage = [
        held,
        seconds,
        "several store_errors_total{kind=unreachable}",
    ];
    holding("a release in vain", &in_outage, async |pair, lease| {
        pair.faults.fail(StoreErrorKind::Unreachable);
        lease.release().await.expect_err("away");
        None
    })
    .await;
}
