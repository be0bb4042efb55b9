//! The crates that work across processes, used as in their documentation, with their memory layers.

use std::sync::Arc;
use std::time::Duration;

use amalgam::provider::{
    Backplane, DistributedCache, DistributedLocker, DistributedSerializer, JsonSerializer,
    RedisBackplane, RedisDistributedCache, RedisDistributedLocker,
};
use amalgam::{Cache, FactoryError, Timeout};
use cachekit::CacheKit;
use leasehold_bench::{Args, text};

use crate::source::Source;
use crate::{How, Keep};

/// Uses fail-safe and a soft time-out, so it serves a stale value at once. The lease is a setting of the cache.
pub(crate) struct Amalgam(Cache<String>);

impl Amalgam {
    pub(crate) async fn connect(args: &Args, url: &str) -> Self {
        let store = RedisDistributedCache::connect(url)
            .await
            .expect("redis-server answers");
        let backplane = RedisBackplane::connect(url)
            .await
            .expect("redis-server answers");
        let locker = RedisDistributedLocker::connect(url)
            .await
            .expect("redis-server answers");
        let cache = Cache::builder()
            .distributed(Arc::new(store) as Arc<dyn DistributedCache>)
            .serializer(Arc::new(JsonSerializer) as Arc<dyn DistributedSerializer<String>>)
            .backplane(Arc::new(backplane) as Arc<dyn Backplane>)
            .distributed_locker(Arc::new(locker) as Arc<dyn DistributedLocker>)
            .lease_ttl(args.millis("lease_ms", 2000.0))
            .instance_id(format!("bench-{}", std::process::id()))
            .try_build_ready();
        Self(cache.await.expect("its settings are valid"))
    }

    pub(crate) async fn get(
        &self,
        key: &str,
        keep: Keep,
        source: Source,
    ) -> Result<(String, How), String> {
        let loaded = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mark = loaded.clone();
        let factory = amalgam::source::factory(move |_| async move {
            mark.store(true, std::sync::atomic::Ordering::Relaxed);
            source.read().await.map_err(FactoryError::new)
        });
        let has_stale = !keep.stale.is_zero();
        let request = self.0.get_or_set(key, factory).options(|options| {
            options
                .with_duration(keep.fresh)
                .with_fail_safe(
                    has_stale,
                    Some(keep.fresh + keep.stale),
                    Some(keep.back_off),
                )
                .with_factory_timeouts(
                    Timeout::After(Duration::from_millis(1)),
                    Timeout::Infinite,
                    true,
                )
        });
        let value = request.await.map_err(text)?;
        let loaded = loaded.load(std::sync::atomic::Ordering::Relaxed);
        Ok((value, if loaded { How::Loaded } else { How::Got }))
    }

    pub(crate) async fn invalidate(&self, key: &str) -> Result<(), String> {
        // Keeps the stale value, as Leasehold does.
        self.0.expire(key).await.map(drop).map_err(text)
    }
}

/// Uses the preset for production; the lock of 5 s and the poll of 100 ms are fixed.
pub(crate) struct Cachekit(CacheKit);

impl Cachekit {
    pub(crate) async fn connect(url: &str) -> Self {
        let builder = CacheKit::production(url)
            .await
            .expect("redis-server answers");
        Self(builder.build().expect("its settings are valid"))
    }

    pub(crate) async fn get(
        &self,
        key: &str,
        keep: Keep,
        source: Source,
    ) -> Result<(String, How), String> {
        if let Some(value) = self.0.get::<String>(key).await.map_err(text)? {
            return Ok((value, How::Got));
        }
        let mut flight = self.0.single_flight(key).await;
        while flight.wait_for_fill().await {
            if let Some(value) = self.0.get::<String>(key).await.map_err(text)? {
                flight.release().await;
                return Ok((value, How::Waited));
            }
        }
        let loaded = async {
            let value = source.read().await?;
            self.0
                .set_with_ttl(key, &value, keep.fresh)
                .await
                .map_err(text)?;
            Ok((value, How::Loaded))
        };
        let loaded = loaded.await;
        flight.release().await;
        loaded
    }

    pub(crate) async fn invalidate(&self, key: &str) -> Result<(), String> {
        self.0.delete(key).await.map(drop).map_err(text)
    }
}
