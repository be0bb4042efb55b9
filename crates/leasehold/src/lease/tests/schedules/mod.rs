//! Tests the engine under random thread schedules. Shuttle runs up to two clients on a store in memory. At each lock and each await,
//! it draws the task that runs next. The simulation tests the state machine alone. These tests vary the order in which callers, answers,
//! timers and closing reach the machine. They also vary the order in which the engine carries out the effects.
//!
//! The tests check:
//!
//! - No two tasks work at once under leases that are both good. Fences rise in the order of the work.
//! - A client serves its tasks in the order in which they came. Q2 and Q5 hold at each look at the queues.
//! - Every waiter gets a reply in the end, also when the client is closed. A lost wake is a deadlock, because the clock stops before
//!   the time of the first poll.
//! - At the end, the lock is free and the client keeps nothing of it.

mod server;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn, yield_now};

use self::server::{Server, Wire};
use self::worker::What::{Anew, Extend, Leave, Limit, Try, Work, WorkLonger};
use self::worker::{What, Worker};
use crate::clock::Clock;
use crate::lease::{Engine, EngineConfig, EngineHandle, Identity, Lease, NoticeSink as Way};
use crate::runtime::Tasks;
use crate::store::Attach;
use crate::sync::explore;
use crate::telemetry::Telemetry;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(10);
/// A client keeps a released lock for this time.
const LINGER: Duration = Duration::from_millis(30);

/// The numbers of the callers that are certainly in a client's queue, and the next number.
type Waiting = Arc<std::sync::Mutex<(Vec<u64>, u64)>>;

struct Scene {
    clock: Clock,
    server: Arc<Server>,
    sides: Vec<Side>,
    /// The tasks that run the engines and the wires.
    house: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// A task may lose the lock early, to a break or to closing. The checks of the order and of releases are off then.
    lossy: bool,
}

/// A client.
#[derive(Clone)]
struct Side {
    engine: EngineHandle,
    wire: Arc<Wire>,
    waiting: Waiting,
    /// Lost leases that their tasks do not drop before the end.
    lost: Arc<std::sync::Mutex<Vec<Lease>>>,
}

impl Scene {
    /// Starts this many clients. If they are slow, their requests and answers take time.
    fn begin(clients: usize, is_slow: bool) -> Self {
        let clock = Clock::manual();
        let mut scene = Self {
            server: Server::new(clock.clone()),
            clock,
            sides: Vec::new(),
            house: Vec::new(),
            workers: Vec::new(),
            lossy: false,
        };
        for _ in 0..clients {
            let (way, identity) = (Way::default(), Identity::new(Some("host".into())).unwrap());
            let attach = Attach {
                client: identity.client,
                listener: way.listener(),
                clock: scene.clock.clone(),
                tasks: Tasks::explored(),
                limit: TTL,
            };
            let store = scene.server.attach(attach, is_slow);
            let wire = store.wire.clone();
            let plan = EngineConfig {
                clock: scene.clock.clone(),
                tasks: Tasks::explored(),
                identity,
                outage_timeout: TTL,
                request_timeout: TTL,
                telemetry: Telemetry::default(),
            };
            let (engine, run) = Engine::new(Arc::new(store), plan, &way);
            let engine = EngineHandle::new(engine, Duration::ZERO);
            scene.house.push(spawn(run));
            if is_slow {
                scene
                    .house
                    .push(spawn(wire.clone().run(scene.server.clone())));
            }
            scene.sides.push(Side {
                engine,
                wire,
                waiting: Waiting::default(),
                lost: Arc::default(),
            });
        }
        scene
    }

    /// Starts a task of the client `side`, which does these things one after the other.
    fn worker(&mut self, side: usize, what: &[What]) {
        let (side, server, clock) = (
            self.sides[side].clone(),
            self.server.clone(),
            self.clock.clone(),
        );
        let what = what.to_vec();
        let worker = Worker {
            side,
            server,
            clock,
            lossy: self.lossy,
        };
        self.workers.push(spawn(async move {
            for what in what {
                worker.does(what).await;
            }
        }));
    }

    /// Starts another task beside the workers.
    fn meanwhile(&mut self, what: impl Future<Output = ()> + Send + 'static) {
        self.workers.push(spawn(what));
    }

    /// Waits until all tasks have ended. Then checks that the store and the clients keep nothing.
    async fn end(self) {
        for worker in self.workers {
            worker.await.unwrap();
        }
        for side in &self.sides {
            let lost = std::mem::take(&mut *side.lost.lock().unwrap());
            drop(lost);
        }
        // A client releases an idle lock after its linger time. It may just now have granted the last lease to a caller that was gone.
        for turn in 0..2_000 {
            if self.server.is_free() {
                break;
            }
            if turn % 10 == 0 {
                // In sum, less than the time until the first poll.
                self.clock.advance(MS);
            }
            yield_now().await;
        }
        assert!(self.server.is_free(), "somebody kept it");
        for side in self.sides {
            side.engine.close().await;
            assert!(side.engine.is_empty(), "it remembers something");
            side.wire.cut();
        }
        for task in self.house {
            task.await.unwrap();
        }
    }
}

#[test]
fn tasks_come_and_go() {
    explore(2_500, || async {
        let mut scene = Scene::begin(2, true);
        for (side, what) in [
            (0, &[Work, Leave][..]),
            (0, &[Limit, WorkLonger]),
            (0, &[Try, Extend]),
            (1, &[Work]),
        ] {
            scene.worker(side, what);
        }
        scene.end().await;
    });
}

#[test]
fn who_sees_its_loss_is_not_in_its_own_way() {
    explore(3_400, || async {
        let mut scene = Scene::begin(1, true);
        scene.lossy = true;
        scene.worker(0, &[Anew]);
        let server = scene.server.clone();
        scene.meanwhile(async move { server.break_lock() });
        scene.end().await;
    });
}

#[test]
fn a_client_is_closed() {
    explore(3_400, || async {
        let mut scene = Scene::begin(2, false);
        scene.lossy = true;
        for (side, what) in [
            (0, &[Work][..]),
            (0, &[Work, Leave]),
            (0, &[Try]),
            (1, &[Work]),
        ] {
            scene.worker(side, what);
        }
        let closed = scene.sides[0].engine.clone();
        scene.meanwhile(async move { closed.close().await });
        scene.end().await;
    });
}
