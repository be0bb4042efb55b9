//! Tasks that use the library's public API like a hurried program: they cancel, and are sometimes late.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use fastrand::Rng;
use leasehold::kind::{Exclusive, Kind, Shared, Slots};
use leasehold::{Client, Clock, Error, Fence, Lease, Lock, Mode, Moment};
use tokio::time::{sleep, timeout};

use super::log::{HistoryLog, Known, LeaseName, session};
use super::work::{HoldPlan, Visit};
use super::{Worker, WorkerConfig};
use crate::host_time;

const RETRY: Duration = Duration::from_millis(20);

/// Connects, retrying as often as necessary. `None` if the campaign ends before that.
pub(super) async fn connect(config: &WorkerConfig) -> Option<Client> {
    while !config.is_enough() {
        if let Ok(client) = Client::connect(config.url()).await {
            return Some(client);
        }
        sleep(RETRY).await;
    }
    None
}

/// Acquires the lock in its mode, works under it, and releases it.
pub(super) async fn round(
    worker: &Worker,
    client: &Client,
    name: &LeaseName,
    visit: &mut Visit,
    rng: &mut Rng,
) -> Result<(), String> {
    match name.mode {
        Mode::Exclusive => round_of(worker, client.mutex(&name.lock), name, visit, rng).await,
        Mode::Shared => {
            let readers = client.rw_lock(&name.lock).read();
            round_of(worker, readers, name, visit, rng).await
        }
        Mode::Slot(slots) => {
            let semaphore = client.semaphore(&name.lock, slots.get());
            round_of(worker, semaphore, name, visit, rng).await
        }
    }
}

async fn round_of<K: Seen>(
    worker: &Worker,
    lock: Lock<K>,
    name: &LeaseName,
    visit: &mut Visit,
    rng: &mut Rng,
) -> Result<(), String> {
    let (log, ttl) = (&worker.log, worker.config.ttl());
    let mut stay = HoldPlan::draw(rng, worker.config.outlived, worker.config.punctual);
    // A lease that is outlived on purpose must not renew itself.
    let renews = stay != HoldPlan::Outlive && rng.bool();
    if renews && !worker.config.punctual && rng.u64(..20) == 0 {
        stay = HoldPlan::Outlive;
    }
    let note = WorkerConfig::worker(worker.config.proc);
    let lock = lock.ttl(ttl).auto_renew(renews).note(note);
    let op = log.invoke("acquire", name, Known::default())?;
    let lease = match ask(&lock, ttl, rng).await {
        Ok(Some(lease)) => lease,
        Ok(None) => return log.complete(op, "refused", Known::default()),
        Err(error) => {
            match error {
                Some(error) => log.unanswered(op, &error)?,
                None => log.unknown(op, "cancelled")?,
            }
            // Immediate refusals must not cause a busy loop.
            sleep(RETRY).await;
            return Ok(());
        }
    };
    let acquired = Known {
        renews,
        ..known(&lease)
    };
    log.acquired(op, acquired, session(lease.owner()))?;
    tokio::select! {
        biased;
        refused = watch(log, name, &lease) => match refused? {},
        done = work(worker, name, &lease, visit, stay, rng) => done?,
    }
    give_back(log, name, lease, rng).await
}

/// Acquires the lock in one of several ways; `None` if it is busy. After an error it may have been acquired anyway. Without the text of
/// an error, it was cancelled.
async fn ask<K: Kind>(
    lock: &Lock<K>,
    ttl: Duration,
    rng: &mut Rng,
) -> Result<Option<Lease<K>>, Option<String>> {
    let acquired = match rng.u64(..20) {
        0..3 => return (lock.try_acquire().await).map_err(|error| Some(error.to_string())),
        // Cancels.
        3..5 => {
            let limit = ttl
                .mul_f64(0.5)
                .min(Duration::from_micros(rng.u64(..100_000)));
            let acquired = timeout(limit, lock.acquire()).await;
            acquired.map_err(|_| None)?
        }
        5..12 => lock.acquire_within(ttl * 8).await,
        _ => lock.acquire().await,
    };
    match acquired {
        Ok(lease) => Ok(Some(lease)),
        Err(Error::Timeout(_)) => Ok(None),
        Err(error) => Err(Some(error.to_string())),
    }
}

/// Records the loss of the lease when it is reported.
async fn watch<K: Seen>(
    log: &HistoryLog,
    name: &LeaseName,
    lease: &Lease<K>,
) -> Result<Infallible, String> {
    let lost = lease.lost().await;
    log.told_lost(name, known(lease), &lost.cause.to_string())?;
    pending().await
}

/// A holder reads, and writes on what it read. A reader reads twice.
async fn work<K: Seen>(
    worker: &Worker,
    name: &LeaseName,
    lease: &Lease<K>,
    visit: &mut Visit,
    stay: HoldPlan,
    rng: &mut Rng,
) -> Result<(), String> {
    let (log, ttl) = (&worker.log, worker.config.ttl());
    let version = visit.access(log, name, known(lease), None).await?;
    // A fenced resource refuses a reader of a quorum, which has no fence. It stays all the same: the judge looks at its lease.
    if version.is_none() && known(lease).fence.is_some() {
        return Ok(());
    }
    if rng.u64(..8) == 0 {
        extend(log, name, lease, ttl).await?;
    }
    stay.wait(rng, ttl).await;
    if worker.config.punctual && on_host(lease.valid_until()) <= host_time::up_ns() {
        return Ok(());
    }
    let base = version.filter(|_| name.mode != Mode::Shared);
    visit.access(log, name, known(lease), base).await.map(drop)
}

async fn extend<K: Seen>(
    log: &HistoryLog,
    name: &LeaseName,
    lease: &Lease<K>,
    ttl: Duration,
) -> Result<(), String> {
    let op = log.invoke("extend", name, Known::default())?;
    let extended = lease.extend(ttl).await;
    match extended {
        Ok(()) => log.complete(op, "ok", known(lease)),
        Err(error) => failed(log, op, &error),
    }
}

async fn give_back<K: Kind>(
    log: &HistoryLog,
    name: &LeaseName,
    lease: Lease<K>,
    rng: &mut Rng,
) -> Result<(), String> {
    let op = log.invoke("release", name, Known::default())?;
    if rng.u64(..10) == 0 {
        // Its release continues in the background, and its outcome is not reported.
        drop(lease);
        return log.unknown(op, "dropped");
    }
    match lease.release().await {
        Ok(()) => log.complete(op, "ok", Known::default()),
        Err(error) => failed(log, op, &error),
    }
}

fn failed(log: &HistoryLog, op: u64, error: &Error) -> Result<(), String> {
    match error {
        Error::Lost(_) => log.complete(op, "lost", Known::default()),
        error => log.unanswered(op, &error.to_string()),
    }
}

/// A kind of lock whose leases have fences: of their own, of readers that hold together, or of a slot. Readers of a quorum have none.
pub(super) trait Seen: Kind {
    /// The fence of a lease, and the number of its slot.
    fn seen(lease: &Lease<Self>) -> (Option<Fence>, Option<u16>)
    where
        Self: Sized;
}

impl Seen for Exclusive {
    fn seen(lease: &Lease) -> (Option<Fence>, Option<u16>) {
        (Some(lease.fence()), None)
    }
}

impl Seen for Shared {
    fn seen(lease: &Lease<Self>) -> (Option<Fence>, Option<u16>) {
        (lease.fence(), None)
    }
}

impl Seen for Slots {
    fn seen(lease: &Lease<Self>) -> (Option<Fence>, Option<u16>) {
        let slot = lease.slot();
        (Some(slot.fence), Some(slot.number))
    }
}

/// The lease's fence, slot and deadline.
fn known<K: Seen>(lease: &Lease<K>) -> Known {
    let (fence, slot) = K::seen(lease);
    Known {
        fence: fence.map(Fence::get),
        slot,
        valid_until_ns: Some(on_host(lease.valid_until())),
        renews: false,
    }
}

/// A time of the library's clock in nanoseconds of the host's, which it counts in microseconds.
fn on_host(moment: Moment) -> u64 {
    let clock = Clock::system();
    loop {
        let (before, now, after) = (
            host_time::up_ns() / 1_000,
            clock.now(),
            host_time::up_ns() / 1_000,
        );
        // Otherwise the microsecond is not known.
        if before == after {
            let micros =
                |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            return (before + micros(moment.since(now))).saturating_sub(micros(now.since(moment)))
                * 1_000;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_clock_is_the_hosts() {
        let up_us = || host_time::up_ns() / 1_000 * 1_000;
        let before = up_us();
        let then = Clock::system().now();
        let after = up_us();
        std::thread::sleep(Duration::from_millis(5));
        let on_host_then = on_host(then);
        assert!(before <= on_host_then && on_host_then <= after);
        let (now, last) = (on_host(Clock::system().now()), up_us());
        assert!(now > after && now <= last);
    }
}
