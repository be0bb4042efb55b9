//! The model of Redis and a real server get the same commands: replies, keys and remaining TTLs must be equal.

use std::cell::RefCell;
use std::time::Duration;

use leasehold_lab::ladder::redis::{Key, ModelServer, RedisCommand, Tick, Value};
use leasehold_lab::ladder::replay::{Writing, ask, look};
use proptest::prelude::*;
use testkit::RedisServer;

const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum ReplayStep {
    Ask(RedisCommand),
    Tick,
}

#[test]
fn the_model_redis_answers_as_a_real_one() {
    // A virtual clock, so that expiry is exact and the test does not wait.
    let server = RedisServer::builder().virtual_clock().start();
    let client = redis::Client::open(server.url()).unwrap();
    // A property is a closure that changes nothing.
    let connection = RefCell::new(client.get_connection().unwrap());
    let wire = Writing::real("some:", TICK);
    let config = ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..40))| {
        let connection = &mut *connection.borrow_mut();
        redis::cmd("FLUSHALL").exec(connection).unwrap();
        let mut model = ModelServer::default();
        let mut now = 0;
        for step in steps {
            match step {
                ReplayStep::Tick => {
                    now += 1;
                    server.clock().advance(TICK);
                    model.expire(now);
                }
                ReplayStep::Ask(command) => {
                    let real = ask(connection, wire, command).unwrap();
                    let reply = model.apply(now, command).to_string().replace('\n', " ");
                    prop_assert_eq!(real, reply, "{:?}", command);
                }
            }
            let real = look(connection, wire).unwrap().into_iter();
            let real: Vec<_> = real.map(|(key, value, left)| (key, value, left.map(ticks))).collect();
            prop_assert_eq!(real, keys(&model, now), "after {:?}", step);
        }
    });
}

fn ticks(left: Duration) -> Tick {
    Tick::try_from(left.as_millis().div_ceil(TICK.as_millis())).unwrap()
}

fn keys(model: &ModelServer, now: Tick) -> Vec<(Key, String, Option<Tick>)> {
    let there = model.keys(now).into_iter();
    there
        .map(|(key, value, left)| (key, value.to_string(), left))
        .collect()
}

fn step() -> impl Strategy<Value = ReplayStep> {
    prop_oneof![4 => command().prop_map(ReplayStep::Ask), 1 => Just(ReplayStep::Tick)]
}

fn command() -> impl Strategy<Value = RedisCommand> {
    let ticks = || 1..4 as Tick;
    let fence = || 0..4_i16;
    prop_oneof![
        key_and_value().prop_map(|(key, value)| RedisCommand::SetNx(key, value)),
        (owner(), ticks()).prop_map(|(value, ticks)| RedisCommand::SetNxPx(value, ticks)),
        (key(), ticks()).prop_map(|(key, ticks)| RedisCommand::Expire(key, ticks)),
        (owner(), ticks()).prop_map(|(value, ticks)| RedisCommand::SetNxAndExpire(value, ticks)),
        key().prop_map(RedisCommand::Get),
        key_and_value().prop_map(|(key, value)| RedisCommand::GetSet(key, value)),
        key_and_value().prop_map(|(key, value)| RedisCommand::Set(key, value)),
        key().prop_map(RedisCommand::Del),
        owner().prop_map(RedisCommand::DeleteIf),
        (owner(), ticks()).prop_map(|(value, ticks)| RedisCommand::TakeWithFence(value, ticks)),
        (owner(), fence(), ticks())
            .prop_map(|(value, number, ticks)| RedisCommand::Propose(value, number, ticks)),
        fence().prop_map(RedisCommand::ReadWithFence),
        (fence(), number()).prop_map(|(fence, value)| RedisCommand::WriteWithFence(fence, value)),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![4 => Just(Key::Lock), 1 => Just(Key::Fence), 2 => Just(Key::Data), 1 => Just(Key::Seen)]
}

/// Fences and data are numbers: incrementing an owner's token would be an error.
fn key_and_value() -> impl Strategy<Value = (Key, Value)> {
    prop_oneof![
        owner().prop_map(|value| (Key::Lock, value)),
        Just((Key::Lock, Value::Nobody)),
        (key(), number()),
    ]
}

fn owner() -> impl Strategy<Value = Value> {
    (0..3_u8, 0..2_u8).prop_map(|(client, nth)| Value::Owner(client, nth))
}

fn number() -> impl Strategy<Value = Value> {
    (0..5_i16).prop_map(Value::Number)
}
