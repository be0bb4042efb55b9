//! Which loads a task is part of, so that none waits for its own end. Must never take a load of one guard for one of another.

use std::collections::HashSet;
use std::sync::Arc;

use leasehold_core::LockName;

use super::guard_core::GuardCore;
use super::loader::{LoadResult, Loader};

tokio::task_local! {
    /// The loads that the present task is part of: of which guards, and their entries.
    static SCOPE: LoadScope;
}

/// The loads that a caller is part of.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadScope(Vec<(ByAddress, Arc<HashSet<LockName>>)>);

/// A guard, while somebody has it.
type ByAddress = usize;

fn address(guard: &Arc<GuardCore>) -> ByAddress {
    Arc::as_ptr(guard).addr()
}

impl LoadScope {
    /// Of the present task.
    pub(crate) fn here() -> Self {
        SCOPE.try_with(Self::clone).unwrap_or_default()
    }

    /// Whether the entry is being loaded by the caller itself, which would wait for its own end.
    pub(super) fn contains(&self, guard: &Arc<GuardCore>, key: &LockName) -> bool {
        self.0
            .iter()
            .any(|(of, keys)| *of == address(guard) && keys.contains(key))
    }

    /// A load of this entry, in which one of the same can be told.
    pub(super) fn within(
        &self,
        guard: &Arc<GuardCore>,
        key: &LockName,
        loader: Box<dyn Loader>,
    ) -> impl Future<Output = LoadResult> + Send + use<> {
        let load = async move { loader.load().await };
        self.around(guard, vec![key.clone()], load)
    }

    /// What loads these entries, in which a load of any of them can be told.
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
