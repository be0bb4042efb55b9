//! A store that all clients of a schedule share, with a record of the task that works under the lock. It never fails.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use leasehold_core::{ClientId, LockName, Owner, Reply, Step, UnknownPresence, World};
use shuttle::rand::{Rng, thread_rng};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::StoreError;
use crate::lease::hold::Hold;
use crate::store::{Answer, Attach, Done, IndexRequest, Listener, Notice, Store};
use crate::sync::{Mutex, MutexGuard};

/// The one lock of a schedule.
pub(super) fn name() -> LockName {
    LockName::new("m").unwrap()
}

pub(super) struct Server {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    world: World,
    wires: HashMap<ClientId, Arc<Wire>>,
    /// The lease under which a task works now. `last` is the highest fence under which a task has worked.
    inside: Option<Arc<Hold>>,
    last: u64,
    /// Owners whose lock was broken.
    broken: HashSet<Owner>,
}

/// The connection between one client and the server. If it is slow, [`Wire::run`] carries the messages, else each arrives at once.
/// Requests of a kind keep their order, and so do answers and notices.
pub(super) struct Wire {
    listener: Listener,
    is_slow: bool,
    under_way: Mutex<UnderWay>,
    bell: Notify,
}

#[derive(Default)]
struct UnderWay {
    requests: VecDeque<(Step, Done)>,
    answers: VecDeque<(Answer, Done)>,
    notices: VecDeque<Notice>,
    cut: bool,
}

impl Server {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: Step) -> Reply {
        self.take(|_| Some(step)).unwrap()
    }

    /// Applies the step that `choose` makes from the state, if any, and sends the notices.
    fn take(&self, choose: impl FnOnce(&mut State) -> Option<Step>) -> Option<Reply> {
        let mut state = self.state();
        let step = choose(&mut state)?;
        let outcome = state
            .world
            .apply(self.clock.store_now(), &name(), &step, &UnknownPresence);
        let key = || name().key().to_owned();
        let mut notices = Vec::new();
        for wake in outcome.wakes {
            let to = wake.owner.client();
            notices.push((to, Notice::Granted { key: key(), wake }));
        }
        for owner in outcome.wanted {
            notices.push((owner.client(), Notice::Wanted { key: key(), owner }));
        }
        let notices: Vec<_> = notices
            .into_iter()
            .map(|(client, notice)| (state.wires[&client].clone(), notice))
            .collect();
        drop(state);
        for (wire, notice) in notices {
            if wire.is_slow {
                wire.add(|under_way| under_way.notices.push_back(notice));
            } else {
                (wire.listener)(notice);
            }
        }
        Some(outcome.reply)
    }

    /// Breaks the lock, if it has a holder.
    pub(super) fn break_lock(&self) {
        self.take(|state| {
            let holder = state.world.get(&name())?.holders.first()?;
            let (owner, fence) = (holder.owner.clone(), holder.fences.first);
            state.broken.insert(owner);
            Some(Step::Break { fence })
        });
    }

    /// A task begins to work under this lease. Checks that no other task is at work, unless its lease is lost or was broken.
    pub(super) fn enter(&self, hold: &Arc<Hold>) {
        let mut state = self.state();
        if state.broken.contains(&hold.owner) || hold.loss().is_some() {
            return;
        }
        let lock = state.world.get(&name());
        let holds = lock.is_some_and(|lock| lock.holders.iter().any(|is| is.owner == hold.owner));
        assert!(holds, "the store does not know of it: {}", hold.fence);
        if let Some(before) = &state.inside {
            let knows = state.broken.contains(&before.owner) || before.loss().is_some();
            assert!(knows, "both {} and {}", before.fence, hold.fence);
        }
        let fence = hold.fence.get();
        assert!(fence > state.last, "{fence} after {}", state.last);
        (state.last, state.inside) = (fence, Some(hold.clone()));
    }

    /// The task ends its work.
    pub(super) fn leave(&self, hold: &Arc<Hold>) {
        let mut state = self.state();
        state.inside.take_if(|inside| Arc::ptr_eq(inside, hold));
    }

    /// True if the lock has no holder and no waiters.
    pub(super) fn is_free(&self) -> bool {
        let state = self.state();
        let lock = state.world.get(&name());
        lock.is_none_or(|lock| lock.holders.is_empty() && lock.queue.is_empty())
    }

    pub(super) fn attach(self: &Arc<Self>, attach: Attach, is_slow: bool) -> Client {
        let wire = Arc::new(Wire {
            listener: attach.listener,
            is_slow,
            under_way: Mutex::default(),
            bell: Notify::new(),
        });
        self.state().wires.insert(attach.client, wire.clone());
        Client {
            server: self.clone(),
            wire,
        }
    }
}

impl Wire {
    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, what: impl FnOnce(&mut UnderWay)) {
        what(&mut self.under_way());
        self.bell.notify_one();
    }

    pub(super) fn cut(&self) {
        self.add(|under_way| under_way.cut = true);
    }

    /// Takes a random one of the messages on their way.
    fn next(&self) -> Moving {
        let mut under_way = self.under_way();
        let UnderWay {
            requests,
            answers,
            notices,
            cut,
        } = &mut *under_way;
        let moves = [
            !requests.is_empty(),
            !answers.is_empty(),
            !notices.is_empty(),
        ];
        let moving: Vec<_> = (0..3).filter(|at| moves[*at]).collect();
        if moving.is_empty() {
            return if *cut { Moving::Cut } else { Moving::Nothing };
        }
        let next = match moving[thread_rng().gen_range(0..moving.len())] {
            0 => {
                // An acquisition and a request of another kind may overtake each other, as in a submission queue.
                let frees = thread_rng().gen_bool(0.5);
                let kind = |(step, _): &(Step, Done)| frees != matches!(step, Step::Acquire { .. });
                let at = requests.iter().position(kind).unwrap_or(0);
                requests.remove(at).map(Moving::Request)
            }
            1 => answers.pop_front().map(Moving::Answer),
            _ => notices.pop_front().map(Moving::Notice),
        };
        next.unwrap_or(Moving::Nothing)
    }

    /// Carries the messages, until the wire is cut.
    pub(super) async fn run(self: Arc<Self>, server: Arc<Server>) {
        loop {
            match self.next() {
                Moving::Request((step, done)) => {
                    let reply = server.step(step);
                    self.add(|under_way| under_way.answers.push_back((Ok(reply), done)));
                }
                Moving::Answer((answer, done)) => done.answer(answer),
                Moving::Notice(notice) => {
                    (self.listener)(notice);
                    if thread_rng().gen_ratio(1, 4) {
                        // As after a new connection, each waiter asks again, although the store has lost nothing.
                        (self.listener)(Notice::Reconnected { node: 0 });
                    }
                }
                Moving::Nothing => self.bell.notified().await,
                Moving::Cut => return,
            }
        }
    }
}

/// The next message of a [`Wire`].
enum Moving {
    Request((Step, Done)),
    Answer((Answer, Done)),
    Notice(Notice),
    Nothing,
    Cut,
}

/// One client's access to a [`Server`].
pub(super) struct Client {
    server: Arc<Server>,
    pub(super) wire: Arc<Wire>,
}

impl Store for Client {
    fn send(&self, _name: &LockName, step: Step, done: Done) {
        if self.wire.is_slow {
            self.wire
                .add(|under_way| under_way.requests.push_back((step, done)));
        } else {
            done.answer(Ok(self.server.step(step)));
        }
    }

    fn label(&self) -> &'static str {
        "explored:"
    }

    fn index(&self, _: IndexRequest) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        ready(Ok(Vec::new())).boxed()
    }
}
