//! Calls of the cache, dropped at any moment. A load that has begun goes on, and the next caller gets a value soon. Leases last for 30 s
//! here, so a leaked lease cannot hide.

#[path = "../../leasehold/tests/common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use leasehold_cache::{Cache, Lifetime, Policy};
use tokio::time::{sleep, timeout};

use crate::common::{
    LONG, MOMENTS, Place, SOON, TTL, at_each_poll, on_every_store_of_entries,
    poll_n_times_then_drop, poll_once_then_drop_after,
};

type Call = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A call of the cache on an entry, with a loader that succeeds or does not.
type Way = fn(&Cache, &str, bool) -> Call;

async fn load(succeeds: bool) -> Result<u32, &'static str> {
    sleep(Duration::from_millis(2)).await;
    if succeeds { Ok(1) } else { Err("down") }
}

const WAYS: [Way; 6] = [
    |cache, key, succeeds| {
        let call = cache.get_or_refresh(key, move || load(succeeds));
        Box::pin(async move { call.await.is_ok() })
    },
    |cache, key, succeeds| {
        let call = cache.get_or_refresh(key, move || load(succeeds));
        Box::pin(async move { call.must_be_fresh().await.is_ok() })
    },
    |cache, key, succeeds| {
        let keys = [key.to_owned(), format!("{key}:beside")];
        let loader = move |keys: Vec<String>| async move {
            let value = load(succeeds).await?;
            Ok::<HashMap<_, _>, &str>(keys.into_iter().map(|key| (key, value)).collect())
        };
        let call = cache.get_many_or_refresh(keys, loader);
        Box::pin(async move { call.await.is_ok() })
    },
    |cache, key, _| {
        let (cache, key) = (cache.clone(), key.to_owned());
        Box::pin(async move { cache.get::<u32>(key).await.is_ok() })
    },
    |cache, key, _| {
        let (cache, key) = (cache.clone(), key.to_owned());
        Box::pin(async move { cache.invalidate(key).await.is_ok() })
    },
    |cache, key, _| {
        let (cache, key) = (cache.clone(), key.to_owned());
        Box::pin(async move { cache.remove(key).await.is_ok() })
    },
];

/// The cache under test, and the cache of an operator. Each try uses a new entry.
struct Entries {
    cache: Cache,
    operator: Cache,
    tries: u32,
    _place: Place,
}

impl Entries {
    async fn at(place: Place) -> Self {
        Self {
            cache: Cache::new(&place.client().await).policy(Self::policy()),
            operator: Cache::new(&place.client().await),
            tries: 0,
            _place: place,
        }
    }

    fn policy() -> Policy {
        let back_off = Duration::from_millis(20);
        Policy::default()
            .lease(TTL)
            .back_off(back_off)
            .wait_at_most(LONG)
    }

    /// An entry that is missing, or stale.
    async fn next(&mut self, stale: bool) -> String {
        self.tries += 1;
        let key = format!("entry:{}", self.tries);
        if stale {
            let seven = || async { Ok::<u32, &str>(7) };
            let primed = self.operator.get_or_refresh(&key, seven);
            let primed = primed.lifetime(|_| Lifetime::For(Duration::ZERO, LONG));
            primed.await.expect("it loads");
        }
        key
    }

    /// Checks that the operator soon gets a fresh value.
    async fn is_had_soon(&self, key: &str) {
        let policy = Self::policy().must_be_fresh(true).stale_if_error(false);
        let asking = async {
            // For 20 ms after a failed load, the cache returns its error.
            loop {
                let call = self.operator.get_or_refresh(key, || load(true));
                if call.policy(policy.clone()).await.is_ok() {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(timeout(SOON, asking).await.is_ok(), "not soon: {key}");
    }
}

async fn at_any_poll(place: Place) {
    let mut entries = Entries::at(place).await;
    for way in WAYS {
        for (stale, succeeds) in [(false, true), (false, false), (true, true), (true, false)] {
            at_each_poll(async |n| {
                let key = entries.next(stale).await;
                let output = poll_n_times_then_drop(n, way(&entries.cache, &key, succeeds)).await;
                entries.is_had_soon(&key).await;
                output.is_some()
            })
            .await;
        }
    }
}

async fn at_any_moment(place: Place) {
    let mut entries = Entries::at(place).await;
    for moment in MOMENTS {
        for way in WAYS {
            for (stale, succeeds) in [(false, true), (false, false), (true, true)] {
                let key = entries.next(stale).await;
                let call = way(&entries.cache, &key, succeeds);
                poll_once_then_drop_after(call, sleep(moment)).await;
                entries.is_had_soon(&key).await;
            }
        }
    }
}

async fn while_another_loads(place: Place) {
    let mut entries = Entries::at(place).await;
    for moment in MOMENTS {
        for way in WAYS {
            let key = entries.next(false).await;
            let theirs = entries.operator.clone().policy(Entries::policy());
            let theirs = theirs.get_or_refresh(&key, || load(true)).into_future();
            let call = way(&entries.cache, &key, true);
            let ((), theirs) = tokio::join!(poll_once_then_drop_after(call, sleep(moment)), theirs);
            theirs.expect("it loads, or waits for who does");
            entries.is_had_soon(&key).await;
        }
    }
}

async fn one_that_was_never_polled(place: Place) {
    let mut entries = Entries::at(place).await;
    for way in WAYS {
        let key = entries.next(false).await;
        drop(way(&entries.cache, &key, true));
        entries.is_had_soon(&key).await;
    }
}

on_every_store_of_entries! {
    at_any_poll
    at_any_moment
    while_another_loads
    one_that_was_never_polled
}
