//! Unexpected values in the key that all fences are drawn from. The random steps only find values that the scripts
//! wrote.

use std::time::Duration;

use leasehold_core::{Block, Fence, LockName, Mode, Owner, Reply, Step, Ttl};

use super::model::START_US;
use super::server::Redis;
use crate::store::redis::protocol::{COUNTER, Kind};

fn acquire(block: u64) -> (LockName, Step) {
    let step = Step::Acquire {
        owner: Owner::new(1, leasehold_core::ClientId::new(0xc0), "host", 1, "").unwrap(),
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        block: Block::nearest(block),
        wait: None,
    };
    (LockName::new("orders").unwrap(), step)
}

/// The fence of a grant in either form of the script, with this value in the counter. Checks afterwards how many were
/// drawn.
#[track_caller]
fn grants(redis: &mut Redis, counter: &str, block: u64) -> u64 {
    let mut fences = [Kind::Acquire, Kind::AcquireLong].map(|kind| {
        redis.flush();
        redis.command(&["SET", COUNTER, counter]);
        let reply = redis.batch(kind, &[acquire(block)]).unwrap().remove(0);
        let Ok(Reply::Held(held)) = reply else {
            panic!("{counter:?}: {reply:?}")
        };
        let fence = held.fence.unwrap().get();
        let last = redis.command(&["GET", COUNTER]).text();
        assert_eq!(last, (fence + block - 1).to_string(), "{counter:?}");
        fence
    });
    assert_eq!(fences[0], fences[1], "{counter:?}");
    std::mem::take(&mut fences[0])
}

#[test]
fn grant_draws_block_from_counter_or_clock_whichever_is_ahead() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let last = START_US + 5_000;
    for block in [1, 2, 1_024] {
        assert_eq!(grants(&mut redis, "0", block), START_US);
        assert_eq!(
            grants(&mut redis, &(START_US - 1).to_string(), block),
            START_US
        );
        assert_eq!(
            grants(&mut redis, &START_US.to_string(), block),
            START_US + 1
        );
        assert_eq!(grants(&mut redis, &last.to_string(), block), last + 1);
    }
}

#[test]
fn impossible_counter_counts_as_lost() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let max = Fence::MAX.get();
    for text in [
        "",
        "a fence",
        "-5",
        "1795203291536740\n",
        " 1795203291536740",
        "1795203291536740 5",
        "1.8e15",
        &max.to_string(),
        &(max - 1_023).to_string(),
        &"9".repeat(400),
    ] {
        assert_eq!(grants(&mut redis, text, 7), START_US, "{text:?}");
    }
    // The last value that can be counted from.
    let last = max - 1_024;
    assert_eq!(grants(&mut redis, &last.to_string(), 1_024), last + 1);
}

#[test]
fn counter_of_another_type_is_error_that_changes_nothing() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    for kind in [Kind::Acquire, Kind::AcquireLong] {
        redis.flush();
        redis.command(&["RPUSH", COUNTER, "x"]);
        let refused = match redis.batch(kind, &[acquire(1)]) {
            Ok(replies) => replies.into_iter().next().unwrap().unwrap_err(),
            Err(refused) => refused,
        };
        assert!(refused.to_string().contains("WRONGTYPE"), "{refused}");
        assert_eq!(redis.command(&["DBSIZE"]).int(), 1);
    }
}
