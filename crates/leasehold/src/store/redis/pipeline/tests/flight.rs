//! The requests in flight, with a server that is played.

use std::iter;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, LockName, Reply, Step, Ttl};
use redis::{ErrorKind, RedisResult, Value, parse_redis_value};
use tokio::sync::oneshot;

use super::server::{Request, Server};
use super::{acquire, at, owner, release_under};
use crate::clock::Moment;
use crate::error::StoreErrorKind;
use crate::store::redis::address::Replicas;
use crate::store::redis::fault::classify;
use crate::store::redis::pipeline::{AT_ONCE, BATCHES, Batch, Call, CompletedBatch, Flight};
use crate::store::redis::protocol::{Contended, Kind};
use crate::store::redis::resp::Command;
use crate::store::redis::scripts::{ACQUIRE_MANY, NATIVE, SETTLE, SETTLE_MANY, Scripts};

struct Scene {
    scripts: Arc<Scripts>,
    flight: Flight,
    server: Server,
    now: Moment,
}

impl Scene {
    fn new() -> Self {
        let scripts = Arc::<Scripts>::default();
        Self {
            flight: Flight::new(scripts.clone(), "channel".into()),
            server: Server::new(scripts.clone()),
            scripts,
            now: at(0),
        }
    }

    /// Batch 1 was refused, so batch 2 is to be repeated: its answers were held and busy.
    fn that_repeats() -> Self {
        let mut scene = Self::new();
        scene.server.hold("a", 1);
        scene.server.loaded.remove(&(SETTLE, false));
        scene.begin(1, Kind::Settle, &[("b", release_under(2))]);
        let steps = [("c", acquire(3)), ("a", acquire(4))];
        scene.begin(2, Kind::AcquireLong, &steps);
        scene.answers(&[("", ""), ("", "")]);
        scene
    }

    fn begin(&mut self, id: u64, kind: Kind, steps: &[(&str, Step)]) {
        let steps = steps.iter();
        let steps = steps.map(|(name, step)| (LockName::new(name).unwrap(), step.clone()));
        let steps = steps.collect();
        let batch = Batch::new(id, kind, steps, &Contended::default());
        self.flight.begin(batch, self.now);
    }

    fn call(&mut self, words: &[&str]) -> oneshot::Receiver<Vec<Value>> {
        let mut bytes = Vec::new();
        for word in words {
            let mut command = Command::default();
            command.word(word);
            command.write(&mut bytes);
        }
        let (call, hears) = Call::new(bytes, words.len(), None);
        self.flight.call(call);
        hears
    }

    /// A connection whose grants and renewals a replica has to confirm, within 400 ms.
    fn confirming() -> Self {
        let mut scene = Self::new();
        let replicas = Replicas {
            count: NonZeroU8::MIN,
            fsync: false,
            timeout: Duration::from_millis(400),
        };
        let limit = Duration::from_secs(6);
        scene.flight.confirms_by(Some(replicas), limit);
        scene
    }

    /// The server answers `WAIT`, which is the oldest request. Returns the batches that are completed then, and whether they count.
    fn confirms(&mut self, answer: &str) -> Vec<(u64, Option<StoreErrorKind>)> {
        assert!(self.in_flight()[0].starts_with("WAIT "));
        self.server.answer();
        self.flight.hear(reply(answer), self.now).unwrap();
        let completed = iter::from_fn(|| self.flight.next_completed());
        let kind = |completed: CompletedBatch| completed.unconfirmed.map(|(kind, _)| kind);
        completed.map(|it| (it.batch.id, kind(it))).collect()
    }

    /// The requests in flight.
    fn in_flight(&mut self) -> Vec<String> {
        self.server.receive(&mut self.flight);
        self.server.requests().map(Request::shown).collect()
    }

    /// The server answers one request after the other. Before each: all requests in flight, unless left out. After it: the batches that are
    /// completed then, by number, with the word for each answer.
    fn answers(&mut self, rows: &[(&str, &str)]) {
        for (requests, completed) in rows {
            let in_flight = self.in_flight().join(" | ");
            if !requests.is_empty() {
                assert_eq!(in_flight, *requests);
            }
            let reply = self.server.answer().expect("a request");
            self.now = self.now.after(Duration::from_millis(1));
            assert_eq!(self.hears(reply), *completed, "{in_flight}");
        }
    }

    /// The batches that are completed by this reply.
    fn hears(&mut self, reply: Value) -> String {
        self.flight.hear(reply, self.now).unwrap();
        let mut all = Vec::new();
        while let Some(completed) = self.flight.next_completed() {
            assert_eq!(completed.answers.len(), completed.batch.steps.len());
            let words: Vec<_> = completed.answers.iter().flatten().map(word).collect();
            all.push(format!("{}: {}", completed.batch.id, words.join(" ")));
        }
        all.join("; ")
    }
}

/// A reply as the server writes it.
fn reply(text: &str) -> Value {
    parse_redis_value(text.as_bytes()).unwrap()
}

/// The kind of reply, or the code of the error.
fn word(answer: &RedisResult<Reply>) -> String {
    match answer {
        Ok(Reply::Held(_)) => "held".into(),
        Ok(Reply::Busy(_)) => "busy".into(),
        Ok(Reply::NotHeld(_)) => "not-held".into(),
        Ok(Reply::Released) => "released".into(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.code().unwrap_or("error").into(),
    }
}

const FULL: &str = "*2\r\n+error\r\n$23\r\nOOM command not allowed\r\n";

fn extend_under(number: u64) -> Step {
    Step::Extend {
        owner: owner(number),
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        fence: Some(Fence::new(number)),
    }
}

/// (F3)
#[test]
fn grants_wait_for_one_confirmation_of_all() {
    let mut scene = Scene::confirming();
    scene.begin(1, Kind::Acquire, &[("a", acquire(1))]);
    scene.begin(2, Kind::Acquire, &[("b", acquire(2))]);
    assert!(scene.flight.has_room());
    scene.flight.confirm();
    scene.flight.confirm();
    assert!(!scene.flight.has_room());
    scene.answers(&[
        ("EVALSHA take 1 | EVALSHA take 2 | WAIT 1 400", ""),
        ("", ""),
    ]);
    assert!(!scene.flight.has_room());
    assert_eq!(scene.confirms(":1\r\n"), [(1, None), (2, None)]);
    assert!(scene.flight.has_room());
    scene.flight.confirm();
    assert!(scene.in_flight().is_empty());
}

/// (F3)
#[test]
fn step_sent_again_is_not_confirmed_by_a_wait_before_it() {
    let mut scene = Scene::confirming();
    scene.server.loaded.remove(&(SETTLE, false));
    let fence = scene.server.hold("a", 1);
    assert_eq!(fence, 1, "as the renewal says");
    scene.begin(1, Kind::Settle, &[("a", extend_under(1))]);
    scene.flight.confirm();
    scene.answers(&[("", "")]);
    assert_eq!(
        scene.in_flight()[1..].len(),
        1,
        "it goes again, by its text"
    );
    assert_eq!(scene.confirms(":1\r\n"), []);
    scene.answers(&[("", "")]);
    assert!(!scene.flight.has_room());
    scene.flight.confirm();
    assert_eq!(scene.confirms(":1\r\n"), [(1, None)]);
}

#[test]
fn answers_that_grant_nothing_need_no_confirmation() {
    let mut scene = Scene::confirming();
    scene.server.hold("a", 9);
    scene.begin(1, Kind::AcquireLong, &[("a", acquire(1))]);
    scene.flight.confirm();
    scene.answers(&[("", "1: busy")]);
    let unavailable = Some(StoreErrorKind::Unavailable);
    assert_eq!(scene.confirms(":0\r\n"), []);

    // From then on, `WAIT` follows a grant: an answer that the lock is busy does not wait behind it.
    scene.begin(2, Kind::AcquireLong, &[("a", acquire(2))]);
    scene.flight.confirm();
    assert_eq!(scene.in_flight().len(), 1);
    scene.answers(&[("", "2: busy")]);
    scene.begin(3, Kind::AcquireLong, &[("b", acquire(3))]);
    scene.flight.confirm();
    scene.answers(&[("", "")]);
    scene.flight.confirm();
    assert_eq!(scene.confirms(":0\r\n"), [(3, unavailable)]);
    scene.begin(4, Kind::AcquireLong, &[("c", acquire(4))]);
    scene.answers(&[("", "")]);
    scene.flight.confirm();
    assert_eq!(scene.confirms(":1\r\n"), [(4, None)]);
    // It is well again.
    scene.begin(5, Kind::AcquireLong, &[("d", acquire(5))]);
    scene.flight.confirm();
    assert_eq!(scene.in_flight().len(), 2);
}

/// Each of two steps in turn has to be answered within its limit, a third of its TTL.
#[test]
fn replicas_get_a_ninth_of_the_shortest_ttl_at_most() {
    let mut scene = Scene::confirming();
    let ttl = Ttl::new(Duration::from_millis(900)).unwrap();
    let short = match acquire(1) {
        Step::Acquire {
            owner,
            mode,
            block,
            wait,
            ..
        } => Step::Acquire {
            owner,
            mode,
            ttl,
            block,
            wait,
        },
        other => other,
    };
    scene.begin(1, Kind::Acquire, &[("a", short), ("b", acquire(2))]);
    scene.flight.confirm();
    assert_eq!(scene.in_flight().pop().as_deref(), Some("WAIT 1 100"));
}

/// (F1)
#[test]
fn refused_batches_go_again_in_order_before_anything_new() {
    let mut scene = Scene::new();
    scene.server.loaded.clear();
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        assert!(scene.flight.has_room());
        scene.begin(id, Kind::Acquire, &[(name, acquire(id))]);
    }
    assert_eq!(scene.in_flight().len(), 3);
    for (refused, left) in [(1, 2), (2, 1)] {
        scene.answers(&[("", "")]);
        assert!(!scene.flight.has_room(), "{refused} was refused");
        assert_eq!(scene.in_flight().len(), left, "nothing goes yet");
    }
    scene.answers(&[("EVALSHA take 3", ""), ("EVAL take 1", "1: held")]);
    assert!(!scene.flight.has_room());
    scene.answers(&[("EVAL take 2", "2: held")]);
    assert!(!scene.flight.has_room());
    scene.answers(&[("EVAL take 3", "3: held")]);
    assert!(scene.flight.has_room() && scene.in_flight().is_empty());
}

/// (F2) The refused batch may have been the one that frees the lock.
#[test]
fn batch_that_found_a_lock_busy_after_a_refusal_goes_again() {
    let mut scene = Scene::new();
    scene.server.hold("a", 1);
    scene.server.loaded.remove(&(SETTLE, false));
    scene.begin(0, Kind::AcquireLong, &[("a", acquire(2))]);
    scene.begin(1, Kind::Settle, &[("a", release_under(1))]);
    scene.begin(
        2,
        Kind::AcquireLong,
        &[("c", acquire(5)), ("a", acquire(3))],
    );
    scene.begin(3, Kind::AcquireLong, &[("b", acquire(4))]);
    scene.answers(&[
        // It came before the refusal.
        ("", "0: busy"),
        ("", ""),
        // It found the lock busy, after the refusal.
        ("", ""),
        ("", "3: held"),
        ("EVAL settle 1", "1: released"),
        ("EVALSHA acquire-many 5 3", "2: held held"),
    ]);
    assert!(scene.flight.has_room() && scene.in_flight().is_empty());
}

/// (SQ1)
#[test]
fn answers_stand_if_the_repetition_of_a_batch_is_refused() {
    let mut scene = Scene::that_repeats();
    scene.server.denied.extend(["a".into(), "c".into()]);
    scene.answers(&[
        // The long form follows.
        ("", ""),
        ("", "1: not-held"),
        ("", ""),
        ("", ""),
        ("", "2: held busy"),
    ]);
}

/// (SQ1)
#[test]
fn answers_stand_if_a_step_of_the_repetition_fails() {
    let mut scene = Scene::that_repeats();
    scene.answers(&[("", ""), ("", "1: not-held")]);
    let failed = reply(&format!("*2\r\n{FULL}{FULL}"));
    assert_eq!(scene.hears(failed), "2: held busy");
}

/// (SQ1) The first answer says that the step may have taken effect. The refusal of its repetition does not take that back.
#[test]
fn unknown_outcome_stands_if_the_repetition_fails() {
    let mut scene = Scene::new();
    scene.begin(1, Kind::Settle, &[("b", release_under(2))]);
    let steps = [("c", acquire(3)), ("a", acquire(4))];
    scene.begin(2, Kind::AcquireLong, &steps);
    let failed = "*2\r\n+error\r\n$20\r\nERR a command failed\r\n";
    let busy = "*5\r\n+busy\r\n:0\r\n:50\r\n:7\r\n*5\r\n+string\r\n$1\r\nx\r\n:9\r\n+\r\n:-1\r\n";
    for (text, completed) in [
        ("-NOSCRIPT No matching script\r\n", ""),
        (&format!("*2\r\n{failed}{busy}"), ""),
        ("*1\r\n+done\r\n", "1: released"),
    ] {
        assert_eq!(scene.hears(reply(text)), completed);
    }
    let full = reply(&format!("*2\r\n{FULL}{FULL}"));
    scene.flight.hear(full, scene.now).unwrap();
    let second = scene.flight.next_completed().unwrap();
    let [Some(Err(error)), Some(Ok(Reply::Busy(_)))] = &second.answers[..] else {
        panic!("{:?}", second.answers);
    };
    assert!(classify("", error).0.may_have_taken_effect, "{error}");
}

#[test]
fn denied_batch_is_split_and_only_the_denied_step_fails() {
    let mut scene = Scene::new();
    scene.server.denied.insert("b".into());
    scene.server.hold("c", 9);
    let steps = [("a", acquire(1)), ("b", acquire(2)), ("c", acquire(3))];
    scene.begin(1, Kind::Acquire, &steps);
    scene.begin(2, Kind::Acquire, &[("d", acquire(4))]);
    scene.answers(&[
        ("", ""),
        ("", "2: held"),
        ("EVALSHA take 1", ""),
        ("EVALSHA take 2", ""),
        ("EVALSHA take 3", ""),
    ]);
    assert!(!scene.flight.has_room());
    scene.answers(&[("EVALSHA acquire-many 3", "1: held NOPERM busy")]);
    assert!(scene.flight.has_room());
}

#[test]
fn denied_batch_of_one_step_is_answered_with_the_error() {
    let mut scene = Scene::new();
    scene.server.denied.insert("b".into());
    scene.begin(1, Kind::Acquire, &[("b", acquire(1))]);
    scene.begin(2, Kind::Acquire, &[("a", acquire(2))]);
    scene.answers(&[("", "1: NOPERM")]);
    assert!(scene.flight.has_room());
    scene.answers(&[("", "2: held")]);
}

#[test]
fn steps_that_do_not_fit_go_again_in_the_long_form() {
    let mut scene = Scene::new();
    for (name, owner) in [("a", 1), ("b", 2), ("c", 3)] {
        scene.server.hold(name, owner);
    }
    // Another client waits for the second lock.
    scene.server.queue("b");
    let steps = [
        ("a", extend_under(1)),
        ("b", extend_under(2)),
        ("c", release_under(3)),
        ("d", release_under(4)),
    ];
    scene.begin(1, Kind::Settle, &steps);
    scene.begin(2, Kind::Acquire, &[("c", acquire(5))]);
    scene.answers(&[("", "")]);
    assert!(scene.flight.has_room(), "the server refused nothing");
    scene.answers(&[
        ("EVALSHA take 5 | EVALSHA settle-many 2 4", "2: held"),
        ("", "1: held held released not-held"),
    ]);
}

#[test]
fn long_form_that_is_refused_goes_again_at_once() {
    let mut scene = Scene::new();
    scene.server.loaded.remove(&(SETTLE_MANY, false));
    let steps = [("a", release_under(1)), ("b", release_under(2))];
    scene.begin(1, Kind::Settle, &steps);
    scene.answers(&[("", "")]);
    // The user loses a permission between the two forms.
    scene.server.denied.insert("a".into());
    scene.begin(2, Kind::Acquire, &[("c", acquire(3))]);
    scene.answers(&[("EVALSHA settle-many 1 2 | EVALSHA take 3", "")]);
    assert!(scene.flight.has_room());
    scene.answers(&[
        ("EVALSHA take 3 | EVALSHA settle-many 1", "2: held"),
        // The first step is denied, and for the second one the script is unknown.
        ("", ""),
        ("EVALSHA settle-many 2", ""),
        ("EVAL settle-many 2", "1: NOPERM not-held"),
    ]);
}

#[test]
fn old_server_gets_scripts_without_flags_from_then_on() {
    let mut scene = Scene::new();
    scene.server.takes_flags = false;
    scene.server.loaded.clear();
    scene.begin(1, Kind::Acquire, &[("a", acquire(1))]);
    scene.answers(&[
        ("EVALSHA take 1", ""),
        ("EVAL take 1", ""),
        ("EVALSHA plain take 1", ""),
        ("EVAL plain take 1", "1: held"),
    ]);
    scene.begin(2, Kind::Acquire, &[("b", acquire(2))]);
    scene.answers(&[("EVALSHA plain take 2", "2: held")]);
}

#[test]
fn server_that_takes_no_hash_gets_texts_from_then_on() {
    let mut scene = Scene::new();
    scene.server.takes_hashes = false;
    scene.begin(1, Kind::Acquire, &[("a", acquire(1))]);
    scene.answers(&[("EVALSHA take 1", ""), ("EVAL take 1", "1: held")]);
    scene.begin(2, Kind::Acquire, &[("a", acquire(2))]);
    scene.answers(&[("EVAL take 2", ""), ("EVAL acquire-many 2", "2: busy")]);
}

/// A script that is only forgotten goes by its text once.
#[test]
fn forgotten_script_goes_by_its_hash_the_next_time() {
    let mut scene = Scene::new();
    scene.server.loaded.remove(&(ACQUIRE_MANY, false));
    scene.begin(1, Kind::AcquireLong, &[("a", acquire(1))]);
    scene.answers(&[("", ""), ("", "1: held")]);
    scene.begin(2, Kind::AcquireLong, &[("b", acquire(2))]);
    assert_eq!(scene.in_flight(), ["EVALSHA acquire-many 2"]);
}

#[test]
fn calls_between_batches_get_their_replies_in_order() {
    let mut scene = Scene::new();
    let mut first = scene.call(&["one"]);
    scene.begin(1, Kind::Acquire, &[("a", acquire(1))]);
    let mut second = scene.call(&["two", "three"]);
    drop(scene.call(&["gone"]));
    scene.begin(2, Kind::Acquire, &[("b", acquire(2))]);
    assert!(first.try_recv().is_err());
    scene.answers(&[("", "")]);
    let said = |words: &[&str]| {
        let values = words.iter().map(|word| Value::SimpleString((*word).into()));
        Ok(values.collect::<Vec<_>>())
    };
    assert_eq!(first.try_recv(), said(&["one"]));
    scene.answers(&[("", "1: held"), ("", "")]);
    assert!(second.try_recv().is_err(), "one reply is missing");
    scene.answers(&[("", "")]);
    assert_eq!(second.try_recv(), said(&["two", "three"]));
    scene.answers(&[("", ""), ("", "2: held")]);
}

#[test]
fn releases_go_by_a_native_command_where_the_server_has_one() {
    for command in NATIVE {
        let mut scene = Scene::new();
        scene.scripts.frees_by(Some(command));
        for (name, owner) in [("a", 1), ("b", 2), ("c", 3)] {
            scene.server.hold(name, owner);
        }
        // Another client waits for the second lock.
        scene.server.queue("b");
        let steps = [("a", 1), ("b", 2), ("c", 3)].map(|(name, at)| (name, release_under(at)));
        scene.begin(1, Kind::Settle, &steps);
        scene.begin(2, Kind::Acquire, &[("c", acquire(4))]);
        let sent = [1, 2, 3].map(|owner| format!("{command} {owner}"));
        assert_eq!(scene.in_flight()[..3], sent);
        scene.answers(&[
            ("", ""),
            ("", ""),
            ("", ""),
            ("EVALSHA take 4 | EVALSHA settle-many 2", "2: held"),
            ("", "1: released released released"),
        ]);
        // The first reply was lost. A script says the same.
        scene.begin(3, Kind::Settle, &[("a", release_under(1))]);
        scene.answers(&[("", ""), ("", "3: not-held")]);
        // An extension is none of its business, nor is a batch with one.
        scene.begin(
            4,
            Kind::Settle,
            &[("a", release_under(1)), ("b", extend_under(2))],
        );
        assert_eq!(scene.in_flight(), ["EVALSHA settle 1 2"]);
    }
}

/// (F1)
#[test]
fn denied_native_command_is_used_no_more() {
    let mut scene = Scene::new();
    scene.scripts.frees_by(Some("DELIFEQ"));
    scene.server.takes_native = false;
    for (name, owner) in [("a", 1), ("b", 2), ("c", 3)] {
        scene.server.hold(name, owner);
    }
    let steps = [("a", release_under(1)), ("b", release_under(2))];
    scene.begin(1, Kind::Settle, &steps);
    scene.begin(2, Kind::Acquire, &[("a", acquire(4))]);
    scene.answers(&[("", ""), ("", "")]);
    assert!(!scene.flight.has_room(), "the refused batch goes first");
    scene.answers(&[
        // It does not fit. Its long form finds the lock busy.
        ("", ""),
        ("EVALSHA acquire-many 4", ""),
        ("EVALSHA settle 1 2", "1: released released"),
        ("", "2: held"),
    ]);
    assert!(scene.flight.has_room());
    scene.begin(3, Kind::Settle, &[("c", release_under(3))]);
    scene.answers(&[("EVALSHA settle 3", "3: released")]);
}

/// The script finds what is wrong, or who holds the lock. The command stays in use.
#[test]
fn release_refused_for_its_key_goes_by_the_script() {
    let mut scene = Scene::new();
    scene.scripts.frees_by(Some("DELEX"));
    let steps = [("a", release_under(1)), ("b", release_under(2))];
    scene.begin(1, Kind::Settle, &steps);
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    assert_eq!(scene.hears(reply(wrong_type)), "");
    assert_eq!(scene.hears(Value::Int(1)), "");
    assert_eq!(scene.in_flight()[2..], ["EVALSHA settle 1"]);
    assert_eq!(scene.hears(reply("*1\r\n+other\r\n")), "");
    assert_eq!(scene.in_flight()[3..], ["EVALSHA settle-many 1"]);
    let released = reply("*1\r\n+released\r\n");
    assert_eq!(scene.hears(released), "1: released released");

    // A server that works no more says so for each command. No script would do better.
    scene.begin(2, Kind::Settle, &steps);
    let read_only = reply("-READONLY You can't write against a replica\r\n");
    assert_eq!(scene.hears(read_only), "");
    assert_eq!(scene.hears(reply("+strange\r\n")), "2: READONLY error");
}

/// A call hears an error as its reply.
#[test]
fn answer_to_no_request_is_an_error() {
    let mut scene = Scene::new();
    let line = |text: &str| reply(&format!("-{text}\r\n"));
    let mut call = scene.call(&["one"]);
    scene.flight.hear(line("ERR no"), at(0)).unwrap();
    assert_eq!(call.try_recv(), Ok(vec![line("ERR no")]));
    let full = line("ERR max number of clients reached");
    let error = scene.flight.hear(full, at(0)).unwrap_err();
    assert!(error.to_string().contains("max number of clients"));
    let error = scene.flight.hear(Value::Okay, at(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parse);
}

#[test]
fn few_batches_are_in_flight_and_one_if_replies_are_fast() {
    let mut scene = Scene::new();
    let fill = |scene: &mut Scene| {
        let (count, mut id) = (scene.in_flight().len(), 0);
        while scene.flight.has_room() {
            id += 1;
            scene.begin(id, Kind::Acquire, &[("a", acquire(id))]);
        }
        scene.in_flight().len() - count
    };
    let take = |scene: &mut Scene, after: Duration| {
        let reply = scene.server.answer().unwrap();
        scene.now = scene.now.after(after);
        scene.flight.hear(reply, scene.now).unwrap();
    };
    assert_eq!(fill(&mut scene), BATCHES);
    take(&mut scene, AT_ONCE);
    assert_eq!(fill(&mut scene), 0, "three are in flight, and it was fast");
    while !scene.in_flight().is_empty() {
        take(&mut scene, Duration::ZERO);
    }
    assert_eq!(fill(&mut scene), 1);
    take(&mut scene, AT_ONCE + Duration::from_micros(1));
    assert_eq!(fill(&mut scene), BATCHES - 1);
}

#[test]
fn answer_of_unknown_form_may_follow_a_deed_of_each_step() {
    let wrong = [
        Value::Int(1),
        Value::Okay,
        Value::Array(vec![Value::BulkString(b"7".to_vec())]),
        Value::Array(vec![Value::BulkString(b"so".to_vec()); 2]),
    ];
    for (id, reply) in (1..).zip(wrong) {
        let mut scene = Scene::new();
        scene.begin(id, Kind::Acquire, &[("a", acquire(1)), ("b", acquire(2))]);
        scene.flight.hear(reply.clone(), at(1)).unwrap();
        let completed = scene.flight.next_completed().unwrap();
        assert_eq!(completed.answers.len(), 2);
        for answer in completed.answers.into_iter().flatten() {
            let (error, in_step) = classify("there", &answer.unwrap_err());
            assert!(error.may_have_taken_effect && in_step, "{reply:?}");
        }
    }
}
