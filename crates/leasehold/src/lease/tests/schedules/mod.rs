//! The driver where threads meet: shuttle runs two clients on a store in memory, and draws at each lock and each await who goes next.
//! The simulation tries the machine inside; here are the orders in which callers, answers, timers and closing reach it, and in which
//! its effects are carried out.
//!
//! What is checked: nobody works under a lease while another does whose lease is good; fences rise in the order of the work;
//! tasks of a client are served in the order they came; Q2 and Q5 hold at each look at the queues; whoever waits is answered
//! in the end, also when the client is closed, or the schedule ends in a deadlock, since nothing polls here: the clock passes
//! less than the first poll is due in. When all is over, the lock is free and the client remembers nothing of it.

mod server;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn, yield_now};

use self::server::{Server, Wire};
use self::worker::What::{Anew, Extend, Leave, Limit, Try, Work, WorkLonger};
use self::worker::{What, Worker};
use crate::clock::Clock;
use crate::lease::{Engine, EngineConfig, Identity, Lease, NoticeSink as Way};
use crate::runtime::Tasks;
use crate::store::Attach;
use crate::sync::explore;
use crate::telemetry::Telemetry;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(10);
/// Locks stay idle for so long.
const LINGER: Duration = Duration::from_millis(30);

/// The callers that certainly stand in a client's queue, and their number so far.
type Waiting = Arc<std::sync::Mutex<(Vec<u64>, u64)>>;

struct Scene {
    clock: Clock,
    server: Arc<Server>,
    sides: Vec<Side>,
    /// What runs beside each client.
    house: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// The lock may be taken from a client before it knows whom it gave it to.
    lossy: bool,
}

/// A client.
#[derive(Clone)]
struct Side {
    engine: Arc<Engine>,
    wire: Arc<Wire>,
    waiting: Waiting,
    /// Leases that were lost, whose owners do not care.
    lost: Arc<std::sync::Mutex<Vec<Lease>>>,
}

impl Scene {
    /// So many clients; their requests and answers take time if they are `slow`.
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
                keeps_values: false,
                client: identity.client,
                listener: way.listener(),
            };
            let store = scene.server.attach(attach, is_slow);
            let wire = store.wire.clone();
            let plan = EngineConfig {
                clock: scene.clock.clone(),
                tasks: Tasks::explored(),
                identity,
                outage_timeout: TTL,
                telemetry: Telemetry::default(),
            };
            let (engine, run) = Engine::new(Arc::new(store), plan, &way);
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

    /// A task of the client `side`, which does these things one after the other.
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

    /// Something else that happens meanwhile.
    fn meanwhile(&mut self, what: impl Future<Output = ()> + Send + 'static) {
        self.workers.push(spawn(what));
    }

    /// Everyone has been answered, and nothing is left.
    async fn end(self) {
        for worker in self.workers {
            worker.await.unwrap();
        }
        for side in &self.sides {
            let lost = std::mem::take(&mut *side.lost.lock().unwrap());
            drop(lost);
        }
        // What is idle is given back in time; the last one may have been given to somebody who had gone, a moment ago.
        for turn in 0..2_000 {
            if self.server.is_free() {
                break;
            }
            if turn % 10 == 0 {
                // Less than a poll is due in, all in all.
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
    explore(15_000, || async {
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
    explore(20_000, || async {
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
    explore(20_000, || async {
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
