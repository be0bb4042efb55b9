//! Several locks at once: [`Client::all`].
//!
//! # Invariants
//!
//! - **A1** Whoever waits for a lock holds only locks before it in the order of keys. So callers that take several locks in this way never
//!   wait for each other in a circle.
//! - **A2** Either all locks are handed out, or each one is released: also if the future is dropped, one is lost on the way, or the time is
//!   over.

use std::time::Duration;
use std::{fmt, slice};

use futures_util::future::{join_all, pending, select_all};
use leasehold_core::Invalid;

use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Lost, StoreError};
use crate::kind::{AnyKind, Kind, sealed};
use crate::lease::{EngineHandle, Lease, WaitLimit, done, unless_lost};
use crate::mutex::Lock;

/// The most locks that are taken at once.
const MOST: usize = 32;

/// Several locks that are taken together, or not at all. Made by [`Client::all`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// let (from, to) = (client.mutex("account:7"), client.mutex("account:3"));
/// let both = client.all([&from, &to]).acquire().await?;
/// println!("from {:?} to {:?}", both.get("account:7"), both.get("account:3"));
/// both.release().await?;
/// # client.close().await; Ok(()) }
/// ```
///
/// They may be of different kinds:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// let (report, prices) = (client.mutex("report"), client.rw_lock("prices").read());
/// let workers = client.semaphore("workers", 4);
/// let leases = client.all([&report, &prices, &workers]).acquire().await?;
/// let slot = leases.get("workers").and_then(|lease| lease.slot());
/// println!("worker {:?}", slot.map(|slot| slot.number));
/// leases.release().await?;
/// # client.close().await; Ok(()) }
/// ```
///
/// If all of them are free, one round trip takes them. Otherwise they are taken one after the other in the order of their keys, whatever the
/// order of the arguments. So two callers that take the same locks never wait for each other without end. That holds only among callers that
/// take all of their locks in this way: do not wait for several while you hold another one.
///
/// Each lock keeps its settings, and its lease is renewed by itself. [`Lock::at_least`] counts from the moment when all are held.
#[derive(Clone)]
#[must_use = "it does nothing until it is acquired"]
pub struct All {
    locks: Vec<Lock<AnyKind>>,
    engine: EngineHandle,
}

/// A lock of any kind, as [`Client::all`] takes it: a [`Mutex`](crate::Mutex), a [`ReadLock`](crate::ReadLock) or a
/// [`Semaphore`](crate::Semaphore), also a blocking one.
pub trait AnyLock: sealed::Sealed {
    #[doc(hidden)]
    fn any(&self) -> Lock<AnyKind>;
}

impl<K: Kind> sealed::Sealed for Lock<K> {}

impl<K: Kind> AnyLock for Lock<K> {
    fn any(&self) -> Lock<AnyKind> {
        self.of_kind()
    }
}

/// Leases of several locks, in the order of their keys. Dropping them releases the locks.
#[must_use = "dropping the leases releases the locks"]
pub struct Leases {
    leases: Vec<Lease<AnyKind>>,
}

impl Client {
    /// These locks together: 1 to 32 locks of this client, of any kinds, with different names. Does no I/O. What is not allowed is reported
    /// when they are acquired. [`All::and`] adds locks whose number only the running program knows.
    pub fn all<const N: usize>(&self, locks: [&dyn AnyLock; N]) -> All {
        All {
            locks: locks.map(AnyLock::any).into(),
            engine: self.engine.clone(),
        }
    }
}

impl All {
    /// This lock too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let order = ["item:3", "item:7"].map(|item| client.mutex(item));
    /// let all = order.iter().fold(client.all([]), |all, item| all.and(item));
    /// all.acquire().await?.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    pub fn and(mut self, lock: &dyn AnyLock) -> Self {
        self.locks.push(lock.any());
        self
    }

    /// The locks in the order of their keys, none twice.
    fn in_order(&self) -> Result<Vec<&Lock<AnyKind>>, Invalid> {
        let mut locks: Vec<_> = self.locks.iter().collect();
        if locks.is_empty() || locks.len() > MOST {
            let why = format!("takes 1 to {MOST} locks at once");
            return Err(Invalid::new(
                "number of locks",
                &locks.len().to_string(),
                why,
            ));
        }
        for lock in &locks {
            let name = lock.name.as_ref().map_err(Invalid::clone)?;
            if !lock.engine.is(&self.engine) {
                let why = "belongs to another client; take all locks by one";
                return Err(Invalid::new("lock name", name.as_str(), why));
            }
        }
        locks.sort_by(|a, b| a.name.as_ref().ok().cmp(&b.name.as_ref().ok()));
        for pair in locks.windows(2) {
            if let [Ok(a), Ok(b)] = [&pair[0].name, &pair[1].name]
                && a == b
            {
                let why = "is there twice, and a lock is not re-entrant";
                return Err(Invalid::new("lock name", a.as_str(), why));
            }
        }
        Ok(locks)
    }

    /// Waits for all locks. While it waits for one, it may hold others.
    ///
    /// # Errors
    /// As [`Lock::acquire`], for any of the locks. [`Error::Lost`] when a lock that it held was lost before it had all. [`Error::Invalid`] for
    /// no lock, more than 32, a name that comes twice, and a lock of another client.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it holds, and leaves the queue.
    pub async fn acquire(&self) -> Result<Leases, Error> {
        let leases = self.request(WaitLimit::Forever).await?;
        leases.ok_or_else(|| StoreError::closed().into())
    }

    /// Waits for all locks for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the name of the lock that was busy at the limit; otherwise as [`All::acquire`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Leases, Error> {
        let leases = self.request(WaitLimit::Within(limit)).await?;
        leases.ok_or_else(|| StoreError::closed().into())
    }

    /// Asks once for all locks: `None` when one of them is busy. Then it holds none.
    ///
    /// # Errors
    /// As [`All::acquire`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Leases>, Error> {
        self.request(WaitLimit::Once).await
    }

    /// Waits for all locks, runs `work` under them, and releases them: [`All::acquire`], then [`Leases::run`].
    ///
    /// # Errors
    /// As [`All::acquire`], before `work` began. Then as [`Leases::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` at its current `.await`, and releases the locks in the background.
    pub async fn run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Leases) -> Result<T, E>,
    ) -> Result<T, E> {
        self.acquire().await?.run(work).await
    }

    async fn request(&self, limit: WaitLimit) -> Result<Option<Leases>, Error> {
        let (locks, clock) = (self.in_order()?, &self.engine.clock);
        let begun = clock.now();
        let left = || match limit {
            WaitLimit::Within(limit) => {
                WaitLimit::Within(limit.saturating_sub(clock.now().since(begun)))
            }
            limit => limit,
        };
        let once = join_all(locks.iter().map(|lock| lock.take(WaitLimit::Once))).await;
        let mut got = once.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Those behind a busy one are given back before it is waited for (A1).
        let free = got.iter().take_while(|lease| lease.is_some()).count();
        let behind = got.split_off(free).into_iter().flatten();
        let mut leases: Vec<_> = got.into_iter().flatten().collect();
        // If one is not confirmed, its release goes on in the background.
        join_all(behind.map(Lease::release)).await;
        if free < locks.len() && matches!(limit, WaitLimit::Once) {
            join_all(leases.into_iter().map(Lease::release)).await;
            return Ok(None);
        }
        for lock in &locks[free..] {
            let lease = unless_lost(first_lost(&leases), lock.take(left())).await??;
            leases.push(lease.ok_or_else(StoreError::closed)?);
        }
        if let Some(lost) = leases.iter().find_map(Lease::loss) {
            return Err(lost.into());
        }
        for (lease, lock) in leases.iter().zip(locks) {
            lock.keep(lease);
        }
        Ok(Some(Leases { leases }))
    }
}

impl Leases {
    /// The lease of the lock with this name. It says of which [mode](Lease::mode) it is, and has a [fence](Lease::fence) or a
    /// [slot](Lease::slot).
    pub fn get(&self, name: &str) -> Option<&Lease<AnyKind>> {
        self.leases.iter().find(|lease| lease.name() == name)
    }

    /// All leases, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Lease<AnyKind>> {
        self.leases.iter()
    }

    /// The earliest of their deadlines.
    pub fn valid_until(&self) -> Moment {
        let all = self.leases.iter().map(Lease::valid_until);
        all.min().unwrap_or_else(|| Moment::from_micros(0))
    }

    /// The time from now to the earliest deadline. Zero when one of them is lost.
    pub fn valid_for(&self) -> Duration {
        let all = self.leases.iter().map(Lease::valid_for);
        all.min().unwrap_or_default()
    }

    /// Why the last renewal of one of them failed, while that one is not lost: see [`Lease::doubt`].
    pub fn doubt(&self) -> Option<String> {
        self.leases.iter().find_map(Lease::doubt)
    }

    /// Whether one of them is lost.
    pub fn is_lost(&self) -> bool {
        self.leases.iter().any(Lease::is_lost)
    }

    /// Why the first of them that is lost is lost.
    pub fn loss(&self) -> Option<Lost> {
        self.leases.iter().find_map(Lease::loss)
    }

    /// Waits until one of them is lost.
    ///
    /// # Cancel safety
    /// As [`Lease::lost`].
    pub async fn lost(&self) -> Lost {
        first_lost(&self.leases).await
    }

    /// Runs `work` under the leases, then releases them. If one is lost first, `work` is cancelled at its next `.await`.
    ///
    /// # Errors
    /// As [`Lease::run`].
    ///
    /// # Cancel safety
    /// As [`Lease::run`].
    pub async fn run<T, E: From<Error>>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let output = unless_lost(self.lost(), work(&self)).await;
        done(output.map_err(Error::from)?, self.release().await)
    }

    /// Releases all locks, also if the release of one fails.
    ///
    /// # Errors
    /// As [`Lease::release`]: of a lease that was lost, if there is one, and otherwise of the first one that was not confirmed.
    ///
    /// # Cancel safety
    /// As [`Lease::release`].
    pub async fn release(self) -> Result<(), Error> {
        Self::settled(self.leases.into_iter().rev().map(Lease::release)).await
    }

    /// Ends all leases, but the locks stay taken for `keep` from now, as by [`Lease::release_after`].
    ///
    /// # Errors
    /// As [`Leases::release`], and [`Error::Invalid`] when `keep` is not 10 ms to 24 h: then the locks are released in the background.
    ///
    /// # Cancel safety
    /// As [`Lease::release_after`].
    pub async fn release_after(self, keep: Duration) -> Result<(), Error> {
        let leases = self.leases.into_iter().rev();
        Self::settled(leases.map(|lease| lease.release_after(keep))).await
    }

    async fn settled(
        ends: impl Iterator<Item = impl Future<Output = Result<(), Error>>>,
    ) -> Result<(), Error> {
        let released = join_all(ends).await;
        let mut failed: Vec<Error> = released.into_iter().filter_map(Result::err).collect();
        failed.sort_by_key(|error| !error.is_lost());
        failed.into_iter().next().map_or(Ok(()), Err)
    }
}

impl<'a> IntoIterator for &'a Leases {
    type Item = &'a Lease<AnyKind>;
    type IntoIter = slice::Iter<'a, Lease<AnyKind>>;

    fn into_iter(self) -> Self::IntoIter {
        self.leases.iter()
    }
}

/// Waits until one of these leases is lost.
async fn first_lost(leases: &[Lease<AnyKind>]) -> Lost {
    if leases.is_empty() {
        return pending().await;
    }
    let all = leases.iter().map(|lease| Box::pin(lease.lost()));
    select_all(all).await.0
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("All");
        debug.field("locks", &self.locks).finish_non_exhaustive()
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.leases).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::rc::Rc;

    use fastrand::Rng;
    use leasehold_core::Mode;
    use tokio::runtime::Builder;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::backoff::{seed, seeds};
    use crate::{Clock, Memory};

    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    const MS: Duration = Duration::from_millis(1);

    /// The leases that are in use.
    type InUse = Rc<RefCell<HashMap<String, Vec<(Mode, Option<u16>)>>>>;

    /// A1, A2: three clients want random subsets of five locks, of random kinds and in random order. Some wait for a while only, some are
    /// dropped while they wait. All others get them, never beside those that they exclude, and nothing is left.
    #[test]
    fn several_in_any_order_get_through_and_leave_nothing() {
        for number in seeds(300) {
            let mut runtime = Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build();
            runtime.unwrap().block_on(history(number));
        }
    }

    async fn history(number: u64) {
        seed(number);
        let clock = Clock::virtual_time();
        let memory = Memory::new(clock.clone());
        let client = || {
            let client = Client::builder().clock(clock.clone());
            client.embedded(&memory).unwrap()
        };
        let clients = [client(), client(), client()];
        let in_use = InUse::default();
        let mut rng = Rng::with_seed(number);
        let users = clients
            .each_ref()
            .map(|client| user(client, rng.fork(), &in_use));
        let again = format!("LEASEHOLD_SEEDS={number}..{}", number + 1);
        let all = timeout(Duration::from_secs(3600), join_all(users)).await;
        assert!(all.is_ok(), "{again}: they wait for each other");
        for client in clients {
            client.close().await;
        }
        let looks = client();
        for name in NAMES {
            let seen = looks.inspect(name).await.unwrap();
            let is_free = seen.holder.is_none() && seen.queue.is_empty();
            assert!(is_free, "{again}: {name:?} is left: {seen:?}");
        }
    }

    async fn user(client: &Client, mut rng: Rng, in_use: &InUse) {
        for _ in 0..6 {
            let mut names = NAMES;
            rng.shuffle(&mut names);
            let names = &names[..rng.usize(1..=NAMES.len())];
            let all = names
                .iter()
                .fold(client.all([]), |all, name| match rng.u8(..3) {
                    0 => all.and(&client.mutex(name)),
                    1 => all.and(&client.rw_lock(name).read()),
                    _ => all.and(&client.semaphore(name, 2)),
                });
            let patience = MS * rng.u32(..100);
            let got = match rng.u8(..4) {
                0 => timeout(patience, all.acquire()).await.ok(),
                1 => Some(all.acquire_within(patience).await),
                _ => Some(all.acquire().await),
            };
            let leases = match got {
                None => continue,
                Some(Err(error)) if error.is_timeout() => continue,
                Some(got) => got.unwrap(),
            };
            for lease in &leases {
                begins(in_use, lease);
            }
            sleep(MS * rng.u32(..20)).await;
            for lease in &leases {
                let mut in_use = in_use.borrow_mut();
                let holders = in_use.get_mut(lease.name()).unwrap();
                let own = (lease.mode(), lease.slot().map(|slot| slot.number));
                let at = holders.iter().position(|holder| *holder == own);
                holders.remove(at.unwrap());
            }
            if rng.bool() {
                leases.release().await.unwrap();
            }
        }
    }

    /// Checks that the lock admits this lease beside those in use.
    fn begins(in_use: &InUse, lease: &Lease<AnyKind>) {
        let mut in_use = in_use.borrow_mut();
        let holders = in_use.entry(lease.name().to_owned()).or_default();
        let own = (lease.mode(), lease.slot().map(|slot| slot.number));
        let is_admitted = match own.0 {
            Mode::Exclusive => holders.is_empty(),
            Mode::Shared => holders.iter().all(|(mode, _)| *mode == Mode::Shared),
            Mode::Slot(_) => {
                let beside =
                    |(mode, slot): &(Mode, _)| matches!(mode, Mode::Slot(_)) && *slot != own.1;
                holders.len() < 2 && holders.iter().all(beside)
            }
        };
        assert!(is_admitted, "{lease:?} beside {holders:?}");
        holders.push(own);
    }
}
