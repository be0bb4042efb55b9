//! Clients that use one lock while nodes fail at random: never two leases at once, and fences in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::Fence;

use super::{MS, Nodes, SECOND};
use crate::backoff::seeds;
use crate::error::StoreErrorKind;
use crate::store::memory::Memory;

/// The histories of a test run. `LEASEHOLD_SEEDS` chooses others, as in the simulation; `scripts/soak` does.
const SEEDS: u64 = 10;

/// How long a history lasts.
const END: Duration = Duration::from_secs(120);

/// Who uses the resource now, and all fences that it has shared.
#[derive(Default)]
struct Resource {
    users: u32,
    highest: Option<Fence>,
    uses: u32,
    wrong: Vec<String>,
}

fn disturb(rng: &mut fastrand::Rng, way: &Memory) {
    let faults = way.faults();
    match rng.u32(..8) {
        0 => faults.fail(StoreErrorKind::Unreachable),
        1 => faults.hang(),
        2 => faults.lose_replies(),
        3 => faults.slow(MS * rng.u32(1..2_500)),
        4 => faults.slow(MS * rng.u32(1..20)),
        _ => faults.heal(),
    }
}

async fn history(seed: u64) -> u32 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let nodes = Nodes::new(if rng.bool() { 3 } else { 5 });
    let resource = Arc::new(Mutex::new(Resource::default()));
    let mut ways = Vec::new();
    let mut users = Vec::new();
    for number in 0..4_u64 {
        let (client, own, _) = nodes.client();
        ways.extend(own);
        let (resource, mut rng) = (
            resource.clone(),
            fastrand::Rng::with_seed(seed * 7 + number),
        );
        users.push(tokio::spawn(async move {
            loop {
                let mutex = client.mutex("stock").ttl(MS * rng.u32(1_000..6_000));
                let Ok(lease) = mutex.acquire_within(MS * rng.u32(1..8_000)).await else {
                    continue;
                };
                {
                    let mut shared = resource.lock().unwrap();
                    shared.users += 1;
                    shared.uses += 1;
                    let fence = lease.fence();
                    if shared.users > 1 {
                        shared
                            .wrong
                            .push(format!("two leases at once, one with fence {fence}"));
                    }
                    if shared.highest >= Some(fence) {
                        let highest = shared.highest;
                        shared
                            .wrong
                            .push(format!("fence {fence} after {highest:?}"));
                    }
                    shared.highest = shared.highest.max(Some(fence));
                }
                let work = tokio::time::sleep(MS * rng.u32(0..4_000));
                tokio::select! {
                    () = work => {}
                    _ = lease.lost() => {}
                }
                resource.lock().unwrap().users -= 1;
                if rng.bool() {
                    lease.release().await.ok();
                } else {
                    drop(lease);
                }
            }
        }));
    }
    let begun = nodes.clock.now();
    while nodes.clock.now().since(begun) < END {
        tokio::time::sleep(MS * rng.u32(1..2_000)).await;
        let way = &ways[rng.usize(..ways.len())];
        disturb(&mut rng, way);
        if rng.u32(..12) == 0 {
            for way in &ways {
                way.faults().heal();
            }
        }
        if rng.u32(..40) == 0 {
            let node = rng.usize(..nodes.memories.len());
            nodes.memories[node].meddle(|world| *world = leasehold_core::World::node(None));
            // Another loss before this quarantine has ended would leave no majority.
            tokio::time::sleep(32 * SECOND).await;
        }
    }
    users.iter().for_each(tokio::task::JoinHandle::abort);
    let shared = resource.lock().unwrap();
    assert!(
        shared.wrong.is_empty(),
        "LEASEHOLD_SEEDS={seed}..{}: {:#?}",
        seed + 1,
        shared.wrong
    );
    shared.uses
}

#[test]
fn leases_never_overlap_and_their_fences_rise() {
    let (mut uses, mut histories) = (0, 0);
    for seed in seeds(SEEDS) {
        crate::backoff::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread();
        let mut runtime = runtime;
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        uses += runtime.block_on(history(seed));
        histories += 1;
    }
    assert!(uses > 20 * histories, "{uses} leases");
}
