//! One behaviour of a lock in all faces of Leasehold: the library, the command, the packages for Python and Node, and HTTP. `stories.json` has it
//! as data, and `README.md` the format. Each face has an actor, a program that takes locks as a story says.

mod command;
mod gateway;
mod library;

use std::collections::BTreeMap;
use std::env;
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testkit::RedisServer;

use self::gateway::Gateway;
use crate::foreign::{here, works};
use crate::peer::Peer;
use crate::scene::{inspect, unconfigured};
use crate::{Job, Tale};

/// The argument that makes this program an actor.
pub(crate) const WORD: &str = "actor";

/// Far more than an answer takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A lease that does not end within a story, in milliseconds.
const LONG: u64 = 3_600_000;

const FACES: [&str; 5] = ["rust", "command", "python", "node", HTTP];

/// The face whose actors each have a [`Gateway`], which outlives them.
const HTTP: &str = "http";

/// An actor that takes no lock.
const CARELESS: &str = "careless";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Story {
    #[serde(rename = "story")]
    title: String,
    /// The only face that it is about, if there is one.
    only: Option<String>,
    /// The faces that cannot do a step of it, with the reason.
    #[serde(default)]
    except: BTreeMap<String, String>,
    steps: Vec<Step>,
}

/// A step of a story. An actor gets those fields that tell it what to do.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Step {
    operator: Option<Operator>,
    who: Option<String>,
    #[serde(rename = "do")]
    verb: Option<String>,
    #[serde(rename = "as")]
    name: Option<String>,
    lock: Option<String>,
    also: Option<Vec<String>>,
    mode: Option<String>,
    slots: Option<u16>,
    ttl: Option<u64>,
    wait: Option<u64>,
    beat: Option<u64>,
    times: Option<u16>,
    is: Option<String>,
    slot: Option<u16>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Operator {
    Kill,
    Leave,
    Freeze,
    Thaw,
    Break,
    Stop,
    Start,
    Pause,
    Resume,
    StopGateway,
    StartGateway,
}

/// An answer of an actor.
#[derive(Debug, Deserialize, Serialize)]
struct Answer {
    #[serde(rename = "as")]
    name: String,
    is: String,
    fence: Option<u64>,
    slot: Option<u16>,
}

/// Why a story did not come to its end.
enum Stop {
    /// The actor cannot do this step.
    Cannot(String),
    Wrong(String),
}

/// The stories of each face. They are jobs of their own, since most of them wait.
pub(crate) fn jobs() -> Vec<Job> {
    let of = |face: &'static str| {
        let reason = Arc::new(OnceLock::new());
        let stories = stories().into_iter().filter(move |story| {
            let only = story.only.as_deref();
            only.is_none_or(|only| only == face)
        });
        stories.map(move |story| {
            let reason = Arc::clone(&reason);
            let title = format!("{face} {}", story.title);
            Job {
                who: face.to_owned(),
                missing: Box::new(move || reason.get_or_init(|| missing(face)).clone()),
                stories: vec![(title, Box::new(move || tell(face, &story)))],
            }
        })
    };
    FACES.into_iter().flat_map(of).collect()
}

pub(crate) const TALES: &[Tale] = &[(
    "faces each_story_finds_an_actor_that_takes_no_lock",
    each_story_finds_an_actor_that_takes_no_lock,
)];

fn stories() -> Vec<Story> {
    serde_json::from_str(include_str!("stories.json")).expect("stories")
}

/// A program in Python that tries the package in a folder.
const IMPORT: &str = "import sys; sys.path.insert(0, sys.argv[1]); import leasehold_redis";

/// The reason why this face cannot be tested here, if any.
fn missing(face: &str) -> Option<String> {
    let (works, says) = match face {
        "node" => {
            let is_old = "process.exitCode = process.versions.node.split('.')[0] < 20 ? 1 : 0";
            (works("node", &["-e", is_old]), "it needs node 20")
        }
        "python" => (
            works("python3", &["-c", IMPORT, &site()]),
            "LEASEHOLD_PYTHONPATH names no folder with the package leasehold_redis",
        ),
        HTTP => (works("python3", &["--version"]), "python3 is not installed"),
        _ => return None,
    };
    (!works).then(|| says.to_owned())
}

/// The folder where the Python package was installed.
fn site() -> String {
    env::var("LEASEHOLD_PYTHONPATH").unwrap_or_default()
}

/// Plays the story. The exceptions are exact: a face that can play it is none.
fn tell(face: &'static str, story: &Story) -> String {
    let mut stage = Stage::new(face, LIMIT);
    match (stage.play(&story.steps), story.except.get(face)) {
        (Ok(()), None) => String::new(),
        (Ok(()), Some(_)) => panic!("{face} plays it: take that out of `except`"),
        (Err(Stop::Cannot(_)), Some(reason)) => format!("left out, since {reason}"),
        (Err(Stop::Cannot(step)), None) => panic!("{face} cannot do it: {step}"),
        (Err(Stop::Wrong(what)), _) => panic!("{what}"),
    }
}

fn each_story_finds_an_actor_that_takes_no_lock() -> String {
    for story in stories() {
        let played = Stage::new(CARELESS, Duration::from_secs(6)).play(&story.steps);
        let is_found = matches!(played, Err(Stop::Wrong(_)));
        assert!(is_found, "not by {:?}", story.title);
    }
    String::new()
}

/// A server, and the actors of a story.
struct Stage {
    face: &'static str,
    limit: Duration,
    actors: BTreeMap<String, Actor>,
    killed: Vec<Actor>,
    /// That of each actor over HTTP.
    gateways: BTreeMap<String, Gateway>,
    server: RedisServer,
    /// The last fence of each lock.
    fences: BTreeMap<String, u64>,
}

struct Actor {
    peer: Peer,
    unread: Vec<Answer>,
    /// The locks of its exclusive requests.
    exclusive: BTreeMap<String, String>,
}

impl Stage {
    fn new(face: &'static str, limit: Duration) -> Self {
        Self {
            face,
            limit,
            actors: BTreeMap::new(),
            killed: Vec::new(),
            gateways: BTreeMap::new(),
            server: RedisServer::start(),
            fences: BTreeMap::new(),
        }
    }

    fn play(&mut self, steps: &[Step]) -> Result<(), Stop> {
        for (place, step) in (1..).zip(steps) {
            let at = |what| format!("{what} at step {place}, {}", json(step));
            self.step(step).map_err(|stop| match stop {
                Stop::Cannot(what) => Stop::Cannot(at(what)),
                Stop::Wrong(what) => Stop::Wrong(at(what)),
            })?;
        }
        // Each actor ends by itself.
        for actor in mem::take(&mut self.actors).into_values() {
            actor.peer.end();
        }
        mem::take(&mut self.gateways)
            .into_values()
            .for_each(Gateway::end);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        let who = step.who.clone().unwrap_or_default();
        if let Some(operator) = step.operator {
            return self.operate(operator, &who, step.lock.as_deref().unwrap_or_default());
        }
        let name = step.name.as_ref().or(step.lock.as_ref()).expect("`as`");
        let (face, server) = (self.face, &self.server);
        let gateway = (face == HTTP).then(|| {
            let gateway = self.gateways.entry(who.clone());
            &*gateway.or_insert_with(|| Gateway::start(server))
        });
        let actor = self.actors.entry(who);
        let actor = actor.or_insert_with(|| Actor::start(face, server, gateway));
        if step.verb.is_some() {
            actor.say(name, step);
        }
        let Some(is) = &step.is else { return Ok(()) };
        let mut answer = actor.answer(name, self.limit)?;
        if answer.is == "waiting" && is != "waiting" {
            answer = actor.answer(name, self.limit)?;
        }
        if answer.is == "cannot" {
            return Err(Stop::Cannot("no such verb".to_owned()));
        }
        let lock = actor.exclusive.get(name).filter(|_| answer.is == "held");
        let last = lock.map(|lock| self.fences.entry(lock.clone()).or_default());
        let is_above = last.is_none_or(|last| {
            let earlier = mem::replace(last, answer.fence.unwrap_or_default());
            *last > earlier
        });
        let has_slot = step.slot.is_none() || step.slot == answer.slot;
        if answer.is == *is && has_slot && is_above {
            return Ok(());
        }
        Err(Stop::Wrong(format!("{answer:?}, fences {:?}", self.fences)))
    }

    fn operate(&mut self, operator: Operator, who: &str, lock: &str) -> Result<(), Stop> {
        match operator {
            Operator::Kill => {
                let mut actor = self.actors.remove(who).expect("an actor");
                actor.peer.kill_all();
                self.killed.push(actor);
            }
            Operator::Leave => self.actors.remove(who).expect("an actor").peer.end(),
            Operator::Freeze => self.actors[who].peer.stop(),
            Operator::Thaw => self.actors[who].peer.resume(),
            Operator::Stop => self.server.kill(),
            Operator::Start => self.server.restart(),
            Operator::Pause => self.server.pause(),
            Operator::Resume => self.server.resume(),
            // An actor that is no client of one has none.
            Operator::StopGateway => {
                if let Some(gateway) = self.gateways.get_mut(who) {
                    gateway.kill();
                }
            }
            Operator::StartGateway => {
                if let Some(gateway) = self.gateways.get_mut(who) {
                    gateway.start_again(&self.server);
                }
            }
            Operator::Break => {
                let url = self.server.url();
                let fence = inspect(&url, "{}", lock)["fence"].to_string();
                let breaks = ["break", "--url", &url, "--if-fence", &fence, lock];
                let mut command = unconfigured(env!("CARGO_BIN_EXE_leasehold"));
                if !command.args(breaks).output().unwrap().status.success() {
                    return Err(Stop::Wrong(format!("{lock} is not held")));
                }
            }
        }
        Ok(())
    }
}

impl Actor {
    fn start(face: &str, server: &RedisServer, gateway: Option<&Gateway>) -> Self {
        let this = env::current_exe().unwrap();
        let mut command = unconfigured(match face {
            "node" => "node",
            "python" | HTTP => "python3",
            _ => this.to_str().unwrap(),
        });
        match face {
            "node" => command.arg(here("../../node/test/actor.js")),
            "python" => command
                .arg("-Wignore")
                .arg(here("../../python/tests/actor.py")),
            HTTP => command.arg(here("tests/interop/faces/over_http.py")),
            _ => command.args([WORD, face]),
        };
        if let Some(gateway) = gateway {
            gateway.tell(&mut command);
        }
        command.env("PYTHONPATH", site());
        command.env("LEASEHOLD_URL", server.url());
        command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        Self {
            peer: Peer::start(&command),
            unread: Vec::new(),
            exclusive: BTreeMap::new(),
        }
    }

    fn say(&mut self, name: &str, step: &Step) {
        if let (Some(lock), None, None | Some("write")) =
            (&step.lock, step.slots, step.mode.as_deref())
        {
            self.exclusive.insert(name.to_owned(), lock.clone());
        }
        let order = Step {
            name: Some(name.to_owned()),
            ttl: step.ttl.or(Some(LONG)),
            who: None,
            is: None,
            slot: None,
            ..step.clone()
        };
        self.peer.tell(&json(&order));
    }

    /// The next answer of this name.
    fn answer(&mut self, name: &str, limit: Duration) -> Result<Answer, Stop> {
        loop {
            if let Some(at) = self.unread.iter().position(|answer| answer.name == name) {
                return Ok(self.unread.remove(at));
            }
            if !self.peer.answers_within(limit) {
                return Err(Stop::Wrong(format!("no answer within {limit:?}")));
            }
            let line = self.peer.answer();
            let answer = serde_json::from_str(&line);
            self.unread
                .push(answer.unwrap_or_else(|error| panic!("{error}: {line}")));
        }
    }
}

/// The fields of a step that it has.
fn json(step: &Step) -> String {
    let mut fields = serde_json::to_value(step).unwrap();
    fields
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    fields.to_string()
}

/// Runs this program as the actor of a face.
pub(crate) fn act(face: &str) {
    match face {
        "command" => command::act(),
        CARELESS => {
            println!("ready 0");
            orders().for_each(|(name, verb, _)| {
                let is = match &*verb {
                    "acquire" => "held",
                    "release" => "released",
                    "check" => "valid",
                    "fork" => "forked",
                    _ => "cancelled",
                };
                Answer {
                    fence: Some(1),
                    slot: Some(1),
                    ..Answer::of(&name, is)
                }
                .say();
            });
        }
        _ => library::act(),
    }
}

/// The orders on stdin: the name, the verb, and the others of its fields.
fn orders() -> impl Iterator<Item = (String, String, Step)> {
    std::io::stdin().lines().map(|line| {
        let mut step: Step = serde_json::from_str(&line.unwrap()).unwrap();
        (step.name.take().unwrap(), step.verb.take().unwrap(), step)
    })
}

impl Answer {
    fn of(name: &str, is: &str) -> Self {
        Self {
            name: name.to_owned(),
            is: is.to_owned(),
            fence: None,
            slot: None,
        }
    }

    fn say(&self) {
        println!("{}", serde_json::to_string(self).unwrap());
    }
}
