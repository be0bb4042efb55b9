//! One client of one store, and its builder.

mod builder;
mod connect;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Fence, Invalid, LockName, Naming, Reply, Snapshot, Step};
use tokio::sync::oneshot;

pub use self::builder::ClientBuilder;
use crate::clock::Clock;
use crate::error::{Error, StoreError};
use crate::lease::{Detached, Engine, EngineHandle};
use crate::mutex::Mutex;
use crate::store::memory::Memory;
use crate::store::{InspectedNodes, answered, snapshot};

/// A connection to a store, shared by all the locks made from it. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Client;
///
/// let client = Client::embedded()?;                    // or Client::connect("redis://127.0.0.1/").await?
/// let lease = client.mutex("orders:42").acquire().await?;
/// lease.release().await?;
/// client.close().await;                                // at the end of the program
/// # Ok(()) }
/// ```
///
/// A thread of the client renews leases and releases what is left over. The thread and the connection end when nothing uses the client
/// any more: no clone of it, no [`Mutex`], timestamp lock, cache or [`Detached`] made from it, no lease, and no request under way. The drop
/// of the last of these objects waits for such requests, at most for [`ClientBuilder::drop_timeout`]. At
/// the end of a program, better call [`Client::close`]: it does not block its thread, and waits longer.
#[derive(Clone)]
pub struct Client {
    /// The namespace of entries. A key template is for locks only.
    #[cfg(feature = "entries")]
    pub(crate) entry_naming: Naming,
    naming: Naming,
    /// How long `close` waits.
    close_limit: Duration,
    /// Dropped last, since that may wait for the rest.
    pub(crate) engine: EngineHandle,
}

impl Client {
    /// Connects to the store at `url`, with the defaults of [`ClientBuilder`].
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | Redis or Valkey |
    /// | `rediss://...` | the same over TLS |
    /// | `valkey://...`, `valkeys://...` | the same as the two above |
    /// | `unix:/path/to/socket[?db=1&user=..&pass=..]` | the same over a Unix socket; also `redis+unix://...` |
    /// | `redis+quorum://host1,host2:6380,host3[/db]` | 3 to 9 independent servers, a majority of which decides; also `rediss+quorum://...`, `valkey+quorum://...`, `valkeys+quorum://...` |
    /// | `local:`, `local:/path/to/file[?mode=0660]` | the processes of this user, or of all users who may write the file, on one host |
    /// | `memory:` | this client only |
    ///
    /// `?db=1` is equivalent to `/1`. A URL over TLS may have the options `tls_ca=/path`, `tls_cert=/path`, `tls_key=/path`, `tls_name=host`
    /// and `tls_pin=fingerprint` for the settings of [`Tls`](crate::Tls). A URL with any other part is refused. The path of a `local:` file must be absolute, since a relative
    /// path would mean another file in each directory. `mode` is the mode of a new file: `0600` (the default), `0660` or `0666`.
    ///
    /// In the URL of a quorum, `user:password@` stands before each host that asks for it, and `/db` counts for all hosts. Its options are
    /// `max_ttl=60s` for [`ClientBuilder::quorum_longest_ttl`] and `durable=1` for [`ClientBuilder::quorum_durable`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let client = Client::connect("memory:").await?;      // or "redis://127.0.0.1/"
    /// println!("locks are in {}", client.store());
    /// client.close().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL of another form, [`Error::Store`] when the store does not answer as it should.
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Connects to a quorum of 3 to 9 independent servers, one URL each, with the defaults of [`ClientBuilder`]. See
    /// [`ClientBuilder::connect_quorum`].
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let client = Client::connect_quorum(servers).await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_quorum`].
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::connect`].
    #[cfg(feature = "redis")]
    pub async fn connect_quorum(urls: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, Error> {
        Self::builder().connect_quorum(urls).await
    }

    /// A client with a new store in memory, which no other client shares.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let client = Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the system refuses a thread.
    pub fn embedded() -> Result<Self, Error> {
        Self::builder().embedded(&Memory::new(Clock::system()))
    }

    /// A builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The mutex of this name. Does no I/O. A name that is not allowed is reported when the mutex is acquired.
    ///
    /// ```
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    ///
    /// let orders = client.mutex("orders:42").ttl(Duration::from_secs(10)).note("packing");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.engine.clone(), self.name(name.as_ref()))
    }

    /// The holder of the lock and its waiters. Changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// let seen = client.inspect("orders:42").await?;
    /// let holder = seen.holder.expect("the lock is held");
    /// assert_eq!(holder.fence, Some(lease.fence()));
    /// assert!(seen.queue.is_empty());
    /// # drop(lease);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is not allowed, [`Error::Store`] when the store gave no verdict.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        let name = self.name(name.as_ref())?;
        let reply = self.ask(name, Step::Inspect).await?;
        Ok(snapshot(self.engine.store.label(), Ok(reply))?)
    }

    /// The lock as each node of a quorum sees it, and the verdict of the majority. Changes nothing. A store that is no quorum is its own
    /// only node.
    ///
    /// It waits for each node until the [request timeout](ClientBuilder::request_timeout); [`Client::inspect`] waits for a majority
    /// only. Views may differ: a node was down, or has lost its data, or votes at this moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// let inspected = client.inspect_nodes("orders:42").await?;
    /// println!("{} of {} nodes have a vote for it", inspected.votes(), inspected.nodes.len());
    /// for view in &inspected.nodes {
    ///     println!("{}: {:?}", view.node, view.seen);
    /// }
    /// # assert_eq!((inspected.votes(), inspected.nodes.len()), (1, 1));
    /// # drop(lease);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is not allowed, [`Error::Store`] if the client is closed. A node that does not answer, and a
    /// quorum without a majority, are in the result.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn inspect_nodes(&self, name: impl AsRef<str>) -> Result<InspectedNodes, Error> {
        let name = self.name(name.as_ref())?;
        self.run(|engine| async move {
            let mut inspected = engine.store.inspect_nodes(&name).await;
            inspected.lock = engine.telemetry.answered(inspected.lock);
            Ok(inspected)
        })
        .await
    }

    /// Frees a lock whose holder is dead, if the holder's fence is `fence`. Returns whether the lock was freed.
    ///
    /// `fence` is the one that [`Client::inspect`] shows, or the fence of any later lease of the same grant. A holder that is still alive
    /// learns at its next renewal that its lease is lost. A foreign lock is never broken.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// # let lease = client.mutex("orders:42").acquire().await?;
    /// let seen = client.inspect("orders:42").await?;
    /// if let Some(fence) = seen.holder.and_then(|holder| holder.fence) {
    ///     assert!(client.break_lock("orders:42", fence).await?);
    /// }
    /// assert!(lease.release().await.is_err());              // the holder finds out
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is not allowed. [`Error::Store`] when the store gave no verdict: the lock may have been freed.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the request back: the lock may be freed all the same.
    pub async fn break_lock(&self, name: impl AsRef<str>, fence: Fence) -> Result<bool, Error> {
        let name = self.name(name.as_ref())?;
        Ok(matches!(
            self.ask(name, Step::Break { fence }).await?,
            Reply::Released
        ))
    }

    /// A lease that was [detached](crate::Lease::detach) by this or another process, by [its token](Detached::token). Does no I/O:
    /// [`Detached::check`] says whether the lease is still held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60)).await?;
    /// let token = detached.token().to_owned();             // to another process
    ///
    /// let taken_up = client.detached("orders:42", &token)?;
    /// taken_up.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is not allowed, and for a text that is not a token of this library. A token without the fence
    /// at its end is refused too: after a failover, the store could not tell whether the owner still holds the grant of the token.
    pub fn detached(&self, name: impl AsRef<str>, token: &str) -> Result<Detached, Error> {
        let name = self.name(name.as_ref())?;
        Ok(Detached::new(self.engine.clone(), name, token)?)
    }

    /// The names that are held or waited for, as far as the store's index knows: on Redis, locks that were renewed
    /// at least once or have had a waiter. A hint for operators: base no decision on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// for name in client.names().await? {
    ///     println!("{name}: {:?}", client.inspect(&name).await?.holder);
    /// }
    /// # drop(lease);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the store gave no verdict.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn names(&self) -> Result<Vec<String>, Error> {
        let keys = self
            .run(|engine| async move { engine.telemetry.answered(engine.store.index(None).await) })
            .await?;
        let names = keys.iter().filter_map(|key| self.naming.name_in(key));
        Ok(names.map(str::to_owned).collect())
    }

    /// The address of the store, for people: without user and password.
    pub fn store(&self) -> &str {
        self.engine.store.label()
    }

    /// The longest TTL of a lease on this store, and the longest time for which a released lock can be kept: 24 h, or the
    /// [longest TTL of a quorum](ClientBuilder::quorum_longest_ttl).
    ///
    /// ```
    /// # let client = leasehold::Client::embedded()?;
    /// assert_eq!(client.longest_ttl().as_secs(), 24 * 60 * 60);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn longest_ttl(&self) -> Duration {
        self.engine.store.longest_ttl()
    }

    /// The identity of this client, as it is in the tokens of its leases.
    pub fn id(&self) -> ClientId {
        self.engine.identity.client
    }

    /// Ends all waiting, releases every lease that is still held (they become *lost*), and refuses further requests. Then waits until
    /// the store has confirmed the releases, for at most twice the [request timeout](ClientBuilder::request_timeout), or one
    /// second if that is longer: 4 s by default. Returns whether the store has confirmed all of them.
    ///
    /// The client retries the others in the background while the process and a clone of this client live. Each lock ends by its TTL at
    /// the latest. A second call waits again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// assert!(client.close().await);                       // the store has confirmed the release
    /// assert!(lease.is_lost());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the closing: the releases go on in the background.
    pub async fn close(&self) -> bool {
        self.close_within(self.close_limit).await
    }

    /// Closes the client as [`Client::close`] does, but waits for at most `limit`. With `Duration::MAX` it waits until the store has
    /// confirmed all releases, or until the TTLs have passed if the store does not answer.
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
        // A failure counts also if the caller has gone.
        self.run(|engine| {
            answered(move |tell| engine.request(&name, step, move |answer| drop(tell.send(answer))))
        })
        .await
    }

    /// Does `work` on the client's thread.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Engine>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.engine.is_closed() {
            return Err(StoreError::closed().into());
        }
        let (mut reply, answer) = oneshot::channel();
        let work = work(Arc::clone(&self.engine));
        self.engine.tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = work => outcome,
                // The caller has gone, and no lock depends on the outcome.
                () = reply.closed() => return,
            };
            drop(reply.send(outcome));
        });
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
