//! Requests for the state of locks, again and again until the end of a wait.

use std::mem;
use std::time::Duration;

use leasehold::{Clock, Error, Moment};

use crate::acquire_ui::interrupted;
use crate::exit::Exit;
use crate::terminal::{Signals, Terminal};

/// The message about names in the index that this user may not look at.
pub(crate) fn hidden_names(count: usize) -> String {
    let names = if count == 1 { "name is" } else { "names are" };
    format!("{count} more {names} not shown: this user may not read the keys (ACL)")
}

/// A question that is put to the store again and again.
pub(crate) trait Polled<Answer> {
    /// Asks the store once.
    async fn ask(&self) -> Result<Answer, Error>;

    /// Takes an answer. Returns the pause until the next request, or the exit that ends the polling.
    fn hear(&mut self, answer: Answer, at: PollTime) -> Result<Duration, Exit>;

    /// Takes the first error of an outage that may pass.
    fn miss(&mut self, error: &Error) -> Result<(), Exit>;
}

/// When an answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollTime {
    pub(crate) now: Moment,
    /// The time limit is over: there is no next request.
    pub(crate) is_over: bool,
    /// The store did not answer the request before.
    pub(crate) after_outage: bool,
}

/// Polls `until` a moment, if there is one, over outages of at most `outage`, with a `pause` after a request without an
/// answer. An answer, a signal, or a failure that does not pass gives the exit.
pub(crate) async fn poll<Answer>(
    mut polled: impl Polled<Answer>,
    until: Option<Moment>,
    (outage, pause): (Duration, Duration),
    signals: &mut Signals,
) -> Result<Exit, Exit> {
    let clock = Clock::system();
    let (mut answered, mut in_outage) = (clock.now(), false);
    let until_end = async {
        loop {
            let answer = polled.ask().await;
            let now = clock.now();
            let left = until.map(|until| until.since(now));
            let is_over = left.is_some_and(|left| left.is_zero());
            let pause = match answer {
                Ok(answer) => {
                    answered = now;
                    let after_outage = mem::take(&mut in_outage);
                    let at = PollTime {
                        now,
                        is_over,
                        after_outage,
                    };
                    polled.hear(answer, at)?
                }
                Err(error) if passes(&error) && now.since(answered) < outage && !is_over => {
                    if !mem::replace(&mut in_outage, true) {
                        polled.miss(&error)?;
                    }
                    pause
                }
                Err(error) => return Err(Exit::from(error)),
            };
            tokio::time::sleep(left.map_or(pause, |left| pause.min(left))).await;
        }
    };
    tokio::select! {
        biased;
        signal = signals.next_ending() => Err(interrupted(signal, Terminal::controlling().as_ref())),
        ended = until_end => ended,
    }
}

/// True if a retry may succeed.
fn passes(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.kind.is_transient())
}
