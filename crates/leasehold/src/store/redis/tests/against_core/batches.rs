//! Failures inside a batch, and which steps they affect. Batches without failures are compared with core by the random
//! steps.

use leasehold_core::{Block, Fence, Held, LockName, Mode, Owner, Reply, Step, Ttl, Wait};

use super::model::START_US;
use super::server::Redis;
use crate::error::StoreErrorKind;
use crate::store::redis::fault::classify;
use crate::store::redis::protocol::{COUNTER, Contended, Kind, MOST};

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
            block: Block::ONE,
            wait: Some(Wait { listening: true }),
        };
        (name.clone(), step)
    };
    names.iter().enumerate().map(acquire).collect()
}

/// Extends every other lock and releases the others, each under the fence of its grant.
fn settlements(names: &[LockName]) -> Vec<(LockName, Step)> {
    let settle = |(at, name): (usize, &LockName)| {
        let (owner, ttl, keep) = (owner(at), ttl(), None);
        let fence = Some(Fence::new(START_US + u64::try_from(at).unwrap()));
        let step = if at % 2 == 0 {
            Step::Extend { owner, ttl, fence }
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
        block: Block::ONE,
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
        redis.command(&["RPUSH", &names[at].beside(":lh-queue"), "not a queue"]);
    }
    for kind in [Kind::Acquire, Kind::AcquireLong] {
        redis.command(&["DEL", COUNTER]);
        let replies = redis.batch(kind, &acquires(&names)).unwrap();
        let mut fence = START_US;
        for (at, reply) in replies.into_iter().enumerate() {
            if broken.contains(&at) {
                let (error, in_step) = classify("", &reply.unwrap_err());
                assert!(in_step && error.may_have_taken_effect, "{error:?}");
                assert_eq!(error.kind, StoreErrorKind::Protocol);
                let hint = "a key beside the lock holds something else";
                assert!(error.to_string().contains(hint), "{error}");
                let key = names[at].beside(":lh-queue");
                assert!(error.to_string().contains(&key), "{error}");
                let exists = redis.command(&["EXISTS", names[at].key()]);
                assert_eq!(exists.int(), 0, "it has changed nothing");
            } else {
                assert_eq!(reply.unwrap(), held(fence));
                fence += 1;
                redis.command(&["DEL", names[at].key()]);
            }
        }
    }
}

#[test]
fn short_and_long_forms_settle_alike() {
    let mut redis = Redis::start();
    let names = names();
    for kind in [Kind::Settle, Kind::SettleLong] {
        redis.reset(START_US);
        redis.batch(Kind::Acquire, &acquires(&names)).unwrap();
        // Another program now holds `lock-2`, and a waiter has marked the value of `lock-5`.
        redis.command(&["SET", names[2].key(), "another"]);
        let value = format!("{}#{}!", owner(5).token(), START_US + 5);
        redis.command(&["SET", names[5].key(), &value]);
        let replies = redis.batch(kind, &settlements(&names)).unwrap();
        for (at, reply) in (0..).zip(replies) {
            match (at, reply.unwrap()) {
                (2, reply) => assert!(matches!(reply, Reply::NotHeld(Some(_)))),
                (_, Reply::Released) => assert_eq!(at % 2, 1),
                (_, reply) => assert_eq!(reply, held(START_US + at)),
            }
        }
        let keys = redis.command(&["DBSIZE"]).int();
        assert_eq!(keys, i64::try_from(MOST / 2 + 1).unwrap(), "{kind:?}");
    }
}

#[test]
fn a_lock_is_freed_once_in_a_batch() {
    let mut redis = Redis::start();
    let names = names();
    for kind in [Kind::Settle, Kind::SettleLong] {
        redis.reset(START_US);
        redis.batch(Kind::Acquire, &acquires(&names)).unwrap();
        let release = settlements(&names).remove(1);
        let replies = redis.batch(kind, &[release.clone(), release]).unwrap();
        let replies: Vec<Reply> = replies.into_iter().map(Result::unwrap).collect();
        assert_eq!(replies, [Reply::Released, Reply::NotHeld(None)], "{kind:?}");
    }
}

#[test]
fn a_key_that_is_not_allowed_is_the_trouble_of_its_step_only() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let names = names();
    // The keys of the first two locks.
    let allowed = ["~*lock-0*", "~*lock-1*", "~leasehold:fence"];
    let user = ["ACL", "SETUSER", "default", "resetkeys"];
    assert_eq!(redis.command(&[&user[..], &allowed].concat()).text(), "OK");
    let replies = redis.batch(Kind::Acquire, &acquires(&names[..3])).unwrap();
    assert_eq!(replies.len(), 3);
    for (at, reply) in (0..).zip(replies) {
        if at < 2 {
            assert_eq!(reply.unwrap(), held(START_US + at));
            continue;
        }
        let (error, in_step) = classify("", &reply.unwrap_err());
        assert!(in_step && !error.may_have_taken_effect, "{error:?}");
        assert_eq!(error.kind, StoreErrorKind::Denied);
    }
    let alone = redis.batch(Kind::Acquire, &acquires(&names)[2..3]);
    let refused = alone.unwrap().pop().unwrap().unwrap_err();
    assert_eq!(classify("", &refused).0.kind, StoreErrorKind::Denied);
}

#[test]
fn a_full_server_refuses_acquires_and_settles_all_the_same() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let names = names();
    redis.batch(Kind::Acquire, &acquires(&names)).unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let others: Vec<LockName> = (0..8)
        .map(|at| LockName::new(&format!("other-{at}")).unwrap())
        .collect();
    for kind in [Kind::Acquire, Kind::AcquireLong] {
        let refused = match redis.batch(kind, &acquires(&others)) {
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
    }
    let (some, rest) = names.split_at(MOST / 2);
    for (kind, names) in [(Kind::Settle, some), (Kind::SettleLong, rest)] {
        let all = settlements(&self::names());
        let of_these = all.into_iter().filter(|(name, _)| names.contains(name));
        let replies = redis.batch(kind, &of_these.collect::<Vec<_>>()).unwrap();
        assert!(
            (replies.into_iter()).all(|reply| !matches!(reply.unwrap(), Reply::NotHeld(_))),
            "{kind:?}"
        );
    }
}

#[test]
fn extend_and_release_share_batch_and_rare_steps_go_alone() {
    let names = names();
    let kinds = |steps: &[(LockName, Step)]| -> Vec<Kind> {
        let kind = |(name, step): &(LockName, Step)| Contended::default().kind(name, step);
        let mut kinds: Vec<Kind> = steps.iter().map(kind).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds(&acquires(&names)), [Kind::Acquire]);
    assert_eq!(kinds(&settlements(&names)), [Kind::Settle]);
    let fence = Fence::new(1);
    for step in [Step::Break { fence }, Step::Inspect] {
        let kind = Contended::default().kind(&names[0], &step);
        assert_eq!(kind, Kind::Alone);
    }
}
