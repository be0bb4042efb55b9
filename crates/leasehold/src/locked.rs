//! Functions that run under a lock: the attribute, its default client, and the functions that its code calls.

use std::sync::OnceLock;

use leasehold_core::Invalid;
/// Runs a function under a lock: each call takes the lock, does the work and releases the lock. For `fn` and `async fn`, also methods.
///
/// ```
/// use leasehold::{Client, Error, locked};
///
/// #[locked("orders:{id}", wait = "5s", ttl = "30s")]
/// async fn pack(id: u64) -> Result<String, Error> {
///     Ok(format!("order {id} is packed"))              // by one call at a time, in all processes
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// let client = Client::embedded()?;                    // or Client::connect("redis://127.0.0.1/").await?
/// leasehold::set_default(client.clone())?;             // once, when the program starts
/// println!("{}", pack(42).await?);
/// # client.close().await; Ok(()) }
/// ```
///
/// # Name
///
/// The text is a format string over the arguments of the function, as in [`format!`]. Further values follow it. A brace that is part of
/// the name is doubled: `"{{{user}}}:{id}"` makes `{alice}:42`, whose hash tag puts it into one slot of a cluster with other
/// names of that user.
///
/// ```
/// # use leasehold::{Client, Error, locked};
/// struct Order { id: u64 }
///
/// struct Shop { locks: Client }
///
/// impl Shop {
///     #[locked("orders:{}", order.id, client = self.locks, lease = lease)]
///     async fn pack(&self, order: &Order) -> Result<(), Error> {
///         println!("order {} under fence {}", order.id, lease.fence());
///         Ok(())
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// # let shop = Shop { locks: Client::embedded()? };
/// # shop.pack(&Order { id: 42 }).await?; shop.locks.close().await; Ok(()) }
/// ```
///
/// # Options
///
/// | option | means | without it |
/// |---|---|---|
/// | `shared` | a reader: [`RwLock::read`](crate::RwLock::read) | a mutex |
/// | `slots = 4` | a slot of a semaphore: [`Client::semaphore`]; any expression | a mutex |
/// | `wait = "5s"` | waits for at most 5 s; then the call ends with [`Error::Timeout`] | waits without limit |
/// | `wait = "no"` | ends with [`Error::Timeout`] at once if the lock is busy | |
/// | `skip` | ends with `Ok(T::default())` in place of [`Error::Timeout`]; does not wait, unless `wait` says so | |
/// | `ttl = "30s"` | [`Mutex::ttl`](crate::Mutex::ttl) | 30 s |
/// | `at_least = "1m"` | [`Mutex::at_least`](crate::Mutex::at_least) | not at all |
/// | `max_hold = "1h"` | [`Mutex::max_hold`](crate::Mutex::max_hold) | no limit |
/// | `note = "packing"` | [`Mutex::note`](crate::Mutex::note); any expression | no note |
/// | `client = self.locks` | an expression: the client, or a reference to it | the client of [`set_default`] |
/// | `lease = x` | the body knows its lease as `x`, a [`&Lease`](crate::Lease) of its kind or `&blocking::Lease` | |
///
/// Durations are written as for the command: `30s`, `5m`, `1h 30m`, or a number of seconds.
///
/// # Result
///
/// The function returns `Result<T, E>` with `E: From<leasehold::Error>`; the compiler says so if it does not. If the body ends with
/// an error, that is the result of the call. If the lease was lost, or lost before the body ended, the result is [`Error::Lost`]. If the body
/// ends with a value and the release is not confirmed, the call ends with that value: the lease lasted as long as the work, and
/// the client releases the lock in the background. A lock name that is no valid one is [`Error::Invalid`].
///
/// - **`async fn`**: a loss cancels the body at its current `.await`, as in [`Lease::run`](crate::Lease::run). The future is `Send` if the
///   body's is. Dropping it leaves the queue, or drops the body and releases the lock.
/// - **`fn`** (with the feature `blocking`): nothing cancels the body. Ask `lease.is_lost()` between its steps. Do not call it from async code.
///
/// ```
/// # #[cfg(feature = "blocking")] {
/// use leasehold::{Client, Error, locked};
///
/// #[locked("report:{day}", skip, max_hold = "1h", lease = lease, client = locks)]
/// fn report(day: &str, locks: &Client) -> Result<u32, Error> {
///     let pages = (0..7).take_while(|_| !lease.is_lost());
///     Ok(pages.count() as u32)
/// }
///
/// let locks = Client::embedded()?;
/// assert_eq!(report("2026-11-27", &locks)?, 7);
/// # }
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Limits
///
/// - **Not re-entrant.** A function that calls itself with the same name, or another one under the same lock, waits for
///   [itself](crate::Mutex#not-re-entrant). Give such calls a `wait`.
/// - With `#[async_trait]`, the methods are no `async fn` any more. Put the attribute on a function that they call.
/// - The crate is called `leasehold` in the manifest of the program.
pub use leasehold_macros::locked;

use crate::client::Client;
use crate::error::Error;

/// The client of functions without `client = ...`. It is the one state of the library that the whole process shares.
static DEFAULT: OnceLock<Client> = OnceLock::new();

/// Sets the client that functions with [`#[locked]`](macro@locked) use if they name none. A process can do that once.
///
/// The client stays for the rest of the process, so nothing drops it: call [`Client::close`] at the end of the program.
///
/// ```
/// use leasehold::{Client, Error, locked};
///
/// #[locked("stock")]
/// async fn count() -> Result<u32, Error> {
///     Ok(7)
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// assert!(matches!(count().await, Err(Error::Invalid(_))), "no client is set");
/// let client = Client::embedded()?;
/// leasehold::set_default(client.clone())?;
/// assert_eq!(count().await?, 7);
/// client.close().await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Invalid`] if it is set already.
pub fn set_default(client: impl Into<Client>) -> Result<(), Error> {
    DEFAULT.set(client.into()).map_err(|refused| {
        let why = "the process has a default client already";
        Invalid::new("default client", refused.store(), why).into()
    })
}

/// For the code that the attribute writes, and no stable API.
#[doc(hidden)]
pub mod __locked {
    use std::time::Duration;

    use leasehold_core::Invalid;

    use crate::client::Client;
    use crate::error::{Error, StoreError, Timeout};
    use crate::kind::Kind;
    use crate::lease::{Lease, WaitLimit, done, unless_lost};
    use crate::mutex::Lock;

    /// How long a call waits for a busy lock.
    #[derive(Debug, Clone, Copy)]
    pub enum Wait {
        Forever,
        Within(Duration),
        No,
    }

    /// The default client.
    pub fn client() -> Result<Client, Error> {
        super::DEFAULT.get().cloned().ok_or_else(|| {
            let why = "none is set: call leasehold::set_default first, or write client = ... in #[locked]";
            Invalid::new("default client", "", why).into()
        })
    }

    /// An error that can be a lock's.
    #[diagnostic::on_unimplemented(
        message = "a function with `#[locked]` returns `Result<T, E>` with `E: From<leasehold::Error>`",
        label = "`{Self}` is not `From<leasehold::Error>`",
        note = "a lock can fail: implement `From<leasehold::Error>` for `{Self}`"
    )]
    pub trait LockError {
        fn of(error: Error) -> Self;
    }

    #[diagnostic::do_not_recommend]
    impl<E: From<Error>> LockError for E {
        fn of(error: Error) -> Self {
            error.into()
        }
    }

    /// What the body returned, and how the release went; or why the body did not run to its end.
    pub type Ran<R> = Result<(R, Result<(), Error>), Error>;

    /// The result of a function under a lock.
    #[diagnostic::on_unimplemented(
        message = "a function with `#[locked]` returns `Result<T, E>` with `E: From<leasehold::Error>`",
        label = "not a `Result`",
        note = "a lock can fail"
    )]
    pub trait LockedResult: Sized {
        type Value;

        fn new(ran: Ran<Self>) -> Self;

        fn value(value: Self::Value) -> Self;
    }

    impl<T, E: LockError> LockedResult for Result<T, E> {
        type Value = T;

        fn new(ran: Ran<Self>) -> Self {
            let (output, released) = ran.map_err(E::of)?;
            done(output.map_err(Work), released).map_err(|Work(error)| error)
        }

        fn value(value: T) -> Self {
            Ok(value)
        }
    }

    /// The error of a body, which can be a lock's.
    struct Work<E>(E);

    impl<E: LockError> From<Error> for Work<E> {
        fn from(error: Error) -> Self {
            Self(E::of(error))
        }
    }

    /// The result of the function.
    pub fn answer<R: LockedResult>(ran: Ran<R>) -> R {
        R::new(ran)
    }

    /// The result of the function, which is the default value if the lock was busy.
    pub fn answer_or_skip<R: LockedResult<Value: Default>>(ran: Ran<R>) -> R {
        match ran {
            Err(Error::Timeout(_)) => R::value(R::Value::default()),
            ran => R::new(ran),
        }
    }

    /// Runs the body under the lock.
    pub async fn run<K: Kind, R>(
        lock: Lock<K>,
        wait: Wait,
        work: impl AsyncFnOnce(&Lease<K>) -> R,
    ) -> Ran<R> {
        let lease = acquire(&lock, wait).await?;
        let output = unless_lost(lease.lost(), work(&lease)).await?;
        Ok((output, lease.release().await))
    }

    /// The lease, or why there is none. A lock that was only tried does not say who holds it.
    pub(crate) async fn acquire<K: Kind>(lock: &Lock<K>, wait: Wait) -> Result<Lease<K>, Error> {
        let limit = match wait {
            Wait::Forever => WaitLimit::Forever,
            Wait::Within(limit) => WaitLimit::Within(limit),
            Wait::No => WaitLimit::Once,
        };
        let busy = || match (wait, &lock.name) {
            (Wait::No, Ok(name)) => Error::from(Timeout {
                name: name.as_str().to_owned(),
                waited: Duration::ZERO,
                holder: None,
                by_this_client: false,
                ahead: 0,
            }),
            _ => StoreError::closed().into(),
        };
        lock.request(limit).await?.ok_or_else(busy)
    }
}
