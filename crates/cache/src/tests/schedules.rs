//! The cache guard in random schedules: several clients, slow requests and replies, a source that changes before each invalidation, and
//! a store that loses all its data. The guard must behave as a register: a caller gets no fresh value that is older than the last
//! invalidation that ended before the call (G3, K3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use leasehold::Memory;
use leasehold_core::cache::Step;

use super::{Lost, Network};
use crate::{Cache, Origin, Policy};

/// One generator for all of a schedule, so that the seed determines it.
struct Dice(Mutex<Rng>);

impl Dice {
    fn below(&self, limit: u64) -> u64 {
        self.0.lock().unwrap().u64(..limit)
    }

    fn millis(&self, most: u64) -> Duration {
        Duration::from_millis(self.below(most + 1))
    }

    async fn pause(&self, most_ms: u64) {
        tokio::time::sleep(self.millis(most_ms)).await;
    }
}

struct Scene {
    dice: Arc<Dice>,
    /// The present value of the source.
    truth: AtomicU64,
    /// The latest value of the source whose invalidation has ended.
    settled: AtomicU64,
    loads: AtomicU64,
    fresh: AtomicU64,
}

impl Scene {
    async fn read(self: Arc<Self>, cache: Cache, seed: u64) {
        for _ in 0..6 {
            self.dice.pause(150).await;
            let scene = self.clone();
            let loader = || async move {
                scene.loads.fetch_add(1, Ordering::SeqCst);
                let read = scene.truth.load(Ordering::SeqCst);
                scene.dice.pause(200).await;
                if scene.dice.below(8) == 0 {
                    return Err("failed");
                }
                Ok(read)
            };
            let policy = Policy::default()
                .fresh_for(Duration::from_millis(20 + self.dice.below(400)))
                .stale_for(Duration::from_millis(self.dice.below(400)))
                .wait_at_most(Duration::from_secs(3))
                .lease(Duration::from_millis(20 + self.dice.below(100)))
                .load_at_most(Duration::from_millis(self.dice.below(200)))
                .back_off(Duration::from_millis(20))
                .must_be_fresh(self.dice.below(2) == 0);
            let floor = self.settled.load(Ordering::SeqCst);
            let Ok(got) = cache.get_or_refresh("home", loader).policy(policy).await else {
                continue;
            };
            if got.origin() != Origin::Stale {
                assert!(
                    *got >= floor,
                    "seed {seed}: {:?} {} after {floor}",
                    got.origin(),
                    *got
                );
                self.fresh.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    async fn write(self: Arc<Self>, cache: Cache, memory: Memory) {
        for _ in 0..4 {
            self.dice.pause(250).await;
            let written = self.truth.fetch_add(1, Ordering::SeqCst) + 1;
            self.dice.pause(10).await;
            let ended = match self.dice.below(3) {
                0 => cache.remove("home").await,
                _ => cache.invalidate("home").await,
            };
            if ended.is_ok() {
                self.settled.fetch_max(written, Ordering::SeqCst);
            }
            if self.dice.below(6) == 0 {
                memory.clear();
            }
        }
    }
}

async fn schedule(seed: u64) -> (u64, u64) {
    let dice = Arc::new(Dice(Mutex::new(Rng::with_seed(seed))));
    let place = super::Scene::new();
    let scene = Arc::new(Scene {
        dice: dice.clone(),
        truth: AtomicU64::new(1),
        settled: AtomicU64::new(0),
        loads: AtomicU64::new(0),
        fresh: AtomicU64::new(0),
    });
    let mut under_way = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for at in 0..3 {
        let client = place.client();
        let (late, lost) = (dice.clone(), dice.clone());
        // The network sometimes loses the answer.
        let loses = move |_: &Step| match lost.below(20) {
            0 => Lost::Reply,
            _ => Lost::Nothing,
        };
        let cache = Network::cache(&client, move |_, _| late.millis(30), loses);
        for _ in 0..2 {
            under_way.spawn(scene.clone().read(cache.clone(), seed));
        }
        if at < 2 {
            under_way.spawn(scene.clone().write(cache, place.memory.clone()));
        }
        clients.push(client);
    }
    while let Some(ended) = under_way.join_next().await {
        ended.unwrap();
    }
    for client in clients {
        client.close().await;
    }
    (
        scene.loads.load(Ordering::SeqCst),
        scene.fresh.load(Ordering::SeqCst),
    )
}

#[test]
fn nothing_old_is_given_out_as_fresh() {
    let (mut loads, mut fresh) = (0, 0);
    for seed in 0..1_500 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let seen = runtime.block_on(schedule(seed));
        (loads, fresh) = (loads + seen.0, fresh + seen.1);
    }
    // Schedules with few loads and few fresh values would prove little.
    assert!(
        loads > 10_000 && fresh > 10_000,
        "{loads} loads, {fresh} fresh"
    );
}
