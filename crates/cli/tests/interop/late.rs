//! Measures how soon a Leasehold waiter gets a lock, on a machine that may itself be late. Measurements during a
//! stall of the machine do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::scene::{millis, now};
use crate::skip;

/// The limit between a foreign release and the grant to a Leasehold waiter, which polls each 50 ms.
pub(crate) const SOON: Duration = Duration::from_millis(100);

/// If a sleeping thread is later than this, the machine is busy.
const STALL: Duration = Duration::from_millis(50);

/// A measured time, and the delay of the machine meanwhile.
pub(crate) struct Timed {
    took: Duration,
    stalled: Duration,
}

pub(crate) fn timed(something: impl FnOnce()) -> Timed {
    let stalls = Stalls::watch();
    let began = now();
    something();
    Timed {
        took: now().since(began),
        stalled: stalls.worst(),
    }
}

/// Requires that a Leasehold waiter has the lock soon after each foreign release that `again` measures. The median of five counts, in none
/// of which the machine was late: a process that has to wait for a processor is no news of the lock.
pub(crate) fn seen_soon(mut again: impl FnMut() -> Timed) -> String {
    const TIMES: usize = 5;
    const ATTEMPTS: usize = 15;
    let (mut measured, mut late) = (Vec::new(), Vec::new());
    while measured.len() < TIMES && measured.len() + late.len() < ATTEMPTS {
        let Timed { took, stalled } = again();
        if stalled <= STALL {
            measured.push(took);
        } else {
            assert!(took <= Duration::from_secs(15), "{took:?}");
            late.push(stalled);
        }
    }
    if measured.len() < TIMES {
        skip(format!(
            "this machine was itself late, {late:?}, so nobody can be on time"
        ));
    }
    measured.sort_unstable();
    assert!(measured[TIMES / 2] <= SOON, "{measured:?}");
    format!(
        "seen by Leasehold after {} (median; worst {}; {} not counted)",
        millis(measured[TIMES / 2]),
        millis(measured[TIMES - 1]),
        late.len()
    )
}

/// A thread that only sleeps, to detect stalls. On a quiet machine it is a few milliseconds late.
struct Stalls {
    worst: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Stalls {
    fn watch() -> Self {
        let (worst, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (seen, stopped) = (worst.clone(), stop.clone());
        let sleeper = move || {
            let pace = Duration::from_millis(2);
            while !stopped.load(Ordering::SeqCst) {
                let last = now();
                thread::sleep(pace);
                let late = now().since(last).saturating_sub(pace);
                let late = u64::try_from(late.as_micros()).expect("not for ages");
                seen.fetch_max(late, Ordering::SeqCst);
            }
        };
        let started = thread::Builder::new().spawn(sleeper);
        drop(started.expect("the system has a thread"));
        Self { worst, stop }
    }

    fn worst(&self) -> Duration {
        Duration::from_micros(self.worst.load(Ordering::SeqCst))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
