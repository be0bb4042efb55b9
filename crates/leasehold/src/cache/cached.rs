//! A value and where it came from. Must never be made from anything but an answer of the guard.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockName;

use super::error::Error;
pub use crate::guard::Origin;
use crate::guard::{Answer, Refusal};

/// A value, its age and its origin. Dereferences to the value.
#[derive(Debug, Clone)]
pub struct Cached<V> {
    pub(super) value: Arc<V>,
    pub(super) age: Duration,
    pub(super) origin: Origin,
}

impl<V: Send + Sync + 'static> Cached<V> {
    pub(super) fn of(key: &LockName, answer: Answer) -> Result<Self, Error> {
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
    /// How long ago it was stored, by the store's clock; zero for what was loaded just now.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Where it came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The value, to be shared.
    pub fn into_shared(self) -> Arc<V> {
        self.value
    }

    /// The value; a copy of it if others share it.
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
