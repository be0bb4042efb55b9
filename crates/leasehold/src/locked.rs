//! Functions that run under a lock: the attribute [`locked`], its default client, and the functions that its code calls.

use std::sync::OnceLock;

use leasehold_core::Invalid;
pub use leasehold_macros::locked;

use crate::client::Client;
use crate::error::Error;

/// The client of functions without `client = ...`. It is the one state of the library that the whole process shares.
static DEFAULT: OnceLock<Client> = OnceLock::new();

/// Sets the client that functions with [`locked`] use if they name none. A process can do that once.
///
/// # Errors
/// [`Error::Invalid`] if it is set already.
pub fn set_default(client: impl Into<Client>) -> Result<(), Error> {
    DEFAULT.set(client.into()).map_err(|refused| {
        let why = "the process has a default client already";
        Invalid::new("default client", refused.store(), why).into()
    })
}

/// For the code that [`locked`] writes, and no stable API.
#[doc(hidden)]
pub mod __locked {
    use std::time::Duration;

    use leasehold_core::Invalid;

    use crate::client::Client;
    use crate::error::{Error, Timeout};
    use crate::lease::RunOutcome;

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

    /// The result of a function under a lock.
    #[diagnostic::on_unimplemented(
        message = "a function with `#[locked]` returns `Result<T, E>` with `E: From<leasehold::Error>`",
        label = "not a `Result`",
        note = "a lock can fail"
    )]
    pub trait Answer: Sized {
        type Value;

        fn new(ran: Result<RunOutcome<Self>, Error>) -> Self;

        fn value(value: Self::Value) -> Self;
    }

    impl<T, E: LockError> Answer for Result<T, E> {
        type Value = T;

        fn new(ran: Result<RunOutcome<Self>, Error>) -> Self {
            let ran = ran.map_err(E::of)?;
            let value = ran.output?;
            match ran.released {
                // A release that is not confirmed goes on in the background. The lease lasted as long as the work.
                Err(error) if error.is_lost() => Err(E::of(error)),
                _ => Ok(value),
            }
        }

        fn value(value: T) -> Self {
            Ok(value)
        }
    }

    /// The result of the function.
    pub fn answer<R: Answer>(ran: Result<RunOutcome<R>, Error>) -> R {
        R::new(ran)
    }

    /// The result of the function, which is the default value if the lock was busy.
    pub fn answer_or_skip<R: Answer<Value: Default>>(ran: Result<RunOutcome<R>, Error>) -> R {
        match ran {
            Err(Error::Timeout(_)) => R::value(R::Value::default()),
            ran => R::new(ran),
        }
    }

    /// A lock that was busy when it was tried.
    pub fn or_busy<R>(
        name: String,
        tried: Result<Option<RunOutcome<R>>, Error>,
    ) -> Result<RunOutcome<R>, Error> {
        tried?.ok_or_else(|| {
            let busy = Timeout {
                name,
                waited: Duration::ZERO,
                holder: None,
                by_this_client: false,
                ahead: 0,
            };
            busy.into()
        })
    }
}
