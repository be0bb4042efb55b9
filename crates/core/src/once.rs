//! Firings: work that is to be done once among all hosts, as a nightly job on three of them.
//!
//! A firing is a name for one occasion of the work, such as a date. Who holds the lock of the work *begins* a run of the firing, does the
//! work, and *finishes* the run while it still holds the lock. A finished firing has a mark, which tells later ones that the work is
//! done. A run that failed, or lost its lease, leaves no mark: the next holder begins another run.
//!
//! A firing is kept beside its lock. One function, [`apply`], decides; it reads the lock and does not change it. The script `lua/once.lua`
//! does the same in Redis and is compared with it.
//!
//! # Invariants
//!
//! - **O1** A firing is finished at most once, as long as its mark is kept. After that, no run of it begins.
//! - **O2** Only the holder of the lock begins or finishes a run, by a fence of its grant. So the runs of a lock that finish have rising
//!   fences, and a run whose lease was lost never finishes.
//! - **O3** A run begins only if fewer than `tries` began before, or this one did.
//! - **O4** Every step may be repeated. A repeat gets the same answer: a run is known by its fence.
//! - **O5** Everything that is kept expires, by the wall clock: a restart of the host does not make a finished firing open.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::fence::Fence;
use crate::invalid::Invalid;
use crate::lock::LockState;
use crate::owner::Owner;
use crate::time::{Now, millis};

/// The name of one occasion of the work: a date, a time, the number of an order. 1 to 256 bytes of UTF-8, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Firing(Arc<str>);

impl Firing {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks a name.
    ///
    /// # Errors
    /// [`Invalid`], naming the input and the rule it breaks.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let refuse = |why: String| Err(Invalid::new("firing", text, why));
        if text.is_empty() {
            return refuse("is empty; is a variable unset?".into());
        }
        if text.len() > Self::MAX_BYTES {
            let (most, is) = (Self::MAX_BYTES, text.len());
            return refuse(format!("must be at most {most} bytes, is {is}"));
        }
        if text.chars().any(char::is_control) {
            return refuse("must not hold control characters".into());
        }
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How long a store keeps a firing after its last step: 1 s to 400 days, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keep(u64);

impl Keep {
    /// The shortest time.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest time.
    pub const MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);

    /// Checks the bounds; parts of a millisecond are cut off.
    ///
    /// # Errors
    /// [`Invalid`] outside of [`Keep::MIN`] to [`Keep::MAX`].
    pub fn new(keep: Duration) -> Result<Self, Invalid> {
        if keep < Self::MIN || keep > Self::MAX {
            let why = "must be from 1 s to 400 days";
            return Err(Invalid::new(
                "time to keep a firing",
                &format!("{keep:?}"),
                why,
            ));
        }
        Ok(Self(millis(keep)))
    }

    /// The time in milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

/// One atomic step of a store: one round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Look, without changing anything.
    Look,
    /// Begin a run of the firing, unless it is finished.
    Begin {
        /// The holder of the lock.
        owner: Owner,
        /// The fence of its lease.
        fence: Fence,
        /// How many runs may begin.
        tries: NonZeroU32,
        /// How long to keep the firing from now on.
        keep: Keep,
    },
    /// Finish the run that this owner has begun.
    Finish {
        /// The holder of the lock.
        owner: Owner,
        /// The fence of its lease.
        fence: Fence,
        /// How long to keep the mark from now on.
        keep: Keep,
    },
}

/// The reply to a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No run of this firing is kept.
    New,
    /// The last run has begun and has not finished: it goes on, failed, or lost its lease.
    Begun(Run),
    /// The firing is finished, by this run.
    Finished(Run),
    /// As many runs have begun as may. This is the last one; it goes on, failed, or lost its lease.
    Spent(Run),
    /// The owner does not hold the lock by this fence: nothing was changed.
    NotHeld,
}

/// The reply to a step, and the time of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// The time on the wall clock of the store, in microseconds since 1970.
    pub now_us: u64,
}

/// The last run of a firing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The owner of the lock that began the run.
    pub owner: Owner,
    /// By which fence.
    pub fence: Fence,
    /// Which one it is, counted from 1.
    pub number: u32,
    /// When it began, or finished, in microseconds since 1970 on the wall clock of the store.
    pub at_us: u64,
}

/// All that a store keeps of one firing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The last run.
    pub run: Run,
    /// It has finished.
    pub is_finished: bool,
    /// The last millisecond since 1970 at which the record exists.
    pub forget_at_ms: u64,
}

/// Takes one step at `now`. `kept` is what the store keeps of the firing, and `lock` the state of its lock.
pub fn apply(kept: &mut Option<Record>, lock: &LockState, now: Now, step: &Step) -> Answer {
    kept.take_if(|record| record.has_expired(now));
    Answer {
        reply: reply(kept, lock, now, step),
        now_us: now.wall_us,
    }
}

fn reply(kept: &mut Option<Record>, lock: &LockState, now: Now, step: &Step) -> Reply {
    if let Some(finished) = kept.as_ref().filter(|record| record.is_finished) {
        return Reply::Finished(finished.run.clone());
    }
    let last = kept.as_ref().map(|record| &record.run);
    let (owner, fence, keep, tries) = match step {
        Step::Look => return last.cloned().map_or(Reply::New, Reply::Begun),
        Step::Begin {
            owner,
            fence,
            tries,
            keep,
        } => (owner, *fence, *keep, Some(tries.get())),
        Step::Finish { owner, fence, keep } => (owner, *fence, *keep, None),
    };
    if !lock.is_held(now, owner, fence) {
        return Reply::NotHeld;
    }
    let number = match last {
        // A lease of the same grant that has ended: its client has handed the lock on.
        Some(later) if later.fence > fence => return Reply::NotHeld,
        Some(mine) if mine.fence == fence => {
            if tries.is_some() {
                return Reply::Begun(mine.clone());
            }
            mine.number
        }
        Some(last) if tries.is_some_and(|tries| last.number >= tries) => {
            return Reply::Spent(last.clone());
        }
        // Also for a finish whose begin the store has lost.
        Some(last) => last.number.saturating_add(1),
        None => 1,
    };
    let run = Run {
        owner: owner.clone(),
        fence,
        number,
        at_us: now.wall_us,
    };
    let is_finished = tries.is_none();
    *kept = Some(Record {
        run: run.clone(),
        is_finished,
        forget_at_ms: now.wall_us / 1_000 + keep.millis(),
    });
    if is_finished {
        Reply::Finished(run)
    } else {
        Reply::Begun(run)
    }
}

impl Record {
    /// Whether the store has forgotten it.
    pub const fn has_expired(&self, now: Now) -> bool {
        self.forget_at_ms < now.wall_us / 1_000
    }
}
