//! What goes wrong in a batch, and for whom. Must never decide what a step does where nothing goes wrong: that is compared
//! with core.

use leasehold_core::{Fence, Held, LockName, Mode, Owner, Reply, Step, Ttl, Wait};

use super::super::batch::{Kind, MOST, kind};
use super::super::fault::classify;
use super::model::START_US;
use super::server::Redis;
use crate::error::StoreErrorKind;

fn names() -> Vec<LockName> {
    let name = |at: usize| LockName::new(&format!("lock-{at}")).unwrap();
    (0..MOST).map(name).collect()
}

fn owner(at: usize) -> Owner {
    let client = leasehold_core::ClientId::new(0xc0);
    Owner::new(u128::try_from(at).unwrap() + 1, client, "host", 1, "").unwrap()
}

fn ttl() -> Ttl {
    Ttl::new(std::time::Duration::from_secs(30)).unwrap()
}

fn acquires(names: &[LockName]) -> Vec<(LockName, Step)> {
    let acquire = |(at, name): (usize, &LockName)| {
        let step = Step::Acquire {
            owner: owner(at),
            mode: Mode::Exclusive,
            ttl: ttl(),
            wait: Some(Wait { listening: true }),
        };
        (name.clone(), step)
    };
    names.iter().enumerate().map(acquire).collect()
}

/// Every other one extends, the others release.
fn settlements(names: &[LockName]) -> Vec<(LockName, Step)> {
    let settle = |(at, name): (usize, &LockName)| {
        let (owner, ttl, block, keep) = (owner(at), ttl(), at % 4 == 0, None);
        let fence = None;
        let step = if at % 2 == 0 {
            Step::Extend {
                owner,
                ttl,
                block,
                fence,
            }
        } else {
            Step::Release { owner, keep, fence }
        };
        (name.clone(), step)
    };
    names.iter().enumerate().map(settle).collect()
}

fn held(fence: u64) -> Reply {
    Reply::Held(Held {
        fence: Some(Fence::new(fence)),
        queued: 0,
    })
}

#[test]
fn the_error_of_a_step_is_no_other_steps() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let names = names();
    let broken = [3, 4, MOST - 1];
    for at in broken {
        redis.command(&["RPUSH", &names[at].beside(":lh-fence"), "not a fence"]);
    }
    let replies = redis.batch(&acquires(&names)).unwrap();
    for (at, reply) in replies.into_iter().enumerate() {
        if broken.contains(&at) {
            let (error, in_step) = classify("", &reply.unwrap_err());
            assert!(in_step && error.may_have_taken_effect, "{error:?}");
            assert_eq!(error.kind, StoreErrorKind::Protocol);
            let hint = "a key beside the lock holds something else";
            assert!(error.to_string().contains(hint), "{error}");
            let key = names[at].beside(":lh-fence");
            assert!(error.to_string().contains(&key), "{error}");
            let exists = redis.command(&["EXISTS", names[at].key()]);
            assert_eq!(exists.int(), 0, "it has changed nothing");
        } else {
            assert_eq!(reply.unwrap(), held(START_US));
        }
    }

    for at in broken {
        redis.command(&["SET", names[at].key(), owner(at).token(), "PX", "1000"]);
    }
    let replies = redis.batch(&settlements(&names)).unwrap();
    for (at, reply) in replies.into_iter().enumerate() {
        match at {
            // Those with a broken fence that release need none.
            _ if at % 2 == 1 => assert_eq!(reply.unwrap(), Reply::Released),
            4 => drop(reply.unwrap_err()),
            _ if at % 4 == 0 => {
                let drawn = START_US + Fence::REFILL * Fence::BLOCK;
                assert_eq!(reply.unwrap(), held(drawn));
            }
            _ => assert_eq!(reply.unwrap(), held(START_US)),
        }
    }
    let left = redis.command(&["PTTL", names[4].key()]);
    assert_eq!(left.int(), 1000, "an extension that failed has not begun");
}

#[test]
fn a_key_that_is_not_allowed_is_the_trouble_of_its_step_only() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let names = names();
    // The keys of the first two locks.
    let allowed = ["~*lock-0*", "~*lock-1*"];
    let user = ["ACL", "SETUSER", "default", "resetkeys"];
    assert_eq!(redis.command(&[&user[..], &allowed].concat()).text(), "OK");
    let replies = redis.batch(&acquires(&names[..3])).unwrap();
    assert_eq!(replies.len(), 3);
    for (at, reply) in replies.into_iter().enumerate() {
        if at < 2 {
            assert_eq!(reply.unwrap(), held(START_US));
            continue;
        }
        let (error, in_step) = classify("", &reply.unwrap_err());
        assert!(in_step && !error.may_have_taken_effect, "{error:?}");
        assert_eq!(error.kind, StoreErrorKind::Denied);
    }
    let refused = redis.batch(&acquires(&names)[2..3]).unwrap_err();
    assert_eq!(classify("", &refused).0.kind, StoreErrorKind::Denied);
}

#[test]
fn a_full_server_refuses_acquires_and_settles_all_the_same() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let names = names();
    redis.batch(&acquires(&names)).unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = match redis.batch(&acquires(&names[..8])) {
        Err(refused) => vec![refused],
        // Redis 6.2 runs the script, and refuses the first command of each step that needs memory.
        Ok(replies) => replies.into_iter().map(Result::unwrap_err).collect(),
    };
    assert!(!refused.is_empty());
    for refused in refused {
        let (error, _) = classify("", &refused);
        assert_eq!(error.kind, StoreErrorKind::Full, "{refused}");
        assert!(!error.may_have_taken_effect, "{refused}");
    }
    for reply in redis.batch(&settlements(&names)).unwrap() {
        reply.unwrap();
    }
}

#[test]
fn extensions_and_releases_go_together_and_the_seldom_ones_alone() {
    let names = names();
    let kinds = |steps: &[(LockName, Step)]| -> Vec<Kind> {
        let mut kinds: Vec<Kind> = steps.iter().map(|(_, step)| kind(step)).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds(&acquires(&names)), [Kind::Acquire]);
    assert_eq!(kinds(&settlements(&names)), [Kind::Settle]);
    let fence = Fence::new(1);
    for step in [Step::Break { fence }, Step::Inspect] {
        assert_eq!(kind(&step), Kind::Alone);
    }
}
