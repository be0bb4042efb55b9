//! The timestamp protocol between real processes: Leasehold, and clients of the recipe with redis-py and without
//! a library. All clocks are this host's.

mod migrating;
pub(crate) mod side;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use leasehold::Clock;
use testkit::{RedisServer, eventually};

use crate::late::{seen_soon, timed};
use crate::peer::Peer;
use crate::scene::{EXPIRES_SOON, SLACK, millis, now};
use crate::{Job, Story, foreign, named};

const NAME: &str = "orders";
const LONG: Duration = Duration::from_secs(30);
/// A request whose TTL never ends within a story.
const ATTEMPT: &str = "try orders 60000";

/// A client of the recipe, and the time unit of all clients.
#[derive(Clone, Copy)]
struct Foreign {
    name: &'static str,
    unit: &'static str,
}

pub(crate) use self::migrating::STORIES as TALES;

type Tell = fn(&Scene) -> String;

/// All stories, with each client.
pub(crate) fn jobs() -> impl Iterator<Item = Job> {
    let clients = [("plain", "s"), ("plain", "ms"), ("redis-py", "s")];
    clients.into_iter().map(|(name, unit)| {
        let foreign = Foreign { name, unit };
        let all: [(&str, Tell); 5] = named![
            each_excludes_the_other,
            a_release_is_seen_by_the_others_waiter,
            one_takes_over_what_has_passed,
            a_counter_loses_nothing,
            a_counter_outlives_a_killed_holder,
        ];
        let who = format!("timestamp-{name} {unit}");
        let story = |(title, tell): (&str, Tell)| -> Story {
            let tell = move || tell(&Scene::new(foreign));
            (format!("{who} {title}"), Box::new(tell))
        };
        Job {
            stories: all.into_iter().map(story).collect(),
            missing: Box::new(move || foreign.missing()),
            who,
        }
    })
}

impl Foreign {
    /// A time, in whole units.
    fn units(self, time: Duration) -> u64 {
        let unit = if self.unit == "s" { 1_000 } else { 1 };
        u64::try_from(time.as_millis()).unwrap() / unit
    }

    fn missing(self) -> Option<String> {
        let mut all = foreign::ALL.iter();
        all.find(|other| other.name == self.name)?.missing()
    }

    fn command(self, port: u16) -> Command {
        if self.name == "plain" {
            return side::command("plain", port, self.unit);
        }
        let mut command = Command::new(foreign::python());
        command.arg(here("tests/interop/foreign/timestamp.py"));
        command.args([&port.to_string(), self.unit]);
        command
    }
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

struct Scene {
    server: RedisServer,
    foreign: Foreign,
}

impl Scene {
    fn new(foreign: Foreign) -> Self {
        Self {
            server: RedisServer::start(),
            foreign,
        }
    }

    fn leasehold_peer(&self, who: &str) -> Peer {
        Peer::start(&side::command(who, self.server.port(), self.foreign.unit))
    }

    fn foreign_peer(&self) -> Peer {
        Peer::start(&self.foreign.command(self.server.port()))
    }

    fn value(&self) -> Option<u64> {
        let reply = self.server.cli(&["GET", NAME]);
        (!reply.is_nil()).then(|| reply.text().parse().unwrap())
    }

    /// Tells a peer to wait, and returns after its first refused request.
    fn starts_to_wait(&self, peer: &mut Peer) {
        let before = self.looks();
        peer.tell("wait orders 60000");
        eventually(LONG, "it has asked", || self.looks() > before);
    }

    /// The number of reads of another client's deadline. Leasehold reads it only while it waits.
    fn looks(&self) -> u64 {
        let stats = self.server.cli(&["INFO", "commandstats"]).text();
        let calls = |line: &str| -> Option<u64> {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let asks = ["evalsha", "get"].contains(&command);
            asks.then(|| rest.split(',').next().unwrap().parse().unwrap())
        };
        stats.lines().filter_map(calls).sum()
    }

    fn counted(&self) -> i64 {
        let count = self.server.cli(&["GET", "count"]);
        if count.is_nil() { 0 } else { count.int() }
    }

    /// This host's clock, in units.
    fn time(&self) -> u64 {
        let wall = Clock::system().wall();
        self.foreign.units(wall.duration_since(UNIX_EPOCH).unwrap())
    }
}

fn each_excludes_the_other(scene: &Scene) -> String {
    let mut foreign = scene.foreign_peer();
    for who in ["leasehold", "leasehold-without-scripts"] {
        let mut leasehold = scene.leasehold_peer(who);
        for turn in 0..2 {
            let (holder, other) = if turn == 0 {
                (&mut leasehold, &mut foreign)
            } else {
                (&mut foreign, &mut leasehold)
            };
            assert_eq!(holder.ask(ATTEMPT), "held");
            let written = scene.value();
            assert_eq!(other.ask(ATTEMPT), "busy");
            assert_eq!(scene.value(), written, "left alone");
            assert_eq!(holder.ask("release"), "released");
            assert_eq!(scene.value(), None);
        }
    }
    format!("version {}", foreign.version)
}

fn a_release_is_seen_by_the_others_waiter(scene: &Scene) -> String {
    let (mut leasehold, mut foreign) = (scene.leasehold_peer("leasehold"), scene.foreign_peer());
    assert_eq!(foreign.ask(ATTEMPT), "held");
    seen_soon(|| {
        scene.starts_to_wait(&mut leasehold);
        let seen = timed(|| {
            assert_eq!(foreign.ask("release"), "released");
            assert_eq!(leasehold.answer(), "held");
        });
        scene.starts_to_wait(&mut foreign);
        assert_eq!(leasehold.ask("release"), "released");
        assert_eq!(foreign.answer(), "held");
        seen
    })
}

/// All clients contend for an expired lock: exactly one gets it.
fn one_takes_over_what_has_passed(scene: &Scene) -> String {
    const ROUNDS: usize = 100;
    let mut leasehold: Vec<Peer> = (0..3).map(|_| scene.leasehold_peer("leasehold")).collect();
    let mut foreign: Vec<Peer> = (0..2).map(|_| scene.foreign_peer()).collect();
    let (mut by_leasehold, mut overwritten) = (0, 0);
    for round in 0..ROUNDS {
        let old = (scene.time() - 5_000).to_string();
        scene.server.cli(&["SET", NAME, &old]);
        // Without foreign clients, the key has the holder's deadline.
        let with_foreign = round % 2 == 0;
        let mut peers: Vec<&mut Peer> = leasehold.iter_mut().collect();
        if with_foreign {
            peers.extend(foreign.iter_mut());
            peers.rotate_left(round / 2 % 5);
        }
        for peer in &mut peers {
            peer.tell(ATTEMPT);
        }
        let mut held: Vec<&mut Peer> = Vec::new();
        for peer in peers {
            match peer.answer().as_str() {
                "held" => held.push(peer),
                answer => assert_eq!(answer, "busy"),
            }
        }
        assert_eq!(held.len(), 1, "round {round}");
        assert!(scene.value().unwrap() > scene.time(), "round {round}");
        let end = held[0].ask("release");
        if with_foreign {
            overwritten += usize::from(end == "lost");
        } else {
            assert_eq!(end, "released");
            assert_eq!(scene.value(), None);
            by_leasehold += 1;
        }
        scene.server.cli(&["DEL", NAME]);
    }
    format!(
        "{ROUNDS} rounds, {by_leasehold} of them among Leasehold clients only; {overwritten} of Leasehold were overwritten by a loser's GETSET"
    )
}

fn a_counter_loses_nothing(scene: &Scene) -> String {
    const TURNS: i64 = 500;
    let began = now();
    let mut peers = [
        scene.leasehold_peer("leasehold"),
        scene.leasehold_peer("leasehold"),
        scene.foreign_peer(),
        scene.foreign_peer(),
    ];
    let (total, lost) = count(&mut peers, "60000", TURNS, || {});
    assert_eq!(scene.counted(), total, "updates are lost");
    assert_eq!(lost, 0, "no deadline passed, so nobody wrote over one");
    assert_eq!(scene.value(), None);
    let took = now().since(began);
    format!("{total} turns, half of them by Leasehold, {took:.1?}")
}

fn a_counter_outlives_a_killed_holder(scene: &Scene) -> String {
    const TURNS: i64 = 50;
    // A client of the recipe that loses a takeover overwrites the winner's deadline. A Leasehold winner cannot
    // release the lock before that deadline, so all clients wait for it. Shorter than `LONG`, and longer than a
    // stall of the machine.
    const COUNTING: &str = "10000";
    let mut peers = [
        scene.leasehold_peer("leasehold"),
        scene.leasehold_peer("leasehold"),
        scene.foreign_peer(),
        scene.foreign_peer(),
    ];
    let mut victim = scene.foreign_peer();
    let mut stood = Duration::ZERO;
    // Half of the turns come after the kill, so no peer finishes before it.
    let (before, lost) = count(&mut peers, COUNTING, TURNS, || {});
    assert_eq!(lost, 0, "no deadline passed, so nobody wrote over one");
    assert_eq!(victim.ask("wait orders 60000"), "held");
    let (after, overwritten) = count(&mut peers, COUNTING, TURNS, || {
        // In the middle of a turn: the victim has read and will not write.
        let seen = scene.counted();
        assert!(scene.value().unwrap() > scene.time());
        victim.kill();
        // Its deadline comes soon.
        let (deadline, began) = (scene.time() + scene.foreign.units(EXPIRES_SOON), now());
        scene.server.cli(&["SET", NAME, &deadline.to_string()]);
        loop {
            // Reads the clock after the counter: a value read after the deadline proves nothing.
            let counted = scene.counted();
            if scene.time() >= deadline {
                break;
            }
            assert_eq!(counted, seen, "somebody got in");
            thread::sleep(Duration::from_millis(5));
        }
        eventually(LONG, "they go on", || scene.counted() > seen);
        stood = now().since(began);
    });
    let total = before + after;
    assert_eq!(scene.counted(), total, "updates are lost");
    // At most that time plus two units, and a unit is at most a second.
    let most = EXPIRES_SOON + Duration::from_secs(2) + SLACK;
    assert!(stood < most, "{stood:?}");
    format!(
        "{total} turns; all stood still for {}; {overwritten} of Leasehold were overwritten by a loser's GETSET",
        millis(stood)
    )
}

/// Lets all peers count while `meanwhile` runs. Returns the total number of turns, and the number of lost holds
/// of Leasehold.
fn count(peers: &mut [Peer; 4], ttl: &str, turns: i64, meanwhile: impl FnOnce()) -> (i64, usize) {
    for peer in &mut *peers {
        peer.tell(&format!("count {NAME} {ttl} {turns}"));
    }
    meanwhile();
    let lost = peers.iter_mut().map(|peer| {
        let answer = peer.answer();
        let lost = answer.strip_prefix("counted, ");
        let lost = lost.and_then(|rest| rest.strip_suffix(" lost"));
        lost.expect("it counted").parse::<usize>().unwrap()
    });
    (turns * 4, lost.sum())
}
