//! Leases over hours, a suspended host and a wall clock that is set back, on virtual time. No test waits in real time.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "constants, of which the first is the longer one"
)]

use std::time::Duration;

use leasehold::{Client, Clock, Error, Lease, LossCause, Memory, Moment};
use tokio::time::sleep;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const TTL: Duration = Duration::from_secs(30);

/// The client's safety margin before the store's deadline: 1 % of the TTL for drift, and 2 ms.
fn drift(ttl: Duration) -> Duration {
    ttl / 100 + MS * 2
}

/// Two clients of one store in memory. The test moves their clock.
struct Scene {
    clock: Clock,
    memory: Memory,
    client: Client,
    other: Client,
}

impl Scene {
    fn begin() -> Self {
        let clock = Clock::virtual_time();
        let memory = Memory::new(clock.clone());
        let client = || {
            Client::builder()
                .clock(clock.clone())
                .embedded(&memory)
                .expect("a paused runtime")
        };
        let (client, other) = (client(), client());
        Self {
            clock,
            memory,
            client,
            other,
        }
    }

    fn mutex(&self) -> leasehold::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    async fn lease(&self) -> Lease {
        self.mutex().acquire().await.expect("nobody holds it")
    }

    async fn is_free(&self) -> bool {
        let seen = self.other.inspect("m").await.expect("memory answers");
        seen.holder.is_none()
    }

    /// The time until the store lets the lock expire.
    async fn expires_in(&self) -> Duration {
        let seen = self.other.inspect("m").await.expect("memory answers");
        let holder = seen.holder.expect("it is held");
        holder.expires_in.expect("all of ours expire")
    }

    fn since(&self, moment: Moment) -> Duration {
        self.clock.now().since(moment)
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_renews_itself_for_hours() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    let mut shortest = TTL;
    for _ in 0..2_000 {
        sleep(SECOND * 7).await;
        assert!(!lease.is_lost() && !lease.is_doubtful());
        shortest = shortest.min(lease.valid_for());
    }
    // The client renews after a third of the TTL, so that two attempts may fail.
    let third = TTL * 2 / 3 - drift(TTL);
    assert!(shortest >= third - MS * 200, "{shortest:?}");
    lease.release().await.expect("it was held all the time");
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_renew_itself_is_lost_at_its_deadline() {
    for ttl in [MS * 10, SECOND, TTL, HOUR * 24] {
        let scene = Scene::begin();
        let asked = scene.clock.now();
        let mutex = scene.client.mutex("m").ttl(ttl).auto_renew(false);
        let lease = mutex.acquire().await.expect("nobody holds it");
        let deadline = ttl - drift(ttl);
        assert_eq!(lease.valid_until().since(asked), deadline);
        let lost = lease.lost().await;
        let told = scene.since(asked);
        assert!(told >= deadline && told <= deadline + MS, "{told:?}");
        assert_eq!(lost.cause, LossCause::Deadline(None));
        assert!(lease.is_lost() && lease.valid_for().is_zero());
        assert!(!scene.is_free().await, "before the store lets it expire");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_cannot_be_extended_and_its_release_says_so() {
    let scene = Scene::begin();
    let mutex = scene.mutex().auto_renew(false);
    let lease = mutex.acquire().await.expect("nobody holds it");
    lease.lost().await;
    // The store would still confirm the lease.
    assert!(!scene.is_free().await);
    let refused = lease.extend(TTL).await.expect_err("it is lost");
    assert!(matches!(refused, Error::Lost(_)), "{refused:?}");
    let told = lease.release().await.expect_err("it is lost");
    assert!(matches!(told, Error::Lost(_)), "{told:?}");
    assert!(scene.is_free().await, "what was left of it is given back");
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lease_that_renews_itself() {
    let scene = Scene::begin();
    let asked = scene.clock.now();
    let mutex = scene.mutex().max_hold(SECOND * 100);
    let lease = mutex.acquire().await.expect("nobody holds it");
    sleep(SECOND * 99).await;
    assert!(!lease.is_lost());
    assert!(lease.valid_for() <= SECOND, "{:?}", lease.valid_for());
    let lost = lease.lost().await;
    let held = scene.since(asked);
    assert!(
        held >= SECOND * 100 && held <= SECOND * 100 + MS,
        "{held:?}"
    );
    assert_eq!(lost.cause, LossCause::MaxHold);
    sleep(TTL + SECOND).await;
    assert!(scene.is_free().await, "nothing renews it");
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_for_all_renewals_from_then_on() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    let asked = scene.clock.now();
    lease.extend(TTL * 10).await.expect("it is held");
    assert_eq!(lease.valid_until().since(asked), TTL * 10 - drift(TTL * 10));
    assert_eq!(scene.expires_in().await, TTL * 10);
    sleep(TTL * 100).await;
    assert!(
        scene.expires_in().await > TTL * 6,
        "a third was used at most"
    );
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn an_extension_can_shorten_the_lease() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    let asked = scene.clock.now();
    lease.extend(SECOND * 3).await.expect("it is held");
    let deadline = SECOND * 3 - drift(SECOND * 3);
    assert_eq!(lease.valid_until().since(asked), deadline);
    assert_eq!(scene.expires_in().await, SECOND * 3);
    sleep(HOUR).await;
    assert!(!lease.is_lost(), "it renews itself more often now");
    scene.memory.clear();
    let cleared = scene.clock.now();
    lease.lost().await;
    assert!(
        scene.since(cleared) <= SECOND + MS * 200,
        "and so learns sooner"
    );
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_the_store_s_data_is_told_by_the_next_renewal() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    sleep(MS).await;
    scene.memory.clear();
    let asked = scene.clock.now();
    let next = scene.other.mutex("m").acquire().await;
    let next = next.expect("nobody holds it, says the store");
    assert!(next.fence() > lease.fence(), "but the resource can tell");
    let lost = lease.lost().await;
    assert!(scene.since(asked) <= TTL / 3 + MS * 200);
    let LossCause::NotHeld(Some(holder)) = lost.cause else {
        panic!("{lost}")
    };
    assert_eq!(holder.fence, Some(next.fence()));
    assert!(!next.is_lost(), "and is not touched by the other's release");
    drop(lease);
    sleep(HOUR).await;
    assert!(!next.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_slept_past_the_deadline_knows_it_when_it_wakes() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    sleep(SECOND * 5).await;
    assert!(!lease.is_lost());
    scene.clock.suspend(HOUR);
    assert!(lease.is_lost(), "at once, before any task has run");
    assert!(lease.valid_for().is_zero());

    let woke = scene.clock.now();
    let lost = lease.lost().await;
    assert!(scene.since(woke) <= MS * 100, "{:?}", scene.since(woke));
    assert_eq!(lost.cause, LossCause::Deadline(None));

    let next = scene.other.mutex("m").try_acquire().await;
    let next = next.expect("memory answers").expect("it has expired");
    sleep(HOUR).await;
    assert!(lease.is_lost() && !next.is_lost(), "nothing renews it");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_loss_is_told_soon_after_the_host_woke() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    let slept = async {
        sleep(SECOND * 5).await;
        scene.clock.suspend(HOUR);
        scene.clock.now()
    };
    let (lost, woke) = tokio::join!(lease.lost(), slept);
    assert!(scene.since(woke) <= MS * 100, "{:?}", scene.since(woke));
    assert_eq!(lost.cause, LossCause::Deadline(None));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_slept_for_less_goes_on() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    for _ in 0..100 {
        sleep(MS * 150).await;
        scene.clock.suspend(SECOND * 19);
        assert!(!lease.is_lost());
    }
    lease.release().await.expect("it was held all the time");
}

#[tokio::test(start_paused = true)]
async fn lease_that_slept_past_its_end_is_not_taken_again() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    scene.clock.suspend(TTL + SECOND);
    let refused = lease.extend(TTL).await.expect_err("it is lost");
    assert!(matches!(refused, Error::Lost(_)), "{refused:?}");
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn wall_clock_set_back_ends_and_prolongs_no_lease() {
    let scene = Scene::begin();
    let lease = scene.lease().await;
    let first = lease.fence();
    scene.clock.step_wall_back(HOUR);
    assert_eq!(scene.expires_in().await, TTL);
    sleep(HOUR).await;
    assert!(!lease.is_lost());
    lease.release().await.expect("it was held all the time");

    let mutex = scene.mutex().auto_renew(false);
    let lease = mutex.acquire().await.expect("nobody holds it");
    assert!(lease.fence() > first, "the store remembers the last one");
    scene.clock.step_wall_back(HOUR);
    sleep(TTL).await;
    assert!(lease.is_lost());
    sleep(MS).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_an_expired_lock_right_then() {
    let scene = Scene::begin();
    let mutex = scene.mutex().auto_renew(false);
    let lease = mutex.acquire().await.expect("nobody holds it");
    let taken = scene.clock.now();
    let next = scene.other.mutex("m").acquire().await.expect("its turn");
    let waited = scene.since(taken);
    assert!(waited > TTL && waited < TTL + MS * 300, "{waited:?}");
    assert!(lease.is_lost() && next.fence() > lease.fence());
}
