//! The cache guard without `async`. Loaders are plain closures and may block.

use std::collections::HashMap;
use std::thread;

use leasehold::blocking::Client;
use leasehold_cache::blocking::Cache;
use leasehold_cache::{Error, Lifetime, Origin, Policy};

use super::SECOND;

#[test]
fn plain_closures_load_and_may_block() {
    let cache = Cache::new(&Client::embedded().unwrap());
    // The loader does not block the client's own thread, which serves the other reader.
    let (cache, caller) = (&cache, thread::current().id());
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let other = cache.get_or_refresh("other", || Ok::<u32, String>(2));
            sender.send(*other.wait().unwrap()).unwrap();
        });
        let load = move || {
            assert_ne!(thread::current().id(), caller);
            receiver.recv().map(|other| other + 1)
        };
        let got = cache.get_or_refresh("home", load).wait().unwrap();
        assert_eq!((*got, got.origin()), (3, Origin::Loaded));
    });
    cache.invalidate("home").unwrap();
    assert_eq!(
        cache.get::<u32>("home").unwrap().unwrap().origin(),
        Origin::Stale
    );
    cache.remove("home").unwrap();
    assert!(cache.get::<u32>("home").unwrap().is_none());
}

#[test]
fn a_closure_that_fails_or_panics_is_a_failed_load() {
    let cache = Cache::new(&Client::embedded().unwrap());
    let cache = cache.policy(Policy::default().wait_at_most(60 * SECOND));
    let failed = cache.get_or_refresh("bad", || Err::<u32, _>("no".to_owned()));
    let failed = failed.wait();
    assert!(matches!(failed, Err(Error::Load(failed)) if failed.text == "no"));
    let odd = || -> Result<u32, String> { panic!("odd") };
    let failed = cache.get_or_refresh("odd", odd).wait();
    assert!(matches!(failed, Err(Error::Load(failed)) if failed.text == "the loader panicked"));
}

#[test]
fn a_cache_has_all_settings() {
    let ttl = 30 * SECOND;
    let cache = Cache::new(&Client::embedded().unwrap());
    let cache = cache.policy(Policy::default().fresh_for(ttl));
    let load = |value: u32| move || Ok::<_, Error>(value);
    let call = cache.get_or_refresh("a", load(1)).policy(Policy::default());
    let call = call.fresh_for(ttl).stale_for(ttl).wait_at_most(ttl);
    let got = call.lifetime(|_| Lifetime::Default).wait().unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Loaded));
    let got = cache.get_or_refresh("a", load(2)).never_wait().wait();
    assert_eq!(*got.unwrap(), 1);
    cache.invalidate("a").unwrap();
    let got = cache.get_or_refresh("a", load(2)).must_be_fresh().wait();
    assert_eq!(*got.unwrap(), 2);

    let bring = |keys: Vec<String>| {
        let values = keys.into_iter().map(|key| (key, 7));
        Ok::<HashMap<String, u32>, Error>(values.collect())
    };
    let many = cache.get_many_or_refresh(["a", "b"], bring);
    let many = many.policy(Policy::default());
    let many = many.lifetime(|_| Lifetime::Default).wait();
    let many = many.unwrap().all().unwrap();
    assert_eq!((*many["a"], *many["b"]), (2, 7));

    assert!(cache.message_pack().get::<u32>("none").unwrap().is_none());
    let bytes = || Ok::<_, Error>(vec![1_u8]);
    let raw = cache.raw().get_or_refresh("raw", bytes).wait();
    assert_eq!(*raw.unwrap(), [1]);
    let stored = cache.any_format().get::<Vec<u8>>("raw").unwrap();
    assert_eq!(*stored.unwrap(), [1]);
}
