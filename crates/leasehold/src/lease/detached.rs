//! A lease that no process keeps: its token is all that is needed to renew, check or release it, from anywhere. Must never
//! take a lock, renew by itself, or promise more than the store has confirmed.
//!
//! In the store it is a lock that its holder has let go of for later (at-least-hold): it ends by its TTL, also on a host whose
//! store frees the locks of processes that are gone. Its owner may extend and release it as before.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, HolderView, Invalid, LockName, Owner, Reply, Step, Ttl};
use tokio::sync::oneshot;

use super::engine::Engine;
use super::handle::Lease;
use super::hold::Hold;
use super::settle::Settle;
use super::terms::{certain_until, deadline};
use crate::clock::Moment;
use crate::error::{Error, LossCause, Lost, StoreError, StoreErrorKind};
use crate::store::Done;

/// A lease that lives in the store alone, known by its token: see [`Lease::detach`] and
/// [`Client::detached`](crate::Client::detached). Dropping it changes nothing; its TTL ends it.
#[derive(Clone)]
pub struct Detached {
    engine: Arc<Engine>,
    name: LockName,
    owner: Owner,
    /// What its lease had, if this is the client that took it, else that of the grant.
    fence: Fence,
    /// The fence of the grant, by which the store knows it (core: C8).
    grant: Fence,
    /// Owner and grant as one text.
    token: Arc<str>,
}

/// What the store confirmed of a detached lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// Until when the lease may be relied on, by the client's clock; see [`Clock`](crate::Clock).
    pub valid_until: Moment,
    /// The fence to show to the resource. Of a lease that was taken up by its token it is that of the grant: if the lock went
    /// from task to task before it was detached, the fence of the lease that was detached is higher, and the one to show.
    pub fence: Fence,
}

impl Detached {
    /// The lease on `name` with this token.
    pub(crate) fn new(engine: Arc<Engine>, name: LockName, token: &str) -> Result<Self, Invalid> {
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

    /// What [`Client::detached`](crate::Client::detached) needs to take it up again: `<owner>#<fence>`, the
    /// [token of its owner](Owner::token) and the fence of the store's grant. Whoever has it can release the lock, as can
    /// whoever reaches the store.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Makes the lease last for `ttl` from now, 10 ms to 24 h. Never takes a lock again that has expired.
    ///
    /// # Errors
    /// [`Error::Lost`] when it is not held any more; [`Error::Store`] when the store gave no verdict, with the lease as it was
    /// or renewed; [`Error::Invalid`] for a TTL out of bounds.
    pub async fn renew(&self, ttl: Duration) -> Result<LeaseStatus, Error> {
        let ttl = Ttl::new(ttl)?;
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

    /// Asks whether it is still held. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] when it is not; [`Error::Store`] when the store gave no verdict.
    pub async fn check(&self) -> Result<LeaseStatus, Error> {
        let (sent, reply) = self.ask(Step::Inspect).await?;
        let Reply::Seen(snapshot) = reply else {
            return Err(self.not_held(reply));
        };
        let is_held = snapshot.is_held_under(&self.owner, self.grant);
        match snapshot.holder {
            Some(holder) if is_held => Ok(LeaseStatus {
                // Without an end only if somebody has meddled with the key.
                valid_until: certain_until(sent, holder.expires_in.unwrap_or(Ttl::MAX)),
                fence: self.fence,
            }),
            holder => Err(self.lost(holder)),
        }
    }

    /// Gives the lock back and hands it to the first in line.
    ///
    /// # Errors
    /// [`Error::Lost`] when it was not held any more: work done under it may have been unprotected. [`Error::Store`] when the
    /// store did not confirm: the TTL ends the lease at the latest, and a second release that finds it gone says *lost*.
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
        // Whoever closes the client waits for the answer.
        let token = self.engine.tasks.token();
        let sent = self.engine.clock.now();
        let done = Done::new(move |answer| {
            drop(reply.send(answer));
            drop(token);
        });
        self.engine.store.send(&self.name, step, done);
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

    fn lost(&self, holder: Option<HolderView>) -> Error {
        // A store that was rolled back may have granted it to the same owner again.
        let holder = holder.filter(|holder| !holder.is(&self.owner));
        let lost = Lost {
            name: self.name.as_str().to_owned(),
            fence: Some(self.fence),
            cause: LossCause::NotHeld(holder.map(Box::new)),
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
    /// Leaves the lock taken for `ttl` from now, 10 ms to 24 h, whatever becomes of this process: nothing renews it, hands it
    /// on or releases it any more but who has the token. From here on `ttl` counts, and not
    /// [`Mutex::at_least`](crate::Mutex::at_least). Dropping the future releases the lock, as an error does, since nobody would know
    /// the token.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost; [`Error::Store`] when the store did not confirm; [`Error::Invalid`] for a TTL
    /// out of bounds. The lock is released then, in the background.
    pub async fn detach(self, ttl: Duration) -> Result<(Detached, LeaseStatus), Error> {
        // First, so that no renewal for another TTL is on its way that could overtake what follows (K1).
        self.extend(ttl).await?;
        let keep = Ttl::new(ttl)?;
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
            // Asked before it is detached: nobody else can have renewed it, so what is late is undone as well.
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

/// Frees a lock whose token nobody will learn.
struct Undo {
    work: Option<Settle>,
    hold: Arc<Hold>,
    engine: Arc<Engine>,
}

impl Undo {
    fn call_off(mut self) {
        self.work = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(mut work) = self.work.take() {
            // If the release that keeps the lock is repeated, it may find it free, and that is no loss.
            self.hold.take_back();
            work.keep = self.hold.left_to_keep(self.engine.clock.now());
            work.fence = Some(self.hold.grant);
            // After that release: steps of a kind that name a fence are carried out in order.
            self.engine.settle(work);
        }
    }
}

/// What was given as a token may be anything, a password too: only how it begins is quoted, if it begins as ours do.
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
