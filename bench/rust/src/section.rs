//! The critical section, with a check that not too many workers are in it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::now_ns;

/// State shared by all workers of a process.
pub(crate) struct Shared {
    /// How many may be inside at once; None: any number, and nothing is counted.
    most: Option<usize>,
    inside: AtomicUsize,
    last: AtomicUsize,
    end: AtomicU64,
    /// Times that too many workers were inside at once.
    pub(crate) violations: AtomicU64,
    /// Acquisitions before the end whose owner differs from the one before.
    pub(crate) changes: AtomicU64,
}

impl Shared {
    pub(crate) fn new(most: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            most,
            inside: AtomicUsize::new(0),
            last: AtomicUsize::new(usize::MAX),
            end: AtomicU64::new(u64::MAX),
            violations: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        })
    }

    pub(crate) fn end_at(&self, end: u64) {
        self.end.store(end, Ordering::SeqCst);
    }

    fn enter(&self, worker: usize, now: u64) {
        let Some(most) = self.most else { return };
        if self.inside.fetch_add(1, Ordering::SeqCst) >= most {
            self.violations.fetch_add(1, Ordering::SeqCst);
        }
        let other = self.last.swap(worker, Ordering::SeqCst) != worker;
        if other && now < self.end.load(Ordering::SeqCst) {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn leave(&self) {
        if self.most.is_some() {
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The critical section of one worker. A peer runs it exactly once in a cycle, while it holds the lock.
pub struct Section {
    worker: usize,
    shared: Arc<Shared>,
    held: Duration,
    pub(crate) acquired: u64,
    pub(crate) left: u64,
}

impl Section {
    pub(crate) fn new(worker: usize, shared: &Arc<Shared>, held: Duration) -> Self {
        Self {
            worker,
            shared: shared.clone(),
            held,
            acquired: 0,
            left: 0,
        }
    }

    pub async fn run(&mut self) {
        self.acquired = now_ns();
        self.shared.enter(self.worker, self.acquired);
        if !self.held.is_zero() {
            tokio::time::sleep(self.held).await;
        }
        self.shared.leave();
        self.left = now_ns();
    }
}
