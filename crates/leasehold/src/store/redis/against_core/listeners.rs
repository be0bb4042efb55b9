//! Who hears that a waiter was granted the lock, of which the random steps have none but the waiters' own clients; and what is
//! kept of those who wait.

use std::time::Duration;

use leasehold_core::{ClientId, LockName, Mode, Owner, Reply, Step, Ttl, Wait};

use super::model::START_US;
use super::server::Redis;

/// Of the client whose number is `client` from [`super::model::channel`].
fn owner(client: u64) -> Owner {
    let id = u128::from(client) + 1;
    Owner::new(id, ClientId::new(0xc0 + client), "host", 1, "").unwrap()
}

fn acquire(client: u64) -> Step {
    Step::Acquire {
        owner: owner(client),
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
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
fn who_listens_to_every_channel_hears_for_no_waiter() {
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
        assert!(seen.queue.is_empty());
    }
}

#[test]
fn a_waiter_is_kept_until_it_is_granted_the_lock_and_for_a_minute_at_most() {
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
