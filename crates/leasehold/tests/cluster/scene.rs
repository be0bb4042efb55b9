//! A slot that moves between two nodes, step by step.

use std::time::Duration;

use leasehold::Client;
use testkit::{RedisCluster, RedisServer};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::LONG;

/// How far the move of a slot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    /// No key has moved.
    Begun,
    /// The key of the lock has moved.
    Lock,
    /// Only the key of the lock has not moved.
    Rest,
    /// All keys have moved, but the slot has not.
    Keys,
    After,
}

pub(crate) const MOMENTS: [Moment; 6] = [
    Moment::Before,
    Moment::Begun,
    Moment::Lock,
    Moment::Rest,
    Moment::Keys,
    Moment::After,
];

/// A cluster whose slot of a lock moves.
pub(crate) struct Moving<'a> {
    pub(crate) cluster: &'a RedisCluster,
    pub(crate) name: &'a str,
}

impl<'a> Moving<'a> {
    pub(crate) fn new(cluster: &'a RedisCluster, name: &'a str) -> Self {
        Self { cluster, name }
    }

    fn slot(&self) -> u16 {
        self.cluster.slot(self.name)
    }

    /// A node that does not have the slot.
    pub(crate) fn another(&self) -> &'a RedisServer {
        let from = self.cluster.primary(self.slot()).port();
        let mut nodes = self.cluster.nodes().iter();
        nodes.find(|node| node.port() != from).expect("three nodes")
    }

    /// Moves the slot as far as this.
    pub(crate) fn until(&self, moment: Moment, to: &RedisServer) {
        let (cluster, slot) = (self.cluster, self.slot());
        if moment == Moment::Before {
            return;
        }
        cluster.begin_move(slot, to);
        match moment {
            Moment::Before | Moment::Begun => {}
            Moment::Lock => {
                cluster.move_key(self.name, to);
            }
            Moment::Rest => {
                let from = cluster.primary(slot);
                let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
                let keys = keys.array().iter().map(|key| key.text());
                for key in keys.filter(|key| key != self.name) {
                    assert!(cluster.move_key(&key, to));
                }
            }
            Moment::Keys | Moment::After => cluster.move_keys(slot, to),
        }
        if moment == Moment::After {
            cluster.end_move(slot, to);
        }
    }

    /// Moves the rest.
    pub(crate) fn to_its_end(&self, moment: Moment, to: &RedisServer) {
        if !matches!(moment, Moment::Before | Moment::After) {
            self.cluster.move_keys(self.slot(), to);
            self.cluster.end_move(self.slot(), to);
        }
    }
}

/// So many milliseconds.
pub(crate) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A client of the cluster.
pub(crate) async fn connect(cluster: &RedisCluster) -> Client {
    let password = cluster.nodes()[0].password();
    let login = password.map_or_else(String::new, |password| format!(":{password}@"));
    let url = format!("redis+cluster://{login}{}", cluster.addresses());
    Client::connect(&url).await.expect("it works")
}

/// Starts a task.
pub(crate) fn beside<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinSet<T> {
    let mut task = JoinSet::new();
    task.spawn(future);
    task
}

/// The output of a task, which needs no limit to pass.
pub(crate) async fn joined<T: 'static>(what: &str, mut task: JoinSet<T>) -> T {
    let output = soon(what, task.join_next()).await;
    output.expect("one task").expect("no panic")
}

/// The output of `future`, which needs no limit to pass.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let output = timeout(LONG, future).await;
    output.unwrap_or_else(|_| panic!("not soon: {what}"))
}
