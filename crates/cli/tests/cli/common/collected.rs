//! The output of a process, read while it runs.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The output of a pipe, which a thread reads.
#[derive(Clone)]
pub(super) struct Collected(Arc<Collector>);

struct Collector {
    pipe: File,
    read: Mutex<Vec<u8>>,
    has_ended: AtomicBool,
}

impl Collected {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.read.lock().expect("not poisoned")).into_owned()
    }

    /// True if no process has the other end open, and all has been read.
    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// True if all that was written has been read.
    pub(super) fn has_all(&self) -> bool {
        // While another thread reads, it has the lock.
        let _read = self.0.read.lock().expect("not poisoned");
        !self.0.has_output(PollTimeout::ZERO)
    }
}

impl Collector {
    /// What the pipe has within this time: unread output, or its end.
    fn is_ready(&self, limit: PollTimeout) -> Option<PollFlags> {
        let mut pipes = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        poll(&mut pipes, limit).ok()?;
        pipes[0].revents()
    }

    fn has_output(&self, limit: PollTimeout) -> bool {
        self.is_ready(limit)
            .is_some_and(|ready| ready.contains(PollFlags::POLLIN))
    }

    /// Waits for output and reads it. False after the end of the pipe.
    fn read_on(&self) -> bool {
        let ready = self.is_ready(PollTimeout::NONE);
        let mut read = self.read.lock().expect("not poisoned");
        let mut buffer = [0; 4096];
        // An interrupted wait is repeated.
        if ready.is_none_or(|ready| ready.is_empty()) {
            return true;
        }
        let length = (&self.pipe).read(&mut buffer).unwrap_or(0);
        read.extend_from_slice(&buffer[..length]);
        length > 0
    }
}

pub(super) fn collect(pipe: impl Into<OwnedFd>) -> Collected {
    let collected = Collected(Arc::new(Collector {
        pipe: File::from(pipe.into()),
        read: Mutex::default(),
        has_ended: AtomicBool::new(false),
    }));
    let collector = collected.0.clone();
    thread::spawn(move || {
        while collector.read_on() {}
        collector.has_ended.store(true, Ordering::SeqCst);
    });
    collected
}
