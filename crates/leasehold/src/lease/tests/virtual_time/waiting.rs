//! Acquiring from a store that fails or is late.

use leasehold_core::CLAIM_WINDOW;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_after_the_lease_is_never_handed_out() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::AnswerAfter(TTL + SECOND));
    let (lease, asked) = scene.lease().await;
    assert!(scene.since(asked) > TTL);
    assert!(lease.valid_for() > TTL - SECOND, "of a later request");

    let scene = Scene::begin();
    scene.each("acquire", || Fate::AnswerAfter(TTL + SECOND));
    let failed = store_error(scene.mutex().acquire().await.unwrap_err());
    assert_eq!(failed.kind, StoreErrorKind::TimedOut);
    sleep(MS).await;
    assert!(scene.is_free().await);
}

/// Waits behind the other client, which releases the lock after a second.
async fn granted(scene: &Scene) -> Lease {
    let taken = scene.taken_by_another().await;
    let (waiting, giving) = (scene.mutex(), async {
        sleep(SECOND).await;
        taken.release().await.unwrap();
    });
    let (lease, ()) = tokio::join!(waiting.acquire(), giving);
    lease.unwrap()
}

#[tokio::test(start_paused = true)]
async fn grant_known_from_wake_counts_and_is_claimed_in_window() {
    let scene = Scene::begin();
    let lease = granted(&scene).await;
    assert!(
        scene.sent("extend").is_empty(),
        "no round trip after the wake"
    );
    let window = lease.valid_for();
    assert!(window > SECOND * 2 && window < CLAIM_WINDOW, "{window:?}");
    sleep(SECOND * 2).await;
    assert_eq!(scene.sent("extend").len(), 1);
    assert!(lease.valid_for() > TTL - SECOND * 2 && !lease.is_lost());
    lease.release().await.unwrap();

    // A client that does not renew still claims the whole TTL, once.
    let taken = scene.taken_by_another().await;
    let mutex = scene.mutex().auto_renew(false);
    let (lease, released) = tokio::join!(mutex.acquire(), taken.release());
    let lease = lease.unwrap();
    released.unwrap();
    sleep(SECOND * 20).await;
    assert!(!lease.is_lost());
    sleep(SECOND * 20).await;
    assert!(lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_cannot_be_claimed_is_lost_with_its_window() {
    let scene = Scene::begin();
    scene.each("extend", || Fate::Hang);
    let lease = granted(&scene).await;
    let granted = scene.clock.now();
    assert!(matches!(lease.lost().await.cause, LossCause::Deadline(_)));
    assert!(scene.since(granted) < CLAIM_WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_comes_late_counts_from_the_grant() {
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    // The answer to the queued request tells the time of the store, and comes a second late. The client dates it from its request,
    // which is earlier.
    scene.next("acquire", Fate::AnswerAfter(SECOND));
    let (waiting, giving) = (scene.mutex(), async {
        sleep(SECOND * 5).await;
        taken.release().await.unwrap();
    });
    let (lease, ()) = tokio::join!(waiting.acquire(), giving);
    let lease = lease.unwrap();
    assert!(lease.valid_for() <= CLAIM_WINDOW, "{:?}", lease.valid_for());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_of_reach_is_an_error_soon() {
    let scene = Scene::begin();
    scene.each("acquire", || Fate::Refuse);
    let asked = scene.clock.now();
    let failed = store_error(scene.mutex().acquire().await.unwrap_err());
    let told = scene.since(asked);
    assert!(told >= SECOND * 2 && told < SECOND * 3, "{told:?}");
    assert_eq!(failed.kind, StoreErrorKind::Unavailable);
    assert!(!failed.may_have_taken_effect);
    assert!(scene.sent("release").is_empty(), "there is nothing to undo");
}

#[tokio::test(start_paused = true)]
async fn queued_waiter_survives_a_short_outage() {
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    let (mutex, outage) = (scene.mutex(), async {
        sleep(SECOND).await;
        scene.each("acquire", || Fate::Vanish);
        sleep(SECOND * 20).await;
        scene.all_goes_well();
        taken.release().await.unwrap();
    });
    let (lease, ()) = tokio::join!(mutex.acquire(), outage);
    assert!(!lease.unwrap().is_lost());

    let scene = Scene::begin();
    let _taken = scene.taken_by_another().await;
    let (mutex, outage) = (scene.mutex(), async {
        sleep(SECOND).await;
        scene.each("acquire", || Fate::Refuse);
        scene.clock.now()
    });
    let (failed, since) = tokio::join!(mutex.acquire(), outage);
    store_error(failed.unwrap_err());
    let told = scene.since(since);
    assert!(told >= SECOND * 30 && told < SECOND * 32, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_gives_no_verdict_is_not_a_busy_lock() {
    let (refused, timed_out) = (StoreErrorKind::Unavailable, StoreErrorKind::TimedOut);
    let fates: [(fn() -> Fate, _, _); 3] = [
        (|| Fate::Refuse, refused, false),
        (|| Fate::Vanish, timed_out, true),
        (|| Fate::Hang, timed_out, true),
    ];
    for (fate, kind, may_have_taken_effect) in fates {
        let scene = Scene::begin();
        scene.each("acquire", fate);
        let asked = scene.clock.now();
        let failed = store_error(scene.mutex().acquire_within(SECOND).await.unwrap_err());
        assert_eq!(failed.kind, kind);
        assert_eq!(failed.may_have_taken_effect, may_have_taken_effect);
        assert!(
            scene.since(asked) <= SECOND + MS,
            "{:?}",
            scene.since(asked)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_nothing_still_hears_the_first_answer() {
    let scene = Scene::begin();
    scene.each("acquire", || Fate::AnswerAfter(MS * 40));
    let lease = scene.mutex().acquire_within(Duration::ZERO).await.unwrap();
    match scene.mutex().acquire_within(Duration::ZERO).await {
        Err(Error::Timeout(timeout)) => {
            assert_eq!(timeout.holder.unwrap().fence, Some(lease.fence()));
        }
        other => panic!("{other:?}"),
    }
}

/// The answer that was missing then says who holds the lock.
#[tokio::test(start_paused = true)]
async fn a_limit_that_passes_during_a_request_ends_with_its_answer() {
    // The lock is asked for at once and, after the first answer, each second.
    for (limit, answered) in [(0, 40), (39, 40), (1_050, 1_080)] {
        let scene = Scene::begin();
        let taken = scene.taken_by_another().await;
        scene.each("acquire", || Fate::AnswerAfter(MS * 40));
        let asked = scene.clock.now();
        match scene.mutex().acquire_within(MS * limit).await {
            Err(Error::Timeout(timeout)) => {
                assert_eq!(timeout.holder.unwrap().fence, Some(taken.fence()));
                assert_eq!(timeout.waited, scene.since(asked));
            }
            other => panic!("{other:?}"),
        }
        let took = scene.since(asked);
        assert!(took <= MS * (answered + 2), "{took:?} of {limit} ms");
        taken.release().await.unwrap();
        assert!(scene.is_free().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_panics_does_not_end_the_waiting() {
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    let mutex = scene.mutex().on_wait(|_| panic!("on purpose"));
    let (lease, ()) = tokio::join!(mutex.acquire(), async {
        sleep(SECOND).await;
        taken.release().await.unwrap();
    });
    lease.unwrap().release().await.unwrap();
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_full_server_is_asked_whether_it_has_granted_meanwhile() {
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    let mutex = scene.mutex();
    let (lease, asked) = tokio::join!(mutex.acquire(), async {
        sleep(SECOND).await;
        scene.each("acquire", || Fate::Full);
        // The store grants the lock to the waiter, and the wake is lost.
        let step = Step::Release {
            owner: taken.owner().clone(),
            keep: None,
            fence: None,
        };
        scene.carried_out(&LockName::from_key("test:m"), &step);
        scene.clock.now()
    });
    drop(lease.unwrap());
    assert!(scene.since(asked) < SECOND * 2, "{:?}", scene.since(asked));
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_passes_in_time_though_the_answer_does_not_come() {
    let scene = Scene::begin();
    let _taken = scene.taken_by_another().await;
    let (mutex, hang) = (scene.mutex(), async {
        sleep(MS * 100).await;
        scene.each("acquire", || Fate::AnswerAfter(SECOND * 9));
    });
    let asked = scene.clock.now();
    let (failed, ()) = tokio::join!(mutex.acquire_within(SECOND * 3), hang);
    // The client saw the holder three seconds ago, so it cannot report the lock as busy now.
    assert_eq!(
        store_error(failed.unwrap_err()).kind,
        StoreErrorKind::TimedOut
    );
    assert_eq!(scene.since(asked), SECOND * 3);
    sleep(SECOND * 9).await;
    assert!(scene.other.inspect("m").await.unwrap().queue.is_empty());
}

/// The poll fails after 20 ms, as a request with a short TTL would.
#[tokio::test(start_paused = true)]
async fn a_stall_when_the_limit_passes_makes_no_busy_lock_an_error() {
    for late in (0..10).map(|at| MS * 10 * at) {
        let scene = Scene::begin();
        let _taken = scene.taken_by_another().await;
        let (mutex, limit) = (scene.mutex(), SECOND + late);
        let asked = scene.clock.now();
        let (failed, ()) = tokio::join!(mutex.acquire_within(limit), async {
            sleep(MS * 100).await;
            // The poll that is due after a second fails.
            scene.next("acquire", Fate::VanishAfter(MS * 20));
        });
        let failed = failed.unwrap_err();
        assert!(matches!(failed, Error::Timeout(_)), "{late:?}: {failed}");
        let took = scene.since(asked);
        assert!(took <= limit + MS * 250, "{took:?} of {limit:?}");
    }
}

/// The answer comes late, but within an eighth of the time limit of a request.
#[tokio::test(start_paused = true)]
async fn who_gives_the_store_more_time_is_told_of_a_busy_lock() {
    for (request_timeout, is_busy) in [(SECOND * 2, false), (SECOND * 16, true)] {
        let scene = Scene::begin_with(|builder| builder.request_timeout(request_timeout));
        let _taken = scene.taken_by_another().await;
        let (mutex, limit) = (scene.mutex(), SECOND + MS * 50);
        let asked = scene.clock.now();
        let (failed, ()) = tokio::join!(mutex.acquire_within(limit), async {
            sleep(MS * 100).await;
            // The poll that is due after a second.
            scene.next("acquire", Fate::AnswerAfter(SECOND));
        });
        let failed = failed.unwrap_err();
        assert_eq!(matches!(failed, Error::Timeout(_)), is_busy, "{failed}");
        let took = scene.since(asked);
        assert!(took <= limit + SECOND, "{took:?}");
    }
}

/// A foreign program sends no wakes. So the store notifies the waiter that becomes the first in the queue, and it looks at once.
#[tokio::test(start_paused = true)]
async fn who_becomes_the_first_behind_a_foreign_program_looks_at_once() {
    let scene = Scene::begin();
    with_lock(&scene, |lock| lock.foreign = Some(by_another_program()));
    let before = in_line(scene.other.mutex("m").ttl(TTL));
    sleep(MS).await;
    let waiter = in_line(scene.mutex());
    sleep(MS).await;
    assert_eq!(scene.sent("acquire").len(), 1);
    before.abort();
    sleep(MS).await;
    assert_eq!(scene.sent("acquire").len(), 2, "it looks at once");
    with_lock(&scene, |lock| lock.foreign = None);
    let freed = scene.clock.now();
    waiter.await.unwrap().release().await.unwrap();
    assert!(scene.since(freed) <= MS * 50, "{:?}", scene.since(freed));
}

/// The waiters before it leave at the moment of the release, so it gets no notice.
#[tokio::test(start_paused = true)]
async fn last_of_33_behind_foreign_holder_has_lock_in_100_ms() {
    for late in [1, 30, 60, 90, 120] {
        let scene = Scene::begin();
        let before = |number: u32| leasehold_core::Waiter {
            owner: stranger(number.into()),
            mode: leasehold_core::Mode::Exclusive,
            ttl: leasehold_core::Ttl::new(TTL).unwrap(),
            block: leasehold_core::Block::ONE,
            listening: false,
            seen_until_ms: u64::MAX,
        };
        with_lock(&scene, |lock| {
            lock.foreign = Some(by_another_program());
            lock.queue.extend((1..=32).map(before));
        });
        let waiter = in_line(scene.mutex());
        sleep(SECOND * 2 + MS * late).await;
        with_lock(&scene, |lock| {
            lock.foreign = None;
            // The store skips a listening waiter whose client is not connected.
            lock.queue.iter_mut().for_each(|one| one.listening = true);
        });
        let freed = scene.clock.now();
        waiter.await.unwrap().release().await.unwrap();
        assert!(scene.since(freed) <= MS * 100, "{:?}", scene.since(freed));
    }
}

fn by_another_program() -> leasehold_core::Foreign {
    leasehold_core::Foreign {
        kind: "string".into(),
        value: b"random".to_vec(),
        expires_at_ms: None,
    }
}

/// An owner whose client is not connected to the store.
fn stranger(number: u128) -> leasehold_core::Owner {
    leasehold_core::Owner::new(number, leasehold_core::ClientId::new(1), "h", 1, "").unwrap()
}

/// Changes the state of the lock `m` without any notice to clients.
fn with_lock(scene: &Scene, change: impl FnOnce(&mut leasehold_core::LockState)) {
    let name = LockName::from_key("test:m");
    scene.memory.meddle(|world| change(world.entry(&name)));
}

/// The second waiter last asked behind a lease of 30 s, so its next poll alone would come two seconds later.
#[tokio::test(start_paused = true)]
async fn lapsed_short_claim_costs_next_waiter_no_more_than_that() {
    const SHORT: Duration = Duration::from_millis(200);
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    // The client of the first waiter is paused. It receives no wake and sends no request.
    let paused = Step::Acquire {
        owner: stranger(1),
        mode: leasehold_core::Mode::Exclusive,
        ttl: leasehold_core::Ttl::new(SHORT).unwrap(),
        block: leasehold_core::Block::ONE,
        wait: Some(leasehold_core::Wait { listening: false }),
    };
    scene.carried_out(&LockName::from_key("test:m"), &paused);
    let next = in_line(scene.mutex());
    sleep(MS).await;
    assert_eq!(scene.sent("acquire").len(), 1);
    let released = scene.clock.now();
    taken.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    let waited = scene.since(released);
    assert!(waited > SHORT && waited <= SHORT + MS * 50, "{waited:?}");
    assert_eq!(scene.sent("acquire").len(), 3, "told once, then asked once");
}
