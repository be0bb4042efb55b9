//! A store in memory that fails, hangs, is slow or loses replies as a test demands, on virtual time.

use std::time::Duration;

use leasehold::{Client, Clock, Error, Lease, LossCause, Memory, StoreErrorKind, testing};
use tokio::task::JoinSet;
use tokio::time::sleep;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// Two clients of one store. Faults on the way of the first client do not affect the other.
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
}

/// Returns the store error. Panics for any other result.
fn store_error(result: Result<impl std::fmt::Debug, Error>) -> leasehold::StoreError {
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
    let seen = scene.other.inspect("m").await.expect("its way is open");
    assert!(
        seen.holder.is_some(),
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
    let seen = scene.other.inspect("m").await.expect("its way is open");
    assert!(seen.holder.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_carried_out_and_not_answered_is_undone() {
    let scene = Scene::begin();
    scene.memory.faults().lose_replies();
    let mutex = scene.mutex();
    let look = async {
        sleep(SECOND).await;
        scene.other.inspect("m").await.expect("its way is open")
    };
    let (refused, seen) = tokio::join!(mutex.try_acquire(), look);
    assert!(store_error(refused).may_have_taken_effect);
    assert!(seen.holder.is_some(), "it was granted");
    scene.memory.faults().heal();
    sleep(SECOND * 2).await;
    let seen = scene.other.inspect("m").await.expect("its way is open");
    assert!(seen.holder.is_none(), "and released in the background");
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
    let refused = store_error(
        scene
            .client
            .break_lock("m", scene.client_fence().await)
            .await,
    );
    assert_eq!(refused.kind, StoreErrorKind::TimedOut);
    assert!(refused.may_have_taken_effect);
    sleep(SECOND * 5).await;
    let seen = scene.other.inspect("m").await.expect("its way is open");
    assert!(seen.holder.is_none(), "it was broken");
}

impl Scene {
    /// The fence of the holder, as the other client sees it.
    async fn client_fence(&self) -> leasehold::Fence {
        let seen = self.other.inspect("m").await.expect("its way is open");
        let holder = seen.holder.expect("it was granted");
        holder.fence.expect("it is exclusive")
    }
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
