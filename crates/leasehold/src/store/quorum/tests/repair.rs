//! Nodes that lack the vote of a lease.

use leasehold_core::World;

use super::{Nodes, SECOND, settle};
use crate::error::StoreErrorKind;

/// How the node lost the vote.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// It was unreachable for longer than the TTL, and remembers its fences.
    Expired,
    /// An operator has deleted the key.
    Deleted,
    /// It has lost all its data.
    Forgotten,
}

#[tokio::test(start_paused = true)]
async fn a_renewal_gets_back_a_vote_whatever_became_of_it() {
    for loss in [Loss::Expired, Loss::Deleted, Loss::Forgotten] {
        let nodes = Nodes::new(3);
        let (client, ways, _) = nodes.client();
        let name = leasehold_core::LockName::new("stock").unwrap();
        tokio::time::sleep(100 * SECOND).await;
        let lease = client.mutex("stock").ttl(6 * SECOND).acquire().await;
        let lease = lease.unwrap();
        settle().await;
        match loss {
            Loss::Expired => {
                ways[1].faults().fail(StoreErrorKind::Unreachable);
                tokio::time::sleep(10 * SECOND).await;
                assert_eq!(nodes.held_at("stock"), 2);
                ways[1].faults().heal();
            }
            Loss::Deleted => {
                nodes.memories[1].meddle(|world| world.entry(&name).holders.clear());
            }
            Loss::Forgotten => {
                nodes.memories[1].meddle(|world| *world = World::node(None));
                // Its quarantine.
                tokio::time::sleep(40 * SECOND).await;
            }
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(nodes.held_at("stock"), 3, "{loss:?}");
        let inspected = client.inspect_nodes("stock").await.unwrap();
        assert_eq!(inspected.votes(), 3, "{loss:?}");
        // Without another node, the lease has a majority by this vote.
        ways[0].faults().hang();
        tokio::time::sleep(20 * SECOND).await;
        assert!(!lease.is_lost(), "{loss:?}");
        ways[0].faults().heal();
        tokio::time::sleep(5 * SECOND).await;
        lease.release().await.unwrap();
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0, "{loss:?}");
    }
}
