//! Ends a hold: releases it at once, or lets it end later. A lock is not freed earlier than asked, and a hold whose deadline has passed is
//! not touched.

use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::timestamp::{Content, Reply, Step};
use tokio::sync::oneshot;

use super::keeper::{AGAIN, Keeper};
use super::key::{after, is_transient, may_have_taken_effect};
use crate::backoff::Backoff;
use crate::error::{Error, StoreError};

/// How much less an extension asks for than it writes when it has to write a certain deadline: by so much the server's clock
/// may be ahead of, or behind, where it is thought to be (T5).
const SLACK: Duration = Duration::from_millis(500);

/// The longest pause between tries.
const PAUSE: Duration = Duration::from_secs(1);

/// The outcome of an attempt to let a lock end later.
enum Try {
    Done(Result<(), Error>),
    /// The estimate of the server's clock was wrong.
    Again,
    NotHeld(Content, u64),
    Failed(Error),
}

impl Keeper {
    /// Releases the lock, once: a release that may have been executed is not repeated (T7).
    pub(super) async fn release(mut self, mut reply: Option<oneshot::Sender<Result<(), Error>>>) {
        let clock = self.key.engine.clock.clone();
        let mut backoff = Backoff::new(AGAIN, PAUSE);
        let mut tell = |answer| {
            if let Some(reply) = reply.take() {
                // Fails if the caller has gone.
                drop(reply.send(answer));
            }
        };
        loop {
            if self.is_overdue() {
                return tell(Err(self.overdue()));
            }
            let mine = self.mine.clone();
            match self.key.clone().asking(Step::Release { mine }, true).await {
                Ok(Reply::Released) => return tell(Ok(())),
                Ok(Reply::NotHeld { content, at_us }) => {
                    return tell(Err(self.not_held(&content, at_us)));
                }
                Ok(other) => return tell(Err(self.key.refused(&other))),
                Err(error) => {
                    let was_refused = is_transient(&error) && !may_have_taken_effect(&error);
                    tell(Err(error));
                    if !was_refused || self.key.engine.is_closed() {
                        return;
                    }
                }
            }
            clock.sleep(backoff.pause()).await;
        }
    }

    /// Lets it end `keep` from now, and tries for as long as it is ours; after that it is left alone. Nobody works under it any
    /// more, so what cannot be written is no loss: the deadline that stands there holds.
    pub(super) async fn keep(mut self, keep: Ttl, reply: oneshot::Sender<Result<(), Error>>) {
        let engine = self.key.engine.clone();
        let end = engine.clock.now().after(keep.get());
        let mut backoff = Backoff::new(AGAIN, PAUSE);
        let (mut failure, mut moved) = (None, false);
        let answer = loop {
            if self.is_overdue() {
                break failure.map_or_else(|| Err(self.overdue()), Err);
            }
            let Ok(rest) = Ttl::new(end.since(engine.clock.now())) else {
                // It was kept for as long as it should be, by the deadline that it had.
                return self.release(Some(reply)).await;
            };
            match self.try_to_keep(rest).await {
                Try::Done(answer) => break answer,
                Try::NotHeld(content, at_us) => {
                    break match failure {
                        // The earlier request may have been executed, and its hold may have ended as intended: this is not known.
                        Some(error) if may_have_taken_effect(&error) => Err(error),
                        _ => Err(self.not_held(&content, at_us)),
                    };
                }
                // At once, but only once in a row.
                Try::Again if !moved => {
                    moved = true;
                    continue;
                }
                Try::Again => {}
                Try::Failed(error) => failure = Some(after(failure, error)),
            }
            moved = false;
            if engine.is_closed() {
                break Err(failure.unwrap_or_else(|| StoreError::closed().into()));
            }
            tokio::select! {
                biased;
                _ = engine.closing() => {}
                () = engine.clock.sleep(backoff.pause()) => {}
            }
        };
        // Fails if the caller has gone.
        drop(reply.send(answer));
    }

    async fn try_to_keep(&mut self, rest: Ttl) -> Try {
        let clock = self.key.engine.clock.clone();
        let (sent, until) = (clock.now(), self.valid_until());
        let to = self.deadline(sent, Duration::ZERO, rest);
        // Never more than the rest, which is a TTL already.
        let least = Ttl::new(rest.get().saturating_sub(SLACK).max(Ttl::MIN)).unwrap_or(rest);
        let (step, known) = self.extension(to, least);
        let asking = self.key.clone().asking(step, true);
        let answer = tokio::select! {
            biased;
            answer = asking => answer,
            // It may be carried out yet, and then ends by its deadline, as it should.
            () = clock.sleep_until(until) => return Try::Failed(self.key.unanswered()),
        };
        match answer {
            Ok(Reply::Held { .. }) => Try::Done(Ok(())),
            Ok(Reply::Again { at_us }) => {
                self.mine.truncate(known);
                self.server = (at_us, sent);
                Try::Again
            }
            Ok(Reply::NotHeld { content, at_us }) => Try::NotHeld(content, at_us),
            Ok(other) => Try::Done(Err(self.key.refused(&other))),
            Err(error) => Try::Failed(error),
        }
    }
}
