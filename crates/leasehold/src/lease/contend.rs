//! Asking the store until it gives the lock, for a line of tasks that wait for it. Must never leave anything in the store that
//! nobody owns.
//!
//! The first request of an acquisition is sent by whoever asks, and its answer delivered where it arrives. Only when that is
//! not a lease, a task goes on from there: it waits for a wake, polls, retries and gives up.
//!
//! # Invariants
//!
//! - **W1** A request to the store is never dropped half-way: whoever stops waiting, its outcome is awaited, then undone.
//! - **W2** Either a caller receives the lease, or it is released; there is no moment at which neither is certain,
//!   since a lease that cannot be delivered is dropped, which releases it.
//! - **W3** An unreachable store is never reported as a busy lock, and an unknown outcome never as "not acquired".
//! - **W4** A grant that was only heard of counts from a moment before which it cannot have been made: the answer to the last
//!   request told the store's time, and the wake tells it again, both over one connection: another may be to another server.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Block, LockName, Mode, Owner, Reply, Step, Wait, block_for};

use super::asking::{Ask, Ear, Told};
use super::engine::Engine;
use super::line::Terms;
use super::settle::{Settle, settle};
use crate::backoff::{Backoff, jittered};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Answer;

/// How long a request that is not in line puts up with a store that does not answer.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// What to do next.
enum Next {
    Ask,
    Claim,
    Listen(Duration),
    Fail(StoreError),
    /// The line does not stand by this owner any more.
    End,
    /// What this owner got was taken.
    Done,
}

/// Who asks the store for one owner: at first where the answers arrive, then, if need be, in a task.
pub(super) struct Contender {
    engine: Arc<Engine>,
    name: LockName,
    owner: Owner,
    terms: Terms,
    ear: Arc<Ear>,
    /// The store has answered that this owner holds or waits.
    queued: bool,
    /// A request was not answered and may be carried out until then.
    unsettled_until: Option<Moment>,
    /// Since when there has been no answer.
    failing_since: Option<Moment>,
    backoff: Backoff,
}

impl Contender {
    pub(super) fn new(engine: Arc<Engine>, name: LockName, ask: Ask) -> Self {
        Self {
            engine,
            name,
            owner: ask.owner,
            terms: ask.terms,
            ear: ask.ear,
            queued: false,
            unsettled_until: None,
            failing_since: None,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
        }
    }

    /// Takes the answer to the first request, which was sent at `sent`. A task goes on with what is left to do.
    pub(super) fn begin(mut self, sent: Moment, waited: bool, answer: Answer) {
        let next = self.judge(sent, waited, answer);
        let nothing_left = match next {
            Next::Done => true,
            Next::End => !self.queued && self.unsettled_until.is_none(),
            _ => false,
        };
        if !nothing_left {
            let tasks = self.engine.tasks.clone();
            tasks.spawn(self.run(next));
        }
    }

    /// Goes on until the line needs no more.
    async fn run(mut self, mut next: Next) {
        loop {
            let (step, waits) = match next {
                Next::Ask => self.acquire(),
                // Works where a new acquire would not: on a server whose memory is full.
                Next::Claim => (self.extend(), true),
                Next::Listen(pause) => {
                    next = self.listen(pause).await;
                    continue;
                }
                Next::Fail(error) => {
                    self.engine.fail(&self.name, &self.owner, &error.into());
                    break;
                }
                Next::End => break,
                Next::Done => return,
            };
            if self.engine.is_closed() {
                next = Next::Fail(StoreError::closed());
                continue;
            }
            let sent = self.engine.clock.now();
            let mine = self.engine.asking(&self.name, &self.owner, |asking| {
                asking.sends(sent, waits);
            });
            if mine.is_none() {
                break;
            }
            let answer = self.engine.store.apply(&self.name, step).await;
            next = self.judge(sent, waits, answer);
        }
        self.clean_up().await;
    }

    /// To wait in the store's queue if anybody here waits.
    fn acquire(&self) -> (Step, bool) {
        let (waits, tasks) = self.engine.has_waiters(&self.name, &self.owner);
        // The first request, without others in the way, was another one.
        let block = block_for(tasks, true);
        (acquire(&self.owner, &self.terms, block, waits), waits)
    }

    fn extend(&self) -> Step {
        Step::Extend {
            owner: self.owner.clone(),
            ttl: self.terms.ttl,
            // Whatever it was granted is welcome.
            fence: None,
        }
    }

    /// What follows from an answer.
    fn judge(&mut self, sent: Moment, waited: bool, answer: Answer) -> Next {
        match &answer {
            Ok(Reply::Busy(_)) => self.queued |= waited,
            Ok(Reply::Held(_)) => self.queued = true,
            Err(error) if error.may_have_taken_effect => {
                let until = self.engine.clock.now().after(self.terms.ttl.get());
                self.unsettled_until = Some(until);
            }
            Ok(_) | Err(_) => {}
        }
        let (unsettled_until, answered) = (self.unsettled_until, answer.is_ok());
        self.engine.asking(&self.name, &self.owner, |asking| {
            asking.ends(sent, answered);
            asking.unsettled_until = unsettled_until;
        });
        match answer {
            Ok(Reply::Held(held)) => {
                match self.engine.taken(&self.name, &self.owner, sent, &held) {
                    Taken::Done => Next::Done,
                    Taken::NotAsked => {
                        // A wake was faster; if its lease was released meanwhile, this may have taken the lock again.
                        self.unsettled_until.get_or_insert(self.engine.clock.now());
                        Next::End
                    }
                    Taken::TooLate => self.failed(self.engine.too_late()),
                }
            }
            Ok(Reply::Busy(busy)) => {
                self.failing_since = None;
                self.backoff.reset();
                let pause = if busy.ahead == 0 {
                    busy.poll_after
                } else {
                    jittered(busy.poll_after)
                };
                if !self.engine.busy(&self.name, &self.owner, sent, busy) {
                    if waited {
                        // As above: a request that was slower than a wake may have queued its owner again.
                        self.unsettled_until.get_or_insert(self.engine.clock.now());
                    }
                    Next::End
                } else if waited {
                    Next::Listen(pause)
                } else {
                    // Somebody who waits has joined who did not.
                    Next::Ask
                }
            }
            // A claim that came too late: back to the end of the line.
            Ok(_) => Next::Ask,
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: StoreError) -> Next {
        let now = self.engine.clock.now();
        let since = *self.failing_since.get_or_insert(now);
        // In line, a full server is one that may have room again; otherwise it is a clear answer.
        let hopeless =
            !(error.kind.is_transient() || self.queued && error.kind == StoreErrorKind::Full);
        let patience = if self.queued {
            self.engine.patience
        } else {
            FIRST_CONTACT
        };
        if hopeless || now.since(since) >= patience {
            // Whatever the last request came to, an earlier one may count (W3).
            return Next::Fail(if self.unsettled_until.is_some() {
                error.unknown()
            } else {
                error
            });
        }
        if self.queued {
            // In line one is patient; who does not wait is not.
            self.engine.failing(&self.name, &self.owner, &error);
        }
        self.engine.asking(&self.name, &self.owner, |asking| {
            asking.failure = Some(error);
        });
        Next::Listen(self.backoff.pause())
    }

    /// Waits for a wake, for at most `pause`, and for whatever ends the waiting.
    async fn listen(&mut self, pause: Duration) -> Next {
        let engine = self.engine.clone();
        let told = tokio::select! {
            biased;
            told = self.ear.hear() => told,
            closed = engine.closing() => return Next::Fail(closed),
            () = engine.clock.sleep(pause) => Told::Ask,
        };
        let full = |failure: &StoreError| failure.kind == StoreErrorKind::Full;
        match told {
            Told::Granted => Next::Claim,
            Told::Served | Told::Abandoned => Next::End,
            // A full server refuses to be asked, but not to let us claim what it may have granted meanwhile.
            Told::Ask => {
                let is_full = engine.asking(&self.name, &self.owner, |asking| {
                    asking.failure.as_ref().is_some_and(full)
                });
                match is_full {
                    Some(true) => Next::Claim,
                    Some(false) => Next::Ask,
                    None => Next::End,
                }
            }
        }
    }

    /// The line does not stand by this owner any more. What reached the store is undone, unless it was handed out (W1).
    async fn clean_up(self) {
        let served = self.ear.peek() == Some(Told::Served);
        if served {
            if let Some(until) = self.unsettled_until {
                // The lease is out, or was released already: then this late request has to be undone as well.
                let ttl = self.terms.ttl;
                if !self.engine.unsettle(&self.name, &self.owner, ttl, until) {
                    self.undo().await;
                }
            }
        } else if self.queued || self.unsettled_until.is_some() {
            self.undo().await;
        }
    }

    async fn undo(self) {
        if self.engine.is_kept(&self.owner) {
            return;
        }
        self.engine.undoes(&self.owner);
        let work = Settle::of(self.name, self.owner, self.terms.ttl, self.unsettled_until);
        settle(self.engine, work).await;
    }
}

/// What became of a lock that the store gave us.
pub(super) enum Taken {
    /// Somebody has it, or nobody wanted it and it is being given back.
    Done,
    /// The answer took longer than the lease lasts. It stays ours to claim or undo.
    TooLate,
    /// The line does not stand by this owner any more.
    NotAsked,
}

/// The step that asks for the lock.
pub(super) fn acquire(owner: &Owner, terms: &Terms, block: Block, waits: bool) -> Step {
    Step::Acquire {
        owner: owner.clone(),
        mode: Mode::Exclusive,
        ttl: terms.ttl,
        block,
        wait: waits.then_some(Wait { listening: true }),
    }
}
