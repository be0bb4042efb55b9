//! The connection to one server, and where it is run. Must never let a blocked executor hold up a step, nor keep a caller
//! waiting beyond its time limit.
//!
//! A connection is run *near* its users, on the runtime that the client was made on, if there is one: an answer then needs
//! no other thread to reach who waits for it. When that runtime is blocked or ends, the connection is run at *home*, on the
//! client's own thread, from then on. TLS is always run at home.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::{LockName, Step};
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::address::Address;
use super::fault::classify;
use super::inbox::{End, Inbox};
use super::notice;
use super::runner::{Line, Plan, run};
use super::script::Scripts;
use crate::clock::{Clock, Moment};
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::{Attach, Done, Listener, Notice};

/// A connection that works.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) connection: MultiplexedConnection,
    /// Whose it is.
    pub(super) turn: u64,
    /// What time it is on this server: of a connection, since another may lead to another server.
    #[cfg(feature = "cache")]
    pub(super) time: Arc<super::cache::ServerTime>,
    /// The server says what changes of what was looked at.
    #[cfg_attr(
        not(feature = "cache"),
        expect(dead_code, reason = "nothing is looked at")
    )]
    pub(super) tracking: bool,
}

/// The connection to one node.
pub(super) struct Link {
    plan: Arc<Plan>,
    line: watch::Receiver<Line>,
}

impl Link {
    pub(super) fn open(
        address: Address,
        attach: Attach,
        scripts: Arc<Scripts>,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
    ) -> Self {
        let is_tls = address.is_tls();
        let (status, line) = watch::channel(Line::Dialing);
        let plan = Arc::new_cyclic(|plan: &Weak<Plan>| Plan {
            inbox: Inbox::new(address.to_string()),
            address,
            channel: notice::channel(attach.client),
            listener: hearing(plan.clone(), attach.listener),
            tracks: attach.keeps_values,
            clock,
            limit,
            scripts,
            line: status,
            last: Mutex::default(),
        });
        let turn = Inbox::FIRST_TURN;
        // Made only where it is spawned: dropped, it moves home.
        let near = || {
            let (plan, move_home) = (plan.clone(), MoveHome(plan.clone(), tasks.clone()));
            async move {
                let running = std::pin::pin!(run(plan, turn));
                // Dropped first: who hears that the connection is gone finds that it has moved.
                let _move_home = move_home;
                running.await;
            }
        };
        if is_tls || !tasks.spawn_near(near) {
            plan.inbox.is_at_home();
            tasks.spawn_aside(run(plan.clone(), turn));
        }
        tasks.spawn_aside(sweep(plan.clone(), tasks.clone()));
        Self { plan, line }
    }

    /// What errors call the server.
    pub(super) fn label(&self) -> &str {
        self.plan.inbox.label()
    }

    /// Sends a step; the answer comes within `limit`.
    pub(super) fn send(&self, name: &LockName, step: Step, done: Done, limit: Duration) {
        let now = self.plan.clock.now();
        let done = match step {
            Step::Inspect => self.inspects(name, done, now.after(limit)),
            _ => done,
        };
        self.plan.inbox.push(name, step, done, now, limit);
    }

    /// Where the answer to a look at a lock goes, which changes nothing: if the connection moves home meanwhile, it is sent again.
    fn inspects(&self, name: &LockName, done: Done, until: Moment) -> Done {
        let turn = self.plan.inbox.turn();
        // What is on its way must not keep the inbox that it is in.
        let (plan, name) = (Arc::downgrade(&self.plan), name.clone());
        Done::new(move |answer| {
            let lost = |plan: &Arc<Plan>| plan.inbox.has_lost(&answer, turn);
            match plan.upgrade().filter(lost) {
                Some(plan) => {
                    let now = plan.clock.now();
                    let left = until.since(now);
                    plan.inbox.push(&name, Step::Inspect, done, now, left);
                }
                None => done.answer(answer),
            }
        })
    }

    /// The clock that its limits are kept by.
    #[cfg(feature = "cache")]
    pub(super) fn clock(&self) -> &Clock {
        &self.plan.clock
    }

    /// Whether the server's messages are heard.
    pub(super) fn is_listening(&self) -> bool {
        self.plan.inbox.is_listening()
    }

    /// Waits for the first connection, or why there is none.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        // The dial has a limit of its own.
        self.up(self.plan.limit * 2).await.map(drop)
    }

    /// Sends a request that is no step over the present connection and awaits the answer, for at most `limit` in all.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        request: impl AsyncFnOnce(&Up) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        self.ask(limit, false, request).await
    }

    /// Whose turn it is to run the connection.
    pub(super) fn turn(&self) -> u64 {
        self.plan.inbox.turn()
    }

    /// Whether there is no answer because the connection has moved home, after it was this one's turn.
    pub(super) fn has_lost<T>(&self, answer: &Result<T, StoreError>, turn: u64) -> bool {
        self.plan.inbox.has_lost(answer, turn)
    }

    /// The same; what is sent but `once`, whatever comes of it, leaves the runtime that runs the connection more time.
    pub(super) async fn ask<T>(
        &self,
        limit: Duration,
        once: bool,
        request: impl AsyncFnOnce(&Up) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let Plan { clock, inbox, .. } = &*self.plan;
        let begun = clock.now();
        let up = self.up(limit).await?;
        let left = limit.saturating_sub(clock.now().since(begun));
        let _watched = inbox.other(once);
        let answered = async {
            tokio::select! {
                biased;
                answer = request(&up) => Some(answer),
                () = self.moved(up.turn) => None,
            }
        };
        match clock.within(left, answered).await {
            Some(Some(Ok(value))) => Ok(value),
            Some(Some(Err(error))) => {
                let (error, in_step) = classify(self.label(), &error);
                if error.kind == StoreErrorKind::ReadOnly {
                    inbox.is_demoted();
                } else if !in_step {
                    inbox.is_silent();
                }
                Err(error)
            }
            Some(None) => {
                let (kind, detail) = End::Blocked.told();
                Err(StoreError::new(self.label(), kind, detail).unknown())
            }
            None => {
                inbox.is_silent();
                let detail = format!("waited {limit:.1?}");
                Err(StoreError::new(self.label(), StoreErrorKind::TimedOut, detail).unknown())
            }
        }
    }

    /// Waits until the connection of this turn is given up for one that somebody else runs.
    async fn moved(&self, turn: u64) {
        let mut line = self.line.clone();
        let moved = line.wait_for(|_| self.plan.inbox.has_moved_since(turn));
        let moved = moved.await;
        // It cannot fail: the plan, which is here, has the other end.
        drop(moved);
    }

    /// The present connection; fails at once while the server is known to be down, so that nothing hangs on it.
    async fn up(&self, limit: Duration) -> Result<Up, StoreError> {
        let mut line = self.line.clone();
        let _watched = self.plan.inbox.other(false);
        let settled = line.wait_for(|line| match line {
            Line::Dialing => false,
            // It is told a moment later that a connection is given up.
            Line::Up(up) => !self.plan.inbox.has_moved_since(up.turn),
            Line::Down(_) => true,
        });
        let settled = self.plan.clock.within(limit, settled).await;
        match settled.map(|line| line.map(|line| line.clone())) {
            Some(Ok(Line::Up(up))) => Ok(up),
            Some(Ok(Line::Down(error))) => Err(error),
            Some(Ok(Line::Dialing)) | None => Err(StoreError::new(
                self.label(),
                StoreErrorKind::TimedOut,
                format!("still connecting after {limit:.1?}"),
            )),
            Some(Err(_)) => Err(StoreError::closed()),
        }
    }
}

/// A listener that remembers which locks others want: their next steps go the long way at once.
fn hearing(plan: Weak<Plan>, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let said = match &notice {
            Notice::Wanted { key, .. } => Some((key, true)),
            Notice::Granted { key, wake } => Some((key, wake.queued > 0)),
            _ => None,
        };
        if let Some(((key, contended), plan)) = said.zip(plan.upgrade()) {
            plan.inbox.is_contended(key, contended);
        }
        listener(notice);
    })
}

impl Drop for Link {
    fn drop(&mut self) {
        self.plan.inbox.close();
    }
}

/// Runs the connection at home when it can no longer be run near.
struct MoveHome(Arc<Plan>, Tasks);

impl Drop for MoveHome {
    fn drop(&mut self) {
        move_home(&self.0, &self.1);
    }
}

fn move_home(plan: &Arc<Plan>, tasks: &Tasks) {
    let cut = || (plan.listener)(Notice::Cut(End::Blocked.told().1));
    if let Some(turn) = plan.inbox.end_turn(Inbox::FIRST_TURN, cut) {
        plan.line.send_replace(Line::Dialing);
        tasks.spawn_aside(run(plan.clone(), turn));
    }
}

/// Sees to it that time limits are kept, and that somebody runs the connection.
async fn sweep(plan: Arc<Plan>, tasks: Tasks) {
    while !plan.inbox.is_closed() {
        let swept = plan.inbox.sweep(plan.clock.now());
        if swept.is_blocked {
            move_home(&plan, &tasks);
        }
        let pause = swept.pause;
        swept.tell();
        let alarm = plan.inbox.alarm.notified();
        match pause {
            Some(pause) => drop(plan.clock.within(pause, alarm).await.is_some()),
            None => alarm.await,
        }
    }
}
