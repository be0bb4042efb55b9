//! Leasehold: `Cache::get_or_refresh`, without jitter and early refreshes, which would load before an expiry. With or without
//! fresh values kept in the process.

use std::time::Duration;

use leasehold::Client;
use leasehold_bench::text;
use leasehold_cache::{Cache, Origin, Policy};

use crate::source::Source;
use crate::{How, Keep};

pub(crate) struct Guard(Cache);

impl Guard {
    pub(crate) async fn connect(url: &str, keeps: bool) -> Self {
        let client = Client::connect(url).await.expect("redis-server answers");
        Self(if keeps {
            Cache::in_process(&client, 64_000_000, Duration::from_secs(30))
        } else {
            Cache::new(&client)
        })
    }

    pub(crate) async fn get(
        &self,
        key: &str,
        keep: Keep,
        source: Source,
    ) -> Result<(String, How), String> {
        let policy = Policy::default()
            .jitter(0.0)
            .eagerness(0.0)
            .fresh_for(keep.fresh)
            .stale_for(keep.stale)
            .lease(keep.lease)
            .load_at_most(keep.load_at_most)
            .back_off(keep.back_off);
        let got = self
            .0
            .get_or_refresh(key, || source.read())
            .policy(policy)
            .await;
        let got = got.map_err(text)?;
        let how = match got.origin() {
            Origin::Fresh => How::Fresh,
            Origin::Stale => How::Stale,
            Origin::Loaded => How::Loaded,
            Origin::Waited => How::Waited,
        };
        Ok((got.into_inner(), how))
    }

    pub(crate) async fn invalidate(&self, key: &str) -> Result<(), String> {
        self.0.invalidate(key).await.map_err(text)
    }
}
