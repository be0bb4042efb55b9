//! Who hears that a waiter was granted the lock. The random steps have no listeners but the waiters' own clients.

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

/// A program that watches every channel, as monitoring does.
#[test]
fn who_listens_to_every_channel_hears_for_no_waiter() {
    let mut redis = Redis::start();
    let name = LockName::new("orders").unwrap();
    for alive in [true, false] {
        redis.reset(START_US);
        redis.overhear();
        redis.listen(1, alive);
        let release = Step::Release {
            owner: owner(0),
            keep: None,
        };
        for step in [acquire(0), acquire(1), release] {
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
