//! What every store offers its client, and what it is given. Must never name one of them.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{ClientId, LockName, Owner, Reply, Step, Wake};
use tokio::sync::oneshot;

use crate::error::{Replaced, StoreError};

/// What a store tells a client without being asked. Each is a hint: a waiter also polls.
#[cfg_attr(
    not(any(test, feature = "redis")),
    expect(dead_code, reason = "only a server can be cut off or replaced")
)]
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A waiter of this client was granted the lock with this key, for the claim window. A wake without a fence is all that
    /// the store knows: the waiter has to claim the lock to learn more.
    Granted { key: String, wake: Wake },
    /// Another client waits for the lock with this key, which this owner holds.
    Wanted { key: String, owner: Owner },
    /// This waiter is now the first in line for the lock with this key, which a foreign program holds, or stands behind a grant that
    /// may end soon: it should ask at once.
    First { key: String, owner: Owner },
    /// The connection ended, for this reason; there will be another one.
    Cut(&'static str),
    /// The next connection leads to another server than the last one, which may not know what that one was asked for. Told before
    /// [`Notice::Reconnected`].
    Replaced(Replaced),
    /// Wakes may have been missed: every waiter should poll now.
    Reconnected,
    /// The load of another client, of the cache entry with this key, has ended.
    #[cfg(feature = "cache")]
    LoadEnded { key: String },
    /// What is stored under these keys of cache entries is not what it was; `None` is all of them.
    #[cfg(feature = "cache")]
    Changed { keys: Option<Vec<String>> },
}

/// Where a store delivers its notices. Called from any thread; must return at once.
pub(crate) type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// What a step came to, or why there is no verdict.
pub(crate) type Answer = Result<Reply, StoreError>;

/// Where the answer to a step goes. One that is dropped unanswered says so: the outcome is unknown.
pub(crate) struct Done(Option<Box<dyn FnOnce(Answer) + Send>>);

impl Done {
    pub(crate) fn new(done: impl FnOnce(Answer) + Send + 'static) -> Self {
        Self(Some(Box::new(done)))
    }

    /// Delivers the answer.
    pub(crate) fn answer(mut self, answer: Answer) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(StoreError::closed().unknown()));
        }
    }
}

/// What a store can do beyond the steps of a lock. A connection that was lost may leave it with less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// The client is told by [`Notice::Wanted`] that others wait. If not, it has to assume that they do.
    pub(crate) tells_wanted: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { tells_wanted: true }
    }
}

/// A place where locks live. One method matters.
pub(crate) trait Store: Send + Sync + 'static {
    /// Carries out one step atomically, or says why it gave no verdict. Safe to repeat. Steps of one kind
    /// on one lock are carried out in the order they were sent, but for a release that names no fence; an acquire and a release
    /// may overtake each other. The answer comes in bounded time, which depends on the TTL in the step; from any
    /// thread, maybe before this returns, so the caller must hold no lock that `done` takes.
    fn send(&self, name: &LockName, step: Step, done: Done);

    /// Sends a step and awaits the answer. Dropping the future leaves the outcome unknown.
    fn apply<'a>(&'a self, name: &'a LockName, step: Step) -> BoxFuture<'a, Answer> {
        async move {
            let (sender, answer) = oneshot::channel();
            self.send(
                name,
                step,
                Done::new(move |answer| drop(sender.send(answer))),
            );
            answer
                .await
                .unwrap_or_else(|_| Err(StoreError::closed().unknown()))
        }
        .boxed()
    }

    /// What it can do, at present.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// What errors call it: its address, without user and password.
    fn label(&self) -> &str;

    /// Waits until it is known whether the store can be used; stores that are opened at once always can.
    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The names worth showing to an operator, from an index that holds hints only. With `remember`, adds that
    /// one instead and answers nothing.
    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;
}

/// What a store needs to know of the client it works for.
#[derive(Clone)]
pub(crate) struct Attach {
    /// The client, which names the channel that its wakes arrive on.
    pub(crate) client: ClientId,
    /// Where its wakes go.
    pub(crate) listener: Listener,
    /// It wants to hear of changes to the cache entries that it has looked at.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "embedded stores tell nothing of entries")
    )]
    pub(crate) keeps_values: bool,
}
