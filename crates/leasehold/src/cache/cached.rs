//! A value from the cache.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockName;

use super::error::Error;
pub use crate::guard::Origin;
use crate::guard::{ReadAnswer, Refusal};

/// A value from the cache, with its age and its origin. Dereferences to the value.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::embedded()?;
/// use leasehold::cache::Origin;
///
/// let load = || async { Ok::<_, std::io::Error>(String::from("<h1>hello</h1>")) };
/// let page = client.cache().get_or_refresh("home", load).await?;
/// assert_eq!((page.len(), page.origin()), (14, Origin::Loaded));
/// # client.close().await; Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Cached<V> {
    pub(super) value: Arc<V>,
    pub(super) age: Duration,
    pub(super) origin: Origin,
}

impl<V: Send + Sync + 'static> Cached<V> {
    pub(super) fn of(key: &LockName, answer: ReadAnswer) -> Result<Self, Error> {
        match answer.value.downcast() {
            Ok(value) => Ok(Self {
                value,
                age: answer.age,
                origin: answer.origin,
            }),
            Err(_) => Err(Error::of(key.as_str(), Refusal::Unreadable)),
        }
    }
}

impl<V> Cached<V> {
    /// How long ago the value was stored, by the store's clock. Zero for a value that was loaded just now.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Where the value came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The value, shared.
    pub fn into_shared(self) -> Arc<V> {
        self.value
    }

    /// The value, cloned if it is shared.
    pub fn into_inner(self) -> V
    where
        V: Clone,
    {
        Arc::unwrap_or_clone(self.value)
    }
}

impl<V> Deref for Cached<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}
