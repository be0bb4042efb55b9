//! The cache guard without `async`. Loaders are plain closures and may block.

use std::thread;

use leasehold::blocking;
use leasehold::cache::{Error, Origin};

use super::*;

#[test]
fn plain_closures_load_and_may_block() {
    let client = blocking::Client::embedded().unwrap();
    let cache = client.cache();
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
    let cache = blocking::Client::embedded().unwrap().cache();
    let cache = cache.policy(Policy::default().wait_at_most(60 * SECOND));
    let failed = cache.get_or_refresh("bad", || Err::<u32, _>("no".to_owned()));
    let failed = failed.wait();
    assert!(matches!(failed, Err(Error::Load(failed)) if failed.text == "no"));
    let odd = || -> Result<u32, String> { panic!("odd") };
    let failed = cache.get_or_refresh("odd", odd).wait();
    assert!(matches!(failed, Err(Error::Load(failed)) if failed.text == "the loader panicked"));
}
