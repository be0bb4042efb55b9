//! The extension module `leasehold_redis._core`: clients, leases and calls. Its faces for programs are written in Python beside it.

mod cache;
mod call;
mod errors;
mod once;

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select_all};
use leasehold::kind::{AnyKind, Kind};
use leasehold::{Error, Fence, LeaseEnd, Leases, Lock, LossWatch, Lost};
use leasehold_cache::{Cache, Policy, Raw};
use pyo3::prelude::*;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::oneshot::{self, Receiver, Sender};

use call::{Answer, Call, Messenger, OnWait, Own, locked};
use once::Once;

/// A connection to a store, and the locks that it holds.
#[pyclass(frozen)]
pub(crate) struct Client {
    library: Own<leasehold::Client>,
    /// Made with its first use.
    cache: Own<OnceLock<Cache<Raw>>>,
    messenger: Messenger,
}

impl Client {
    fn new(client: leasehold::Client, messenger: Messenger) -> Self {
        Self {
            library: Own::new(client),
            cache: Own::new(OnceLock::new()),
            messenger,
        }
    }

    fn cache(&self) -> PyResult<Cache<Raw>> {
        let client = self.library.get()?;
        Ok(self
            .cache
            .get()?
            .get_or_init(|| Cache::new(client).raw())
            .clone())
    }
}

/// How a lock is to be held, and for how long.
struct Terms {
    ttl: Duration,
    note: String,
    renew: bool,
    max_hold: Option<Duration>,
    on_wait: Option<OnWait>,
}

impl Terms {
    fn new(ttl: f64, note: String, renew: bool, max_hold: Option<f64>) -> PyResult<Self> {
        Ok(Self {
            ttl: errors::seconds(ttl)?,
            note,
            renew,
            max_hold: max_hold.map(errors::seconds).transpose()?,
            on_wait: None,
        })
    }

    fn of<K: Kind>(&self, mut lock: Lock<K>) -> Lock<K> {
        lock = lock.ttl(self.ttl).note(&self.note).auto_renew(self.renew);
        if let Some(max_hold) = self.max_hold {
            lock = lock.max_hold(max_hold);
        }
        if let Some(watch) = self.on_wait.clone() {
            lock = lock.on_wait(move |status| watch(status));
        }
        lock
    }
}

#[pymethods]
impl Client {
    /// A call that connects to the store at `url`.
    #[staticmethod]
    #[pyo3(signature = (url, *, namespace=None, key_template=None, request_timeout=None, outage_timeout=None))]
    fn connect(
        url: String,
        namespace: Option<String>,
        key_template: Option<String>,
        request_timeout: Option<f64>,
        outage_timeout: Option<f64>,
    ) -> PyResult<Call> {
        let mut builder = leasehold::Client::builder();
        if let Some(namespace) = namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(template) = key_template {
            builder = builder.key_template(template);
        }
        if let Some(limit) = request_timeout {
            builder = builder.request_timeout(errors::seconds(limit)?);
        }
        if let Some(limit) = outage_timeout {
            builder = builder.outage_timeout(errors::seconds(limit)?);
        }
        let messenger = Messenger::here()?;
        let connected = messenger.clone();
        Ok(Call::new(&messenger, false, async move {
            Ok(Answer::Client(builder.connect(&url).await?, connected))
        }))
    }

    /// The address of the store, without user and password.
    #[getter]
    fn store(&self) -> PyResult<&str> {
        Ok(self.library.get()?.store())
    }

    /// A call that takes these locks together: pairs of a name and a mode, `exclusive`, `shared`, or `slot/4`. Its answer is None if it is only
    /// tried (`limit` 0) and one of them is busy.
    #[pyo3(signature = (locks, *, ttl, note, renew, max_hold, limit, on_wait))]
    #[expect(clippy::too_many_arguments, reason = "each has its name in Python")]
    fn acquire(
        &self,
        locks: Vec<(String, String)>,
        ttl: f64,
        note: String,
        renew: bool,
        max_hold: Option<f64>,
        limit: Option<f64>,
        on_wait: Option<Py<PyAny>>,
    ) -> PyResult<Call> {
        let client = self.library.get()?;
        let on_wait = on_wait.map(Arc::new);
        let mut terms = Terms::new(ttl, note, renew, max_hold)?;
        if let Some(watch) = on_wait.clone() {
            terms.on_wait = Some(self.messenger.on_wait(watch));
        }
        let limit = limit.map(errors::seconds).transpose()?;
        let messenger = self.messenger.clone();
        if let [(name, mode)] = locks.as_slice()
            && mode == "exclusive"
        {
            let mutex = terms.of(client.mutex(name));
            return Ok(Call::new(&self.messenger, false, async move {
                Ok(take(&mutex, limit).await?.map_or(Answer::Nothing, |lease| {
                    Answer::Lease(Lease::of_mutex(lease, messenger))
                }))
            })
            .watched_by(on_wait));
        }
        let mut all = client.all([]);
        for (name, mode) in &locks {
            all = match mode.split_once('/') {
                Some((_, slots)) => all.and(&terms.of(client.semaphore(name, slots.parse()?))),
                None if mode == "shared" => all.and(&terms.of(client.rw_lock(name).read())),
                None => all.and(&terms.of(client.mutex(name))),
            };
        }
        Ok(Call::new(&self.messenger, false, async move {
            let leases = match limit {
                None => Some(all.acquire().await?),
                Some(Duration::ZERO) => all.try_acquire().await?,
                Some(limit) => Some(all.acquire_within(limit).await?),
            };
            Ok(leases.map_or(Answer::Nothing, |leases| {
                Answer::Lease(Lease::of_several(leases, messenger))
            }))
        })
        .watched_by(on_wait))
    }

    /// Work that is done once: a firing of the work under a mutex.
    #[pyo3(signature = (name, firing, *, ttl, note, renew, max_hold, tries, keep))]
    #[expect(clippy::too_many_arguments, reason = "each has its name in Python")]
    fn once(
        &self,
        name: &str,
        firing: &str,
        ttl: f64,
        note: String,
        renew: bool,
        max_hold: Option<f64>,
        tries: Option<u32>,
        keep: f64,
    ) -> PyResult<Once> {
        let mutex = Terms::new(ttl, note, renew, max_hold)?.of(self.library.get()?.mutex(name));
        let mut once = mutex.once(firing).keep(errors::seconds(keep)?);
        if let Some(tries) = tries {
            once = once.tries(tries);
        }
        Ok(Once::new(mutex, once, self.messenger.clone()))
    }

    /// A call whose answer is the cached value of this key. If it is to be loaded here, `load(reply)` is called by the client's own thread.
    #[pyo3(signature = (key, *, fresh, stale, limit, must_be_fresh, load))]
    fn get_or_refresh(
        &self,
        key: String,
        fresh: f64,
        stale: f64,
        limit: f64,
        must_be_fresh: bool,
        load: Py<PyAny>,
    ) -> PyResult<Call> {
        let policy = Policy::default()
            .fresh_for(errors::seconds(fresh)?)
            .stale_for(errors::seconds(stale)?)
            .wait_at_most(errors::seconds(limit)?)
            .must_be_fresh(must_be_fresh);
        let cache = self.cache()?;
        let loader = cache::loader(&self.messenger, load);
        Ok(Call::new(&self.messenger, false, async move {
            let value = cache.get_or_refresh(key, loader).policy(policy).await?;
            Ok(Answer::Value(value.into_shared()))
        }))
    }

    /// A call that makes the cached value of this key stale, or removes it.
    fn invalidate(&self, key: String, remove: bool) -> PyResult<Call> {
        let cache = self.cache()?;
        Ok(Call::new(&self.messenger, false, async move {
            if remove {
                cache.remove(key).await?;
            } else {
                cache.invalidate(key).await?;
            }
            Ok(Answer::Nothing)
        }))
    }

    /// A call that releases all locks. Its answer says whether the store has confirmed that.
    fn close(&self) -> PyResult<Call> {
        let client = self.library.get()?.clone();
        Ok(Call::new(&self.messenger, true, async move {
            Ok(Answer::IsConfirmed(client.close().await))
        }))
    }
}

/// Takes the mutex within `limit`; None if it is only tried (0) and busy.
async fn take(
    mutex: &leasehold::Mutex,
    limit: Option<Duration>,
) -> Result<Option<leasehold::Lease>, Error> {
    Ok(match limit {
        None => Some(mutex.acquire().await?),
        Some(Duration::ZERO) => mutex.try_acquire().await?,
        Some(limit) => Some(mutex.acquire_within(limit).await?),
    })
}

/// What is held: one mutex, whose lease can do more, or other locks.
enum Held {
    Mutex(leasehold::Lease),
    Several(Leases),
}

/// What is held, and the ends of the requests about it.
struct Current {
    held: Own<Arc<Held>>,
    requests: Vec<Receiver<()>>,
}

impl Current {
    fn new(held: Held) -> Mutex<Option<Self>> {
        let held = Own::new(Arc::new(held));
        let requests = Vec::new();
        Mutex::new(Some(Self { held, requests }))
    }

    /// Whether requests are under way.
    fn is_in_use(&mut self) -> bool {
        let is_open = |ended: &mut Receiver<()>| ended.try_recv() == Err(TryRecvError::Empty);
        self.requests.retain_mut(is_open);
        !self.requests.is_empty()
    }

    /// What is held, once the requests about it have ended.
    async fn alone(self) -> Option<Held> {
        for ended in self.requests {
            let _gone = ended.await;
        }
        self.held.into_value().and_then(Arc::into_inner)
    }
}

/// What is held, for one request. The end of the request is told after the use.
pub(crate) struct InUse {
    held: Arc<Held>,
    _end: Sender<()>,
}

impl Deref for InUse {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

/// A watch on one lease.
#[derive(Clone)]
enum Watch {
    Mutex(LossWatch),
    Any(LossWatch<AnyKind>),
}

impl Watch {
    fn end(&self) -> Option<LeaseEnd> {
        match self {
            Self::Mutex(watch) => watch.end(),
            Self::Any(watch) => watch.end(),
        }
    }

    async fn ended(self) -> LeaseEnd {
        match self {
            Self::Mutex(watch) => watch.ended().await,
            Self::Any(watch) => watch.ended().await,
        }
    }
}

/// Locks that are held. The client renews them. Dropping it releases them.
#[pyclass(frozen)]
pub(crate) struct Lease {
    /// None after the release. Python does not run while it is locked: another thread would wait for this mutex with the GIL.
    held: Mutex<Option<Current>>,
    watches: Own<Vec<Watch>>,
    messenger: Messenger,
    /// The names of the locks, in the order of their keys.
    #[pyo3(get)]
    names: Vec<String>,
    /// The fence of the first lock, if it has one.
    #[pyo3(get)]
    fence: Option<u64>,
    /// The slot of the first lock, if it has one.
    #[pyo3(get)]
    slot: Option<u16>,
    /// The mode of the first lock.
    #[pyo3(get)]
    mode: String,
    /// The value of the lock's key in the store, of a mutex.
    #[pyo3(get)]
    token: Option<String>,
}

impl Lease {
    fn of_mutex(lease: leasehold::Lease, messenger: Messenger) -> Self {
        Self {
            watches: Own::new(vec![Watch::Mutex(lease.watch())]),
            names: vec![lease.name().to_owned()],
            fence: Some(lease.fence().get()),
            slot: None,
            mode: lease.mode().to_string(),
            token: Some(lease.token()),
            held: Current::new(Held::Mutex(lease)),
            messenger,
        }
    }

    fn of_several(leases: Leases, messenger: Messenger) -> Self {
        let first = leases.iter().next();
        Self {
            watches: Own::new(
                leases
                    .iter()
                    .map(|lease| Watch::Any(lease.watch()))
                    .collect(),
            ),
            names: leases.iter().map(|lease| lease.name().to_owned()).collect(),
            fence: first
                .and_then(leasehold::Lease::<AnyKind>::fence)
                .map(Fence::get),
            slot: first
                .and_then(leasehold::Lease::<AnyKind>::slot)
                .map(|slot| slot.number),
            mode: first
                .map(|lease| lease.mode().to_string())
                .unwrap_or_default(),
            token: None,
            held: Current::new(Held::Several(leases)),
            messenger,
        }
    }

    fn lost(&self) -> PyResult<Option<Lost>> {
        Ok(self
            .watches
            .get()?
            .iter()
            .find_map(|watch| match watch.end() {
                Some(LeaseEnd::Lost(lost)) => Some(lost),
                _ => None,
            }))
    }

    /// What `look` sees of what is held, or the exception for a lease that is not. `look` does not run Python.
    fn seen<T>(&self, look: impl FnOnce(&Held) -> T) -> PyResult<T> {
        self.watches.get()?;
        let seen = (locked(&self.held).as_ref())
            .and_then(|current| current.held.mine().map(|held| look(held)));
        seen.ok_or_else(|| self.released())
    }

    /// What is held, for a request.
    fn in_use(&self) -> PyResult<InUse> {
        self.watches.get()?;
        let in_use = locked(&self.held).as_mut().and_then(|current| {
            current.is_in_use();
            let held = current.held.mine()?.clone();
            let (end, ended) = oneshot::channel();
            current.requests.push(ended);
            Some(InUse { held, _end: end })
        });
        in_use.ok_or_else(|| self.released())
    }

    /// Takes what is held, to end it.
    fn take(&self) -> PyResult<Current> {
        self.watches.get()?;
        let taken = locked(&self.held).take();
        taken.ok_or_else(|| self.released())
    }

    fn released(&self) -> PyErr {
        errors::refused(
            &format!("the lease on \"{}\" was released", self.names.join(", ")),
            true,
        )
    }

    fn call(&self, work: impl Future<Output = Result<(), Error>> + Send + 'static) -> Call {
        Call::new(&self.messenger, true, async move {
            work.await?;
            Ok(Answer::Nothing)
        })
    }
}

#[pymethods]
impl Lease {
    /// Seconds until the deadline, unless the lease is renewed before. Raises the loss. Asks no server.
    fn check(&self, py: Python<'_>) -> PyResult<f64> {
        if let Some(lost) = self.lost()? {
            return Err(errors::of(py, lost.into(), true));
        }
        let left = self.seen(|held| match held {
            Held::Mutex(lease) => lease.valid_for(),
            Held::Several(leases) => leases.valid_for(),
        })?;
        Ok(left.as_secs_f64())
    }

    /// Why the last renewal failed, if the lease is not lost.
    fn doubt(&self) -> PyResult<Option<String>> {
        self.seen(|held| match held {
            Held::Mutex(lease) => lease.doubt(),
            Held::Several(leases) => leases.doubt(),
        })
    }

    /// The loss as an exception, or None.
    fn loss(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let lost = self.lost()?;
        Ok(lost.map(|lost| errors::of(py, lost.into(), true).into_value(py).into_any()))
    }

    /// A call whose answer is the loss as an exception, or None after the release.
    fn ended(&self) -> PyResult<Call> {
        let watches = self.watches.get()?.iter().cloned();
        let ends: Vec<BoxFuture<'static, LeaseEnd>> =
            watches.map(|watch| watch.ended().boxed()).collect();
        Ok(Call::new(&self.messenger, true, async move {
            let (end, _, _) = select_all(ends).await;
            Ok(Answer::End(match end {
                LeaseEnd::Lost(lost) => Some(lost),
                _ => None,
            }))
        }))
    }

    /// A call that renews the lease now, for `ttl` seconds from now.
    fn extend(&self, ttl: f64) -> PyResult<Call> {
        let (ttl, held) = (errors::seconds(ttl)?, self.in_use()?);
        Ok(self.call(async move {
            match &*held {
                Held::Mutex(lease) => lease.extend(ttl).await,
                Held::Several(leases) => {
                    for lease in leases.iter() {
                        lease.extend(ttl).await?;
                    }
                    Ok(())
                }
            }
        }))
    }

    /// A call that releases the locks, after the requests about them that are under way; if one of several was lost, the others. Raises the
    /// loss.
    fn release(&self, py: Python<'_>) -> PyResult<Call> {
        let lost = self.lost()?;
        let held = self
            .take()
            .map_err(|ended| lost.map_or(ended, |lost| errors::of(py, lost.into(), true)))?;
        Ok(self.call(async move {
            match held.alone().await {
                Some(Held::Mutex(lease)) => lease.release().await,
                Some(Held::Several(leases)) => leases.release().await,
                None => Ok(()),
            }
        }))
    }

    /// Ends the lease, but its mutex stays taken until the deadline. Waits for no answer.
    fn leave(&self) -> PyResult<()> {
        let is_in_use = locked(&self.held).as_mut().is_some_and(Current::is_in_use);
        if is_in_use {
            let why = "another request about this lease is under way";
            return Err(errors::refused(why, true));
        }
        let held = self.take()?.held.into_value().and_then(Arc::into_inner);
        let Some(Held::Mutex(lease)) = held else {
            return Ok(());
        };
        let left = lease.valid_for();
        // After its first poll the request goes on by itself.
        drop(lease.release_after(left).now_or_never());
        Ok(())
    }
}

#[pymodule(name = "_core")]
mod core {
    use std::sync::OnceLock;

    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::call::{Call, end_messenger};
    #[pymodule_export]
    use super::{Client, Lease, cache::Reply, once::Once};

    /// The interpreter that has imported this module, by the address of its `sys`. Classes and threads of the module serve one.
    static HOME: OnceLock<usize> = OnceLock::new();

    #[pymodule_init]
    fn refuse_others(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let here = module.py().import("sys")?.as_ptr() as usize;
        if *HOME.get_or_init(|| here) == here {
            return Ok(());
        }
        Err(PyImportError::new_err(
            "leasehold_redis serves one interpreter of a process: start a process instead of a sub-interpreter",
        ))
    }
}
