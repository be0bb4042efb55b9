//! Each verb of the library under each set of faulty nodes, of 3 and of 5. It works exactly while a majority answers.

use std::fmt::Debug;
use std::time::Duration;

use leasehold_core::Fence;

use super::faults::{FAULTS, Fault, masks, set_all};
use super::{MS, Nodes, SECOND, settle};
use crate::clock::Moment;
use crate::error::Error;
use crate::kind::Exclusive;
use crate::store::memory::Memory;
use crate::{Client, Lease, LossCause};

const NAME: &str = "stock";

/// Longer than the time limit of two requests: the lead may have to be asked first, and then its successor.
const SOON: Duration = Duration::from_secs(5);

/// A client with faults between it and some nodes.
struct Scene {
    nodes: Nodes,
    client: Client,
    ways: Vec<Memory>,
    fault: Fault,
    mask: u32,
    has_majority: bool,
}

impl Scene {
    /// Nodes that answer, or will not.
    fn what(&self) -> String {
        let (count, mask) = (self.ways.len(), self.mask);
        format!("{:?} at {mask:0count$b}", self.fault)
    }

    fn begin_faults(&self) {
        set_all(&self.ways, self.mask, self.fault);
    }

    fn end_faults(&self) {
        set_all(&self.ways, 0, self.fault);
    }

    /// Nodes without faults.
    fn left(&self) -> usize {
        self.ways.len() - usize::try_from(self.mask.count_ones()).unwrap()
    }

    async fn lease(&self) -> Lease {
        let lease = self.client.mutex(NAME).acquire().await.unwrap();
        settle().await;
        assert_eq!(self.nodes.held_at(NAME), self.ways.len());
        lease
    }

    /// If a majority is left, and only then, the next one has the lock soon, under a higher fence.
    async fn goes_on(&self, begun: Moment, fence: Fence, next: Result<Lease, Error>) {
        match next {
            Ok(next) => {
                assert!(self.has_majority, "{}", self.what());
                let took = self.nodes.clock.now().since(begun);
                assert!(took < SOON, "{}: {took:?}", self.what());
                assert!(next.fence() > fence, "{}", self.what());
                next.release().await.unwrap();
            }
            Err(error) => assert!(!self.has_majority, "{}: {error}", self.what()),
        }
    }

    /// The output of a verb, if a majority is left. It ends at once, unless it may ask the lead first (`by`).
    async fn works<T: Debug>(
        &self,
        by: Duration,
        verb: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let begun = self.nodes.clock.now();
        let outcome = tokio::time::timeout(60 * SECOND, verb).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("{}: it hangs", self.what()));
        let took = self.nodes.clock.now().since(begun);
        match outcome {
            Ok(output) => {
                assert!(self.has_majority, "{}: {output:?}", self.what());
                assert!(took < by, "{}: {took:?}", self.what());
                Some(output)
            }
            Err(error) => {
                assert!(!self.has_majority, "{}: {error}", self.what());
                assert!(matches!(error, Error::Store(_)), "{}: {error}", self.what());
                let needed = format!("({} of {} nodes", self.ways.len() / 2 + 1, self.ways.len());
                assert!(error.to_string().contains(&needed), "{error}");
                assert!(took < SOON, "{}: {took:?}", self.what());
                None
            }
        }
    }

    /// Ends the faults, and checks that no vote is left after a while.
    async fn is_clean(&self) {
        self.end_faults();
        tokio::time::sleep(70 * SECOND).await;
        assert_eq!(self.nodes.held_at(NAME), 0, "{}", self.what());
    }
}

/// At once, in virtual time.
const AT_ONCE: Duration = MS;

/// A client that does not know whether others wait asks the lead, too, and a lead that is late counts as one that fails (V5, V6).
pub(super) const WITHOUT_LEAD: Duration = Duration::from_millis(26);

/// Tries a verb under each fault at each set of nodes.
async fn each(verb: impl AsyncFn(&Scene)) {
    for fault in FAULTS {
        for (count, mask, has_majority) in masks() {
            let nodes = Nodes::new(count);
            let (client, ways, _) = nodes.client();
            let scene = Scene {
                nodes,
                client,
                ways,
                fault,
                mask,
                has_majority,
            };
            verb(&scene).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn try_acquire_takes_a_free_lock() {
    each(async |scene| {
        scene.begin_faults();
        let mutex = scene.client.mutex(NAME);
        if let Some(lease) = scene.works(WITHOUT_LEAD, mutex.try_acquire()).await {
            let lease = lease.expect("it is free");
            let votes = scene.nodes.holders(NAME).into_iter().flatten();
            let alike = votes.filter(|(_, fence)| *fence == lease.fence()).count();
            assert!(alike > scene.ways.len() / 2, "{}", scene.what());
            lease.release().await.unwrap();
        }
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn try_acquire_finds_a_held_lock_busy() {
    each(async |scene| {
        let (holder, ..) = scene.nodes.client();
        let lease = holder.mutex(NAME).acquire().await.unwrap();
        settle().await;
        scene.begin_faults();
        let mutex = scene.client.mutex(NAME);
        let taken = scene.works(SOON, mutex.try_acquire()).await;
        assert!(taken.flatten().is_none(), "{}", scene.what());
        lease.release().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn extend_renews_at_a_majority() {
    each(async |scene| {
        let lease = scene.lease().await;
        let before = lease.valid_until();
        tokio::time::sleep(SECOND).await;
        scene.begin_faults();
        let extended = scene.works(AT_ONCE, lease.extend(30 * SECOND)).await;
        assert_eq!(lease.valid_until() > before, extended.is_some());
        assert!(!lease.is_lost(), "{}", scene.what());
        scene.end_faults();
        lease.extend(30 * SECOND).await.unwrap();
        lease.release().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn release_frees_at_a_majority_and_later_at_all() {
    each(async |scene| {
        let lease = scene.lease().await;
        scene.begin_faults();
        if scene.works(AT_ONCE, lease.release()).await.is_some() {
            let (other, ..) = scene.nodes.client();
            let next = other.mutex(NAME).try_acquire().await.unwrap();
            // The lead may lack the release.
            if let Some(next) = next {
                next.release().await.unwrap();
            }
        }
        // Long before the TTL of 30 s.
        scene.end_faults();
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(scene.nodes.held_at(NAME), 0, "{}", scene.what());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn release_after_keeps_the_lock_at_a_majority() {
    each(async |scene| {
        let lease = scene.lease().await;
        let (owner, fence) = (lease.owner().clone(), lease.fence());
        scene.begin_faults();
        let released = scene.works(AT_ONCE, lease.release_after(20 * SECOND)).await;
        scene.end_faults();
        tokio::time::sleep(15 * SECOND).await;
        let kept = scene.nodes.holders(NAME).into_iter().flatten();
        let kept = kept.filter(|holder| *holder == (owner.clone(), fence));
        // A release that keeps the lock is not repeated at a node, where another process may have renewed it by then.
        let enough = scene.ways.len() / 2 + 1;
        assert!(kept.count() >= enough, "{}", scene.what());
        let busy = scene.client.mutex(NAME).try_acquire().await.unwrap();
        assert!(busy.is_none(), "{}", scene.what());
        if released.is_some() {
            // From the release on, and not from when the last node had it.
            tokio::time::sleep(6 * SECOND).await;
            let next = scene.client.mutex(NAME).try_acquire().await.unwrap();
            drop(next.expect("it is free"));
        }
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn at_least_keeps_the_lock_from_its_grant_on() {
    each(async |scene| {
        scene.begin_faults();
        let mutex = scene.client.mutex(NAME).at_least(20 * SECOND);
        let lease = scene.works(WITHOUT_LEAD, mutex.try_acquire()).await;
        if let Some(lease) = lease {
            let lease = lease.expect("it is free");
            scene.works(AT_ONCE, lease.release()).await;
            let (other, ..) = scene.nodes.client();
            tokio::time::sleep(18 * SECOND).await;
            let busy = other.mutex(NAME).try_acquire().await.unwrap();
            assert!(busy.is_none(), "{}", scene.what());
            scene.end_faults();
            tokio::time::sleep(4 * SECOND).await;
            let next = other.mutex(NAME).try_acquire().await.unwrap();
            drop(next.expect("it is free"));
        }
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn inspect_shows_the_holder_that_a_majority_names() {
    each(async |scene| {
        let (holder, ..) = scene.nodes.client();
        for is_held in [false, true] {
            scene.end_faults();
            let mutex = holder.mutex(NAME);
            let lease = is_held.then_some(mutex.acquire());
            let lease = match lease {
                Some(lease) => Some(lease.await.unwrap()),
                None => None,
            };
            settle().await;
            scene.begin_faults();
            for by in [SOON, WITHOUT_LEAD] {
                if let Some(seen) = scene.works(by, scene.client.inspect(NAME)).await {
                    let fence = seen.holder.and_then(|holder| holder.fence);
                    let held = lease.as_ref().map(Lease::<Exclusive>::fence);
                    assert_eq!(fence, held, "{}", scene.what());
                }
            }
        }
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn inspect_nodes_shows_each_view_and_the_errors() {
    each(async |scene| {
        let (holder, ..) = scene.nodes.client();
        let lease = holder.mutex(NAME).acquire().await.unwrap();
        settle().await;
        scene.begin_faults();
        let inspected = scene.client.inspect_nodes(NAME).await.unwrap();
        assert_eq!(inspected.nodes.len(), scene.ways.len());
        for (node, view) in inspected.nodes.iter().enumerate() {
            assert_eq!(view.node, "memory:");
            match &view.seen {
                Ok(seen) => {
                    let fence = seen.holder.as_ref().and_then(|holder| holder.fence);
                    assert_eq!(fence, Some(lease.fence()), "{}", scene.what());
                }
                Err(error) => {
                    assert_eq!(scene.mask >> node & 1, 1, "{}: {error}", scene.what());
                }
            }
        }
        let lock = async { Ok(inspected.lock.clone()?) };
        let verdict = scene.works(AT_ONCE, lock).await;
        let votes = if verdict.is_some() { scene.left() } else { 0 };
        assert_eq!(inspected.votes(), votes, "{}", scene.what());
        lease.release().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn names_are_those_of_all_nodes_that_answer() {
    each(async |scene| {
        let (holder, ..) = scene.nodes.client();
        let lease = holder.mutex(NAME).acquire().await.unwrap();
        settle().await;
        scene.begin_faults();
        // The index has hints only, so one node is enough.
        match scene.client.names().await {
            Ok(names) => assert_eq!(names, [NAME], "{}", scene.what()),
            Err(error) => assert_eq!(scene.left(), 0, "{}: {error}", scene.what()),
        }
        drop(lease);
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn break_frees_what_a_majority_has_broken() {
    each(async |scene| {
        let (holder, ..) = scene.nodes.client();
        let lease = holder.mutex(NAME).acquire().await.unwrap();
        settle().await;
        scene.begin_faults();
        let breaking = scene.client.break_lock(NAME, lease.fence());
        let broken = scene.works(WITHOUT_LEAD, breaking).await;
        scene.end_faults();
        tokio::time::sleep(12 * SECOND).await;
        if broken.is_some() {
            assert_eq!(broken, Some(true));
            let loss = lease.loss().expect("its renewal has found out");
            assert!(matches!(loss.cause, LossCause::NotHeld(_)), "{loss}");
        } else if !matches!(scene.fault, Fault::LosesReplies) {
            // A minority was broken.
            assert!(!lease.is_lost(), "{}", scene.what());
        }
        drop(lease);
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn detach_renew_check_and_release_of_a_token() {
    each(async |scene| {
        let lease = scene.lease().await;
        scene.begin_faults();
        let detached = scene.works(AT_ONCE, lease.detach(20 * SECOND)).await;
        scene.end_faults();
        let Some((detached, _)) = detached else {
            // No program knows the token.
            tokio::time::sleep(5 * SECOND).await;
            assert_eq!(scene.nodes.held_at(NAME), 0, "{}", scene.what());
            return;
        };
        // Another process takes it over, which knows nothing of its votes.
        let (other, ways, _) = scene.nodes.client();
        set_all(&ways, scene.mask, scene.fault);
        let taken_over = other.detached(NAME, detached.token()).unwrap();
        scene.works(SOON, taken_over.check()).await;
        scene.works(AT_ONCE, taken_over.renew(25 * SECOND)).await;
        scene.works(WITHOUT_LEAD, taken_over.check()).await;
        tokio::time::sleep(22 * SECOND).await;
        assert!(
            scene.nodes.held_at(NAME) >= scene.left(),
            "{}",
            scene.what()
        );
        scene.works(AT_ONCE, taken_over.release()).await;
        set_all(&ways, 0, scene.fault);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(scene.nodes.held_at(NAME), 0, "{}", scene.what());
    })
    .await;
}

/// The token is good, and its client sees too few nodes.
#[tokio::test(start_paused = true)]
async fn a_token_has_no_verdict_without_a_majority() {
    each(async |scene| {
        let (holder, ..) = scene.nodes.client();
        let lease = holder.mutex(NAME).acquire().await.unwrap();
        let (detached, _) = lease.detach(20 * SECOND).await.unwrap();
        settle().await;
        scene.begin_faults();
        let mine = || scene.client.detached(NAME, detached.token()).unwrap();
        scene.works(SOON, mine().check()).await;
        scene.works(SOON, mine().renew(20 * SECOND)).await;
        scene.works(SOON, mine().release()).await;
        scene.is_clean().await;
    })
    .await;
}

/// The faults are at the waiter, or at the holder too.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_while_a_majority_answers() {
    for is_of_both in [false, true] {
        each(async |scene| {
            let (holder, holders_ways, _) = scene.nodes.client();
            let lease = holder.mutex(NAME).acquire().await.unwrap();
            let fence = lease.fence();
            let mutex = scene.client.mutex(NAME);
            let waiting = tokio::spawn(async move { mutex.acquire_within(10 * SECOND).await });
            settle().await;
            scene.begin_faults();
            let begun = scene.nodes.clock.now();
            if is_of_both {
                set_all(&holders_ways, scene.mask, scene.fault);
                scene.works(AT_ONCE, lease.release()).await;
            } else {
                lease.release().await.unwrap();
            }
            scene.goes_on(begun, fence, waiting.await.unwrap()).await;
            set_all(&holders_ways, 0, scene.fault);
            scene.is_clean().await;
        })
        .await;
    }
}

/// A lock that may linger has fences to spare, so the next task of its client needs no node. Otherwise it needs a majority.
#[tokio::test(start_paused = true)]
async fn the_next_task_of_a_client_is_served() {
    for linger in [20 * SECOND, Duration::ZERO] {
        each(async |scene| {
            let mutex = scene.client.mutex(NAME).linger(linger);
            let lease = mutex.acquire().await.unwrap();
            let fence = lease.fence();
            let waiting = tokio::spawn(async move { mutex.acquire_within(10 * SECOND).await });
            settle().await;
            scene.begin_faults();
            let begun = scene.nodes.clock.now();
            if linger.is_zero() {
                scene.works(AT_ONCE, lease.release()).await;
            } else {
                lease.release().await.unwrap();
            }
            let next = waiting.await.unwrap();
            let took = scene.nodes.clock.now().since(begun);
            let is_served = scene.has_majority || !linger.is_zero();
            assert_eq!(next.is_ok(), is_served, "{}: {next:?}", scene.what());
            if let Ok(next) = next {
                let by = if linger.is_zero() {
                    WITHOUT_LEAD
                } else {
                    AT_ONCE
                };
                assert!(took < by, "{}: {took:?}", scene.what());
                assert!(next.fence() > fence, "{}", scene.what());
                tokio::time::sleep(40 * SECOND).await;
                assert_eq!(!next.is_lost(), scene.has_majority, "{}", scene.what());
            }
            scene.is_clean().await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_lingers_for_its_client_and_ends_for_a_waiter() {
    each(async |scene| {
        let mutex = scene.client.mutex(NAME).linger(20 * SECOND);
        let lease = mutex.acquire().await.unwrap();
        let fence = lease.fence();
        settle().await;
        scene.begin_faults();
        lease.release().await.unwrap();
        // Neither needs a node.
        let again = mutex.acquire_within(AT_ONCE).await.unwrap();
        assert!(again.fence() > fence, "{}", scene.what());
        let fence = again.fence();
        again.release().await.unwrap();

        let (other, others_ways, _) = scene.nodes.client();
        set_all(&others_ways, scene.mask, scene.fault);
        let tried = scene.works(SOON, other.mutex(NAME).try_acquire()).await;
        assert!(tried.flatten().is_none(), "{}", scene.what());
        let begun = scene.nodes.clock.now();
        let next = other.mutex(NAME).acquire_within(10 * SECOND).await;
        scene.goes_on(begun, fence, next).await;
        set_all(&others_ways, 0, scene.fault);
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn closing_confirms_the_releases_of_a_majority() {
    each(async |scene| {
        let lease = scene.lease().await;
        scene.begin_faults();
        let begun = scene.nodes.clock.now();
        let is_confirmed = scene.client.close().await;
        assert!(
            scene.nodes.clock.now().since(begun) < SOON,
            "{}",
            scene.what()
        );
        assert_eq!(is_confirmed, scene.has_majority, "{}", scene.what());
        assert!(lease.is_lost());
        scene.is_clean().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_lead_makes_no_lock_busy_for_its_only_client() {
    for slow in 0..3 {
        let nodes = Nodes::new(3);
        let (client, ways, _) = nodes.client();
        ways[slow].faults().slow(50 * MS);
        let mutex = client.mutex(NAME);
        let lease = mutex.try_acquire().await.unwrap().unwrap();
        lease.release().await.unwrap();
        let next = mutex.try_acquire().await.unwrap();
        assert!(next.is_some(), "{slow}");
    }
}
