//! A server in a few lines: it reads the requests of a [`Flight`] and answers them as the scripts do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use redis::{Value, parse_redis_value};

use super::{number_in, owner};
use crate::store::redis::pipeline::Flight;
use crate::store::redis::protocol::{COUNTER, texts};
use crate::store::redis::resp::Reader;
use crate::store::redis::scripts::{ACQUIRE_MANY, NATIVE, SETTLE, SETTLE_MANY, Scripts, TAKE};

/// The scripts of batches, each with two counts: the keys before those of the steps, and the keys of a step.
const SCRIPTS: [(usize, &str, [usize; 2]); 4] = [
    (SETTLE, "settle", [0, 1]),
    (SETTLE_MANY, "settle-many", [1, 3]),
    (TAKE, "take", [1, 2]),
    (ACQUIRE_MANY, "acquire-many", [1, 3]),
];

/// The owners with these numbers belong to other clients.
const OTHERS: u64 = 1 << 32;

/// It executes a request when it answers it.
pub(super) struct Server {
    scripts: Arc<Scripts>,
    reader: Reader,
    requests: VecDeque<Request>,
    /// The scripts that it knows by their hash. `true` stands for the form without flags.
    pub(super) loaded: BTreeSet<(usize, bool)>,
    pub(super) takes_flags: bool,
    pub(super) takes_hashes: bool,
    /// The user may use the native commands.
    pub(super) takes_native: bool,
    /// The user has no permission for these keys.
    pub(super) denied: BTreeSet<String>,
    locks: BTreeMap<String, Lock>,
    fence: u64,
    pub(super) log: Vec<Entry>,
}

/// A step in one request, and what the server did with it.
pub(super) struct Entry {
    pub(super) step: String,
    pub(super) said: Said,
    /// The number of the owner who holds the lock then.
    pub(super) holder: Option<u64>,
}

/// The answer to a step in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// The server executed nothing of the request.
    Refused,
    /// The short form did not fit.
    Unfit,
    Held,
    Busy,
    NotHeld,
    Released,
}

impl Said {
    /// True if the step was executed.
    pub(super) fn is_answer(self) -> bool {
        !matches!(self, Self::Refused | Self::Unfit)
    }
}

#[derive(Default)]
struct Lock {
    /// The number of its owner, and its fence.
    holder: Option<(u64, u64)>,
    /// So many other clients wait.
    queued: u64,
    /// The value shows that others wait. Only the holder's long forms take that back.
    is_marked: bool,
}

/// A request as it arrived.
pub(super) enum Request {
    Batch {
        by_text: bool,
        script: (usize, bool),
        steps: Vec<Asked>,
    },
    Native {
        command: String,
        step: Asked,
    },
    Call(String),
}

/// A step in a request.
pub(super) struct Asked {
    name: String,
    verb: String,
    owner: u64,
    ms: String,
    fence: Option<u64>,
}

impl Server {
    /// It knows these scripts.
    pub(super) fn new(scripts: Arc<Scripts>) -> Self {
        let loaded = SCRIPTS.map(|(script, ..)| (script, false));
        Self {
            scripts,
            reader: Reader::default(),
            requests: VecDeque::new(),
            loaded: loaded.into(),
            takes_flags: true,
            takes_hashes: true,
            takes_native: true,
            denied: BTreeSet::new(),
            locks: BTreeMap::new(),
            fence: 0,
            log: Vec::new(),
        }
    }

    /// Receives all that the client has to send.
    pub(super) fn receive(&mut self, flight: &mut Flight) {
        while !flight.out().is_empty() {
            let space = self.reader.space();
            let count = space.len().min(flight.out().len());
            space[..count].copy_from_slice(&flight.out()[..count]);
            flight.is_out(count);
            self.reader.filled(count);
            while let Some(command) = self.reader.next().unwrap() {
                let request = self.read(&texts(&command));
                self.requests.push_back(request);
            }
        }
    }

    /// The requests that it has not answered.
    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    /// Executes the oldest request. Returns the answer.
    pub(super) fn answer(&mut self) -> Option<Value> {
        match self.requests.pop_front()? {
            Request::Call(said) => Some(Value::SimpleString(said)),
            Request::Native { command, step } => Some(self.execute_native(&command, &step)),
            Request::Batch {
                by_text,
                script,
                steps,
            } => {
                let Some(error) = self.refuse(by_text, script, &steps) else {
                    let replies = steps.iter().map(|step| self.execute(script.0, step));
                    let replies: Vec<Value> = replies.collect();
                    return Some(match script.0 {
                        TAKE => taken(&replies),
                        SETTLE if replies.iter().all(|reply| *reply == bulk("done")) => {
                            bulk("done")
                        }
                        _ => Value::Array(replies),
                    });
                };
                for step in &steps {
                    self.note(step, Said::Refused);
                }
                Some(parse_redis_value(format!("-{error}\r\n").as_bytes()).unwrap())
            }
        }
    }

    /// The connection is lost with the requests that it has not answered.
    pub(super) fn lose(&mut self) {
        self.requests.clear();
        self.reader = Reader::default();
    }

    /// An owner takes a free lock. Returns its fence.
    pub(super) fn hold(&mut self, name: &str, owner: u64) -> u64 {
        self.fence += 1;
        self.lock(name).holder = Some((owner, self.fence));
        self.fence
    }

    /// Another client takes a free lock, or waits for one that is held.
    pub(super) fn queue(&mut self, name: &str) {
        if self.lock(name).holder.is_none() {
            self.hold(name, OTHERS);
        } else {
            let lock = self.lock(name);
            lock.queued += 1;
            lock.is_marked = true;
        }
    }

    /// Another client no longer waits.
    pub(super) fn leave(&mut self, name: &str) {
        let lock = self.lock(name);
        lock.queued = lock.queued.saturating_sub(1);
    }

    /// The holder's lease ends.
    pub(super) fn free(&mut self, name: &str) {
        let lock = self.lock(name);
        let queued = lock.queued;
        *lock = Lock::default();
        if queued > 0 {
            self.hold(name, OTHERS + queued);
            let lock = self.lock(name);
            lock.queued = queued - 1;
            lock.is_marked = lock.queued > 0;
        }
    }

    fn lock(&mut self, name: &str) -> &mut Lock {
        self.locks.entry(name.into()).or_default()
    }

    fn read(&self, words: &[String]) -> Request {
        let by_text = match &*words[0] {
            "EVAL" => true,
            "EVALSHA" => false,
            command if NATIVE.contains(&command) => return read_native(words),
            _ => return Request::Call(words.join(" ")),
        };
        let script = self.scripts.find(&words[1]).expect("a known script");
        let [before, keys_each] = about(script.0).2;
        let count: usize = words[2].parse().unwrap();
        let (keys, arguments) = words[3..].split_at(count);
        assert!(keys[..before].iter().all(|key| key == COUNTER), "{keys:?}");
        let keys = &keys[before..];
        assert!(keys.len().is_multiple_of(keys_each));
        let count = keys.len() / keys_each;
        // The names come first in the short forms, in the long ones their other keys are between.
        let is_short = matches!(script.0, TAKE | SETTLE);
        let names = keys.iter().step_by(if is_short { 1 } else { keys_each });
        let asked: Vec<_> = match script.0 {
            SETTLE => {
                let [values, ms] = arguments else {
                    panic!("{arguments:?}");
                };
                let value = |value: &str| {
                    let (token, fence) = value.split_once('#').unwrap();
                    (token.to_owned(), fence.parse().ok())
                };
                let all: Vec<_> = ms.split(' ').collect();
                let ms = |at: usize| all[if all.len() == 1 { 0 } else { at }].to_owned();
                let values = values.split(' ').map(value).enumerate();
                let settlement = |(at, (token, fence))| {
                    // No test keeps the key at a release.
                    let verb = if ms(at) == "0" { "release" } else { "extend" };
                    (verb.to_owned(), token, ms(at), fence)
                };
                values.map(settlement).collect()
            }
            SETTLE_MANY => {
                let four = |words: &[String]| {
                    let [verb, token, ms, fence] = words.to_owned().try_into().unwrap();
                    (verb, token, ms, fence.parse().ok())
                };
                arguments.chunks(4).map(four).collect()
            }
            TAKE => {
                let (tokens, terms) = arguments.split_at(count);
                let ms = |at: usize| terms[if terms.len() == 1 { 0 } else { 2 * at }].clone();
                let take =
                    |(at, token): (usize, &String)| ("acquire".into(), token.clone(), ms(at), None);
                tokens.iter().enumerate().map(take).collect()
            }
            _ => {
                let acquire =
                    |words: &[String]| ("acquire".into(), words[0].clone(), words[1].clone(), None);
                arguments.chunks_exact(5).map(acquire).collect()
            }
        };
        assert_eq!(asked.len(), count);
        let steps = names
            .zip(asked)
            .map(|(name, (verb, token, ms, fence))| Asked {
                name: name.clone(),
                verb,
                owner: number_in(&token),
                ms,
                fence,
            });
        Request::Batch {
            by_text,
            script,
            steps: steps.collect(),
        }
    }

    /// Why the server refuses a request as a whole, if it does.
    fn refuse(
        &mut self,
        by_text: bool,
        script: (usize, bool),
        steps: &[Asked],
    ) -> Option<&'static str> {
        if !by_text && !self.takes_hashes {
            return Some("ERR unknown command 'EVALSHA', with args beginning with: ");
        }
        if steps.iter().any(|step| self.denied.contains(&step.name)) {
            return Some("NOPERM No permissions to access a key");
        }
        if by_text && !script.1 && !self.takes_flags {
            return Some(
                "ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
            );
        }
        if by_text {
            self.loaded.insert(script);
        }
        let is_known = self.loaded.contains(&script);
        (!is_known).then_some("NOSCRIPT No matching script. Please use EVAL.")
    }

    fn execute(&mut self, script: usize, step: &Asked) -> Value {
        let (said, reply) = match script {
            SETTLE | TAKE => self.execute_short(step),
            _ => self.execute_long(step),
        };
        self.note(step, said);
        reply
    }

    fn execute_native(&mut self, command: &str, step: &Asked) -> Value {
        let refusal = if !self.takes_native {
            format!("NOPERM User x has no permissions to run the '{command}' command")
        } else if self.denied.contains(&step.name) {
            "NOPERM No permissions to access a key".into()
        } else {
            let (said, _) = self.execute_short(step);
            self.note(step, said);
            return Value::Int(i64::from(said == Said::Released));
        };
        self.note(step, Said::Refused);
        parse_redis_value(format!("-{refusal}\r\n").as_bytes()).unwrap()
    }

    fn note(&mut self, step: &Asked, said: Said) {
        let holder = self.lock(&step.name).holder.map(|(owner, _)| owner);
        self.log.push(Entry {
            step: step.id(),
            said,
            holder,
        });
    }

    fn execute_short(&mut self, step: &Asked) -> (Said, Value) {
        let lock = self.lock(&step.name);
        let own = step.fence.map(|fence| (step.owner, fence));
        if step.verb == "acquire" && lock.holder.is_none() {
            let fence = self.hold(&step.name, step.owner);
            (Said::Held, bulk(fence.to_string()))
        } else if step.verb == "acquire" || lock.holder != own {
            (Said::Unfit, bulk("other"))
        } else if lock.is_marked {
            (Said::Unfit, bulk("contended"))
        } else if step.verb == "extend" {
            (Said::Held, bulk("done"))
        } else {
            self.free(&step.name);
            (Said::Released, bulk("done"))
        }
    }

    fn execute_long(&mut self, step: &Asked) -> (Said, Value) {
        if step.verb == "acquire" && self.lock(&step.name).holder.is_none() {
            self.hold(&step.name, step.owner);
        }
        let lock = self.lock(&step.name);
        let is_holder = lock.holder.is_some_and(|(owner, _)| owner == step.owner);
        let holds = lock.holder.filter(|(owner, fence)| {
            *owner == step.owner && step.fence.is_none_or(|own| own == *fence)
        });
        match (&*step.verb, holds) {
            ("extend" | "acquire", Some((_, fence))) => {
                lock.is_marked &= lock.queued > 0;
                let text = format!("held {fence} 1 {}", lock.queued);
                (Said::Held, bulk(text))
            }
            ("acquire", None) => {
                let parts = vec![bulk("busy"), Value::Int(0), Value::Int(250), Value::Int(1)];
                (Said::Busy, self.with_view(parts, step))
            }
            ("release", Some(_)) => {
                self.free(&step.name);
                (Said::Released, bulk("released"))
            }
            _ => {
                if step.verb == "release" && is_holder {
                    self.free(&step.name);
                }
                (Said::NotHeld, self.with_view(vec![bulk("not-held")], step))
            }
        }
    }

    fn with_view(&mut self, mut parts: Vec<Value>, step: &Asked) -> Value {
        parts.push(Value::Array(match self.lock(&step.name).holder {
            Some((holder, fence)) => vec![
                bulk("string"),
                bulk(owner(holder).token()),
                Value::Int(30_000),
                bulk(fence.to_string()),
                Value::Int(5),
            ],
            None => ["none", "", "-1", "", "-1"].map(bulk).into(),
        }));
        Value::Array(parts)
    }
}

impl Request {
    /// The command, the script and the numbers of the owners.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Call(said) => said.clone(),
            Self::Native { command, step } => format!("{command} {}", step.owner),
            Self::Batch {
                by_text,
                script,
                steps,
            } => {
                let verb = if *by_text { "EVAL" } else { "EVALSHA" };
                let plain = if script.1 { " plain" } else { "" };
                let owners: Vec<_> = steps.iter().map(|step| step.owner.to_string()).collect();
                let (_, script, _) = about(script.0);
                format!("{verb}{plain} {script} {}", owners.join(" "))
            }
        }
    }

    pub(super) fn steps(&self) -> &[Asked] {
        match self {
            Self::Batch { steps, .. } => steps,
            Self::Native { step, .. } => std::slice::from_ref(step),
            Self::Call(_) => &[],
        }
    }
}

impl Asked {
    /// Tells steps apart, if each extension has another TTL.
    pub(super) fn id(&self) -> String {
        let Self {
            verb, owner, ms, ..
        } = self;
        format!("{verb} {owner} {ms}")
    }
}

/// Reads a release by a native command.
fn read_native(words: &[String]) -> Request {
    let (token, fence) = words[words.len() - 1].split_once('#').unwrap();
    let (command, middle) = (words[0].clone(), &words[2..words.len() - 1]);
    let expected: &[&str] = if command == "DELEX" { &["IFEQ"] } else { &[] };
    assert_eq!(middle, expected);
    let step = Asked {
        name: words[1].clone(),
        verb: "release".into(),
        owner: number_in(token),
        ms: "0".into(),
        fence: fence.parse().ok(),
    };
    Request::Native { command, step }
}

fn about(script: usize) -> (usize, &'static str, [usize; 2]) {
    let mut all = SCRIPTS.into_iter();
    all.find(|(number, ..)| *number == script).unwrap()
}

/// The answer to acquires in their short form.
fn taken(replies: &[Value]) -> Value {
    let replies = texts(&Value::Array(replies.to_vec()));
    let mut said = replies.iter().find(|reply| *reply != "other").cloned();
    let said = said.get_or_insert_with(|| "1".into());
    for (number, _) in (1..).zip(&replies).filter(|(_, reply)| *reply == "other") {
        said.push(' ');
        said.push_str(&u64::to_string(&number));
    }
    bulk(&**said)
}

fn bulk(text: impl Into<String>) -> Value {
    Value::BulkString(text.into().into_bytes())
}
