//! What all tasks of a worker share. Must never change.

use super::log::Log;
use super::orders::Orders;

/// What all tasks of a worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) orders: Orders,
    pub(super) log: Log,
}
