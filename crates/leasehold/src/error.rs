//! Errors of four kinds. No error holds a secret.
//!
//! | kind | did I hold it? | may I retry? |
//! |---|---|---|
//! | [`Error::Timeout`] | never | yes |
//! | [`Error::Lost`] | once, no longer | only the whole work, under a new lease |
//! | [`Error::Store`] | no verdict | yes; [`StoreError::may_have_taken_effect`] says whether the request may count |
//! | [`Error::Invalid`] | never | not with the same input |
//!
//! ```
//! use leasehold::{Error, Mutex};
//!
//! async fn pack(orders: &Mutex) -> Result<(), Error> {
//!     match orders.acquire_within(std::time::Duration::from_secs(5)).await {
//!         Ok(lease) => lease.release().await,
//!         Err(Error::Timeout(timeout)) => {
//!             println!("still busy after {:?}", timeout.waited);
//!             Ok(())
//!         }
//!         Err(error) if error.is_unavailable() => {
//!             println!("try again later: {error}");
//!             Ok(())
//!         }
//!         Err(error) => Err(error),
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! # pack(&leasehold::Client::embedded()?.mutex("orders")).await }
//! ```

use std::fmt;
#[cfg(any(feature = "redis", feature = "local"))]
use std::io;
use std::time::Duration;

use leasehold_core::{Fence, HolderView, Invalid};

/// An error of a lock or its store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The time limit passed; the lock was never held.
    #[error(transparent)]
    Timeout(#[from] Timeout),
    /// The lock was held and is not any more. Work done since may have been unprotected.
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

    /// Whether the store gave no verdict, but a retry may succeed: see [`StoreErrorKind::is_transient`].
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind.is_transient())
    }
}

/// Refuses a duration that is out of bounds.
#[doc(hidden)]
pub fn within(
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
#[error("\"{name}\" {}", self.reason())]
#[non_exhaustive]
pub struct Timeout {
    /// The lock.
    pub name: String,
    /// How long the caller waited.
    pub waited: Duration,
    /// The holder in the last answer of the store.
    pub holder: Option<Box<HolderView>>,
    /// Whether that holder is a lease of this client. A task that waits for its own lease never gets the lock: see
    /// [`Mutex`](crate::Mutex#not-re-entrant).
    pub by_this_client: bool,
    /// The number of waiters ahead.
    pub ahead: u32,
}

impl Timeout {
    fn reason(&self) -> String {
        if self.waited.is_zero() && self.holder.is_none() {
            // It was only tried.
            return "is busy".to_owned();
        }
        let holder = Described(self.holder.as_deref(), self.by_this_client);
        format!("was still busy after {:.1?}: {holder}", self.waited)
    }
}

/// A lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease on \"{name}\"{} was lost: {}", numbered(*.fence), self.reason())]
#[non_exhaustive]
pub struct Lost {
    /// The lock.
    pub name: String,
    /// The fence of the lost lease. `None` for a lock without fences.
    pub fence: Option<Fence>,
    /// The cause.
    pub cause: LossCause,
    /// The server that keeps the lock was replaced, and the new one had not confirmed the lease.
    pub replaced: Option<Replaced>,
}

impl Lost {
    /// The reason as a text: the cause, and whether the server was replaced before.
    pub fn reason(&self) -> String {
        match self.replaced {
            None => self.cause.to_string(),
            Some(how) => format!("{how}; {}", self.cause),
        }
    }
}

/// How the server that keeps the locks was replaced by the one that answers now, as far as the new server tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replaced {
    /// A replica took over, or the server was started again with its data. The last writes may be missing.
    Successor,
    /// The new server has no data of the old one: it is another server, or the old one was started again empty.
    Other,
    /// The user may not send `INFO`, so the client cannot tell whether a new connection leads to another server.
    Unknown,
    /// The slot of the lock is at another node of the cluster: it was moved there, or a replica took over, which may lack the last writes.
    Slot,
    /// The file of a `local:` store, or one that SQLite keeps beside it, was removed or replaced.
    File,
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
            Self::Slot => {
                "the slot of the lock went to another node of the cluster (moved, or a replica took over)"
            }
            Self::File => "the file, or its -wal or -shm file, was removed or replaced",
        })
    }
}

/// The cause of a loss.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease was not renewed before its deadline. The text is the last failure, if there was one.
    Deadline(Option<String>),
    /// The store says that another owner or no owner holds the lock: it was broken or deleted, or the store lost its data.
    NotHeld(Option<Box<HolderView>>),
    /// The lease reached its `max_hold`.
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
#[error("{store}: {}", self.reason())]
#[non_exhaustive]
pub struct StoreError {
    /// The address of the store, without user and password.
    pub store: String,
    /// The kind of failure.
    pub kind: StoreErrorKind,
    /// The text of the store or of the operating system.
    pub detail: String,
    /// Whether the store may have executed the request. If so, the client releases the lock in the background.
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
    /// The store is up and refuses requests for now: it is loading, has no connection to spare, saving failed, replicas are missing, a script
    /// hogs it.
    Unavailable,
    /// The other side does not speak the protocol, or a key beside the lock holds something else.
    Protocol,
    /// The store is not set up for this request: a node of another quorum, or a quorum that is asked for cache entries.
    Misconfigured,
    /// The client was closed.
    Closed,
    /// No secure connection: this client refused the certificate of the server, or the server that of this client. See `Tls`.
    Untrusted,
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
            Self::Unavailable => "refuses requests for now",
            Self::Protocol => "unexpected answer",
            Self::Misconfigured => "is not set up for this",
            Self::Closed => "the client is closed",
            Self::Untrusted => "no secure connection",
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

/// What the key of a node's mark holds is no mark.
#[cfg(any(feature = "doctor", feature = "redis"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAMark;

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

    /// The failure as a text, without the store.
    pub(crate) fn reason(&self) -> String {
        format!("{}: {}", self.kind.sentence(), self.detail)
    }

    /// The error of a request that was sent and not answered.
    pub(crate) fn unknown(mut self) -> Self {
        self.may_have_taken_effect = true;
        self
    }

    /// The server was replaced during the request, so the answer may come from the old server.
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
fn numbered(fence: Option<Fence>) -> String {
    fence.map_or_else(String::new, |fence| format!(" (fence {fence})"))
}

/// A holder in a sentence, and whether it is the client that asked.
struct Described<'a>(Option<&'a HolderView>, bool);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use leasehold_core::{HolderIdentity, Mode};
        let Some(holder) = self.0 else {
            return f.write_str("no holder was seen");
        };
        match &holder.who {
            HolderIdentity::Owner(owner) if self.1 => write!(f, "held by this client, {owner}")?,
            HolderIdentity::Owner(owner) => write!(f, "held by {owner}")?,
            HolderIdentity::Foreign { kind, .. } => {
                write!(f, "held by a foreign lock of type {kind}")?;
            }
        }
        // Others may hold beside it.
        match (holder.mode, holder.slot) {
            (Mode::Shared, _) => f.write_str(", a reader")?,
            (Mode::Slot(_), Some(slot)) => write!(f, ", slot {slot}")?,
            _ => {}
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

    #[test]
    fn holder_that_may_not_be_alone_is_named_as_one() {
        use leasehold_core::{ClientId, HolderIdentity, Mode, Owner, Slots};
        let owner = Owner::new(1, ClientId::new(1), "host", 1, "").unwrap();
        let (who, left) = (HolderIdentity::Owner(owner), Duration::from_secs(1));
        let view = HolderView::new(who, Some(Fence::new(7)), None, Some(left));
        let slots = Mode::Slot(Slots::new(4).unwrap());
        for (holder, says) in [
            (view.clone(), "host (pid 1), fence 7, lease 1.0s"),
            (
                view.clone().in_mode(Mode::Shared, None),
                ", a reader, fence 7",
            ),
            (view.in_mode(slots, Some(2)), ", slot 2, fence 7"),
        ] {
            let error = Timeout {
                name: "x".into(),
                waited: left,
                holder: Some(Box::new(holder)),
                by_this_client: false,
                ahead: 0,
            };
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
