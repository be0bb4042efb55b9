//! The handle of a client: what it gives out, and how it is closed. Must never do I/O that was not asked for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Fence, Invalid, LockName, Naming, Reply, Snapshot, Step};
use tokio::sync::oneshot;

use crate::error::{Error, StoreError, StoreErrorKind};
#[cfg(feature = "cache")]
use crate::guard::Guard;
use crate::lease::{Detached, Engine};
use crate::mutex::Mutex;
#[cfg(feature = "timestamp")]
use crate::store::timestamps::Timestamps;

/// A connection to a store, shared by all the locks made from it. Cheap to clone.
///
/// Its own thread renews leases and cleans up. Thread and connection end when the last of these is gone: the client and its clones,
/// what was made from it (each [`Mutex`], timestamp lock, cache and [`Detached`]), leases, and requests under way. At the end of a
/// program, call [`Client::close`]: it waits, for a bounded time, until the client has nothing left to
/// do, whatever still lives.
#[derive(Clone)]
pub struct Client {
    pub(crate) engine: Arc<Engine>,
    #[cfg(feature = "cache")]
    pub(crate) guard: Arc<Guard>,
    #[cfg(feature = "cache")]
    pub(super) entries: Naming,
    /// None where the store has no such keys.
    #[cfg(feature = "timestamp")]
    pub(crate) timestamps: Option<Arc<dyn Timestamps>>,
    pub(super) naming: Naming,
    /// How long `close` waits.
    pub(super) close_limit: Duration,
}

impl Client {
    /// The mutex of this name. Does no I/O; a name that cannot be used is reported when it is acquired.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.engine.clone(), self.name(name.as_ref()))
    }

    /// Who holds the lock and who waits for it.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        let name = self.name(name.as_ref())?;
        match self.ask(name, Step::Inspect).await? {
            Reply::Seen(snapshot) => Ok(snapshot),
            other => {
                let store = self.engine.store.label();
                Err(StoreError::new(store, StoreErrorKind::Protocol, format!("{other:?}")).into())
            }
        }
    }

    /// Frees the lock of a holder that cannot do it, if `fence` is its own, and says whether it did: the one that
    /// [`Client::inspect`] shows, or that of any lease since then while the lock went from task to task there. The holder is told
    /// *lost* at its next renewal. A foreign lock is never broken.
    pub async fn break_lock(&self, name: impl AsRef<str>, fence: Fence) -> Result<bool, Error> {
        let name = self.name(name.as_ref())?;
        Ok(matches!(
            self.ask(name, Step::Break { fence }).await?,
            Reply::Released
        ))
    }

    /// Takes up a lease that was [detached](crate::Lease::detach), here or in another process, by
    /// [its token](Detached::token). Does no I/O: whether it is still held is for [`Detached::check`] to say.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that cannot be used, and for a token that is not one of this library's. So is one without
    /// the fence at its end: after a failover, a store could not tell whether its owner holds as it believes.
    pub fn detached(&self, name: impl AsRef<str>, token: &str) -> Result<Detached, Error> {
        let name = self.name(name.as_ref())?;
        Ok(Detached::new(self.engine.clone(), name, token)?)
    }

    /// The names that are held or waited for, as far as the store's index knows: on Redis, locks that were renewed
    /// at least once or have had a waiter. A hint for operators, never a basis for a decision.
    pub async fn names(&self) -> Result<Vec<String>, Error> {
        let keys = self
            .run(|engine| async move { engine.store.index(None).await })
            .await?;
        let names = keys.iter().filter_map(|key| self.naming.name_in(key));
        Ok(names.map(str::to_owned).collect())
    }

    /// Where its locks live, for people: the address of the store, without user and password.
    pub fn store(&self) -> &str {
        self.engine.store.label()
    }

    /// The identity of this client, as it stands in the tokens of its leases.
    pub fn id(&self) -> ClientId {
        self.engine.identity.client
    }

    /// Ends all waiting, releases every lease that is still held (they become *lost*), and takes no more requests. Then waits until
    /// the store has confirmed it all, but for at most twice the [request timeout](super::ClientBuilder::request_timeout), or one second
    /// if that is longer: 4 s by default. Returns whether all was confirmed.
    ///
    /// What was not goes on in the background while the process and a clone of this client live, and each lock ends by its TTL at
    /// the latest. Closing again waits again.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll changes nothing but that nobody waits.
    pub async fn close(&self) -> bool {
        self.close_within(self.close_limit).await
    }

    /// The same, but waits for at most `limit`. `Duration::MAX` waits until the store has confirmed it all, or the TTLs have passed
    /// if it does not answer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::time::Duration;
    /// # let client = leasehold::Client::embedded()?;
    /// if !client.close_within(Duration::from_secs(10)).await {
    ///     eprintln!("some locks may stay taken until their TTL ends");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Client::close`].
    pub async fn close_within(&self, limit: Duration) -> bool {
        #[cfg(feature = "cache")]
        self.guard.close();
        let engine = &self.engine;
        let closing = async {
            tokio::select! {
                // First, so that closing begins however short the limit is.
                biased;
                () = engine.close() => true,
                () = engine.clock.sleep(limit) => false,
            }
        };
        engine.tasks.with_timers(closing).await
    }

    /// The name of a lock, within the namespace and the key template.
    pub(crate) fn name(&self, name: &str) -> Result<LockName, Invalid> {
        self.naming.name(name)
    }

    async fn ask(&self, name: LockName, step: Step) -> Result<Reply, Error> {
        self.run(|engine| async move { engine.store.apply(&name, step).await })
            .await
    }

    /// The key of a cache entry, within the namespace; a key template is for locks only.
    #[cfg(feature = "cache")]
    pub(crate) fn entry(&self, key: &str) -> Result<LockName, Invalid> {
        let name = self.entries.name(key);
        name.map_err(|refused| Invalid {
            what: "cache key",
            ..refused
        })
    }

    /// Does `work` on the client's own thread.
    pub(super) async fn run<T, F>(&self, work: impl FnOnce(Arc<Engine>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.engine.is_closed() {
            return Err(StoreError::closed().into());
        }
        let (reply, answer) = oneshot::channel();
        let work = work(self.engine.clone());
        self.engine
            .tasks
            .spawn(async move { drop(reply.send(work.await)) });
        Ok(answer.await.map_err(|_| StoreError::closed())??)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .field("naming", &self.naming)
            .finish_non_exhaustive()
    }
}
