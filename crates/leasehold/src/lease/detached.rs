//! A lease that no process renews. Any process that has its token can renew, check or release it.
//!
//! To the store it is a lock that was released with a delay. It ends by its TTL, even in a store that frees the locks of dead processes.
//! Its owner may extend and release it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, HolderView, Invalid, LockName, Owner, Reply, Step, Ttl};
use tokio::sync::oneshot;

use super::engine::EngineHandle;
use super::handle::Lease;
use super::hold::Hold;
use super::settle::Settle;
use super::terms::{certain_until, deadline};
use crate::clock::Moment;
use crate::error::{Error, LossCause, Lost, StoreError, StoreErrorKind};

/// A lease that only the store keeps, known by its token: see [`Lease::detach`] and [`Client::detached`](crate::Client::detached).
/// Dropping a `Detached` changes nothing. The TTL ends the lease.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// use std::time::Duration;
///
/// let lease = client.mutex("deploy").acquire().await?;
/// let (detached, _) = lease.detach(Duration::from_secs(600)).await?;
/// let token = detached.token().to_owned();             // keep it in a file or a job queue
///
/// // Later, in another process:
/// let deploy = client.detached("deploy", &token)?;
/// deploy.renew(Duration::from_secs(600)).await?;
/// deploy.release().await?;
/// # client.close().await; Ok(()) }
/// ```
#[derive(Clone)]
pub struct Detached {
    engine: EngineHandle,
    name: LockName,
    owner: Owner,
    /// The fence of the lease if this client took it, else the fence of the grant.
    fence: Fence,
    /// The fence of the grant, by which the store knows it (core: C8).
    grant: Fence,
    /// Owner and grant as one text.
    token: Arc<str>,
}

/// The state of a detached lease, as the store confirmed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// The deadline of the lease, by the client's [`Clock`](crate::Clock).
    pub valid_until: Moment,
    /// The fence to send to the resource. For a lease taken up by its token it is the fence of the grant. If the lock went from task to
    /// task before it was detached, the detached lease has a higher fence: send that one.
    pub fence: Fence,
}

impl Detached {
    /// The lease on `name` with this token.
    pub(crate) fn new(engine: EngineHandle, name: LockName, token: &str) -> Result<Self, Invalid> {
        let (owner, grant) = Owner::parse_with_fence(token).ok_or_else(|| not_a_token(token))?;
        Ok(Self {
            engine,
            name,
            owner,
            fence: grant,
            grant,
            token: token.into(),
        })
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The token for [`Client::detached`](crate::Client::detached): `<owner>#<fence>`, the [token of its owner](Owner::token) and the
    /// fence of the store's grant. A program that has the token can release the lock.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Renews the lease: it lasts for `ttl` from now, 10 ms to 24 h. A lock that has expired is not taken again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    ///
    /// let lease = client.mutex("deploy").acquire().await?;
    /// let (deploy, _) = lease.detach(Duration::from_secs(60)).await?;
    /// let status = deploy.renew(Duration::from_secs(600)).await?;
    /// println!("held until {:?}", status.valid_until);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease is not held any more. [`Error::Store`] when the store gave no verdict: the lease may have been
    /// renewed. [`Error::Invalid`] for a TTL out of bounds.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not take the request back: the lease may be renewed all the same.
    pub async fn renew(&self, ttl: Duration) -> Result<LeaseStatus, Error> {
        let ttl = self.engine.ttl(ttl)?;
        let step = Step::Extend {
            owner: self.owner.clone(),
            ttl,
            fence: Some(self.grant),
        };
        match self.ask(step).await? {
            (sent, Reply::Held(_)) => Ok(LeaseStatus {
                valid_until: deadline(sent, ttl),
                fence: self.fence,
            }),
            (_, other) => Err(self.not_held(other)),
        }
    }

    /// Asks the store whether the lease is still held. Changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    /// use leasehold::Error;
    ///
    /// let lease = client.mutex("deploy").acquire().await?;
    /// let (deploy, _) = lease.detach(Duration::from_secs(60)).await?;
    /// match deploy.check().await {
    ///     Ok(status) => println!("held under fence {}", status.fence),
    ///     Err(Error::Lost(lost)) => println!("{lost}"),
    ///     Err(other) => return Err(other),
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease is not held any more. [`Error::Store`] when the store gave no verdict.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn check(&self) -> Result<LeaseStatus, Error> {
        let (sent, reply) = self.ask(Step::Inspect).await?;
        let Reply::Seen(snapshot) = reply else {
            return Err(self.not_held(reply));
        };
        let is_held = snapshot.is_held_under(&self.owner, self.grant);
        let raises = self.engine.store.raises_fences();
        let is_raised = |holder: &HolderView| {
            raises && holder.is(&self.owner) && holder.fence > Some(self.grant)
        };
        match snapshot.holder {
            Some(holder) if is_held || is_raised(&holder) => Ok(LeaseStatus {
                // Without an end only if somebody has meddled with the key.
                valid_until: certain_until(sent, holder.expires_in.unwrap_or(Ttl::MAX)),
                fence: self.fence,
            }),
            holder => Err(self.lost(holder.map(Box::new))),
        }
    }

    /// Releases the lock, and grants it to the first waiter.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("deploy").acquire().await?;
    /// let (deploy, _) = lease.detach(Duration::from_secs(60)).await?;
    /// deploy.clone().release().await?;
    /// assert!(deploy.release().await.is_err());             // it was released before
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was not held any more: work done under it may have been unprotected. [`Error::Store`] when the
    /// store did not confirm: the TTL ends the lease at the latest. A second release then reports *lost* if the first one took effect.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not take the request back: the lock may be released all the same. The request is
    /// not retried.
    pub async fn release(self) -> Result<(), Error> {
        let step = Step::Release {
            owner: self.owner.clone(),
            keep: None,
            fence: Some(self.grant),
        };
        match self.ask(step).await? {
            (_, Reply::Released) => Ok(()),
            (_, other) => Err(self.not_held(other)),
        }
    }

    /// The answer to one step, and when that was sent.
    async fn ask(&self, step: Step) -> Result<(Moment, Reply), Error> {
        if self.engine.is_closed() {
            return Err(StoreError::closed().into());
        }
        let (reply, answer) = oneshot::channel();
        // `Client::close` waits for the answer.
        let token = self.engine.tasks.token();
        let sent = self.engine.clock.now();
        self.engine.request(&self.name, step, move |answer| {
            drop(reply.send(answer));
            drop(token);
        });
        Ok((sent, answer.await.map_err(|_| StoreError::closed())??))
    }

    fn not_held(&self, reply: Reply) -> Error {
        match reply {
            Reply::NotHeld(holder) => self.lost(holder),
            other => {
                let store = self.engine.store.label();
                StoreError::new(store, StoreErrorKind::Protocol, format!("{other:?}")).into()
            }
        }
    }

    fn lost(&self, holder: Option<Box<HolderView>>) -> Error {
        // A store that was rolled back may have granted it to the same owner again.
        let holder = holder.filter(|holder| !holder.is(&self.owner));
        let lost = Lost {
            name: self.name.as_str().to_owned(),
            fence: Some(self.fence),
            cause: LossCause::NotHeld(holder),
            replaced: None,
        };
        lost.into()
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached")
            .field("name", &self.name())
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// Leaves the lock taken for `ttl` from now, 10 ms to 24 h, even if this process ends. This client does not renew, hand on or release
    /// it any more; a program that has the token can. From here on `ttl` counts, and not [`Mutex::at_least`](crate::Mutex::at_least).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    ///
    /// let lease = client.mutex("deploy").acquire().await?;
    /// let (detached, status) = lease.detach(Duration::from_secs(600)).await?;
    /// println!("{} holds it under fence {}", detached.token(), status.fence);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost. [`Error::Store`] when the store did not confirm. [`Error::Invalid`] for a TTL out of
    /// bounds. In each case the client releases the lock in the background, since no program knows the token.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    pub async fn detach(self, ttl: Duration) -> Result<(Detached, LeaseStatus), Error> {
        // First: no renewal for another TTL may be under way that could overtake the next request (RN1).
        self.extend(ttl).await?;
        let keep = self.engine.ttl(ttl)?;
        let detached = Detached {
            engine: self.engine.clone(),
            name: self.hold.name.clone(),
            owner: self.hold.owner.clone(),
            fence: self.hold.fence,
            grant: self.hold.grant,
            token: self.token().into(),
        };
        let status = LeaseStatus {
            valid_until: self.hold.deadline(),
            fence: detached.fence,
        };
        let work = Settle::of(
            detached.name.clone(),
            detached.owner.clone(),
            keep.max(self.hold.ttl),
            // Read before the detach: until then only this client renews, so late requests are undone too.
            self.hold.unsettled_until(),
        );
        let undo = Undo {
            work: Some(work),
            hold: self.hold.clone(),
            engine: self.engine.clone(),
        };
        self.hold.detach();
        self.give_back(Some(keep)).await?;
        undo.call_off();
        Ok((detached, status))
    }
}

/// Frees the lock if its token is not returned to the caller.
struct Undo {
    work: Option<Settle>,
    hold: Arc<Hold>,
    engine: EngineHandle,
}

impl Undo {
    fn call_off(mut self) {
        self.work = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(mut work) = self.work.take() {
            // A repeated release with a keep time may find the lock free. That is not a loss.
            self.hold.take_back();
            work.keep = self.hold.left_to_keep(self.engine.clock.now());
            work.fence = Some(self.hold.grant);
            // The store executes steps that name a fence in order, so this one comes after that release.
            self.engine.settle(work);
        }
    }
}

/// Refuses a text that is not a token. It may be a password, so only the prefix of a token is quoted.
fn not_a_token(text: &str) -> Invalid {
    let shown = match text {
        "" => "",
        _ if text.starts_with("lh1.") => "lh1....",
        _ => "...",
    };
    let is_cut_off = Owner::parse(text.trim_end_matches('#')).is_some();
    let why = if is_cut_off {
        "has no fence at its end: must be <token>#<fence>, whole, as it was printed. A file format in which # begins a comment cuts it off".into()
    } else {
        format!(
            "is not one of ours: must be lh1.<32 hex digits>.<16 hex digits>.<host>:<pid>:<note>#<fence>, whole and without spaces; has {} bytes",
            text.len()
        )
    };
    Invalid::new("token", shown, why)
}
