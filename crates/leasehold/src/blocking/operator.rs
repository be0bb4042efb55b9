//! The views and verbs of an operator.

use leasehold_core::{Fence, Snapshot};
use pollster::block_on;

use super::Client;
use crate::error::Error;
use crate::store::InspectedNodes;

impl Client {
    /// See [`Client::inspect`](crate::Client::inspect).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let holder = client.inspect("orders:42")?.holder;
    /// assert_eq!(holder.and_then(|holder| holder.fence), Some(lease.fence()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        block_on(self.0.inspect(name))
    }

    /// See [`Client::inspect_nodes`](crate::Client::inspect_nodes).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let inspected = client.inspect_nodes("orders:42")?;
    /// assert_eq!((inspected.votes(), inspected.nodes.len()), (1, 1));
    /// # drop(lease);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect_nodes(&self, name: impl AsRef<str>) -> Result<InspectedNodes, Error> {
        block_on(self.0.inspect_nodes(name))
    }

    /// See [`Client::break_lock`](crate::Client::break_lock).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// assert!(client.break_lock("orders:42", lease.fence())?);
    /// assert!(client.inspect("orders:42")?.holder.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn break_lock(&self, name: impl AsRef<str>, fence: Fence) -> Result<bool, Error> {
        block_on(self.0.break_lock(name, fence))
    }

    /// See [`Client::names`](crate::Client::names).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _lease = client.mutex("orders:42").acquire()?;
    /// assert_eq!(client.names()?, ["orders:42"]);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn names(&self) -> Result<Vec<String>, Error> {
        block_on(self.0.names())
    }
}
