//! Leases over hours, a suspended host, a wall clock that is set back, and a store that fails, hangs, is slow or loses replies as a test
//! demands: on virtual time. No test waits in real time.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "constants, of which the first is the longer one"
)]

use std::future::pending;
use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::{
    Client, Clock, Election, Error, Fence, HolderView, Lease, LossCause, Memory, Moment,
    StoreError, StoreErrorKind, testing,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const TTL: Duration = Duration::from_secs(30);

/// The client's safety margin before the store's deadline: 1 % of the TTL for drift, and 2 ms.
fn drift(ttl: Duration) -> Duration {
    ttl / 100 + MS * 2
}

/// Two clients of one store in memory. The test moves their clock. Faults on the way of the first client do not affect the other.
struct Scene {
    clock: Clock,
    memory: Memory,
    client: Client,
    other: Client,
}

impl Scene {
    fn begin() -> Self {
        let clock = Clock::virtual_time();
        let other = Memory::new(clock.clone());
        let memory = other.by_another_way();
        let client = |memory| Client::builder().clock(clock.clone()).embedded(memory);
        let (client, other) = (client(&memory), client(&other));
        Self {
            client: client.expect("a paused runtime"),
            other: other.expect("a paused runtime"),
            clock,
            memory,
        }
    }

    fn mutex(&self) -> leasehold::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    async fn lease(&self) -> Lease {
        self.mutex().acquire().await.expect("nobody holds it")
    }

    /// The holder, as the other client sees it.
    async fn holder(&self) -> Option<HolderView> {
        let seen = self.other.inspect("m").await;
        seen.expect("its way is open").holder
    }

    async fn is_free(&self) -> bool {
        self.holder().await.is_none()
    }

    /// The time until the store lets the lock expire.
    async fn expires_in(&self) -> Duration {
        let holder = self.holder().await.expect("it is held");
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
    let slept = async {
        sleep(SECOND * 5).await;
        assert!(!lease.is_lost());
        scene.clock.suspend(HOUR);
        assert!(lease.is_lost(), "at once, before any task has run");
        assert!(lease.valid_for().is_zero());
        scene.clock.now()
    };
    let (lost, woke) = tokio::join!(lease.lost(), slept);
    assert!(scene.since(woke) <= MS * 100, "{:?}", scene.since(woke));
    assert_eq!(lost.cause, LossCause::Deadline(None));

    let next = scene.other.mutex("m").try_acquire().await;
    let next = next.expect("memory answers").expect("it has expired");
    sleep(HOUR).await;
    assert!(lease.is_lost() && !next.is_lost(), "nothing renews it");
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

/// A release grants to 64 of them. The others do not wait until one of these renews.
#[tokio::test(start_paused = true)]
async fn two_hundred_readers_behind_a_writer_enter_together() {
    let scene = Scene::begin();
    let write = scene.client.rw_lock("m").write().acquire().await.unwrap();
    let mut readers = JoinSet::new();
    for _ in 0..200 {
        let client = Client::builder().clock(scene.clock.clone());
        let client = client.embedded(&scene.memory).unwrap();
        readers.spawn(async move { client.rw_lock("m").read().acquire().await.unwrap() });
    }
    sleep(MS).await;
    let released = scene.clock.now();
    write.release().await.unwrap();
    let leases = readers.join_all().await;
    assert_eq!(leases.len(), 200);
    let last = scene.since(released);
    assert!(last < MS * 100, "{last:?}");
}

/// Returns the store error. Panics for any other result.
fn store_error(result: Result<impl std::fmt::Debug, Error>) -> StoreError {
    match result {
        Err(Error::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn lease_is_doubtful_then_lost_on_time_while_store_hangs() {
    let scene = Scene::begin();
    let asked = scene.clock.now();
    let lease = scene.lease().await;
    scene.memory.faults().hang();
    // The client renews after a third of the TTL. The request gets no reply for 2 s.
    sleep(TTL / 3 + SECOND).await;
    assert!(!lease.is_doubtful());
    sleep(SECOND + MS * 10).await;
    assert!(lease.is_doubtful() && !lease.is_lost());
    let why = lease.doubt().expect("it is doubtful");
    assert!(why.contains("no answer in time"), "{why}");

    let lost = lease.lost().await;
    let told = scene.clock.now().since(asked);
    let deadline = lease.valid_until().since(asked);
    assert!(told >= deadline && told <= deadline + MS, "{told:?}");
    assert!(matches!(lost.cause, LossCause::Deadline(Some(_))), "{lost}");
    assert!(
        !scene.is_free().await,
        "told before the store lets it expire"
    );
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_failure_is_told_as_it_was_asked_for() {
    let scene = Scene::begin();
    for kind in [
        StoreErrorKind::Denied,
        StoreErrorKind::Full,
        StoreErrorKind::Unreachable,
    ] {
        scene.memory.faults().fail(kind);
        let refused = store_error(scene.mutex().try_acquire().await);
        assert_eq!(refused.kind, kind);
        assert!(!refused.may_have_taken_effect);
        assert_eq!(store_error(scene.client.inspect("m").await).kind, kind);
        assert_eq!(store_error(scene.client.names().await).kind, kind);
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_ends_at_its_time_limit_and_nothing_has_happened() {
    let scene = Scene::begin();
    scene.memory.faults().hang();
    let asked = scene.clock.now();
    let refused = store_error(scene.client.inspect("m").await);
    let took = scene.clock.now().since(asked);
    assert!(took >= SECOND * 2 && took <= SECOND * 2 + MS, "{took:?}");
    assert_eq!(refused.kind, StoreErrorKind::TimedOut);
    let refused = store_error(scene.mutex().try_acquire().await);
    assert!(refused.may_have_taken_effect, "nobody can know");
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn what_was_carried_out_and_not_answered_is_undone() {
    let scene = Scene::begin();
    scene.memory.faults().lose_replies();
    let mutex = scene.mutex();
    let look = async {
        sleep(SECOND).await;
        scene.is_free().await
    };
    let (refused, is_free) = tokio::join!(mutex.try_acquire(), look);
    assert!(store_error(refused).may_have_taken_effect);
    assert!(!is_free, "it was granted");
    scene.memory.faults().heal();
    sleep(SECOND * 2).await;
    assert!(scene.is_free().await, "and released in the background");
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_keeps_the_order_and_answers_within_the_limit() {
    let scene = Scene::begin();
    scene.memory.faults().slow(MS * 700);
    let asked = scene.clock.now();
    let lease = scene.lease().await;
    let took = scene.clock.now().since(asked);
    assert!(took >= MS * 700 && took < MS * 710, "{took:?}");
    assert_eq!(
        lease.valid_until().since(asked),
        TTL.saturating_sub(TTL / 100 + MS * 2),
        "counted from before it asked"
    );
    lease.release().await.expect("it is held");
    assert!(scene.lease().await.valid_for() > TTL / 2);

    // The reply takes longer than a request may. The client reports the timeout, and the store executes the request anyway.
    scene.memory.faults().slow(SECOND * 5);
    let holder = scene.holder().await.expect("it was granted");
    let fence = holder.fence.expect("it is exclusive");
    let refused = store_error(scene.client.break_lock("m", fence).await);
    assert_eq!(refused.kind, StoreErrorKind::TimedOut);
    assert!(refused.may_have_taken_effect);
    sleep(SECOND * 5).await;
    assert!(scene.is_free().await, "it was broken");
}

#[tokio::test(start_paused = true)]
async fn waiter_cut_off_hears_nothing_and_asks_when_reconnected() {
    let scene = Scene::begin();
    let held = scene.other.mutex("m").acquire().await.expect("it is free");
    let mutex = scene.mutex();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { mutex.acquire().await });
    sleep(MS * 10).await;
    scene.memory.faults().hang();
    held.release().await.expect("it was held");
    sleep(MS * 500).await;
    assert!(waiting.try_join_next().is_none(), "it was not told");
    scene.memory.faults().heal();
    sleep(MS).await;
    let asked = waiting.try_join_next().expect("it asked at once");
    drop(asked.expect("no panic").expect("its turn"));
}

#[test]
fn virtual_time_without_a_runtime_is_refused_with_what_to_do() {
    let memory = Memory::new(Clock::virtual_time());
    let refused = Client::builder()
        .clock(Clock::virtual_time())
        .embedded(&memory)
        .expect_err("there is no runtime");
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("tokio::test(start_paused"), "{said}");
    assert!(!said.contains("refuses requests"), "{said}");
}

#[test]
fn errors_can_be_made_and_compared() {
    let mut timeout = testing::timeout("orders", SECOND);
    timeout.ahead = 3;
    assert_eq!(
        Error::from(timeout.clone()),
        Error::Timeout(timeout.clone())
    );
    assert_eq!(
        timeout.to_string(),
        "\"orders\" was still busy after 1.0s: no holder was seen"
    );
    let lost = testing::lost("orders", None, LossCause::MaxHold);
    assert!(lost.to_string().contains("as max_hold allows"), "{lost}");
    let mut refused = testing::store_error(StoreErrorKind::Full);
    refused.may_have_taken_effect = true;
    assert_ne!(refused, testing::store_error(StoreErrorKind::Full));
    assert_eq!(refused.to_string(), "test: out of space: made by a test");
}

/// Candidates that lead for ever, by client and term, in the order in which their terms begin.
fn candidates(
    elections: impl IntoIterator<Item = Election>,
) -> (JoinSet<()>, UnboundedReceiver<(usize, Fence)>) {
    let (begun, terms) = unbounded_channel();
    let mut candidates = JoinSet::new();
    for (number, election) in elections.into_iter().enumerate() {
        let begun = begun.clone();
        candidates.spawn(async move {
            let leads = election.lead(|term| {
                begun
                    .send((number, term.fence()))
                    .expect("the test listens");
                pending::<ControlFlow<()>>()
            });
            drop(leads.await);
        });
    }
    (candidates, terms)
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_lost_is_followed_by_another() {
    let scene = Scene::begin();
    let (_leads, mut terms) = candidates([scene.client.election("m")]);
    let (_, first) = terms.recv().await.expect("it leads");
    let broken = scene.other.break_lock("m", first).await;
    assert!(broken.expect("its way is open"));
    let begun = scene.clock.now();
    let (_, next) = terms.recv().await.expect("it leads again");
    // The next renewal finds out, and then it waits for a second.
    let lost_after = Duration::from_secs(10) / 3;
    assert!(next > first && scene.since(begun) < lost_after + SECOND * 2);
    // While the store is away, it goes on.
    scene.memory.faults().fail(StoreErrorKind::Unreachable);
    sleep(SECOND * 300).await;
    assert!(terms.try_recv().is_err());
    scene.memory.faults().heal();
    let (_, last) = terms.recv().await.expect("it leads again");
    assert!(last > next);
}

#[tokio::test(start_paused = true)]
async fn leadership_goes_round() {
    let scene = Scene::begin();
    let begun = scene.clock.now();
    let clients = [&scene.client, &scene.other];
    let elections = clients.map(|client| client.election("m").max_term(SECOND * 60));
    let (_leads, mut terms) = candidates(elections);
    let mut told = Vec::new();
    while told.len() < 6 {
        told.push(terms.recv().await.expect("one leads"));
    }
    for pair in told.windows(2) {
        assert!(pair[0].0 != pair[1].0 && pair[0].1 < pair[1].1, "{told:?}");
    }
    assert!(scene.since(begun) >= SECOND * 300);
}

#[tokio::test(start_paused = true)]
async fn work_of_a_leader_that_ends_soon_is_not_begun_in_a_loop() {
    let scene = Scene::begin();
    let begun = scene.clock.now();
    let mut left = 10;
    let election = scene.client.election("m");
    let leads = election.lead(|_| {
        left -= 1;
        let is_last = left == 0;
        async move {
            if is_last {
                ControlFlow::Break("done")
            } else {
                ControlFlow::Continue(())
            }
        }
    });
    assert_eq!(leads.await, Ok("done"));
    assert!(scene.since(begun) >= SECOND * 9);
    assert!(scene.is_free().await);
}
