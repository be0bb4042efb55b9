//! A request for an entry and its loader.

use leasehold_core::LockName;
use leasehold_core::cache::Value;

use super::answer::Decoded;
use super::load_scope::LoadScope;
use super::loader::Loader;
use super::policy::Policy;
use crate::runtime::Home;
use crate::telemetry::Held;

/// A request for an entry and its loader.
pub(crate) struct ReadRequest {
    pub(crate) key: LockName,
    pub(crate) policy: Policy,
    pub(crate) loader: Option<Box<dyn Loader>>,
    pub(crate) home: Home,
    /// The loads that the caller runs inside of.
    pub(crate) scope: LoadScope,
    /// The span of the caller; the load follows from it.
    pub(crate) caller: Held,
    /// Decodes a value as the caller does; `None` if it has another format.
    pub(crate) decode: fn(&Value) -> Option<Decoded>,
}
