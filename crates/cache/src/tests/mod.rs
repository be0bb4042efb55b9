//! Tests of the guard with what a program does not see: its shared loads, and stores that lose or delay messages.

mod client_ends;
mod lost_messages;
mod schedules;
mod stages;

use std::sync::Arc;

use leasehold::Client;
use leasehold::entries::EntryStore;

use crate::Cache;
use crate::guard::Guard;

/// A cache of `client` whose requests pass through another store.
fn behind(
    client: &Client,
    other: impl FnOnce(Arc<dyn EntryStore>) -> Arc<dyn EntryStore>,
) -> Cache {
    let entries = client.entries().over(other);
    Cache::over(client, Guard::new(&entries, client.id(), None))
}

/// The number of its shared loads.
fn shared_loads(cache: &Cache) -> usize {
    cache.guard.loads.shared().len()
}
