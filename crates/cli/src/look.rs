//! Requests for the state of locks: of many at once, and again and again until the end of a wait.

use std::mem;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Client, Clock, Error, InspectedNodes, Moment, Snapshot, StoreErrorKind};

use crate::acquire_ui::interrupted;
use crate::exit::{Exit, cause};
use crate::terminal::{Signals, Terminal};

/// The number of locks requested at once.
const AT_ONCE: usize = 256;

/// The state of one lock, or the error.
pub(crate) struct InspectedLock {
    pub(crate) name: String,
    pub(crate) outcome: Result<Snapshot, Error>,
    /// The views of the nodes of a quorum.
    pub(crate) nodes: Option<InspectedNodes>,
}

/// Inspects all locks, at each node of a quorum. `any_node`: the views of nodes count also if they give no verdict. Fails if the store does not answer; an invalid answer about one lock affects only that
/// lock.
pub(crate) async fn look(
    client: &Client,
    names: &[String],
    any_node: bool,
) -> Result<Vec<InspectedLock>, Error> {
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        for looked in join_all(some.iter().map(|name| look_at(client, name))).await {
            let has_views = any_node && looked.nodes.is_some();
            match looked.outcome {
                Err(error) if !has_views && !is_about_one(&error) => return Err(error),
                _ => found.push(looked),
            }
        }
    }
    Ok(found)
}

async fn look_at(client: &Client, name: &str) -> InspectedLock {
    let (outcome, nodes) = match client.inspect_nodes(name).await {
        Ok(inspected) => {
            let outcome = inspected.lock.clone().map_err(Error::from);
            // Another store is its own only node.
            let is_quorum = inspected.nodes.len() > 1;
            (outcome, is_quorum.then_some(inspected))
        }
        Err(error) => (Err(error), None),
    };
    InspectedLock {
        name: name.to_owned(),
        outcome,
        nodes,
    }
}

/// True if an error concerns a single lock only.
pub(crate) fn is_about_one(error: &Error) -> bool {
    match error {
        Error::Invalid(_) => true,
        Error::Store(store) => store.kind == StoreErrorKind::Protocol || is_denied(error),
        _ => false,
    }
}

/// True for a lock that this user may not look at. False for a refusal of the user or of a command, which concerns all
/// locks.
pub(crate) fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Store(store) if store.kind == StoreErrorKind::Denied
        && cause(store).contains(" key") && !cause(store).contains("to run "))
}

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
