//! The mutex behind which a client keeps its state. Must never be more than the standard one, except in a test.
//!
//! In a test that explores schedules, taking it is where the scheduler may let another task go first. So what is tried out in
//! every order is the code that runs in a program, and not a model of it.

#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(test)]
pub(crate) use explored::{Mutex, MutexGuard};

#[cfg(test)]
mod explored {
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError};

    /// A mutex with a gate in front of it that the scheduler knows of.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T> {
        gate: shuttle::sync::Mutex<()>,
        inner: std::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'a, T> {
        inner: std::sync::MutexGuard<'a, T>,
        /// Dropped last, so that whoever is let in finds the mutex free.
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
            let explored = shuttle::current::try_get_current_task().is_some();
            let gate = explored.then(|| self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            match self.inner.lock() {
                Ok(inner) => Ok(MutexGuard { inner, _gate: gate }),
                Err(poisoned) => Err(PoisonError::new(MutexGuard {
                    inner: poisoned.into_inner(),
                    _gate: gate,
                })),
            }
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
