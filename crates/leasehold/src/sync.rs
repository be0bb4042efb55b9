//! The mutex and the flags of a client. In a program they are the standard types.
//!
//! In a test that explores schedules, the scheduler may switch tasks at each lock or read. So the tests explore the shipped code, not a
//! model of it.

#[cfg(test)]
mod tests;

#[cfg(not(test))]
pub(crate) use std::sync::atomic::AtomicBool;
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(test)]
pub(crate) use self::tests::explore;
#[cfg(test)]
pub(crate) use explored::{AtomicBool, Mutex, MutexGuard};

#[cfg(test)]
mod explored {
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{self, Ordering};
    use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

    /// A mutex with a gate in front of it that the scheduler knows of.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T> {
        gate: shuttle::sync::Mutex<()>,
        inner: std::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'a, T> {
        inner: std::sync::MutexGuard<'a, T>,
        /// Dropped last, so the next task finds the mutex free.
        _gate: Option<shuttle::sync::MutexGuard<'a, ()>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self {
                gate: shuttle::sync::Mutex::new(()),
                inner: std::sync::Mutex::new(value),
            }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let gate =
                is_explored().then(|| self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            match self.inner.lock() {
                Ok(inner) => Ok(MutexGuard { inner, _gate: gate }),
                Err(poisoned) => Err(PoisonError::new(MutexGuard {
                    inner: poisoned.into_inner(),
                    _gate: gate,
                })),
            }
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            let gate = if is_explored() {
                match self.gate.try_lock() {
                    Ok(gate) => Some(gate),
                    Err(TryLockError::Poisoned(gate)) => Some(gate.into_inner()),
                    Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
                }
            } else {
                None
            };
            match self.inner.try_lock() {
                Ok(inner) => Ok(MutexGuard { inner, _gate: gate }),
                Err(TryLockError::Poisoned(poisoned)) => {
                    let inner = poisoned.into_inner();
                    Err(PoisonError::new(MutexGuard { inner, _gate: gate }).into())
                }
                Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            }
        }
    }

    fn is_explored() -> bool {
        shuttle::current::try_get_current_task().is_some()
    }

    /// A flag with a gate in front of it that the scheduler knows of.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicBool {
        gate: shuttle::sync::Mutex<()>,
        inner: atomic::AtomicBool,
    }

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            let (gate, inner) = (shuttle::sync::Mutex::new(()), value.into());
            Self { gate, inner }
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.gated().load(order)
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.gated().store(value, order);
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            self.gated().swap(value, order)
        }

        fn gated(&self) -> &atomic::AtomicBool {
            if is_explored() {
                drop(self.gate.lock());
            }
            &self.inner
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }
}
