//! The receivers of the wake of a grant, with listeners beside the waiters' own clients; and the stored records of waiters.

use std::time::Duration;

use leasehold_core::{
    Block, ClientId, HolderIdentity, LockName, Mode, Owner, Reply, Step, Ttl, Wait, poll_after,
};
use testkit::RedisServer;

use super::model::{START_US, channel};
use super::node::Role;
use super::server::Redis;
use crate::store::redis::scripts::Scripts;
use crate::store::redis::tests::servers;

/// An owner of the client whose number is `client` in [`super::model::channel`].
fn owner(client: u64) -> Owner {
    let id = u128::from(client) + 1;
    Owner::new(id, ClientId::new(0xc0 + client), "host", 1, "").unwrap()
}

fn acquire(client: u64) -> Step {
    acquires(owner(client))
}

fn acquires(owner: Owner) -> Step {
    Step::Acquire {
        owner,
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        block: Block::ONE,
        wait: Some(Wait { listening: true }),
    }
}

fn release(client: u64) -> Step {
    Step::Release {
        owner: owner(client),
        keep: None,
        fence: None,
    }
}

/// A program that watches every channel, as monitoring does.
#[test]
fn pattern_subscriber_does_not_count_for_a_waiter() {
    let mut redis = Redis::start();
    let name = LockName::new("orders").unwrap();
    for alive in [true, false] {
        redis.reset(START_US);
        redis.overhear();
        redis.listen(1, alive);
        for step in [acquire(0), acquire(1), release(0)] {
            redis.apply(&[(name.clone(), step)]).unwrap();
        }
        let replies = redis.apply(&[(name.clone(), Step::Inspect)]).unwrap();
        let [Ok(Reply::Seen(seen))] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!(seen.holder.is_some(), alive);
        assert_eq!(seen.queue.is_empty(), alive, "it keeps its place");
    }
}

/// Steps of clients on the lock `orders`, without earlier messages.
fn plays(redis: &mut Redis, steps: impl IntoIterator<Item = Step>) -> Vec<Reply> {
    let name = LockName::new("orders").unwrap();
    let mut replies = Vec::new();
    for step in steps {
        let answered = redis.apply(&[(name.clone(), step)]).unwrap();
        replies.extend(answered.into_iter().map(Result::unwrap));
    }
    replies
}

fn holder(redis: &mut Redis) -> Option<u64> {
    match plays(redis, [Step::Inspect]).remove(0) {
        Reply::Seen(seen) => seen.holder.map(|holder| match holder.who {
            HolderIdentity::Owner(owner) => owner.client().get() - 0xc0,
            HolderIdentity::Foreign { .. } => panic!("{holder:?}"),
        }),
        other => panic!("{other:?}"),
    }
}

/// A PUBLISH reaches subscribers of a replica, but does not count them.
#[test]
fn subscriber_of_replica_hears_of_no_grant() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let replica = RedisServer::builder().replica_of(redis.port()).start();
    replica.follows(Duration::from_secs(20));
    let mut there = replica.connection();
    there.send(&["SUBSCRIBE", &channel(1)]).unwrap();
    there.receive().unwrap();
    redis.listen(1, false);
    redis.listen(2, true);

    plays(&mut redis, [acquire(0), acquire(1), acquire(2), release(0)]);
    assert_eq!(holder(&mut redis), Some(2));
    let heard = redis.messages();
    assert!(heard.iter().all(|heard| heard.channel != channel(1)));
    // A later message over this connection is the first one to arrive.
    redis.command(&["PUBLISH", &channel(1), "the end"]);
    let first = there.receive().unwrap();
    assert_eq!(first.array()[2].text(), "the end", "{first:?}");
    redis.listen(1, true);
    plays(&mut redis, [release(2)]);
    assert_eq!(holder(&mut redis), Some(1), "it has kept its place");
    redis.listen(2, false);
}

#[test]
fn where_counting_is_not_permitted_a_grant_has_to_be_claimed() {
    let mut redis = Redis::start();
    for alive in [true, false] {
        redis.reset(START_US);
        redis.command(&["ACL", "SETUSER", "default", "-pubsub"]);
        redis.listen(1, alive);
        redis.messages();
        plays(&mut redis, [acquire(0), acquire(1), release(0)]);
        let payloads: Vec<_> = (redis.messages().into_iter())
            .filter(|heard| heard.channel == channel(1))
            .map(|heard| heard.payload)
            .collect();
        let token = owner(1);
        let wake = format!("granted - {START_US} 0 {} orders", token.token());
        assert_eq!(payloads, if alive { vec![wake] } else { vec![] });
        assert_eq!(holder(&mut redis), alive.then_some(1));
        redis.command(&["ACL", "SETUSER", "default", "+@all"]);
    }
}

/// By the short way of a release too, which needs the fence.
#[test]
fn full_server_grants_a_released_lock_to_the_waiter() {
    for binary in servers() {
        let mut redis = Redis::start_on(binary.as_deref(), Role::Alone, Scripts::new);
        for knows_fence in [true, false] {
            redis.reset(START_US);
            let held = plays(&mut redis, [acquire(0), acquire(1)]).remove(0);
            let Reply::Held(held) = held else {
                panic!("{held:?}")
            };
            redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
            let (owner, keep) = (owner(0), None);
            let fence = held.fence.filter(|_| knows_fence);
            let release = Step::Release { owner, keep, fence };
            assert_eq!(plays(&mut redis, [release]), [Reply::Released]);
            assert_eq!(holder(&mut redis), Some(1), "{binary:?}");
            redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
    }
}

#[test]
fn waiter_record_is_kept_until_grant_and_at_most_a_minute() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let name = LockName::new("orders").unwrap();
    let (queue, waiters) = (name.beside(":lh-queue"), name.beside(":lh-waiters"));
    for client in 0..3 {
        redis.listen(usize::try_from(client).unwrap(), true);
        redis.apply(&[(name.clone(), acquire(client))]).unwrap();
    }
    for key in [&queue, &waiters] {
        let left = redis.command(&["PTTL", key]).int();
        assert!((1..=60_000).contains(&left), "{key}: {left} ms");
    }
    redis.apply(&[(name.clone(), release(0))]).unwrap();
    let left = [["ZCARD", &queue], ["HLEN", &waiters]].map(|ask| redis.command(&ask).int());
    assert_eq!(left, [1, 1]);
}

/// The random steps have fewer owners than these places.
#[test]
fn a_long_line_behind_a_foreign_lock_asks_when_core_says() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    redis.listen(1, true);
    redis.command(&["SET", "orders", "somebody"]);
    let owner = |id| Owner::new(id, ClientId::new(0xc1), "host", 1, "").unwrap();
    let replies = plays(&mut redis, (1..=40).map(|id| acquires(owner(id))));
    for (ahead, reply) in (0..).zip(replies) {
        let Reply::Busy(busy) = reply else {
            panic!("{reply:?}")
        };
        let expected = (ahead, poll_after(ahead, None, true, true));
        assert_eq!((busy.ahead, busy.poll_after), expected);
    }
}
