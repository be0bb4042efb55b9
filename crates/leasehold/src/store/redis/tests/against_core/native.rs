//! A release by a command of the server (`DELIFEQ`, `DELEX`), compared with core. On a server that has none, the scripts do the same.
//! The steps need no clock, since a newer server counts its microseconds by itself.

use leasehold_core::{
    Block, Counter, Fence, Fences, Foreign, Holder, LockName, LockState, Mode, Now, Owner, Reply,
    Step, UnknownPresence,
};
use testkit::Rng;

use super::model::START_US;
use super::node::Role;
use super::server::Redis;
use crate::store::redis::protocol::Kind;
use crate::store::redis::scripts::{NATIVE, Scripts};
use crate::store::redis::tests::servers;

const ROUNDS: usize = 200;
const NAMES: usize = 8;
const TTL_MS: u64 = 60_000;

/// A content of a lock's key, and the same for core.
struct Content {
    value: Option<String>,
    state: LockState,
}

fn owner(number: u128) -> Owner {
    let client = leasehold_core::ClientId::new(0xc0);
    Owner::new(number, client, "host", 1, "").unwrap()
}

fn held(number: u128, fence: u64, block: u64, mark: &str) -> Content {
    let (owner, first, block) = (owner(number), Fence::new(fence), Block::nearest(block));
    let more = match block.get() {
        1 => String::new(),
        more => format!("/{more}"),
    };
    let value = Some(format!("{}#{fence}{more}{mark}", owner.token()));
    let holder = Holder {
        owner,
        mode: Mode::Exclusive,
        fences: Fences { first, block },
        expires_at_ms: START_US / 1_000 + TTL_MS,
        kept: false,
    };
    let mut state = LockState::default();
    state.holders.push(holder);
    Content { value, state }
}

fn foreign(kind: &str, value: &str) -> Content {
    let state = LockState {
        foreign: Some(Foreign {
            kind: kind.into(),
            value: value.into(),
            expires_at_ms: Some(START_US / 1_000 + TTL_MS),
        }),
        ..LockState::default()
    };
    let value = (kind == "string").then(|| value.to_owned());
    Content { value, state }
}

/// What the first owner finds when it releases by this fence.
fn content(which: u64, fence: u64) -> Content {
    match which {
        0..=5 => held(1, fence, 1, ""),
        6 => held(1, fence, 4, ""),
        7 => held(1, fence, 1, "!"),
        8 => held(1, fence, 4, "!"),
        9 => held(1, fence + 1, 1, ""),
        10 => held(2, fence, 1, ""),
        11 => foreign("string", ""),
        12 => foreign("string", owner(1).token()),
        13 => foreign("hash", ""),
        _ => Content {
            value: None,
            state: LockState::default(),
        },
    }
}

impl Content {
    fn store(&self, redis: &mut Redis, key: &str) {
        redis.command(&["DEL", key]);
        match (&self.value, &self.state.foreign) {
            (Some(value), _) => redis.command(&["SET", key, value]),
            (None, Some(_)) => redis.command(&["HSET", key, "field", "1"]),
            (None, None) => return,
        };
        redis.command(&["PEXPIRE", key, &TTL_MS.to_string()]);
    }
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
        for at in 0..=random.index(NAMES) {
            let name = LockName::new(&format!("lock {at}")).unwrap();
            let fence = START_US - random.below(9);
            let mut content = content(random.below(15), fence);
            content.store(redis, name.key());
            let (owner, fence) = (owner(1), Some(Fence::new(fence)));
            let step = Step::Release {
                owner,
                keep: None,
                fence,
            };
            let (now, mut counter) = (Now::at_micros(START_US), Counter::default());
            let state = &mut content.state;
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
        let mut random = Rng::new(7);
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
