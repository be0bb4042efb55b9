//! A store whose failures are counted. Must never change an answer.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Step, timestamp};

use super::contract::{Ask, Done, Store};
use crate::error::StoreError;
use crate::telemetry::Telemetry;

/// The same store, with its failures counted.
pub(crate) fn counted(store: Arc<dyn Store>, telemetry: Telemetry) -> Arc<dyn Store> {
    Arc::new(Counted { store, telemetry })
}

struct Counted {
    store: Arc<dyn Store>,
    telemetry: Telemetry,
}

impl Counted {
    fn count<'a, T: 'a>(
        &'a self,
        request: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let counting = async {
            request
                .await
                .inspect_err(|error| self.telemetry.failed(error.kind))
        };
        counting.boxed()
    }
}

impl Store for Counted {
    fn send(&self, name: &LockName, step: Step, done: Done) {
        let telemetry = self.telemetry.clone();
        let counting = move |answer| {
            if let Err(error) = &answer {
                let error: &StoreError = error;
                telemetry.failed(error.kind);
            }
            done.answer(answer);
        };
        self.store.send(name, step, Done::new(counting));
    }

    fn tells_wanted(&self) -> bool {
        self.store.tells_wanted()
    }

    fn label(&self) -> &str {
        self.store.label()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.count(self.store.ready())
    }

    fn timestamp<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Option<BoxFuture<'a, Result<timestamp::Reply, StoreError>>> {
        let request = self.store.timestamp(name, ask)?;
        Some(self.count(request))
    }

    #[cfg(feature = "cache")]
    fn entries(&self) -> Option<&dyn super::entries::Entries> {
        self.store.entries().map(|_| self as _)
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.count(self.store.index(remember))
    }
}

#[cfg(feature = "cache")]
mod entries {
    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, ready};
    use leasehold_core::LockName;
    use leasehold_core::cache::Step;

    use super::Counted;
    use crate::error::StoreError;
    use crate::store::entries::{Entries, Looked, Taken};

    impl Entries for Counted {
        fn look<'a>(&'a self, keys: &'a [LockName]) -> BoxFuture<'a, Result<Looked, StoreError>> {
            match self.store.entries() {
                Some(entries) => self.count(entries.look(keys)),
                None => ready(Err(StoreError::closed())).boxed(),
            }
        }

        fn take<'a>(
            &'a self,
            key: &'a LockName,
            step: &'a Step,
        ) -> BoxFuture<'a, Result<Taken, StoreError>> {
            match self.store.entries() {
                Some(entries) => self.count(entries.take(key, step)),
                None => ready(Err(StoreError::closed())).boxed(),
            }
        }
    }
}
