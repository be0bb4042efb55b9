//! Readers of a quorum, beside each other and in the line with writers.

use leasehold_core::{Fence, LockName, Mode, Snapshot, World};

use super::{MS, Nodes, SECOND, settle};
use crate::error::StoreErrorKind;
use crate::{Client, ReadLease};

async fn read(client: &Client) -> ReadLease {
    let lock = client.rw_lock("stock").read();
    lock.acquire_within(10 * SECOND).await.unwrap()
}

async fn is_free_to_write(client: &Client) -> bool {
    let mutex = client.mutex("stock");
    mutex.try_acquire().await.unwrap().is_some()
}

async fn look(client: &Client) -> Snapshot {
    client.inspect("stock").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn readers_hold_beside_each_other_without_a_fence() {
    let nodes = Nodes::new(3);
    let [(a, ..), (b, ..), (writer, ..)] = [0; 3].map(|_| nodes.client());
    let (one, other) = (read(&a).await, read(&b).await);
    assert_eq!((one.fence(), other.fence()), (None, None));
    assert!(!is_free_to_write(&writer).await);
    let seen = look(&writer).await;
    let modes: Vec<_> = seen.holders().map(|holder| holder.mode).collect();
    assert_eq!(modes, [Mode::Shared; 2]);
    // Each goes on for longer than its TTL.
    tokio::time::sleep(60 * SECOND).await;
    assert!(!one.is_lost() && !other.is_lost());
    one.release().await.unwrap();
    assert!(!is_free_to_write(&writer).await);
    other.release().await.unwrap();
    settle().await;
    assert_eq!(nodes.held_at("stock"), 0);
    let write = writer.mutex("stock").acquire().await.unwrap();
    let refused = a.rw_lock("stock").read().try_acquire().await.unwrap();
    assert!(refused.is_none());
    write.release().await.unwrap();
}

/// Clients whose requests overtake each other: each node hears of them in another order.
#[tokio::test(start_paused = true)]
async fn readers_that_ask_together_all_hold_at_once() {
    for count in [3, 5] {
        let nodes = Nodes::new(count);
        let clients: Vec<_> = (0..12).map(|_| nodes.client()).collect();
        for (at, (_, ways, _)) in clients.iter().enumerate() {
            for (node, way) in ways.iter().enumerate() {
                let after = (at * 7 + node * 5) % 11;
                way.faults().slow(MS * u32::try_from(after + 1).unwrap());
            }
        }
        let begun = nodes.clock.now();
        let all = clients.iter().map(|(client, ..)| read(client));
        let leases = futures_util::future::join_all(all).await;
        let took = nodes.clock.now().since(begun);
        assert!(took < 30 * MS, "two round trips: {took:?}");
        for lease in leases {
            lease.release().await.unwrap();
        }
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0);
    }
}

/// The lead alone knows that a writer waits. However long the readers hold, no other one passes it.
#[tokio::test(start_paused = true)]
async fn no_reader_passes_a_writer_that_waits() {
    let nodes = Nodes::new(3);
    let clients: Vec<_> = (0..4).map(|_| nodes.client().0).collect();
    let first = read(&clients[0]).await;
    let writes = tokio::spawn(clients[1].mutex("stock").acquire_owned());
    settle().await;
    let late = clients[2].rw_lock("stock").read();
    for _ in 0..40 {
        assert!(late.try_acquire().await.unwrap().is_none());
        tokio::time::sleep(SECOND).await;
    }
    let reads = [2, 3].map(|at| tokio::spawn(clients[at].rw_lock("stock").read().acquire_owned()));
    tokio::time::sleep(20 * SECOND).await;
    assert!(!writes.is_finished() && reads.iter().all(|read| !read.is_finished()));
    first.release().await.unwrap();
    let write = writes.await.unwrap().unwrap();
    assert!(reads.iter().all(|read| !read.is_finished()));
    let begun = nodes.clock.now();
    write.release().await.unwrap();
    for read in reads {
        read.await.unwrap().unwrap().release().await.unwrap();
    }
    let took = nodes.clock.now().since(begun);
    assert!(took < 100 * MS, "woken at once: {took:?}");
    settle().await;
    assert_eq!(nodes.held_at("stock"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_without_a_majority_does_not_hold() {
    let nodes = Nodes::new(5);
    let (client, ways, _) = nodes.client();
    for way in &ways[..3] {
        way.faults().fail(StoreErrorKind::Unreachable);
    }
    let read = client.rw_lock("stock").read().acquire_within(SECOND).await;
    assert!(read.is_err());
    settle().await;
    assert_eq!(nodes.held_at("stock"), 0, "its votes are given back");
}

/// The votes of one reader come back after a loss of data, while another reader holds at all nodes.
#[tokio::test(start_paused = true)]
async fn a_reader_wins_back_the_votes_of_a_node() {
    let nodes = Nodes::new(3);
    let [(a, ..), (b, ..)] = [0; 2].map(|_| nodes.client());
    let (one, other) = (read(&a).await, read(&b).await);
    settle().await;
    let name = LockName::new("stock").unwrap();
    let owner = one.owner().clone();
    let holds = |node: usize| {
        nodes.memories[node].meddle(|world| {
            let holders = &world.entry(&name).holders;
            holders.iter().any(|holder| holder.owner == owner)
        })
    };
    nodes.memories[1].meddle(|world| {
        let holders = &mut world.entry(&name).holders;
        holders.retain(|holder| holder.owner != owner);
    });
    assert!(!holds(1));
    tokio::time::sleep(15 * SECOND).await;
    assert!((0..3).all(holds));
    one.release().await.unwrap();
    settle().await;
    assert!(!(0..3).any(holds));
    assert!(!other.is_lost());
}

/// On one server a break ends the phase, here one reader: each has a number of its own.
#[tokio::test(start_paused = true)]
async fn a_break_ends_the_reader_of_its_number() {
    let nodes = Nodes::new(3);
    let [(a, ..), (b, ..), (operator, ..)] = [0; 3].map(|_| nodes.client());
    let one = read(&a).await;
    // Numbers come from the clock.
    tokio::time::sleep(MS).await;
    let other = read(&b).await;
    let seen = look(&operator).await;
    let number = |reader: &ReadLease| -> Fence {
        let mut holders = seen.holders();
        let view = holders.find(|holder| holder.is(reader.owner()));
        view.and_then(|view| view.fence).unwrap()
    };
    assert_ne!(number(&one), number(&other));
    assert!(operator.break_lock("stock", number(&one)).await.unwrap());
    let lost = one.extend(10 * SECOND).await.unwrap_err();
    assert!(lost.is_lost());
    other.extend(10 * SECOND).await.unwrap();
    assert_eq!(look(&operator).await.holders().count(), 1);
}

/// A process ends while its client holds as a reader: its votes expire, and delay a writer by its own TTL only.
#[tokio::test(start_paused = true)]
async fn a_dead_reader_ends_by_its_own_ttl() {
    let nodes = Nodes::new(3);
    let [(a, ways, _), (b, ..), (writer, ..)] = [0; 3].map(|_| nodes.client());
    let dead = a.rw_lock("stock").read().ttl(5 * SECOND);
    let _dead = dead.acquire().await.unwrap();
    let lives = b.rw_lock("stock").read().ttl(30 * SECOND);
    let lives = lives.acquire().await.unwrap();
    for way in &ways {
        way.faults().hang();
    }
    tokio::time::sleep(6 * SECOND).await;
    assert_eq!(look(&writer).await.holders().count(), 1);
    lives.release().await.unwrap();
    assert!(is_free_to_write(&writer).await);
}

/// A repair has raised the hold of one reader at a node, and the answer was lost. The refusal to renew it there tells of its own hold,
/// and not of the reader beside it that ends later.
#[tokio::test(start_paused = true)]
async fn a_reader_that_was_raised_is_known_beside_others() {
    let nodes = Nodes::new(3);
    let [(a, ..), (b, ..)] = [0; 2].map(|_| nodes.client());
    let one = a.rw_lock("stock").read().ttl(6 * SECOND);
    let one = one.acquire().await.unwrap();
    let _other = read(&b).await;
    settle().await;
    let name = LockName::new("stock").unwrap();
    let owner = one.owner().clone();
    nodes.memories[1].meddle(|world| {
        let holders = &mut world.entry(&name).holders;
        let holder = holders.iter_mut().find(|holder| holder.owner == owner);
        let holder = holder.unwrap();
        holder.vote = holder.vote.map(|vote| Fence::new(vote.get() + 1));
    });
    nodes.memories[2].meddle(|world| {
        let holders = &mut world.entry(&name).holders;
        holders.retain(|holder| holder.owner != owner);
    });
    one.extend(6 * SECOND).await.unwrap();
}

/// The lead has lost its data, and queues nobody for 31 s. Another node takes its place, so that readers that hold one after the other
/// do not pass the writer.
#[tokio::test(start_paused = true)]
async fn a_writer_waits_in_line_while_the_lead_gives_no_vote() {
    let nodes = Nodes::new(3);
    let (writer, _, store) = nodes.client();
    let name = LockName::new("stock").unwrap();
    let lead = store.quorum().lock().leads.of(&name);
    tokio::time::sleep(100 * SECOND).await;
    let readers = (0..4).map(|at| {
        let (client, ..) = nodes.client();
        tokio::spawn(async move {
            tokio::time::sleep(SECOND / 4 * at).await;
            loop {
                let lease = read(&client).await;
                tokio::time::sleep(SECOND).await;
                lease.release().await.unwrap();
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    tokio::time::sleep(2 * SECOND).await;
    nodes.memories[lead].meddle(|world| *world = World::node(None));
    let mutex = writer.mutex("stock");
    let write = mutex.acquire_within(5 * SECOND).await.unwrap();
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    for reader in readers {
        reader.abort();
    }
    write.release().await.unwrap();
}
