//! What can go wrong, in four kinds that answer the caller's next question. Must never hold a secret.
//!
//! | kind | did I hold it? | may I retry? |
//! |---|---|---|
//! | [`Error::Timeout`] | never | yes |
//! | [`Error::Lost`] | once, no longer | only the whole work, under a new lease |
//! | [`Error::Store`] | no verdict | yes; [`StoreError::may_have_taken_effect`] says whether the request may count |
//! | [`Error::Invalid`] | never | not with the same input |

use std::fmt;
#[cfg(any(feature = "redis", feature = "local"))]
use std::io;
use std::time::Duration;

use leasehold_core::{Fence, HolderView, Invalid};

/// Everything the library can refuse or fail with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The time limit passed; the lock was never held.
    #[error(transparent)]
    Timeout(#[from] Timeout),
    /// The lock was held once and is not any more; work done since may have been unprotected.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store gave no verdict.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The input was refused before any I/O.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Error {
    /// Whether the time limit passed while the lock was busy.
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Whether the lock was held and lost.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether the store gave no verdict, because the client was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind == StoreErrorKind::Closed)
    }

    /// Whether the store gave no verdict, and may give one a moment later: see [`StoreErrorKind::is_transient`].
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind.is_transient())
    }
}

/// Refuses a duration that is out of bounds.
pub(crate) fn within(
    what: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), Invalid> {
    if value < least || value > most {
        let why = format!("must be from {least:?} to {most:?}");
        return Err(Invalid::new(what, &format!("{value:?}"), why));
    }
    Ok(())
}

/// The lock stayed busy for the whole time limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" was still busy after {waited:.1?}: {}", Described(.holder.as_deref(), *.by_this_client))]
#[non_exhaustive]
pub struct Timeout {
    /// The lock.
    pub name: String,
    /// How long was waited.
    pub waited: Duration,
    /// Who held it when it was last asked for.
    pub holder: Option<Box<HolderView>>,
    /// Whether that was a lease of the same client. A task that waits for a lock that it holds itself waits in vain: see
    /// [`Mutex`](crate::Mutex#not-re-entrant).
    pub by_this_client: bool,
    /// How many waiters were before this one.
    pub ahead: u32,
}

/// A lease that ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease on \"{name}\"{} was lost: {}", Numbered(*.fence), self.reason())]
#[non_exhaustive]
pub struct Lost {
    /// The lock.
    pub name: String,
    /// The fence that is now worthless; `None` for a lock that has no fences.
    pub fence: Option<Fence>,
    /// Why.
    pub cause: LossCause,
    /// The server that keeps the lock was replaced, and the new one had not confirmed the lease.
    pub replaced: Option<Replaced>,
}

impl Lost {
    /// Why it was lost, in words: the cause, and whether the server was replaced before.
    pub fn reason(&self) -> String {
        match self.replaced {
            None => self.cause.to_string(),
            Some(how) => format!("{how}; {}", self.cause),
        }
    }
}

/// How the server that keeps the locks was replaced by the one that answers now, as far as that says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replaced {
    /// A replica took over, or the server was started again with its data. The last writes may be missing.
    Successor,
    /// It has nothing of the data of the one before: another server, or the same one started again empty.
    Other,
    /// The user may not ask which server it is (`INFO`), so that any new connection may lead to another one.
    Unknown,
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Successor => {
                "the server was replaced (a replica took over, or it was started again)"
            }
            Self::Other => {
                "the server was replaced by another one (or was started again without its data)"
            }
            Self::Unknown => {
                "the server may have been replaced (this user may not ask which one it is: INFO)"
            }
        })
    }
}

/// Why a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// It could not be renewed before its deadline; the last failure, if there was one.
    Deadline(Option<String>),
    /// The store says that someone else holds the lock, or no one: it was broken, deleted, or the store lost its data.
    NotHeld(Option<Box<HolderView>>),
    /// It reached its `max_hold`.
    MaxHold,
    /// The client was closed.
    Closed,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(None) => f.write_str("its deadline passed before it was renewed"),
            Self::Deadline(Some(last)) => write!(
                f,
                "its deadline passed before it could be renewed; last failure: {last}"
            ),
            Self::NotHeld(None) => f.write_str(
                "the store says that no one holds it (deleted, broken, or the store lost its data)",
            ),
            Self::NotHeld(holder) => write!(
                f,
                "the store says otherwise: {}",
                Described(holder.as_deref(), false)
            ),
            Self::MaxHold => f.write_str("it was held for as long as max_hold allows"),
            Self::Closed => f.write_str("the client was closed"),
        }
    }
}

/// A store that gave no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {}: {detail}", .kind.sentence())]
#[non_exhaustive]
pub struct StoreError {
    /// Which store: its address, without user and password.
    pub store: String,
    /// What kind of failure.
    pub kind: StoreErrorKind,
    /// What was said, by the store or the system.
    pub detail: String,
    /// Whether the request may have been carried out all the same. If so, the client releases in the background.
    pub may_have_taken_effect: bool,
}

/// Kinds of failure of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No connection.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The store refused user, password or permission.
    Denied,
    /// A replica, or a primary that was demoted: it takes no writes.
    ReadOnly,
    /// Memory or disk is full.
    Full,
    /// The store is up and refuses writes for now: it is loading, saving failed, replicas are missing, a script hogs it.
    Unavailable,
    /// The other side does not speak the protocol, or a key beside the lock holds something else.
    Protocol,
    /// The client was closed.
    Closed,
    /// This process or its host has no file descriptor, thread or memory left; the store was not at fault.
    Exhausted,
}

impl StoreErrorKind {
    const fn sentence(self) -> &'static str {
        match self {
            Self::Unreachable => "cannot connect",
            Self::TimedOut => "no answer in time",
            Self::Denied => "access denied",
            Self::ReadOnly => "takes no writes (a replica?)",
            Self::Full => "out of space",
            Self::Unavailable => "refuses writes for now",
            Self::Protocol => "unexpected answer",
            Self::Closed => "the client is closed",
            Self::Exhausted => "this process or host is out of resources",
        }
    }

    /// Whether the same request may succeed a moment later.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::TimedOut
                | Self::ReadOnly
                | Self::Unavailable
                | Self::Exhausted
        )
    }

    /// `Exhausted` if `error` says that this process or its host lacks something, and `otherwise` if not.
    #[cfg(any(feature = "redis", feature = "local"))]
    pub(crate) fn of_io(error: &io::Error, otherwise: Self) -> Self {
        use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
        match error.raw_os_error() {
            Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) => Self::Exhausted,
            _ => otherwise,
        }
    }
}

impl StoreError {
    pub(crate) fn new(
        store: impl Into<String>,
        kind: StoreErrorKind,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            store: store.into(),
            kind,
            detail: detail.to_string(),
            may_have_taken_effect: false,
        }
    }

    /// The same for a request that was sent and not answered.
    pub(crate) fn unknown(mut self) -> Self {
        self.may_have_taken_effect = true;
        self
    }

    /// The answer to a request may be the word of the server that was replaced meanwhile.
    pub(crate) fn replaced_meanwhile(store: &str) -> Self {
        let why = "the server was replaced while it was asked";
        Self::new(store, StoreErrorKind::Unavailable, why).unknown()
    }

    pub(crate) fn closed() -> Self {
        Self::new(
            "client",
            StoreErrorKind::Closed,
            "it takes no more requests",
        )
    }
}

/// A fence in a sentence.
struct Numbered(Option<Fence>);

impl fmt::Display for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |fence| write!(f, " (fence {fence})"))
    }
}

/// A holder in a sentence, and whether it is the client that asked.
struct Described<'a>(Option<&'a HolderView>, bool);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use leasehold_core::HolderIdentity;
        let Some(holder) = self.0 else {
            return f.write_str("no holder was seen");
        };
        match &holder.who {
            HolderIdentity::Owner(owner) if self.1 => write!(f, "held by this client, {owner}")?,
            HolderIdentity::Owner(owner) => write!(f, "held by {owner}")?,
            HolderIdentity::Foreign { kind, .. } => {
                write!(f, "held by a foreign lock of type {kind}")?
            }
        }
        if let Some(fence) = holder.fence {
            write!(f, ", fence {fence}")?;
        }
        if let Some(held_for) = holder.held_for {
            write!(f, ", for {held_for:.1?}")?;
        }
        match holder.expires_in {
            Some(left) => write!(f, ", lease {left:.1?}"),
            None => f.write_str(", which never expires"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_or_memory_is_no_fault_of_the_store() {
        use nix::libc::{ECONNREFUSED, EMFILE, ENFILE, ENOMEM};
        let kind = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            StoreErrorKind::of_io(&error, StoreErrorKind::Unreachable)
        };
        for errno in [EMFILE, ENFILE, ENOMEM] {
            assert_eq!(kind(errno), StoreErrorKind::Exhausted);
        }
        assert_eq!(kind(ECONNREFUSED), StoreErrorKind::Unreachable);
    }
}
