//! One client of one store, and its builder.

use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "redis")]
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{
    ClientId, Fence, Invalid, KeyTemplate, LockName, Mode, Namespace, Naming, Owner, Reply, Slots,
    Snapshot, Step,
};
#[cfg(feature = "redis")]
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

#[cfg(feature = "redis")]
use crate::access::{Access, Credentials, Dialer, Source};
use crate::clock::Clock;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined};
use crate::error::{Error, StoreError, StoreErrorKind, within};
use crate::lease::{Detached, Engine, EngineConfig, EngineHandle, Identity, NoticeSink};
use crate::mutex::{Lock, Mutex, RwLock, Semaphore};
use crate::runtime::Tasks;
#[cfg(feature = "redis")]
use crate::store::QuorumInit;
use crate::store::memory::Memory;
use crate::store::{self, Attach, IndexRequest, InspectedNodes, Store, answered, heard, snapshot};
use crate::telemetry::{Observation, Telemetry};

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
    /// | `rediss://...` | the same over TLS; needs the feature `tls`, as the others with `rediss` or `valkeys` |
    /// | `valkey://...`, `valkeys://...` | the same as the two above |
    /// | `unix:/path/to/socket[?db=1&user=..&pass=..]` | the same over a Unix socket; also `redis+unix://...` |
    /// | `redis+sentinel://host1,host2:26380/NAME[/db]` | the primary that these sentinels call NAME; also `rediss+sentinel://...`, `valkey+sentinel://...`, `valkeys+sentinel://...` |
    /// | `redis+quorum://host1,host2:6380,host3[/db]` | 3 to 9 independent servers, a majority of which decides; also `rediss+quorum://...`, `valkey+quorum://...`, `valkeys+quorum://...` |
    /// | `local:`, `local:/path/to/file[?mode=0660]` | the processes of this user, or of all users who may write the file, on one host; needs the feature `local` |
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
        let mode = Ok(Mode::Exclusive);
        Lock::new(self.engine.clone(), self.name(name.as_ref()), mode)
    }

    /// The read/write lock of this name: one writer alone, or any number of readers. Does no I/O. A name that is not allowed is reported
    /// when it is acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let config = client.rw_lock("config");
    /// let read = config.read().acquire().await?;
    /// println!("read under fence {:?}", read.fence());
    /// read.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.engine.clone(), self.name(name.as_ref()))
    }

    /// The semaphore of this name, with 1 to 1,000 slots. Does no I/O. A name or a number that is not allowed is reported when it is
    /// acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let permit = client.semaphore("gpu", 4).acquire().await?;
    /// println!("on GPU {}", permit.slot().number);
    /// permit.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, slots: u16) -> Semaphore {
        let mode = Slots::new(slots).map(Mode::Slot);
        Lock::new(self.engine.clone(), self.name(name.as_ref()), mode)
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

    /// The holders of many locks and their waiters: a result for each name, in their order. Changes nothing.
    ///
    /// A Redis server gets one request for 32 locks, a node of a cluster one for those of a slot. If the store answers for none of 256 locks,
    /// it is not asked for the others, which have the last of these errors.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// let mut held = 0;
    /// for seen in client.inspect_many(["orders:41", "orders:42"]).await {
    ///     held += seen?.holders().count();
    /// }
    /// assert_eq!(held, 1);
    /// # drop(lease);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn inspect_many(
        &self,
        names: impl IntoIterator<Item: AsRef<str>>,
    ) -> Vec<Result<Snapshot, Error>> {
        let names = names.into_iter().map(|name| self.name(name.as_ref()));
        let names: Vec<_> = names.collect();
        let count = names.len();
        let looks = |engine| async move { Ok(look(engine, names).await) };
        let seen = self.engine.run(looks).await;
        seen.unwrap_or_else(|error| vec![Err(error); count])
    }

    /// All locks that are held or waited for, as far as the store's index knows, as [`Client::inspect_many`] shows them. Only those whose
    /// names are `wanted`.
    ///
    /// On Redis, the index has locks that were renewed at least once or have had a waiter. A hint for operators: base no decision on it.
    /// Names of locks that turn out to be free are removed from the index. A lock whose state is unknown has an error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// for (name, seen) in client.inspect_all(|name| name.starts_with("orders:")).await? {
    ///     println!("{name}: {:?}", seen?.holder);
    /// }
    /// # drop(lease);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the store did not tell its index.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn inspect_all(
        &self,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<BTreeMap<String, Result<Snapshot, Error>>, Error> {
        let keys = self.index(IndexRequest::Read).await?;
        let names = keys.iter().filter_map(|key| self.naming.name_in(key));
        let names: Vec<_> = names.filter(|name| wanted(name)).collect();
        let (mut found, mut free) = (BTreeMap::new(), Vec::new());
        for (name, seen) in names.iter().zip(self.inspect_many(&names).await) {
            match seen {
                Ok(seen) if seen.holder.is_none() && seen.queue.is_empty() => {
                    free.extend(self.name(name));
                }
                seen => {
                    found.insert((*name).to_owned(), seen);
                }
            }
        }
        if !free.is_empty() {
            // Reading also has to work on a server that is read-only, and for a user who may not write.
            drop(self.index(IndexRequest::Forget(free)).await);
        }
        Ok(found)
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
        self.engine
            .run(|engine| async move {
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

    /// Ends the hold of one owner that is dead, and of no other owner: one of several readers or permits, or the holder of a mutex. Returns
    /// whether the owner held the lock, or waited for it: then it loses its place.
    ///
    /// [`Client::inspect`] shows the owner. One that is still alive learns at its next renewal that its lease is lost. The readers of one
    /// client are one owner, and so are tasks to which a client hands the lock in turn.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::HolderIdentity;
    ///
    /// # let client = leasehold::Client::embedded()?;
    /// # let permit = client.semaphore("gpu", 4).acquire().await?;
    /// let seen = client.inspect("gpu").await?;
    /// let stuck = seen.holders().find(|holder| holder.slot == Some(1));
    /// if let Some(HolderIdentity::Owner(owner)) = stuck.map(|holder| &holder.who) {
    ///     assert!(client.break_holder("gpu", owner).await?);
    /// }
    /// assert!(permit.release().await.is_err());             // the holder finds out
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::break_lock`].
    ///
    /// # Cancel safety
    /// As [`Client::break_lock`].
    pub async fn break_holder(&self, name: impl AsRef<str>, owner: &Owner) -> Result<bool, Error> {
        let name = self.name(name.as_ref())?;
        // What the owner itself would send. An id is never used again, so it says which hold is meant.
        let step = Step::Release {
            owner: owner.clone(),
            keep: None,
            fence: None,
        };
        Ok(matches!(self.ask(name, step).await?, Reply::Released))
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

    /// The names of the locks of [`Client::inspect_all`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// assert_eq!(client.names().await?, ["orders:42"]);
    /// # drop(lease);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::inspect_all`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn names(&self) -> Result<Vec<String>, Error> {
        let found = self.inspect_all(|_| true).await?;
        Ok(found.into_keys().collect())
    }

    async fn index(&self, request: IndexRequest) -> Result<Vec<String>, Error> {
        self.engine
            .run(|engine| async move {
                engine
                    .telemetry
                    .answered(engine.store.index(request).await)
            })
            .await
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
        let asking = |engine: Arc<Engine>| {
            answered(move |tell| engine.request(&name, step, move |answer| drop(tell.send(answer))))
        };
        self.engine.run(asking).await
    }
}

/// The number of locks that are asked for at once: few enough that a server has time for others.
const LOOKS: usize = 256;

/// Looks at these locks.
async fn look(
    engine: Arc<Engine>,
    names: Vec<Result<LockName, Invalid>>,
) -> Vec<Result<Snapshot, Error>> {
    let mut seen: Vec<Result<Snapshot, Error>> = Vec::with_capacity(names.len());
    for some in names.chunks(LOOKS) {
        let mut looks = Vec::with_capacity(some.len());
        let asked = some.iter().map(|name| {
            let (name, (tell, answer)) = (name.clone()?, oneshot::channel());
            let done = engine.counted(move |answer| drop(tell.send(answer)));
            looks.push((name, done));
            Ok(answer)
        });
        let asked: Vec<Result<_, Invalid>> = asked.collect();
        engine.store.look_at(looks);
        let before = seen.len();
        for answer in asked {
            seen.push(match answer {
                Ok(answer) => {
                    let answer = heard(answer).await;
                    snapshot(engine.store.label(), answer).map_err(Error::from)
                }
                Err(invalid) => Err(invalid.into()),
            });
        }
        let is_away =
            |seen: &Result<_, Error>| matches!(seen, Err(error) if error.is_unavailable());
        let last = seen.last().cloned();
        if let Some(away) = last.filter(|_| seen[before..].iter().all(is_away)) {
            seen.resize(names.len(), away);
            break;
        }
    }
    seen
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .field("naming", &self.naming)
            .finish_non_exhaustive()
    }
}

/// Settings of a client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
/// use leasehold::Client;
///
/// let client = Client::builder()
///     .namespace("shop")                               // the lock "orders" has the key "shop:orders"
///     .request_timeout(Duration::from_secs(1))
///     .outage_timeout(Duration::from_secs(10))
///     .connect("memory:")                              // or "redis://127.0.0.1/"
///     .await?;
/// let lease = client.mutex("orders").acquire().await?;
/// # drop(lease); client.close().await; Ok(()) }
/// ```
///
/// # Time limits
///
/// | limit | what it ends |
/// |---|---|
/// | [`ClientBuilder::request_timeout`] | one request to the store |
/// | [`ClientBuilder::outage_timeout`] | the wait in the queue, while the store does not answer |
/// | [`ClientBuilder::drop_timeout`] | the drop of the client's last object, while releases are under way |
/// | [`Mutex::acquire_within`](crate::Mutex::acquire_within) | the wait for a busy lock |
/// | [`Mutex::ttl`](crate::Mutex::ttl) | a lease that is not renewed |
/// | [`Mutex::max_hold`](crate::Mutex::max_hold) | a lease, although it is renewed |
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    namespace: Option<String>,
    key_template: Option<String>,
    host: Option<String>,
    request_timeout: Duration,
    outage_timeout: Duration,
    drop_timeout: Duration,
    clock: Clock,
    metric_names: Vec<String>,
    #[cfg(feature = "redis")]
    access: Access,
    /// Replaces the one of the URL, if given.
    #[cfg(feature = "redis")]
    quorum_longest_ttl: Option<Duration>,
    /// Replaces the one of the URL, if given.
    #[cfg(feature = "redis")]
    quorum_durable: Option<bool>,
    quorum_may_be_down: bool,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            namespace: None,
            key_template: None,
            host: None,
            request_timeout: Duration::from_secs(2),
            outage_timeout: Duration::from_secs(30),
            drop_timeout: Duration::from_millis(250),
            clock: Clock::system(),
            metric_names: Vec::new(),
            #[cfg(feature = "redis")]
            access: Access::default(),
            #[cfg(feature = "redis")]
            quorum_longest_ttl: None,
            #[cfg(feature = "redis")]
            quorum_durable: None,
            quorum_may_be_down: false,
        }
    }
}

impl ClientBuilder {
    /// A prefix for all lock names of this client, followed by a colon. Default: none, so the key is the name.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// How the key of a lock is made from its name, to share it with programs that put something around theirs: `lock:{}` for
    /// python-redis-lock, `redlock:{}` for pottery, `mutex:{}` for redis-semaphore. `{}` stands for the name, with the
    /// namespace before it. Default: `{}`, the name itself. Programs that exclude each other must have equal templates.
    pub fn key_template(mut self, template: impl Into<String>) -> Self {
        self.key_template = Some(template.into());
        self
    }

    /// The host that other clients see in the holder. Default: `user@hostname`, or just the host where no user is known.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// The time limit of one request to the store. A third of the TTL counts instead if that is shorter. 10 ms to 60 s; default 2 s.
    ///
    /// When the limit of an acquisition has passed, an answer under way gets an eighth of this more, and at least 250 ms.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// How long a queued acquisition keeps retrying while the store does not answer. Then it fails with
    /// [`Error::Store`](crate::Error::Store). At most 24 h; default 30 s. An acquisition that is not queued yet fails after two seconds.
    pub fn outage_timeout(mut self, outage_timeout: Duration) -> Self {
        self.outage_timeout = outage_timeout;
        self
    }

    /// How long the drop of the last object of this client may block its thread, so that dropped leases are released although the program ends
    /// right after. It waits only while a request is under way, so not at all after a
    /// [`Client::close_within`](crate::Client::close_within) that returned true. Usually it waits for one round trip, and up to 60 ms more
    /// on the thread of a runtime that has no other. At most 60 s; default 250 ms; zero means that it never waits. A client with a [virtual clock](Clock::virtual_time) never waits.
    pub fn drop_timeout(mut self, limit: Duration) -> Self {
        self.drop_timeout = limit;
        self
    }

    /// The clock of the client and of an embedded store. Default: the system's. [`Clock::virtual_time`] needs a tokio runtime: without
    /// one, building the client fails with [`Error::Invalid`](crate::Error::Invalid).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The locks that have their own time series in `metrics`, by the label `lock`: names, or prefixes that end in `*`. All other locks
    /// have the label `other`. Without declared names, there is no such label. Each declared name costs memory for as long as the program
    /// runs, so declare kinds of work, not customers. Default: none.
    #[cfg(feature = "metrics")]
    pub fn metric_names(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.metric_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// A source of user and password. The client asks it at each dial, so the credentials can change while the client lives: a token that
    /// expires, a secret that is rotated. The URL must have no credentials then.
    ///
    /// The source has the time limit of a request. If it takes longer, fails or panics, the client asks it again and reports its error. It
    /// may run on the runtime on which the client was made, so it must not block for long. For servers only. Default: the credentials of the
    /// URL, if any.
    ///
    /// ```no_run
    /// use std::io;
    /// use leasehold::{Client, Credentials};
    ///
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let source = async || {
    ///     let secret = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, io::Error>(Credentials::password(secret.trim_end()))
    /// };
    /// let client = Client::builder().credentials(source).connect("redis://db.internal/").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn credentials<F, E>(mut self, source: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.access.credentials = Some(Source::new(source));
        self
    }

    /// The URLs, read again at each dial. User and password are those of the URL that names the server, so a program that keeps its URL in
    /// a file needs no restart when the file has another password. All else in the URLs has no effect after the start. If none of them
    /// names the server, those of the start count. For servers only.
    ///
    /// `read` may run on the runtime on which the client was made, so it must not block for long.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::Client;
    ///
    /// let read = || std::fs::read_to_string("/run/secrets/redis-url");
    /// let again = move || read().into_iter().collect();
    /// let client = Client::builder().credentials_of_urls(again).connect(&read()?).await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn credentials_of_urls(
        mut self,
        read: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.access.credentials = Some(Source::Urls(Arc::new(read)));
        self
    }

    /// Makes the streams to servers by a function of the program, instead of TCP connections: through a tunnel, a proxy or a service mesh, over
    /// simulated networks, or to a server in the same process. The function gets host and port, as the URL has them, and returns any stream.
    ///
    /// The client calls it at each dial: at the start, after each loss of a connection, and for each node of a cluster, each sentinel and each
    /// server of a quorum. A server without RESP3 gets two streams. Login, TLS (`rediss://`, with the host of the URL) and all else go over the
    /// stream as over a TCP connection.
    ///
    /// The function has the time limit of a request. Its error is told in that of the client, which calls it again. tokio's streams and tasks
    /// that it makes belong to the client's own runtime, so they outlive the caller's. It may be polled on the runtime on which the client was
    /// made, so it must not block for long. The client sets no options of the stream: for TCP, better set `TCP_NODELAY`, and keep-alive where a
    /// firewall forgets idle connections. Not for a `unix:` URL.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    /// use tokio::net::TcpStream;
    ///
    /// let dial = async |host: String, port: u16| {
    ///     println!("dialing {host}:{port}");
    ///     let stream = TcpStream::connect(("127.0.0.1", 16379)).await?; // the near end of a tunnel
    ///     stream.set_nodelay(true)?;
    ///     Ok(stream)
    /// };
    /// let client = Client::builder().dial(dial).connect("redis://db.internal/").await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    #[doc(alias = "connect_with")]
    pub fn dial<F, S>(mut self, dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.access.dialer = Some(Dialer::new(dial));
        self
    }

    /// The longest TTL of a lease in a quorum. A longer TTL is refused. A server that lost its memory gives no vote for a little longer than
    /// this. All clients of the quorum must have the same value. 10 ms to 24 h; default 60 s.
    ///
    /// It replaces the option `max_ttl` of a URL. It has no effect on a store that is not a quorum.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Client;
    ///
    /// let builder = Client::builder().quorum_longest_ttl(Duration::from_secs(30));
    /// let client = builder.connect("redis+quorum://a.internal,b.internal,c.internal/").await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn quorum_longest_ttl(mut self, longest: Duration) -> Self {
        self.quorum_longest_ttl = Some(longest);
        self
    }

    /// Whether each server of a quorum writes a change to its disk before it answers, as with `appendfsync always`. The client then trusts a
    /// server that has restarted. Only set it if that is so for all servers: otherwise two clients may hold one lock. Default: false.
    ///
    /// It replaces the option `durable` of a URL. It has no effect on a store that is not a quorum.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let client = Client::builder().quorum_durable(true).connect_quorum(servers).await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn quorum_durable(mut self, durable: bool) -> Self {
        self.quorum_durable = Some(durable);
        self
    }

    /// Makes the client of a quorum also if no majority of the servers accepts it, whatever the reason: they are down, or refuse the
    /// password, or this client refuses their certificates. Connecting then returns no error, and the event `connected` does not come.
    /// [`Client::inspect_nodes`] shows the answer of each server. [`Client::inspect`] and requests for locks fail until a majority accepts
    /// the client. A store that is not a quorum is not affected. Default: connecting fails.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let builder = Client::builder().quorum_may_be_down();
    /// let client = builder.connect("redis+quorum://a.internal,b.internal,c.internal/").await?;
    /// for view in client.inspect_nodes("orders:42").await?.nodes {
    ///     println!("{}: {:?}", view.node, view.seen);
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn quorum_may_be_down(mut self) -> Self {
        self.quorum_may_be_down = true;
        self
    }

    /// The settings of encrypted connections ([`Tls`](crate::Tls)), or a whole [`ClientConfig`](rustls::ClientConfig) of
    /// [`leasehold::rustls`](crate::rustls). They count for each `rediss://` server. A URL without TLS is refused then, and so is one with
    /// TLS options of its own. Default: the options of the URL.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use leasehold::Client;
    /// use leasehold::rustls::{ClientConfig, RootCertStore, crypto::ring};
    ///
    /// # async fn example(authorities: RootCertStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
    ///     .with_safe_default_protocol_versions()?
    ///     .with_root_certificates(authorities)
    ///     .with_no_client_auth();
    /// let client = Client::builder().tls(config).connect("rediss://db.internal/").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: impl Into<crate::tls::Tls>) -> Self {
        self.access.tls = Some(tls.into());
        self
    }

    /// Connects to the store at `url`; see [`Client::connect`] for the forms of a URL.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL, [`Error::Store`] when the store does not answer as it should.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. No lock has been taken by then.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let target = self.target(url)?;
        self.connect_to(target).await
    }

    /// Connects to a quorum of 3 to 9 independent servers, one URL each: `redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix:`. A
    /// majority of them decides about each lock. The servers must not replicate each other. All clients must name the same servers.
    ///
    /// The URL `redis+quorum://host1,host2,host3/` for [`ClientBuilder::connect`] means the same; see [`Client::connect`].
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Client;
    ///
    /// let client = Client::builder()
    ///     .quorum_longest_ttl(Duration::from_secs(30))
    ///     .connect_quorum(["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"])
    ///     .await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL, for less than 3 or more than 9 servers, for a server that is named twice, and for the
    /// URL of a quorum among the URLs. [`Error::Store`] when less than a majority of the servers answer as they should.
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::connect`].
    #[cfg(feature = "redis")]
    pub async fn connect_quorum(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Client, Error> {
        let target = self.with_settings(store::Target::quorum(urls)?)?;
        self.connect_to(target).await
    }

    async fn connect_to(self, target: store::Target) -> Result<Client, Error> {
        let may_be_down = self.quorum_may_be_down;
        let client = self.build(|attach| store::open(target, attach))?;
        let (telemetry, store) = (&client.engine.telemetry, &client.engine.store);
        telemetry.observe(Observation::Connecting(store.label()));
        let ready = client
            .engine
            .run(|engine| async move { engine.telemetry.answered(engine.store.ready().await) })
            .await;
        match ready {
            Ok(()) => telemetry.observe(Observation::Connected(store.label())),
            Err(_) if may_be_down && !store.nodes().is_empty() => {}
            Err(error) => {
                client.engine.close().await;
                return Err(error);
            }
        }
        Ok(client)
    }

    /// Gathers the facts that decide whether the store at `url` is fit for locks. On Redis it uses a scratch lock
    /// `leasehold:doctor:*`, removes it, and changes nothing else. It takes about five seconds, or well under one second if
    /// `how` is quick, always in real time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let how = Examination::new(Duration::from_secs(30)).quick(true);
    /// let examined = Client::builder().examine("memory:", &how).await?;
    /// println!("{:?}", examined.facts);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL. [`Error::Store`] if no store answers. A refusal by the store is a fact, not an error.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the examination ends by itself on its own thread, and removes its scratch lock.
    #[cfg(feature = "doctor")]
    pub async fn examine(self, url: &str, how: &Examination) -> Result<Examined, Error> {
        let target = self.target(url)?;
        self.examine_target(target, how).await
    }

    /// The same for a quorum of servers, as [`ClientBuilder::connect_quorum`] takes them. It uses a scratch lock on each server, and takes no
    /// vote.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let how = Examination::new(Duration::from_secs(30));
    /// println!("{:?}", Client::builder().examine_quorum(servers, &how).await?.facts);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::examine`]; [`Error::Store`] if no server answers.
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::examine`].
    #[cfg(all(feature = "doctor", feature = "redis"))]
    pub async fn examine_quorum(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
        how: &Examination,
    ) -> Result<Examined, Error> {
        let target = self.with_settings(store::Target::quorum(urls)?)?;
        self.examine_target(target, how).await
    }

    #[cfg(feature = "doctor")]
    async fn examine_target(
        &self,
        target: store::Target,
        how: &Examination,
    ) -> Result<Examined, Error> {
        self.check_request_timeout()?;
        let how = how.clone().keys(self.naming()?.pattern(&how.keys));
        let limit = self.request_timeout;
        aside("leasehold-doctor", async move {
            store::examine(&target, &how, limit).await
        })
        .await
    }

    /// Marks the servers of a new quorum, so that they vote at once. Without a mark, a server may have lost its data: the first client that
    /// asks it for a vote marks it, and it keeps out until all leases from before have ended. `urls` are the servers, or one URL of a
    /// quorum, as for [`ClientBuilder::connect_quorum`] and [`ClientBuilder::connect`].
    ///
    /// Servers that have the mark of this quorum are left alone. With `again`, other marks are replaced: to change the number of servers or
    /// the longest TTL. Before that, stop all clients. The servers then vote when all leases under the former terms have ended.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, QuorumInit};
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// if Client::builder().init_quorum(servers, false).await? == QuorumInit::New {
    ///     println!("all servers vote now");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL. [`Error::Store`] when a server does not answer, is a replica, is named twice, or has
    /// another mark. Then no server was changed, unless a server failed between the first look and its mark.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the work ends by itself on its own thread.
    #[cfg(feature = "redis")]
    pub async fn init_quorum(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
        again: bool,
    ) -> Result<QuorumInit, Error> {
        self.check_request_timeout()?;
        let urls: Vec<String> = urls
            .into_iter()
            .map(|url| url.as_ref().to_owned())
            .collect();
        let target = match &urls[..] {
            [url] => self.target(url)?,
            urls => self.with_settings(store::Target::quorum(urls)?)?,
        };
        let limit = self.request_timeout;
        aside("leasehold-quorum", async move {
            store::init_quorum(&target, again, limit).await
        })
        .await
    }

    /// A client of `memory`. Other clients of this process may use the same [`Memory`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, Clock, Memory};
    ///
    /// let memory = Memory::new(Clock::system());
    /// let here = Client::builder().embedded(&memory)?;
    /// let there = Client::builder().embedded(&memory)?;
    /// let lease = here.mutex("orders").acquire().await?;
    /// assert!(there.mutex("orders").try_acquire().await?.is_none());
    /// # drop(lease); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting, [`Error::Store`] when the system refuses a thread.
    pub fn embedded(self, memory: &Memory) -> Result<Client, Error> {
        self.build(|attach| Ok(Arc::new(memory.attach(attach))))
    }

    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_self, reason = "only servers have settings")
    )]
    fn target(&self, url: &str) -> Result<store::Target, Invalid> {
        let target = store::Target::parse(url)?;
        #[cfg(feature = "redis")]
        let target = self.with_settings(target)?;
        Ok(target)
    }

    /// Adds the settings for servers.
    #[cfg(feature = "redis")]
    fn with_settings(&self, target: store::Target) -> Result<store::Target, Invalid> {
        let (longest_ttl, durable) = (self.quorum_longest_ttl, self.quorum_durable);
        target.with(&self.access, longest_ttl, durable)
    }

    fn check_request_timeout(&self) -> Result<(), Invalid> {
        within(
            "request timeout",
            self.request_timeout,
            Duration::from_millis(10),
            Duration::from_secs(60),
        )
    }

    /// The key template around the namespace.
    fn naming(&self) -> Result<Naming, Invalid> {
        self.naming_by(self.key_template.as_deref())
    }

    fn naming_by(&self, template: Option<&str>) -> Result<Naming, Invalid> {
        let namespace = self.namespace.as_deref().map(Namespace::new).transpose()?;
        let template = template.map(KeyTemplate::new);
        Ok(Naming::new(
            template.transpose()?.as_ref(),
            namespace.as_ref(),
        ))
    }

    pub(crate) fn build(
        self,
        open: impl FnOnce(Attach) -> Result<Arc<dyn Store>, Error>,
    ) -> Result<Client, Error> {
        self.check_request_timeout()?;
        within(
            "outage timeout",
            self.outage_timeout,
            Duration::ZERO,
            Duration::from_secs(24 * 60 * 60),
        )?;
        let longest = Duration::from_secs(60);
        within("drop timeout", self.drop_timeout, Duration::ZERO, longest)?;
        let limit = self.request_timeout;
        let naming = self.naming()?;
        #[cfg(feature = "entries")]
        let entry_naming = self.naming_by(None)?;
        let identity = Identity::new(self.host)?;

        let wire = NoticeSink::default();
        let (start, started) = oneshot::channel::<BoxFuture<'static, ()>>();
        let main = move || async move {
            // An error: there is no store, so there is nothing to keep.
            if let Ok(run) = started.await {
                run.await;
            }
        };
        let tasks = if self.clock.is_virtual() {
            let tasks = Tasks::here().ok_or_else(no_runtime)?;
            drop(tasks.handle().spawn(main()));
            tasks
        } else {
            Tasks::on_thread(format!("lh-{}", identity.client), main)
                .map_err(|error| StoreError::new("client", StoreErrorKind::Exhausted, error))?
        };
        let attach = Attach {
            client: identity.client,
            listener: wire.listener(),
            clock: self.clock.clone(),
            tasks: tasks.clone(),
            limit,
        };
        let store = open(attach)?;
        let telemetry = Telemetry::here(&self.metric_names, &store.nodes());
        let plan = EngineConfig {
            clock: self.clock,
            tasks,
            identity,
            outage_timeout: self.outage_timeout,
            request_timeout: self.request_timeout,
            telemetry,
        };
        let (engine, run) = Engine::new(store, plan, &wire);
        let engine = EngineHandle::new(engine, self.drop_timeout);
        // Fails only if the thread has ended, which every later request will say.
        drop(start.send(run.boxed()));
        Ok(Client {
            #[cfg(feature = "entries")]
            entry_naming,
            engine,
            naming,
            close_limit: (limit * 2).max(Duration::from_secs(1)),
        })
    }
}

/// Does work on a thread of its own, since the caller may be on any executor.
#[cfg(any(feature = "doctor", feature = "redis"))]
async fn aside<T: Send + 'static>(
    thread: &str,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    let main = move || async move {
        // Fails if the caller has gone.
        drop(reply.send(work.await));
    };
    let _started: Tasks = Tasks::on_thread(thread.into(), main)
        .map_err(|error| StoreError::new("client", StoreErrorKind::Exhausted, error))?;
    answer.await.map_err(|_| StoreError::closed())?
}

fn no_runtime() -> Invalid {
    let why = "virtual time follows a tokio runtime, and there is none here: connect inside of one, as in a \
               #[tokio::test(start_paused = true)], or use Clock::system()";
    Invalid::new("clock", "virtual time", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request would time out, or none ever.
    #[cfg(feature = "doctor")]
    #[tokio::test]
    async fn examine_refuses_timeouts_that_connect_refuses() {
        for timeout in [Duration::ZERO, Duration::from_secs(61)] {
            let builder = || Client::builder().request_timeout(timeout);
            let how = Examination::new(Duration::from_secs(30));
            let refused = builder().examine("memory:", &how).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            let refused = builder().connect("memory:").await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
}
