//! Queue and flight together: random events, and what holds after each.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Block, Fence, LockName, Mode, Reply, Step, Ttl};
use redis::Value;
use tokio::sync::oneshot;

use super::server::{Entry, Request, Said, Server};
use super::{at, number, owner};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::{Answer, Done};
use crate::store::redis::fault::classify;
use crate::store::redis::pipeline::{
    Action, Call, ConnectionState, DisconnectReason, Flight, Queue,
};
use crate::store::redis::resp::Command;
use crate::store::redis::scripts::{ACQUIRE_MANY, NATIVE, SETTLE, SETTLE_MANY, Scripts, TAKE};

const SEEDS: u64 = 300;
const EVENTS: usize = 60;
const NAMES: [&str; 3] = ["a", "b", "c"];
const LIMIT: Duration = Duration::from_millis(20);

struct Play {
    random: Rng,
    now: Moment,
    queue: Queue,
    scripts: Arc<Scripts>,
    flight: Flight,
    server: Server,
    /// Counts the connections.
    connection: usize,
    /// The connection that carried each step.
    carried: BTreeMap<String, usize>,
    pushed: Vec<Pushed>,
    calls: Vec<(String, usize, oneshot::Receiver<Vec<Value>>)>,
}

struct Pushed {
    id: String,
    name: &'static str,
    step: Step,
    answers: Arc<Mutex<Vec<Answer>>>,
    /// A release of this owner was pushed.
    is_released: bool,
    is_checked: bool,
}

impl Play {
    fn new(seed: u64, scripts: Arc<Scripts>) -> Self {
        let mut play = Self {
            random: Rng::with_seed(seed),
            now: at(0),
            queue: Queue::new("there".into()),
            flight: Flight::new(scripts.clone(), "channel".into()),
            server: Server::new(scripts.clone()),
            scripts,
            connection: 0,
            carried: BTreeMap::new(),
            pushed: Vec::new(),
            calls: Vec::new(),
        };
        play.connect();
        play
    }

    fn run(&mut self) {
        for _ in 0..EVENTS {
            let pause = self.random.u64(..300);
            self.now = self.now.after(Duration::from_micros(pause));
            match self.random.u64(..32) {
                0..=9 => self.push(),
                10..=16 => self.take(),
                17..=24 => self.hear(),
                25 => self.call(),
                26 => self.pass(),
                27..=30 => self.change(),
                _ => self.reconnect(),
            }
            self.check();
        }
        while self.take_and_receive() || !self.flight.out().is_empty() || self.answer() {
            self.check();
        }
        assert!(self.flight.has_room(), "all is answered");
        self.queue.disconnect(DisconnectReason::Lost);
        self.check();
        for pushed in &self.pushed {
            assert_eq!(pushed.answers.lock().unwrap().len(), 1, "{}", pushed.id);
        }
        self.check_order();
    }

    fn push(&mut self) {
        let name = self.random.choice(NAMES).unwrap();
        let mine = |pushed: &&mut Pushed| {
            let is_acquire = matches!(pushed.step, Step::Acquire { .. });
            is_acquire && !pushed.is_released && pushed.name == name
        };
        // Its TTL tells an extension from others.
        let count = u64::try_from(self.pushed.len()).unwrap();
        let ttl = Ttl::new(Duration::from_millis(1_000 + count)).unwrap();
        let what = self.random.u64(..4);
        let step = match self.pushed.iter_mut().rfind(mine) {
            Some(acquired) if what > 0 => {
                let owner = owner(number(&acquired.step));
                let fence = acquired.answers.lock().unwrap().iter().find_map(fence_of);
                if what == 1 {
                    acquired.is_released = true;
                    let keep = None;
                    Step::Release { owner, keep, fence }
                } else {
                    Step::Extend { owner, ttl, fence }
                }
            }
            _ => Step::Acquire {
                owner: owner(count),
                mode: Mode::Exclusive,
                ttl,
                block: Block::ONE,
                wait: None,
            },
        };
        let answers = Arc::<Mutex<Vec<Answer>>>::default();
        let heard = answers.clone();
        let done = Done::new(move |answer| heard.lock().unwrap().push(answer));
        self.pushed.push(Pushed {
            id: id_of(&step),
            name,
            step: step.clone(),
            answers,
            is_released: false,
            is_checked: false,
        });
        let name = LockName::new(name).unwrap();
        self.queue.push([(name, step, done)], self.now, LIMIT);
    }

    fn take(&mut self) {
        match self.queue.take(self.flight.has_room()) {
            Some(Action::Send(batches)) => {
                for batch in batches {
                    self.flight.begin(batch, self.now);
                }
            }
            Some(Action::CheckLiveness) if self.random.bool() => self.reconnect(),
            Some(Action::CheckLiveness | Action::Reconnect) | None => {}
        }
        if self.random.bool() {
            self.receive();
        }
    }

    /// Nothing is left to send after this, if it returns false.
    fn take_and_receive(&mut self) -> bool {
        let batches = match self.queue.take(self.flight.has_room()) {
            Some(Action::Send(batches)) => batches,
            Some(_) => return true,
            None => Vec::new(),
        };
        let some = !batches.is_empty();
        for batch in batches {
            self.flight.begin(batch, self.now);
        }
        self.receive();
        some
    }

    /// The server receives what is written. (SQ2)
    fn receive(&mut self) {
        self.server.receive(&mut self.flight);
        for asked in self.server.requests().flat_map(Request::steps) {
            let connection = self.carried.entry(asked.id()).or_insert(self.connection);
            assert_eq!(*connection, self.connection, "{} goes twice", asked.id());
        }
    }

    fn hear(&mut self) {
        self.receive();
        self.answer();
    }

    /// The server answers its oldest request. False if there is none.
    fn answer(&mut self) -> bool {
        let Some(reply) = self.server.answer() else {
            return false;
        };
        self.flight.hear(reply, self.now).unwrap();
        while let Some(completed) = self.flight.next_completed() {
            let told = |error| classify("there", &error).0;
            self.queue.learn(completed.replies());
            let answers = completed.answers.into_iter().flatten();
            let answers = answers.map(|answer| Some(answer.map_err(told)));
            self.queue.answer(completed.batch.id, answers);
        }
        self.receive();
        true
    }

    fn call(&mut self) {
        let word = format!("call-{}", self.calls.len());
        let (mut bytes, mut command) = (Vec::new(), Command::default());
        command.word(&word).write(&mut bytes);
        let (call, answer) = Call::new(bytes, 1, None);
        self.flight.call(call);
        self.calls.push((word, self.connection, answer));
    }

    /// Time passes, and the time limits of some steps with it.
    fn pass(&mut self) {
        let pause = Duration::from_millis(self.random.u64(..15));
        self.now = self.now.after(pause);
        self.queue.sweep(self.now);
    }

    /// Something happens to the server.
    fn change(&mut self) {
        let name = self.random.choice(NAMES).unwrap();
        let scripts = [SETTLE, SETTLE_MANY, TAKE, ACQUIRE_MANY];
        let script = self.random.choice(scripts).unwrap();
        match self.random.u64(..10) {
            9 => self.server.takes_native = !self.server.takes_native,
            0 => self.server.queue(name),
            1 => self.server.leave(name),
            2 => self.server.free(name),
            3 => self.queue.set_contended(name, self.random.bool()),
            4 if !self.server.denied.remove(name) => {
                self.server.denied.insert(name.into());
            }
            5 => self.server.denied.clear(),
            6 => self.server.loaded.clear(),
            _ => {
                let form = (script, false);
                if !self.server.loaded.remove(&form) {
                    self.server.loaded.insert(form);
                }
            }
        }
    }

    /// The connection is lost. The server may have executed what it has received.
    fn reconnect(&mut self) {
        while self.random.bool() && self.server.answer().is_some() {}
        self.server.lose();
        self.queue.disconnect(DisconnectReason::Lost);
        if self.random.u64(..3) == 0 {
            self.push();
        }
        if self.random.u64(..3) == 0 {
            let kind = StoreErrorKind::Unreachable;
            let down = StoreError::new("there", kind, "refused");
            self.queue.set(ConnectionState::Down(down));
            self.push();
        }
        self.connection += 1;
        self.flight = Flight::new(self.scripts.clone(), "channel".into());
        self.connect();
    }

    /// Two of three servers have a native command.
    fn connect(&mut self) {
        let native = self.random.choice([None, Some(NATIVE[0]), Some(NATIVE[1])]);
        let native = native.unwrap();
        self.scripts.frees_by(native);
        self.queue.set(ConnectionState::Up {
            listening: true,
            by_slot: false,
        });
    }

    /// Each step has one answer at most, and that is the server's. (SQ1)
    fn check(&mut self) {
        for pushed in self.pushed.iter_mut().filter(|pushed| !pushed.is_checked) {
            let id = &pushed.id;
            let log = self.server.log.iter().filter(|entry| entry.step == *id);
            let said: Vec<Said> = log.map(|entry| entry.said).collect();
            match &pushed.answers.lock().unwrap()[..] {
                [] => continue,
                [Ok(reply)] => {
                    let answers = said.iter().rev().find(|said| said.is_answer());
                    assert_eq!(Some(&said_by(reply)), answers, "{id}");
                }
                [Err(error)] if error.may_have_taken_effect => {}
                [Err(error)] => {
                    let is_denied = error.kind == StoreErrorKind::Denied;
                    let was_sent = self.carried.contains_key(id);
                    assert_eq!(is_denied, was_sent, "{id}: {error:?}");
                    let is_refused = !said.iter().any(|said| said.is_answer());
                    assert!(is_refused, "{id}: {said:?}, but {error:?}");
                }
                more => panic!("{id}: {more:?}"),
            }
            pushed.is_checked = true;
        }
        let connection = self.connection;
        self.calls
            .retain_mut(|(word, of, hears)| match hears.try_recv() {
                Ok(replies) => {
                    assert_eq!(replies, [Value::SimpleString(word.clone())]);
                    false
                }
                Err(_) => *of == connection,
            });
    }

    /// The steps of an owner that knows its fence are executed in the order of the pushes, except those of a refused batch. An acquire is
    /// not refused for an owner whose release came before it, except where others wait.
    fn check_order(&self) {
        let executed = |id: &str| {
            let mut log = self.server.log.iter();
            log.rposition(|entry| entry.step == id && entry.said.is_answer())
        };
        let met = |id: &str, said: Said| {
            let mut log = self.server.log.iter();
            log.any(|entry| entry.step == id && entry.said == said)
        };
        for (index, later) in self.pushed.iter().enumerate() {
            let Some(place) = executed(&later.id) else {
                continue;
            };
            let Entry { said, holder, .. } = &self.server.log[place];
            let is_answered = matches!(later.answers.lock().unwrap()[..], [Ok(_)]);
            let earlier = self.pushed[..index].iter();
            for earlier in earlier.filter(|earlier| knows_fence(&earlier.step)) {
                let (id, owner) = (&earlier.id, number(&earlier.step));
                let is_ordered = if knows_fence(&later.step) {
                    number(&later.step) == owner && !met(id, Said::Refused)
                } else {
                    let is_told = is_answered && *said == Said::Busy && *holder == Some(owner);
                    is_release(&earlier.step) && is_told && !met(id, Said::Unfit)
                };
                if is_ordered && let Some(before) = executed(id) {
                    assert!(before < place, "{} was executed before {id}", later.id);
                }
            }
        }
    }
}

fn knows_fence(step: &Step) -> bool {
    matches!(
        step,
        Step::Extend { fence: Some(_), .. } | Step::Release { fence: Some(_), .. }
    )
}

fn is_release(step: &Step) -> bool {
    matches!(step, Step::Release { .. })
}

fn fence_of(answer: &Answer) -> Option<Fence> {
    match answer {
        Ok(Reply::Held(held)) => held.fence,
        _ => None,
    }
}

fn said_by(reply: &Reply) -> Said {
    match reply {
        Reply::Held(_) => Said::Held,
        Reply::Busy(_) => Said::Busy,
        Reply::NotHeld(_) => Said::NotHeld,
        Reply::Released => Said::Released,
        Reply::NoVote(_) | Reply::Seen(_) => panic!("{reply:?}"),
    }
}

/// As the server names it.
fn id_of(step: &Step) -> String {
    let (verb, ms) = match step {
        Step::Acquire { ttl, .. } => ("acquire", ttl.millis()),
        Step::Extend { ttl, .. } => ("extend", ttl.millis()),
        _ => ("release", 0),
    };
    format!("{verb} {} {ms}", number(step))
}

#[test]
fn every_step_is_answered_once_and_in_order() {
    let scripts = Arc::<Scripts>::default();
    for seed in 0..SEEDS {
        let play = || Play::new(seed, scripts.clone()).run();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(play)) {
            eprintln!("seed {seed}");
            resume_unwind(panic);
        }
    }
}
