//! The timestamp protocol between real processes: ours, and clients of the recipe on a library of their own and on none. Must never
//! say more of it than that nothing went wrong here: their clocks are this host's.

mod migrating;
pub(crate) mod side;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use leasehold::Clock;
use testkit::{RedisServer, eventually};

use crate::args::Args;
use crate::late::{seen_soon, timed};
use crate::peer::Peer;
use crate::scene::{SLACK, millis, now};
use crate::{Tally, foreign, tell};

const NAME: &str = "orders";
const LONG: Duration = Duration::from_secs(30);
/// How long locks are asked for, in milliseconds, where nothing has to end.
const ATTEMPT: &str = "try orders 60000";

/// A client of the recipe, and the unit that all count in.
#[derive(Clone, Copy)]
pub(crate) struct Foreign {
    name: &'static str,
    unit: &'static str,
}

pub(crate) const FOREIGN: [Foreign; 3] = [
    Foreign {
        name: "plain",
        unit: "s",
    },
    Foreign {
        name: "plain",
        unit: "ms",
    },
    Foreign {
        name: "redis-py",
        unit: "s",
    },
];

type Story = (&'static str, fn(&Scene) -> String);

const STORIES: [Story; 5] = [
    ("each_excludes_the_other", each_excludes_the_other),
    (
        "a_release_is_seen_by_the_others_waiter",
        a_release_is_seen_by_the_others_waiter,
    ),
    (
        "one_takes_over_what_has_passed",
        one_takes_over_what_has_passed,
    ),
    ("a_counter_loses_nothing", a_counter_loses_nothing),
    (
        "a_counter_outlives_a_killed_holder",
        a_counter_outlives_a_killed_holder,
    ),
];

pub(crate) use self::migrating::STORIES as TALES;

/// The titles of all of them.
pub(crate) fn titles() -> impl Iterator<Item = String> {
    FOREIGN
        .iter()
        .flat_map(|foreign| STORIES.iter().map(|(story, _)| foreign.title(story)))
}

/// All stories with one client.
pub(crate) fn try_one(foreign: Foreign, args: &Args, tally: &Tally) {
    let (wanted, left_out): (Vec<&Story>, Vec<_>) = STORIES
        .iter()
        .partition(|(story, _)| args.want(&foreign.title(story)));
    tally.left_out.fetch_add(left_out.len(), Ordering::SeqCst);
    if wanted.is_empty() {
        return;
    }
    if let Some(why) = foreign.missing() {
        let who = format!("timestamp-{} {}", foreign.name, foreign.unit);
        return tally.skip(&who, why, wanted.len());
    }
    for (story, told) in wanted {
        tell(&foreign.title(story), tally, || told(&Scene::new(foreign)));
    }
}

impl Foreign {
    fn title(self, story: &str) -> String {
        format!("timestamp-{} {} {story}", self.name, self.unit)
    }

    fn missing(self) -> Option<String> {
        let redis_py = (self.name == "redis-py")
            .then(|| foreign::ALL.iter().find(|other| other.name == "redis-py"));
        redis_py.flatten()?.missing()
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

    fn ours(&self, who: &str) -> Peer {
        Peer::start(&side::command(who, self.server.port(), self.foreign.unit))
    }

    fn theirs(&self) -> Peer {
        Peer::start(&self.foreign.command(self.server.port()))
    }

    fn value(&self) -> Option<u64> {
        let reply = self.server.cli(&["GET", NAME]);
        (!reply.is_nil()).then(|| reply.text().parse().unwrap())
    }

    /// Tells a peer to wait, and returns when it has asked and was refused.
    fn starts_to_wait(&self, peer: &mut Peer) {
        let before = self.looks();
        peer.tell("wait orders 60000");
        eventually(LONG, "it has asked", || self.looks() > before);
    }

    /// How often anybody has looked at the deadline of somebody else. Ours looks only while it waits.
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
        let passed = wall.duration_since(UNIX_EPOCH).unwrap();
        let micros = u64::try_from(passed.as_micros()).unwrap();
        let unit = if self.foreign.unit == "s" {
            1_000_000
        } else {
            1_000
        };
        micros / unit
    }
}

fn each_excludes_the_other(scene: &Scene) -> String {
    let mut theirs = scene.theirs();
    for who in ["ours", "ours-without-scripts"] {
        let mut ours = scene.ours(who);
        for turn in 0..2 {
            let (holder, other) = if turn == 0 {
                (&mut ours, &mut theirs)
            } else {
                (&mut theirs, &mut ours)
            };
            assert_eq!(holder.ask(ATTEMPT), "held");
            let written = scene.value();
            assert_eq!(other.ask(ATTEMPT), "busy");
            assert_eq!(scene.value(), written, "left alone");
            assert_eq!(holder.ask("release"), "released");
            assert_eq!(scene.value(), None);
        }
    }
    format!("version {}", theirs.version)
}

fn a_release_is_seen_by_the_others_waiter(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours("ours"), scene.theirs());
    assert_eq!(theirs.ask(ATTEMPT), "held");
    seen_soon(|| {
        scene.starts_to_wait(&mut ours);
        let seen = timed(|| {
            assert_eq!(theirs.ask("release"), "released");
            assert_eq!(ours.answer(), "held");
        });
        scene.starts_to_wait(&mut theirs);
        assert_eq!(ours.ask("release"), "released");
        assert_eq!(theirs.answer(), "held");
        seen
    })
}

/// All at once on a deadline that has passed: one of them has it, whoever wrote last.
fn one_takes_over_what_has_passed(scene: &Scene) -> String {
    const ROUNDS: usize = 100;
    let mut ours: Vec<Peer> = (0..3).map(|_| scene.ours("ours")).collect();
    let mut theirs: Vec<Peer> = (0..2).map(|_| scene.theirs()).collect();
    let (mut by_ours, mut overwritten) = (0, 0);
    for round in 0..ROUNDS {
        let old = (scene.time() - 5_000).to_string();
        scene.server.cli(&["SET", NAME, &old]);
        // Without theirs, the one whose deadline stands there has it.
        let with_theirs = round % 2 == 0;
        let mut peers: Vec<&mut Peer> = ours.iter_mut().collect();
        if with_theirs {
            peers.extend(theirs.iter_mut());
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
        if with_theirs {
            overwritten += usize::from(end == "lost");
        } else {
            assert_eq!(end, "released");
            assert_eq!(scene.value(), None);
            by_ours += 1;
        }
        scene.server.cli(&["DEL", NAME]);
    }
    format!(
        "{ROUNDS} rounds, {by_ours} of them among ours alone; {overwritten} of ours were overwritten by a loser's GETSET"
    )
}

fn a_counter_loses_nothing(scene: &Scene) -> String {
    const TURNS: i64 = 500;
    let began = now();
    let mut peers = [
        scene.ours("ours"),
        scene.ours("ours"),
        scene.theirs(),
        scene.theirs(),
    ];
    let (total, lost) = count(&mut peers, "60000", TURNS, || {});
    assert_eq!(scene.counted(), total, "updates are lost");
    assert_eq!(lost, 0, "no deadline passed, so nobody wrote over one");
    assert_eq!(scene.value(), None);
    let took = now().since(began);
    format!("{total} turns, half of them by ours, {took:.1?}")
}

fn a_counter_outlives_a_killed_holder(scene: &Scene) -> String {
    const TURNS: i64 = 50;
    // So long that nobody else has the lock before this process has looked at it, also on a busy machine.
    const TTL: u64 = 3000;
    // A client of the recipe that loses a takeover writes its own deadline over the winner's. A winner of ours then cannot give the lock
    // back before that deadline, so everybody waits for it. Shorter than `LONG`, and longer than a machine stands still.
    const COUNTING: &str = "10000";
    let mut peers = [
        scene.ours("ours"),
        scene.ours("ours"),
        scene.theirs(),
        scene.theirs(),
    ];
    let mut victim = scene.theirs();
    let mut stood = Duration::ZERO;
    // Half of the turns wait for what the victim leaves, however late this process is: nobody is done before.
    let (before, lost) = count(&mut peers, COUNTING, TURNS, || {});
    assert_eq!(lost, 0, "no deadline passed, so nobody wrote over one");
    assert_eq!(victim.ask(&format!("wait orders {TTL}")), "held");
    let (after, overwritten) = count(&mut peers, COUNTING, TURNS, || {
        // In the middle: it has read, and will not write.
        let (seen, deadline, began) = (scene.counted(), scene.value().unwrap(), now());
        victim.kill();
        loop {
            // The clock after the counter: what was read after the deadline proves nothing.
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
    // Two units more than the TTL at most, and a unit is a second at most.
    let most = Duration::from_millis(TTL) + Duration::from_secs(2) + SLACK;
    assert!(stood < most, "{stood:?}");
    format!(
        "{total} turns; all stood still for {}; {overwritten} of ours were overwritten by a loser's GETSET",
        millis(stood)
    )
}

/// Lets all of them count at once while something else goes on. Returns how often they counted in all, and how many of our holds were
/// lost.
fn count(peers: &mut [Peer; 4], ttl: &str, turns: i64, meanwhile: impl FnOnce()) -> (i64, usize) {
    for peer in &mut *peers {
        peer.tell(&format!("count {NAME} {ttl} {turns}"));
    }
    meanwhile();
    let lost = peers.iter_mut().map(|peer| {
        let answer = peer.answer();
        let lost = answer
            .strip_prefix("counted, ")
            .and_then(|rest| rest.strip_suffix(" lost"));
        let lost: usize = lost.expect("it counted").parse().unwrap();
        lost
    });
    (turns * 4, lost.sum())
}
