//! The loads that a task runs inside of. A loader that asks for its own entry would wait for itself, so that is refused.

use std::collections::HashSet;
use std::sync::Arc;

use leasehold_core::LockName;

use super::guard_core::GuardCore;
use super::loader::{LoadResult, Loader};

tokio::task_local! {
    /// The loads that the current task runs inside of: their guards and entries.
    static SCOPE: LoadScope;
}

/// The loads that a caller runs inside of.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadScope(Vec<(ByAddress, Arc<HashSet<LockName>>)>);

/// The address of a guard, valid while the guard exists.
type ByAddress = usize;

fn address(guard: &Arc<GuardCore>) -> ByAddress {
    Arc::as_ptr(guard).addr()
}

impl LoadScope {
    /// The loads of the current task.
    pub(crate) fn here() -> Self {
        SCOPE.try_with(Self::clone).unwrap_or_default()
    }

    /// Whether the caller runs inside the load of this entry.
    pub(super) fn contains(&self, guard: &Arc<GuardCore>, key: &LockName) -> bool {
        self.0
            .iter()
            .any(|(of, keys)| *of == address(guard) && keys.contains(key))
    }

    /// Runs a load inside the scope of its entry.
    pub(super) fn within(
        &self,
        guard: &Arc<GuardCore>,
        key: &LockName,
        loader: Box<dyn Loader>,
    ) -> impl Future<Output = LoadResult> + Send + use<> {
        let load = async move { loader.load().await };
        self.around(guard, vec![key.clone()], load)
    }

    /// Runs `load` inside the scope of these entries.
    pub(crate) fn around<F: Future>(
        &self,
        guard: &Arc<GuardCore>,
        keys: Vec<LockName>,
        load: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let mut scope = self.clone();
        let keys = Arc::new(keys.into_iter().collect());
        scope.0.push((address(guard), keys));
        SCOPE.scope(scope, load)
    }
}
