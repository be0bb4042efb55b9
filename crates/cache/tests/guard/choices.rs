//! Options of a single call, beside the policy.

use std::error::Error as StdError;

use leasehold_cache::{Encoding, Error, Format};
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn who_never_waits_loads_or_is_told_at_once_that_another_does() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let load = fleet.call(&cache, 5 * SECOND);
    let meanwhile = async {
        sleep(SECOND).await;
        let begun = Instant::now();
        // One caller is in another process, and one is in the process that loads.
        for cache in [&other, &cache] {
            let refused = fleet.call(cache, SECOND).never_wait().await;
            assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        }
        assert!(begun.elapsed() < SECOND / 20, "{:?}", begun.elapsed());
    };
    let (loaded, ()) = tokio::join!(load.into_future(), meanwhile);
    assert_eq!((*loaded.unwrap(), fleet.loads()), (1, 1));

    let never_wait = |cache: &Cache| {
        let call = fleet.call(cache, 5 * SECOND);
        call.must_be_fresh().never_wait()
    };
    let got = never_wait(&other).await.unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Fresh));
    other.invalidate("home").await.unwrap();
    // A caller with `never_wait` may load the value itself. That is no wait for another load.
    let got = never_wait(&other).await.unwrap();
    assert_eq!((*got, got.origin(), fleet.loads()), (2, Origin::Loaded, 2));

    other.remove("home").await.unwrap();
    let fail = || async { Err::<u32, _>("the database is down") };
    let failed = other.get_or_refresh("home", fail).await;
    assert!(matches!(failed, Err(Error::Load(_))), "{failed:?}");
    let begun = Instant::now();
    never_wait(&cache).await.unwrap_err();
    assert!(begun.elapsed() < SECOND / 20, "{:?}", begun.elapsed());
    assert_eq!(fleet.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn entries_of_any_format_can_be_looked_at() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let load = || async { Ok::<_, String>(vec![1_u8, 2]) };
    cache.get_or_refresh("json", load).await.unwrap();
    let packed = cache.message_pack();
    packed.get_or_refresh("packed", load).await.unwrap();
    cache.raw().get_or_refresh("raw", load).await.unwrap();
    for (key, bytes) in [
        ("json", b"[1,2]".as_slice()),
        ("packed", &[0x92, 1, 2]),
        ("raw", &[1, 2]),
    ] {
        let stored = cache.any_format().get::<Vec<u8>>(key).await.unwrap();
        assert_eq!(stored.unwrap().as_slice(), bytes, "{key}");
    }
    let refused = cache.raw().get::<Vec<u8>>("json").await;
    assert!(matches!(refused, Err(Error::Value { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn types_and_futures_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    fn sends<T: Send>(future: T) {
        drop(future);
    }
    crosses::<(Cache, Policy, Error, leasehold_cache::Cached<String>)>();
    crosses::<leasehold_cache::blocking::Cache>();
    let cache = Fleet::new().cache();
    sends(cache.invalidate("k"));
    sends(cache.get::<String>("k"));
}

/// An encoding that the library does not know: text, written backwards.
struct Backwards;

impl Encoding for Backwards {
    const FORMAT: Format = Format::Raw;
}

impl Codec<String> for Backwards {
    fn encode(value: &String) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Ok(value.bytes().rev().collect())
    }

    fn decode(bytes: &[u8]) -> Result<String, Box<dyn StdError + Send + Sync>> {
        Ok(String::from_utf8(bytes.iter().rev().copied().collect())?)
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_writes_values_by_a_codec_of_its_user() {
    let fleet = Fleet::new();
    let cache = fleet.cache().codec::<Backwards>();
    let load = || async { Ok::<_, String>("abc".to_owned()) };
    cache.get_or_refresh("text", load).await.unwrap();
    let read = fleet.cache().codec::<Backwards>().get("text").await;
    assert_eq!(read.unwrap().unwrap().as_str(), "abc");
    let stored = cache.raw().get::<Vec<u8>>("text").await.unwrap();
    assert_eq!(stored.unwrap().as_slice(), b"cba");
    let refused = fleet.cache().get::<String>("text").await;
    assert!(matches!(refused, Err(Error::Value { .. })), "{refused:?}");
}
