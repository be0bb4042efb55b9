//! The servers behind the nodes of a quorum. A server that two addresses lead to is one node only: otherwise it would vote twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The servers to which the nodes of a quorum are connected, by the identity of their start (`run_id`).
#[derive(Default)]
pub(super) struct Seats(Mutex<HashMap<String, Arc<str>>>);

/// The place of one node.
pub(super) struct Seat {
    seats: Arc<Seats>,
    /// The address of the node, without user and password. Each node of a quorum has another one.
    node: Arc<str>,
}

impl Seat {
    pub(super) fn new(seats: Arc<Seats>, node: &str) -> Self {
        let node = node.into();
        Self { seats, node }
    }

    /// The node is connected to this server.
    ///
    /// # Errors
    /// The address of another node that is connected to it.
    pub(super) fn take(&self, server: &str) -> Result<(), Arc<str>> {
        let mut seats = self.lock();
        seats.retain(|_, node| *node != self.node);
        if let Some(other) = seats.get(server) {
            return Err(other.clone());
        }
        seats.insert(server.to_owned(), self.node.clone());
        Ok(())
    }

    /// The node is connected to no server.
    pub(super) fn leave(&self) {
        self.lock().retain(|_, node| *node != self.node);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<str>>> {
        // Each change is one step.
        self.seats.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_node_until_that_node_leaves_it() {
        let seats = Arc::new(Seats::default());
        let [a, b] = ["a", "b"].map(|node| Seat::new(seats.clone(), node));
        assert_eq!(a.take("run-1"), Ok(()));
        assert_eq!(a.take("run-1"), Ok(()), "connected again");
        assert_eq!(b.take("run-1"), Err("a".into()));
        assert_eq!(b.take("run-2"), Ok(()));
        // It was started again.
        assert_eq!(a.take("run-3"), Ok(()));
        assert_eq!(b.take("run-1"), Ok(()));
        assert_eq!(a.take("run-1"), Err("b".into()));
        b.leave();
        assert_eq!(a.take("run-1"), Ok(()));
    }
}
