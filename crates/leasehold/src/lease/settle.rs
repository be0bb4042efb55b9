//! Undoing what reached the store. Must never stop before the store has confirmed, or time has.
//!
//! A request whose outcome is unknown can still be lying in a buffer: a stopped server carries it out when it goes on,
//! with a full TTL, long after the client gave up. So after an unknown outcome one confirmation is not enough: the
//! release is repeated until a full TTL has passed since the last such request. Owners are used once, so a release too
//! many can never hit anybody else (core: C3).

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, Owner, Reply, Step, Ttl};

use super::engine::{Engine, Reply as Verdict};
use super::hold::Hold;
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause, Lost};

/// How long after the TTL a settlement goes on trying.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the caller of a release waits for the store to come back before it is told that it did not confirm.
const CALLER_WAITS: Duration = Duration::from_secs(2);

/// What is to be undone.
pub(crate) struct Settle {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) ttl: Ttl,
    pub(crate) keep: Option<Ttl>,
    /// An earlier request was not answered and may be carried out until then.
    pub(crate) unsettled_until: Option<Moment>,
    /// The lease that is released, and whether it was lost already.
    pub(crate) hold: Option<(Arc<Hold>, Option<Lost>)>,
}

/// Releases, again and again if need be, and tells the verdict as soon as there is one.
pub(crate) async fn settle(engine: Arc<Engine>, work: Settle, mut verdict: Option<Verdict>) {
    let begun = engine.clock.now();
    let give_up = begun.after(work.ttl.get() + MARGIN);
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut unsure = false;
    loop {
        // At-least-hold counts from the call, whenever the store hears of it; a repeat must not begin it anew.
        let keep = work.keep.and_then(|keep| {
            Ttl::new(keep.get().saturating_sub(engine.clock.now().since(begun))).ok()
        });
        let answer = engine
            .store
            .apply(
                &work.name,
                Step::Release {
                    owner: work.owner.clone(),
                    keep,
                },
            )
            .await;
        let now = engine.clock.now();
        let confirmed = match answer {
            Ok(reply) => {
                tell(&mut verdict, work.judge(reply, unsure));
                true
            }
            Err(error) => {
                unsure |= error.may_have_taken_effect;
                if !error.kind.is_transient() || now.since(begun) >= CALLER_WAITS {
                    tell(&mut verdict, Err(error.into()));
                }
                false
            }
        };
        let settled = work.unsettled_until.is_none_or(|until| until <= now);
        if (confirmed && settled) || now >= give_up {
            return;
        }
        engine.clock.sleep(backoff.pause()).await;
    }
}

impl Settle {
    /// What the caller of a release is to know.
    fn judge(&self, reply: Reply, unsure: bool) -> Result<(), Error> {
        let Some((hold, lost)) = &self.hold else {
            return Ok(());
        };
        if let Some(lost) = lost {
            return Err(lost.clone().into());
        }
        match reply {
            Reply::Released => Ok(()),
            // An earlier try of this release may have been the one that freed it, while the lease was still good.
            Reply::NotHeld(_) if unsure && !hold.is_past() => Ok(()),
            Reply::NotHeld(holder) => {
                Err(hold.lost(LossCause::NotHeld(holder.map(Box::new))).into())
            }
            _ => Err(hold.lost(LossCause::NotHeld(None)).into()),
        }
    }
}

fn tell(verdict: &mut Option<Verdict>, result: Result<(), Error>) {
    if let Some(verdict) = verdict.take() {
        // The caller may have stopped listening; the release counts all the same.
        drop(verdict.send(result));
    }
}
