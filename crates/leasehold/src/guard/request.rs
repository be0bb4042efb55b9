//! A reader of an entry, and what it brings to have it loaded. Must never do anything by being made.

use leasehold_core::LockName;
use leasehold_core::cache::Value;

use super::answer::Decoded;
use super::load_scope::LoadScope;
use super::loader::Loader;
use super::policy::Policy;
use crate::runtime::Home;
use crate::telemetry::Held;

/// A reader, and what it would load with.
pub(crate) struct Request {
    pub(crate) key: LockName,
    pub(crate) policy: Policy,
    pub(crate) loader: Option<Box<dyn Loader>>,
    pub(crate) home: Home,
    /// The loads that the caller is part of.
    pub(crate) scope: LoadScope,
    /// The span of the caller, which what is loaded for it follows from.
    pub(crate) caller: Held,
    /// Reads a value as the one who asks; `None` if it is of another form.
    pub(crate) decode: fn(&Value) -> Option<Decoded>,
}
