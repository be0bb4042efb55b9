//! A release by a command of the server (`DELIFEQ`, `DELEX`), compared with core. On a server that has none, the scripts do the same.
//! The steps need no clock, since a newer server counts its microseconds by itself.

use fastrand::Rng;
use leasehold_core::{
    ClientId, Counter, Fence, LockName, Now, Owner, Reply, Step, UnknownPresence,
};

use super::model::{Role, START_US};
use super::server::Redis;
use crate::store::redis::protocol::Kind;
use crate::store::redis::scripts::{NATIVE, Scripts};
use crate::store::redis::tests::servers;

const ROUNDS: usize = 200;
const NAMES: usize = 8;

fn owner(number: u128) -> Owner {
    Owner::new(number, ClientId::new(0xc0), "host", 1, "").unwrap()
}

/// Stores what the first owner finds when it releases by this fence.
fn store(redis: &mut Redis, key: &str, which: u64, fence: u64) {
    let (own, other) = (owner(1), owner(2));
    let (own, other) = (own.token(), other.token());
    redis.command(&["DEL", key]);
    let value = match which {
        0..=5 => format!("{own}#{fence}"),
        6 => format!("{own}#{fence}/4"),
        7 => format!("{own}#{fence}!"),
        8 => format!("{own}#{fence}/4!"),
        9 => format!("{own}#{}", fence + 1),
        10 => format!("{other}#{fence}"),
        11 => String::new(),
        12 => own.to_owned(),
        13 => {
            redis.command(&["HSET", key, "field", "1"]);
            return;
        }
        _ => return,
    };
    redis.command(&["SET", key, &value, "PX", "60000"]);
}

/// A reply without times.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::NotHeld(Some(holder)) => format!("{:?} {:?}", holder.who, holder.fence),
        other => format!("{other:?}"),
    }
}

/// Releases random locks in batches, and compares each reply and what is left.
fn compare(redis: &mut Redis, random: &mut Rng) {
    for round in 0..ROUNDS {
        let (mut steps, mut expected) = (Vec::new(), Vec::new());
        for at in 0..=random.usize(..NAMES) {
            let name = LockName::new(&format!("lock {at}")).unwrap();
            let fence = START_US - random.u64(..9);
            store(redis, name.key(), random.u64(..15), fence);
            let mut state = redis.kept_of(&name, START_US / 1_000).unwrap().state;
            let (owner, keep, fence) = (owner(1), None, Some(Fence::new(fence)));
            let step = Step::Release { owner, keep, fence };
            let (now, mut counter) = (Now::at_micros(START_US), Counter::default());
            let outcome = state.apply(&mut counter, now, &step, &UnknownPresence);
            let is_left = !state.holders.is_empty() || state.foreign.is_some();
            expected.push((shown(&outcome.reply), is_left));
            steps.push((name, step));
        }
        let replies = redis.batch(Kind::Settle, &steps).unwrap();
        let got: Vec<_> = (steps.iter().zip(replies))
            .map(|((name, _), reply)| {
                let is_left = redis.command(&["EXISTS", name.key()]).int() == 1;
                (shown(&reply.unwrap()), is_left)
            })
            .collect();
        assert_eq!(got, expected, "round {round}");
    }
}

/// How often the server has executed and refused its native command, if it has one.
fn used(redis: &mut Redis) -> Option<(u64, u64)> {
    let has = |name: &&str| {
        let about = redis.command(&["COMMAND", "INFO", name]);
        matches!(about.array(), [first] if matches!(first, testkit::Reply::Array(_)))
    };
    let name = NATIVE.into_iter().find(has)?.to_lowercase();
    let stats = redis.command(&["INFO", "commandstats"]).text();
    let prefix = format!("cmdstat_{name}:");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
    let number = |what: &str| {
        let fields = line.unwrap_or_default().split(',');
        let found = fields
            .filter_map(|field| field.split_once('='))
            .find(|(key, _)| *key == what);
        found.map_or(0, |(_, number)| number.parse().unwrap())
    };
    Some((number("calls"), number("rejected_calls")))
}

#[test]
fn a_release_by_a_native_command_does_what_core_does() {
    for binary in servers() {
        let mut redis = Redis::start_on(binary.as_deref(), Role::Alone, Scripts::new);
        let mut random = Rng::with_seed(7);
        redis.reset(START_US);
        compare(&mut redis, &mut random);
        let Some((calls, rejected)) = used(&mut redis) else {
            continue;
        };
        assert!(
            calls > 500 && rejected == 0,
            "{calls} {rejected} {binary:?}"
        );
        // A user who may use it no more goes on by the script.
        redis.command(&["ACL", "SETUSER", "default", "-delifeq"]);
        redis.command(&["ACL", "SETUSER", "default", "-delex"]);
        compare(&mut redis, &mut random);
        let (again, rejected) = used(&mut redis).unwrap();
        assert_eq!(again, calls, "{binary:?}");
        assert!((1..=8).contains(&rejected), "{rejected} {binary:?}");
    }
}
