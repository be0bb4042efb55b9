//! A hold after a reconnection to another server, in virtual time.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "constants, of which the first is the longer one"
)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::timestamp::{Content, Reply, Step, apply};
use leasehold_core::{LockName, Step as OfMutex};
use tokio::time::sleep;

use crate::Client;
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, Replaced, StoreError, StoreErrorKind};
use crate::store::{Attach, Done, IndexRequest, Listener, Notice, Scope, Store, TimestampRequest};
use crate::timestamp::{TimestampHold, TimestampLock};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// The way in which the server treats a request.
#[derive(Clone, Copy)]
enum Fate {
    /// The server carries it out, and answers after this time.
    AnswerAfter(Duration),
    /// The server refuses it, and it has no effect.
    Refuse,
}

/// A server with nothing but these keys.
struct Keys {
    clock: Clock,
    content: Mutex<HashMap<LockName, Content>>,
    /// The fates of the next requests. The server answers later requests at once.
    fates: Mutex<VecDeque<Fate>>,
    extended: Mutex<Vec<LockName>>,
}

impl Keys {
    fn take(&self, name: &LockName, ask: &TimestampRequest) -> Reply {
        if matches!(ask.step, Step::Extend { .. }) {
            self.extended.lock().unwrap().push(name.clone());
        }
        // A time of day in the year 2027.
        let now_us = 1_800_000_000_000_000 + self.clock.now().as_micros();
        let mut all = self.content.lock().unwrap();
        let content = all.entry(name.clone()).or_default();
        apply(ask.unit, now_us, content, &ask.step)
    }
}

struct Server(Arc<Keys>);

impl Store for Server {
    fn label(&self) -> &'static str {
        "keys:"
    }

    fn send(&self, _: &LockName, _: OfMutex, done: Done) {
        drop(done);
    }

    fn index(&self, _: IndexRequest) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn timestamp<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> Option<BoxFuture<'a, Result<Reply, StoreError>>> {
        let answer = async move {
            let fate = self.0.fates.lock().unwrap().pop_front();
            match fate.unwrap_or(Fate::AnswerAfter(Duration::ZERO)) {
                Fate::Refuse => {
                    let kind = StoreErrorKind::Unavailable;
                    Err(StoreError::new("keys:", kind, "as the test says"))
                }
                Fate::AnswerAfter(delay) => {
                    let reply = self.0.take(name, ask);
                    if !delay.is_zero() {
                        sleep(delay).await;
                    }
                    Ok(reply)
                }
            }
        };
        Some(answer.boxed())
    }
}

struct Scene {
    keys: Arc<Keys>,
    listener: Listener,
    client: Client,
}

impl Scene {
    fn begin() -> Self {
        let clock = Clock::virtual_time();
        let keys = Arc::new(Keys {
            clock: clock.clone(),
            content: Mutex::default(),
            fates: Mutex::default(),
            extended: Mutex::default(),
        });
        let mut listener = None;
        let open = |attach: Attach| -> Result<Arc<dyn Store>, Error> {
            listener = Some(attach.listener);
            Ok(Arc::new(Server(keys.clone())))
        };
        let client = Client::builder().clock(clock).build(open).unwrap();
        Self {
            listener: listener.unwrap(),
            keys,
            client,
        }
    }

    fn lock(&self) -> TimestampLock {
        self.client.timestamp_lock("k").ttl(TTL)
    }

    async fn hold(&self) -> TimestampHold {
        self.lock().acquire().await.unwrap()
    }

    /// The next requests have these fates.
    fn next(&self, fates: &[Fate]) {
        self.keys.fates.lock().unwrap().extend(fates);
    }

    /// Removes all data, as a new server without the data of the one before.
    fn clear(&self) {
        self.keys.content.lock().unwrap().clear();
    }

    /// Tells the client that its new connection leads to another server.
    fn replace(&self) {
        (self.listener)(Notice::Replaced(Replaced::Other, Scope::All));
        (self.listener)(Notice::Reconnected { node: 0 });
    }

    fn extended(&self) -> Vec<LockName> {
        self.keys.extended.lock().unwrap().clone()
    }

    fn now(&self) -> Moment {
        self.keys.clock.now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_new_server_does_not_know_is_lost_at_once() {
    for auto_renew in [true, false] {
        let scene = Scene::begin();
        let hold = scene.lock().auto_renew(auto_renew).acquire().await.unwrap();
        scene.clear();
        let replaced_at = scene.now();
        scene.replace();
        assert!(hold.doubt().is_some() && !hold.is_lost());
        let lost = hold.lost().await;
        assert!(scene.now().since(replaced_at) <= MS);
        assert_eq!(lost.cause, LossCause::NotHeld(None));
        assert_eq!(lost.replaced, Some(Replaced::Other));
        assert!(
            lost.to_string().contains("the server was replaced"),
            "{lost}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_new_server_confirms_is_as_good_as_before() {
    let scene = Scene::begin();
    let hold = scene.hold().await;
    sleep(TTL / 6).await;
    scene.replace();
    assert!(hold.doubt().is_some());
    sleep(MS).await;
    assert_eq!(hold.doubt(), None);
    assert!(hold.valid_for() > TTL - SECOND);
    assert_eq!(scene.extended().len(), 1);
    // The replacement is not the cause of a later loss.
    scene.clear();
    assert_eq!(hold.lost().await.replaced, None);
}

#[tokio::test(start_paused = true)]
async fn the_hold_that_ends_soonest_is_asked_for_first() {
    let scene = Scene::begin();
    let mut holds = Vec::new();
    for number in (0..100_u32).rev() {
        let lock = scene.client.timestamp_lock(format!("k{number:02}"));
        let ttl = TTL + SECOND * number;
        holds.push(lock.ttl(ttl).acquire().await.unwrap());
    }
    // The client sends no request for holds that have ended.
    for _ in 0..10 {
        scene.hold().await.release().await.unwrap();
    }
    scene.replace();
    sleep(MS).await;
    let names = scene.extended();
    assert_eq!(names.len(), 100);
    assert!(names.is_sorted_by_key(LockName::as_str), "{names:?}");
    assert!(holds.iter().all(|hold| hold.doubt().is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_not_renewed_is_confirmed_and_lasts_no_longer() {
    let scene = Scene::begin();
    let hold = scene.lock().auto_renew(false).acquire().await.unwrap();
    let until = hold.valid_until();
    sleep(TTL / 2).await;
    scene.next(&[Fate::Refuse, Fate::Refuse]);
    scene.replace();
    sleep(MS).await;
    assert!(hold.doubt().is_some() && scene.extended().is_empty());
    sleep(SECOND).await;
    assert_eq!(hold.doubt(), None);
    assert!(hold.valid_until() <= until && !hold.is_lost());
    hold.lost().await;
    assert_eq!(scene.extended().len(), 1, "only once");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_old_server_granted_last_is_confirmed_at_once() {
    for is_known in [true, false] {
        let scene = Scene::begin();
        let slow = Fate::AnswerAfter(SECOND);
        scene.next(&[slow, slow]);
        let lock = scene.lock();
        let taking = tokio::runtime::Handle::current().spawn(async move { lock.acquire().await });
        sleep(SECOND / 2).await;
        if !is_known {
            scene.clear();
        }
        scene.replace();
        let hold = taking.await.unwrap().unwrap();
        assert!(hold.doubt().is_some(), "the old server granted it");
        sleep(SECOND + 5 * MS).await;
        assert_eq!((hold.doubt(), hold.is_lost()), (None, !is_known));
        assert_eq!(scene.extended().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_answered_by_the_old_server_confirms_nothing() {
    let scene = Scene::begin();
    let hold = scene.hold().await;
    scene.next(&[Fate::AnswerAfter(SECOND)]);
    sleep(TTL / 3 + SECOND / 2).await;
    assert_eq!(scene.extended().len(), 1);
    let until = hold.valid_until();
    scene.clear();
    scene.replace();
    assert!(hold.doubt().is_some());
    sleep(SECOND / 2 - MS).await;
    assert_eq!(hold.valid_until(), until);
    let answers_at = scene.now().after(MS);
    let lost = hold.lost().await;
    assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
    assert!(scene.now().since(answers_at) <= 5 * MS);
    assert_eq!(scene.extended().len(), 2);
}
