//! What the random steps do not reach: missing permissions, a full server, errors inside a batch, a long line, and the waiters of clients
//! that count another quorum.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::{
    Block, ClientId, Fence, GRANTS_MOST, Held, HolderIdentity, LockName, Mode, Owner, Reply, Slots,
    Step, Ttl, Wait, poll_after,
};
use redis::RedisResult;

use super::Case;
use super::model::{Role, START_US, channel};
use super::server::Redis;
use super::steps::{Ask, Event, Hearing, Meant, Number, SOME, Span, Who, somebody, ttl_of};
use crate::error::StoreErrorKind;
use crate::store::redis::fault::classify;
use crate::store::redis::protocol::{COUNTER, Kind, MOST};
use crate::store::redis::scripts::Scripts;
use crate::store::redis::tests::{Tally, servers};

/// The owner with this number, of the client whose number is `client` in [`channel`].
fn owner(number: u64, client: u64) -> Owner {
    Owner::new(number.into(), ClientId::new(0xc0 + client), "host", 1, "").unwrap()
}

fn acquire(owner: Owner) -> Step {
    Step::Acquire {
        owner,
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        block: Block::ONE,
        wait: Some(Wait { listening: true }),
    }
}

fn release(owner: Owner, fence: Option<Fence>) -> Step {
    let keep = None;
    Step::Release { owner, keep, fence }
}

/// Owners with these numbers, of the first client, acquire as many locks.
fn acquires(numbers: std::ops::Range<u64>) -> Vec<(LockName, Step)> {
    let acquire = |at| (name(at), acquire(owner(at + 1, 0)));
    numbers.map(acquire).collect()
}

fn name(at: u64) -> LockName {
    LockName::new(&format!("lock-{at}")).unwrap()
}

/// Steps of clients on the first lock.
fn plays(redis: &mut Redis, steps: impl IntoIterator<Item = Step>) -> Vec<Reply> {
    let play = |step| redis.apply(&[(name(0), step)]).unwrap().remove(0).unwrap();
    steps.into_iter().map(play).collect()
}

/// The number of the client that holds that lock, and its fence.
fn holder(redis: &mut Redis) -> Option<(u64, Fence)> {
    let Reply::Seen(seen) = plays(redis, [Step::Inspect]).remove(0) else {
        panic!("not seen")
    };
    let holder = seen.holder?;
    match holder.who {
        HolderIdentity::Owner(owner) => Some((owner.client().get() - 0xc0, holder.fence?)),
        HolderIdentity::Foreign { .. } => panic!("{holder:?}"),
    }
}

/// Which client holds that lock.
fn client(redis: &mut Redis) -> Option<u64> {
    holder(redis).map(|(client, _)| client)
}

fn held(fence: u64) -> Reply {
    Reply::Held(Held {
        fence: Some(Fence::new(fence)),
        slot: None,
        block: Block::ONE,
        queued: 0,
    })
}

#[test]
fn where_counting_is_not_permitted_a_grant_has_to_be_claimed() {
    let mut redis = Redis::start();
    // The one that hears all messages would count.
    redis.reset(START_US);
    redis.scene.listen("PUNSUBSCRIBE", &[]);
    for alive in [true, false] {
        redis.reset(START_US);
        redis.command(&["ACL", "SETUSER", "default", "-pubsub"]);
        redis.listen(1, alive);
        let [a, b] = [0, 1].map(|client| owner(client + 1, client));
        let token = b.token().to_owned();
        plays(
            &mut redis,
            [acquire(a.clone()), acquire(b), release(a, None)],
        );
        let heard = redis.scene.heard("message");
        let heard = heard.into_iter().filter(|(to, _)| *to == channel(1));
        let payloads: Vec<_> = heard.map(|(_, payload)| payload).collect();
        let wake = format!("granted - {START_US} 0 {token} lock-0");
        assert_eq!(payloads, if alive { vec![wake] } else { vec![] });
        assert_eq!(client(&mut redis), alive.then_some(1));
        redis.command(&["ACL", "SETUSER", "default", "+@all"]);
    }
}

/// A release by the short way too, which needs the fence.
#[test]
fn full_server_refuses_acquires_and_does_everything_else() {
    for binary in servers() {
        let mut redis = Redis::start_on(binary.as_deref(), Role::Alone, Scripts::new);
        for (knows_fence, kind) in [(true, Kind::Settle), (false, Kind::SettleLong)] {
            redis.reset(START_US);
            let (a, b) = (owner(1, 0), owner(99, 1));
            let granted = redis.batch(Kind::Acquire, &acquires(0..8)).unwrap();
            plays(&mut redis, [acquire(b)]);
            let (_, fence) = holder(&mut redis).unwrap();
            redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
            for kind in [Kind::Acquire, Kind::AcquireLong] {
                let refused = match redis.batch(kind, &acquires(10..18)) {
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
            let granted = acquires(0..8).into_iter().zip(granted);
            let steps: Vec<_> = granted.skip(1).map(settle).collect();
            for reply in redis.batch(kind, &steps).unwrap() {
                let reply = reply.unwrap();
                assert!(!matches!(reply, Reply::NotHeld(_)), "{kind:?} {reply:?}");
            }
            let release = release(a, knows_fence.then_some(fence));
            assert_eq!(plays(&mut redis, [release]), [Reply::Released]);
            let (client, fence) = holder(&mut redis).unwrap();
            assert_eq!(client, 1, "{binary:?}");
            assert_eq!(
                plays(&mut redis, [Step::Break { fence }]),
                [Reply::Released]
            );
            redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
    }
}

/// An acquire in another mode than that of a mutex.
fn acquire_as(owner: Owner, as_mode: Mode, wait: Option<Wait>) -> Step {
    let mut step = acquire(owner);
    if let Step::Acquire {
        mode, wait: waits, ..
    } = &mut step
    {
        (*mode, *waits) = (as_mode, wait);
    }
    step
}

fn slots(of: u16) -> Mode {
    Mode::Slot(Slots::new(of).unwrap())
}

fn extend(owner: Owner) -> Step {
    let (ttl, fence) = (ttl_of(30_000), None);
    Step::Extend { owner, ttl, fence }
}

const LISTENS: Option<Wait> = Some(Wait { listening: true });

/// How many owners hold that lock together.
fn holders(redis: &mut Redis) -> i64 {
    let queue = name(0).beside(":lh-queue");
    redis.command(&["ZCOUNT", &queue, "-inf", "(0"]).int()
}

/// The short way of a release grants a lock to one waiter, which is to be alone.
#[test]
fn a_writer_that_releases_by_its_fence_lets_all_readers_in() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let read = |number| acquire_as(owner(number, 1), Mode::Shared, LISTENS);
    plays(
        &mut redis,
        [
            acquire(owner(1, 0)),
            read(2),
            read(3),
            acquire(owner(4, 0)),
            read(5),
        ],
    );
    let (_, fence) = holder(&mut redis).unwrap();
    let steps = [(name(0), release(owner(1, 0), Some(fence)))];
    let released = redis.batch(Kind::SettleLong, &steps).unwrap().remove(0);
    assert_eq!(released.unwrap(), Reply::Released);
    assert_eq!(
        holders(&mut redis),
        2,
        "the third reader stands behind a writer"
    );
}

/// The holders stand in the key of the queue, and those of slots in the other one. Without them nobody knows who holds, so nobody may.
#[test]
fn a_marker_whose_holders_are_lost_counts_as_foreign_until_its_end() {
    let mut redis = Redis::start();
    for (mode, key) in [
        (Mode::Shared, ":lh-queue"),
        (slots(2), ":lh-queue"),
        (slots(2), ":lh-waiters"),
    ] {
        redis.reset(START_US);
        let asks = |number| acquire_as(owner(number, 1), mode, LISTENS);
        plays(&mut redis, [acquire_as(owner(1, 0), mode, None)]);
        redis.command(&["DEL", &name(0).beside(key)]);
        for step in [asks(2), acquire(owner(3, 1)), asks(2)] {
            let Reply::Busy(busy) = plays(&mut redis, [step]).remove(0) else {
                panic!("{mode:?} {key}")
            };
            let HolderIdentity::Foreign { value, .. } = &busy.holder.who else {
                panic!("{busy:?}")
            };
            assert!(value.starts_with(b"lh1-s"), "{busy:?}");
            assert_eq!(busy.holder.expires_in, Some(Duration::from_secs(30)));
        }
        let lost = plays(&mut redis, [extend(owner(1, 0))]).remove(0);
        assert!(matches!(lost, Reply::NotHeld(Some(_))), "{lost:?}");
        redis.scene.set_clock(START_US + 30_001_000);
        let held = plays(&mut redis, [asks(2)]).remove(0);
        assert!(matches!(held, Reply::Held(_)), "{mode:?} {key} {held:?}");
        // The writer waits behind it.
        assert_eq!(holders(&mut redis), 1);
    }
}

#[test]
fn a_marker_that_another_program_wrote_is_foreign() {
    let mut redis = Redis::start();
    for marker in ["lh1-slots", "lh1-shared#1700000000123456"] {
        redis.reset(START_US);
        redis.command(&["SET", "lock-0", marker, "PX", "1000"]);
        for mode in [Mode::Shared, slots(2), Mode::Exclusive] {
            let ask = acquire_as(owner(1, 0), mode, None);
            let Reply::Busy(busy) = plays(&mut redis, [ask]).remove(0) else {
                panic!("{mode:?} {marker}")
            };
            let (kind, value) = ("string".into(), marker.into());
            assert_eq!(busy.holder.who, HolderIdentity::Foreign { kind, value });
        }
        assert_eq!(redis.command(&["GET", "lock-0"]).text(), marker);
    }
}

/// They do not leave as waiters do, and do not stand before those.
#[test]
fn those_whose_lock_was_overwritten_hold_nothing() {
    let mut redis = Redis::start();
    for mode in [Mode::Shared, slots(2)] {
        redis.reset(START_US);
        let holds = |number| acquire_as(owner(number, 0), mode, None);
        plays(&mut redis, [holds(1), holds(2), acquire(owner(3, 1))]);
        redis.command(&["SET", "lock-0", "somebody"]);
        let left = plays(&mut redis, [release(owner(1, 0), None)]).remove(0);
        assert!(matches!(left, Reply::NotHeld(Some(_))), "{left:?}");
        let waiters = name(0).beside(":lh-waiters");
        let [queue, records] = [("ZCARD", name(0).beside(":lh-queue")), ("HLEN", waiters)]
            .map(|(count, key)| redis.command(&[count, &key]).int());
        assert_eq!([queue, records], [1, 1], "only the waiter is left");
    }
}

/// A full server extends and releases what several hold, and refuses those that come.
#[test]
fn a_full_server_keeps_several_holders() {
    for binary in servers() {
        let mut redis = Redis::start_on(binary.as_deref(), Role::Alone, Scripts::new);
        for mode in [Mode::Shared, slots(2)] {
            redis.reset(START_US);
            let asks = |number| acquire_as(owner(number, 0), mode, None);
            plays(&mut redis, [asks(1), asks(2), acquire(owner(3, 1))]);
            redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
            let extended = plays(&mut redis, [extend(owner(1, 0))]).remove(0);
            assert!(matches!(extended, Reply::Held(_)), "{extended:?}");
            let refused = redis.batch(Kind::AcquireLong, &[(name(0), asks(4))]);
            let refused = refused.and_then(|mut replies| replies.remove(0));
            // Redis 6.2 has begun to change something, and answers as any server.
            if let Err(refused) = refused {
                assert_eq!(classify("", &refused).0.kind, StoreErrorKind::Full);
            }
            let leave = [1, 2].map(|number| release(owner(number, 0), None));
            assert_eq!(plays(&mut redis, leave), [Reply::Released, Reply::Released]);
            assert_eq!(client(&mut redis), Some(1), "{binary:?} {mode:?}");
            redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
    }
}

/// How many commands the server has executed since this was last asked, those of scripts included. Its clock stands still, so it counts no
/// time; a command takes it a microsecond or less.
fn commands(redis: &mut Redis) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]).text();
    let count = |line: &str| {
        line.split_once("calls=")?
            .1
            .split(',')
            .next()?
            .parse::<u64>()
            .ok()
    };
    let all = stats.lines().filter_map(count).sum();
    redis.command(&["CONFIG", "RESETSTAT"]);
    all
}

#[test]
fn ten_thousand_readers_get_in_without_a_long_step() {
    const READERS: u64 = 10_000;
    let mut redis = Redis::start();
    redis.reset(START_US);
    let (writer, reader) = (owner(1, 0), |number| owner(number, 1));
    plays(&mut redis, [acquire(writer.clone())]);
    let all: Vec<u64> = (2..READERS + 2).collect();
    for some in all.chunks(MOST) {
        let waits = |number| (name(0), acquire_as(reader(number), Mode::Shared, LISTENS));
        let steps: Vec<_> = some.iter().copied().map(waits).collect();
        let replies = redis.batch(Kind::AcquireLong, &steps).unwrap();
        assert!(
            replies
                .iter()
                .all(|reply| matches!(reply, Ok(Reply::Busy(_))))
        );
    }
    redis.scene.messages();
    let (_, fence) = holder(&mut redis).unwrap();
    commands(&mut redis);
    let steps = [(name(0), release(writer, Some(fence)))];
    redis.batch(Kind::SettleLong, &steps).unwrap();
    let most = 8 * u64::try_from(GRANTS_MOST).unwrap();
    let taken = commands(&mut redis);
    assert!(taken < most, "{taken} commands");
    assert_eq!(holders(&mut redis), GRANTS_MOST.try_into().unwrap());

    // Each that is told claims, and so others are told.
    let mut claimed = HashSet::new();
    let mut fences = HashSet::new();
    loop {
        let told = redis.scene.messages();
        let tokens = told
            .iter()
            .filter_map(|(_, payload)| payload.split(' ').nth(4));
        let claims: Vec<_> = tokens
            .map(|token| (name(0), extend(Owner::parse(token).unwrap())))
            .collect();
        if claims.is_empty() {
            break;
        }
        for some in claims.chunks(MOST) {
            for (reply, (_, step)) in redis
                .batch(Kind::SettleLong, some)
                .unwrap()
                .iter()
                .zip(some)
            {
                let (Ok(Reply::Held(held)), Step::Extend { owner, .. }) = (reply, step) else {
                    panic!("{reply:?}")
                };
                fences.insert(held.fence);
                assert!(claimed.insert(owner.token().to_owned()), "told twice");
            }
        }
    }
    assert_eq!(claimed.len(), all.len());
    assert_eq!(fences.len(), 1, "they are one phase");
    assert_eq!(holders(&mut redis), READERS.try_into().unwrap());
    // Overwriting the lock ends all of them, and the next step forgets them together.
    redis.command(&["SET", "lock-0", "somebody"]);
    commands(&mut redis);
    plays(&mut redis, [acquire(owner(1, 0))]);
    let taken = commands(&mut redis);
    assert!(taken < 30, "{taken} commands");
    assert_eq!(holders(&mut redis), 0);
}

/// Extends or releases a lock under the fence of its grant.
fn settle(((name, step), granted): ((LockName, Step), RedisResult<Reply>)) -> (LockName, Step) {
    let (Step::Acquire { owner, ttl, .. }, Ok(Reply::Held(Held { fence, .. }))) = (step, granted)
    else {
        panic!("{name:?} is free")
    };
    let extends = fence.is_some_and(|fence| fence.get() % 2 == 0);
    let step = if extends {
        Step::Extend { owner, ttl, fence }
    } else {
        release(owner, fence)
    };
    (name, step)
}

#[test]
fn the_error_of_a_step_is_no_other_steps() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    let most = u64::try_from(MOST).unwrap();
    let broken = [3, 4, most - 1];
    for at in broken {
        redis.command(&["RPUSH", &name(at).beside(":lh-queue"), "not a queue"]);
    }
    for kind in [Kind::Acquire, Kind::AcquireLong] {
        redis.command(&["DEL", COUNTER]);
        let replies = redis.batch(kind, &acquires(0..most)).unwrap();
        let mut fence = START_US;
        for (at, reply) in (0..).zip(replies) {
            if !broken.contains(&at) {
                assert_eq!(reply.unwrap(), held(fence));
                fence += 1;
                redis.command(&["DEL", name(at).key()]);
                continue;
            }
            let (error, in_step) = classify("", &reply.unwrap_err());
            assert!(in_step && error.may_have_taken_effect, "{error:?}");
            assert_eq!(error.kind, StoreErrorKind::Protocol);
            let key = name(at).beside(":lh-queue");
            for said in ["a key beside the lock holds something else", &key] {
                assert!(error.to_string().contains(said), "{error}");
            }
            let exists = redis.command(&["EXISTS", name(at).key()]);
            assert_eq!(exists.int(), 0, "it has changed nothing");
        }
    }
}

#[test]
fn a_key_that_is_not_allowed_is_the_trouble_of_its_step_only() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    // The keys of the first two locks.
    let allowed = ["~*lock-0*", "~*lock-1*", "~leasehold:fence"];
    let user = ["ACL", "SETUSER", "default", "resetkeys"];
    assert_eq!(redis.command(&[&user[..], &allowed].concat()).text(), "OK");
    for numbers in [0..3, 2..3] {
        let from = numbers.start;
        let mut replies = redis.batch(Kind::Acquire, &acquires(numbers)).unwrap();
        let (error, in_step) = classify("", &replies.pop().unwrap().unwrap_err());
        assert_eq!(error.kind, StoreErrorKind::Denied);
        assert!(in_step && !error.may_have_taken_effect, "{error:?}");
        assert_eq!(replies.len(), usize::try_from(2 - from).unwrap());
        for (at, reply) in (0..).zip(replies) {
            assert_eq!(reply.unwrap(), held(START_US + at));
        }
    }
}

/// The random steps have fewer owners than these places.
#[test]
fn a_long_line_behind_a_foreign_lock_asks_when_core_says() {
    let mut redis = Redis::start();
    redis.reset(START_US);
    redis.command(&["SET", "lock-0", "somebody"]);
    let replies = plays(&mut redis, (1..=40).map(|number| acquire(owner(number, 1))));
    for (ahead, reply) in (0..).zip(replies) {
        let Reply::Busy(busy) = reply else {
            panic!("{reply:?}")
        };
        let expected = (ahead, poll_after(ahead, None, true, true));
        assert_eq!((busy.ahead, busy.poll_after), expected);
    }
}

fn proposes(owner: usize, ttl_ms: u64, number: Number, wait: Option<Hearing>) -> Ask {
    Ask::acquire(Who::Any(owner), ttl_ms, number, wait)
}

fn by(others: bool, ask: Ask) -> Event {
    let asks = vec![(0, ask)];
    Event::Ask { asks, others }
}

/// Plays these events at a node, and compares it with core after each.
fn plays_at_node(events: impl IntoIterator<Item = Event>) {
    let mut redis = Redis::start_with(Role::Node, Scripts::new);
    let mut tally = Tally::default();
    let mut case = Case::new(&mut redis, &mut tally, 0);
    for event in events {
        if let Err(difference) = case.happens(event) {
            panic!("{}{difference}", case.story);
        }
    }
}

/// The node has lost its data, a client of the other quorum has marked it, and the quarantine is over.
#[test]
fn the_mark_says_which_counter_counts() {
    let takes = || by(true, proposes(0, 10, Number::Clock(0), None));
    let span = Span::Millis(15_000);
    plays_at_node([
        Event::FlushAll,
        takes(),
        Event::Time { lock: 0, span },
        takes(),
        Event::LoseCounter,
    ]);
}

/// A step that frees a lock grants it to the next waiter, and draws its fence. Had it a counter of its own terms, its client would be
/// trusted from then on. So each step is refused, in its short form and in its long one.
#[test]
fn a_client_of_another_quorum_is_refused_at_every_step() {
    let (owner, ttl, fence) = (somebody(), ttl_of(1_000), Some(SOME));
    let extend = Step::Extend { owner, ttl, fence };
    let (owner, fence) = (somebody(), SOME);
    let give_back = Step::GiveBack { owner, fence };
    let settles = |step, who| Ask::settle(step, who, Meant::Grant);
    let strange = [
        proposes(4, 1_000, Number::Clock(1), None),
        proposes(4, 1_000, Number::Ahead(0), Some(Hearing::Channel)),
        settles(extend, Who::Holder),
        settles(release(somebody(), Some(SOME)), Who::Holder),
        settles(release(somebody(), None), Who::Any(4)),
        settles(give_back, Who::Holder),
        settles(Step::Break { fence: SOME }, Who::Holder),
        settles(Step::Inspect, Who::Holder),
    ];
    let (own, waits) = (Number::Ahead(0), Some(Hearing::Channel));
    let mut events = vec![
        by(false, proposes(0, 1_000, Number::Clock(0), None)),
        by(false, proposes(2, 30_000, own, waits)),
    ];
    // While the lease lasts, and at its end, when any step would grant the lock to the waiter.
    for span in [Span::Micros(1), Span::LeaseEnd(1)] {
        events.push(Event::Time { lock: 0, span });
        // Thrice, since each third request begins with the long form.
        let all = strange.iter().cycle().take(3 * strange.len());
        events.extend(all.map(|ask| by(true, ask.clone())));
    }
    plays_at_node(events);
}
