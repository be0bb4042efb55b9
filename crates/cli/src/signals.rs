//! Catches the signals of this process, except those that it was started with ignored.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::sys;

/// The signals that end a wait. Other caught signals concern a running command only.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// The signals that are forwarded to a running command.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals caught by this process.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Starts to catch signals.
    pub(crate) fn catch() -> io::Result<Self> {
        let mut signals = Self(Vec::new());
        FORWARDED
            .into_iter()
            .try_for_each(|signal| signals.add(signal))?;
        Ok(signals)
    }

    /// Catches Ctrl-Z too, for a running command: this process must not stop before the command has stopped.
    pub(crate) fn catch_stop(&mut self) -> io::Result<()> {
        self.add(Signal::SIGTSTP)
    }

    fn add(&mut self, signal: Signal) -> io::Result<()> {
        if !sys::is_ignored(signal) {
            self.0
                .push((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        }
        Ok(())
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let caught = self.0.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            caught.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// True if `signal` asks this process to end.
    #[cfg(feature = "cache")]
    pub(crate) fn is_ending(signal: Signal) -> bool {
        ENDING.contains(&signal)
    }

    /// The next signal that ends a wait. Other signals have no receiver before the command starts.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }

    /// An ending signal that has already arrived.
    pub(crate) async fn arrived(&mut self) -> Option<Signal> {
        // Lets the runtime process the signals that the handler recorded.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            signal = self.next_ending() => Some(signal),
            () = std::future::ready(()) => None,
        }
    }
}
