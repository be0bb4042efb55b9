//! A wrapper that counts the failures of a store. It changes no answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
#[cfg(feature = "timestamp")]
use leasehold_core::timestamp;
use leasehold_core::{LockName, Step};

use super::contract::{Capabilities, Done, Store};
#[cfg(feature = "entries")]
use super::entries::{EntryStore, Looked, Taken};
use super::inspected::InspectedNodes;
use super::opened::Opened;
#[cfg(feature = "timestamp")]
use super::timestamps::{TimestampRequest, Timestamps};
use crate::error::StoreError;
use crate::telemetry::Telemetry;

/// Wraps a store, so that the failures of all its interfaces are counted.
pub(crate) fn counted(opened: &Opened, telemetry: &Telemetry) -> Opened {
    Opened {
        store: count(&opened.store, telemetry),
        #[cfg(feature = "entries")]
        entries: (opened.entries.as_ref()).map(|entries| count(entries, telemetry) as _),
        #[cfg(feature = "timestamp")]
        timestamps: (opened.timestamps.as_ref()).map(|keys| count(keys, telemetry) as _),
    }
}

fn count<T: ?Sized>(door: &Arc<T>, telemetry: &Telemetry) -> Arc<Counted<T>> {
    Arc::new(Counted {
        door: door.clone(),
        telemetry: telemetry.clone(),
    })
}

/// One interface of a store, with its failures counted.
struct Counted<T: ?Sized> {
    door: Arc<T>,
    telemetry: Telemetry,
}

impl<T: ?Sized> Counted<T> {
    fn count<'a, A: 'a>(
        &'a self,
        request: BoxFuture<'a, Result<A, StoreError>>,
    ) -> BoxFuture<'a, Result<A, StoreError>> {
        let telemetry = &self.telemetry;
        let counting = async move {
            request
                .await
                .inspect_err(|error| telemetry.failed(error.kind))
        };
        counting.boxed()
    }
}

impl Store for Counted<dyn Store> {
    fn send(&self, name: &LockName, step: Step, done: Done) {
        let telemetry = self.telemetry.clone();
        let counting = move |answer| {
            if let Err(error) = &answer {
                let error: &StoreError = error;
                telemetry.failed(error.kind);
            }
            done.answer(answer);
        };
        self.door.send(name, step, Done::new(counting));
    }

    fn inspect_nodes<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, InspectedNodes> {
        let counting = async move {
            let inspected = self.door.inspect_nodes(name).await;
            if let Err(error) = &inspected.lock {
                self.telemetry.failed(error.kind);
            }
            inspected
        };
        counting.boxed()
    }

    fn capabilities(&self) -> Capabilities {
        self.door.capabilities()
    }

    fn longest_ttl(&self) -> Duration {
        self.door.longest_ttl()
    }

    fn label(&self) -> &str {
        self.door.label()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.count(self.door.ready())
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.count(self.door.index(remember))
    }
}

#[cfg(feature = "entries")]
impl EntryStore for Counted<dyn EntryStore> {
    fn look<'a>(
        &'a self,
        keys: &'a [LockName],
        watch: bool,
    ) -> BoxFuture<'a, Result<Looked, StoreError>> {
        self.count(self.door.look(keys, watch))
    }

    fn take<'a>(
        &'a self,
        key: &'a LockName,
        step: &'a leasehold_core::cache::Step,
    ) -> BoxFuture<'a, Result<Taken, StoreError>> {
        self.count(self.door.take(key, step))
    }
}

#[cfg(feature = "timestamp")]
impl Timestamps for Counted<dyn Timestamps> {
    fn take<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> BoxFuture<'a, Result<timestamp::Reply, StoreError>> {
        self.count(self.door.take(name, ask))
    }
}
