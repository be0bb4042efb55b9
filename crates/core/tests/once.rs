//! The invariants O1 to O5 of firings, by number: random hosts run a firing, crash, and lose their leases.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::once::{Firing, Keep, Reply, Step};
use leasehold_core::{
    Block, ClientId, Fence, LockName, Mode, Now, Owner, Reply as LockReply, Step as LockStep, Ttl,
    UnknownPresence, World,
};
use proptest::prelude::*;

const START_US: u64 = 1_767_225_600_000_000;
const TRIES: u32 = 3;
const TTL_MS: u64 = 1_000;
const KEEP_MS: u64 = 20_000;

/// What a host does next. It may not know that its lease is over.
#[derive(Debug, Clone, Copy)]
enum Act {
    Acquire,
    Renew,
    Begin,
    Finish,
    Release,
    Crash,
}

struct Host {
    /// Its owner, and the fence of its lease once it was granted.
    owner: Owner,
    fence: Option<Fence>,
}

struct Scene {
    world: World,
    now: Now,
    hosts: Vec<Host>,
    owners: u64,
    /// The fences of the runs that have begun, and of the one that has finished, since the firing was last forgotten.
    begun: Vec<Fence>,
    finished: Option<Fence>,
    /// When the last step wrote.
    written: u64,
}

fn name() -> LockName {
    LockName::new("nightly").unwrap()
}

fn firing() -> Firing {
    Firing::new("2026-11-27").unwrap()
}

fn keep() -> Keep {
    Keep::new(Duration::from_millis(KEEP_MS)).unwrap()
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(TTL_MS)).unwrap()
}

impl Scene {
    fn new() -> Self {
        let mut this = Self {
            world: World::default(),
            now: Now::at_micros(START_US),
            hosts: Vec::new(),
            owners: 0,
            begun: Vec::new(),
            finished: None,
            written: 0,
        };
        this.hosts = (0..3).map(|_| this.host()).collect();
        this
    }

    /// A host without a lease. Each acquisition has an owner of its own.
    fn host(&mut self) -> Host {
        self.owners += 1;
        let client = ClientId::new(self.owners);
        Host {
            owner: Owner::new(self.owners.into(), client, "h", 1, "").unwrap(),
            fence: None,
        }
    }

    fn lock(&mut self, step: &LockStep) -> LockReply {
        let outcome = self.world.apply(self.now, &name(), step, &UnknownPresence);
        outcome.reply
    }

    /// The step, taken twice (O4).
    fn once(&mut self, step: &Step) -> Reply {
        let (name, firing) = (name(), firing());
        let answers = [(); 2].map(|()| self.world.apply_once(self.now, &name, &firing, step));
        let [first, again] = answers.map(|answer| {
            assert_eq!(answer.now_us, self.now.wall_us);
            answer.reply
        });
        assert_eq!(first, again, "O4: {step:?}");
        first
    }

    fn holds(&mut self, host: usize) -> bool {
        let Some(fence) = self.hosts[host].fence else {
            return false;
        };
        let owner = self.hosts[host].owner.clone();
        match self.lock(&LockStep::Inspect) {
            LockReply::Seen(seen) => seen
                .holder
                .is_some_and(|holder| holder.is(&owner) && holder.fence <= Some(fence)),
            _ => false,
        }
    }

    fn act(&mut self, host: usize, act: Act) {
        let owner = self.hosts[host].owner.clone();
        let fence = self.hosts[host].fence;
        match (act, fence) {
            (Act::Acquire, None) => {
                let step = LockStep::Acquire {
                    owner,
                    mode: Mode::Exclusive,
                    ttl: ttl(),
                    block: Block::nearest(4),
                    wait: None,
                };
                if let LockReply::Held(held) = self.lock(&step) {
                    // A lease of the block, which the client has handed out.
                    let first = held.fence.unwrap().get();
                    self.hosts[host].fence = Some(Fence::new(first + host as u64));
                }
            }
            (Act::Renew, Some(_)) => {
                let (ttl, fence) = (ttl(), fence);
                self.lock(&LockStep::Extend { owner, ttl, fence });
            }
            (Act::Begin, Some(fence)) => self.begin(host, owner, fence),
            (Act::Finish, Some(fence)) => self.finish(host, owner, fence),
            (Act::Release, Some(_)) => {
                let (keep, fence) = (None, fence);
                self.lock(&LockStep::Release { owner, keep, fence });
                self.hosts[host] = self.host();
            }
            (Act::Crash, _) => self.hosts[host] = self.host(),
            _ => {}
        }
    }

    fn begin(&mut self, host: usize, owner: Owner, fence: Fence) {
        let (holds, tries) = (self.holds(host), NonZeroU32::new(TRIES).unwrap());
        let keep = keep();
        let step = Step::Begin {
            owner,
            fence,
            tries,
            keep,
        };
        match self.once(&step) {
            Reply::Begun(run) => {
                assert!(holds && run.fence == fence, "O2");
                assert_eq!(self.finished, None, "O1");
                if !self.begun.contains(&fence) {
                    self.begun.push(fence);
                    self.written = self.now.wall_us;
                }
                assert!(self.begun.len() <= TRIES as usize, "O3");
                assert_eq!(run.number as usize, self.begun.len());
            }
            Reply::Finished(run) => assert_eq!(self.finished, Some(run.fence), "O1"),
            Reply::Spent(run) => {
                assert_eq!(run.number, TRIES, "O3");
                assert!(holds && !self.begun.contains(&fence));
            }
            Reply::NotHeld => assert!(!holds, "O2"),
            Reply::New => panic!("a look was not asked for"),
        }
    }

    fn finish(&mut self, host: usize, owner: Owner, fence: Fence) {
        let (holds, keep) = (self.holds(host), keep());
        match self.once(&Step::Finish { owner, fence, keep }) {
            Reply::Finished(run) if self.finished.is_none() => {
                assert!(holds && run.fence == fence, "O2");
                (self.finished, self.written) = (Some(fence), self.now.wall_us);
            }
            Reply::Finished(run) => assert_eq!(self.finished, Some(run.fence), "O1"),
            Reply::NotHeld => assert!(!holds, "O2"),
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = Now::at_micros(self.now.wall_us + ms * 1_000);
        let age = (self.now.wall_us - self.written) / 1_000;
        if age > KEEP_MS {
            // O5: it is as if it had never run.
            (self.begun, self.finished) = (Vec::new(), None);
            assert_eq!(self.once(&Step::Look), Reply::New);
            self.world.sweep(self.now);
            assert!(self.world.firing(&name(), &firing()).is_none());
        }
        let look = self.once(&Step::Look);
        match self.finished {
            Some(fence) => {
                assert!(
                    matches!(look, Reply::Finished(run) if run.fence == fence),
                    "O1"
                );
            }
            None => assert!(!matches!(look, Reply::Finished(_))),
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<(usize, Act, u64)>> {
    let act = prop_oneof![
        6 => Just(Act::Acquire),
        2 => Just(Act::Renew),
        5 => Just(Act::Begin),
        2 => Just(Act::Finish),
        3 => Just(Act::Release),
        2 => Just(Act::Crash),
    ];
    let pass = prop_oneof![6 => 0_u64..300, 1 => 900_u64..1_100, 1 => KEEP_MS - 1..KEEP_MS + 2];
    prop::collection::vec((0_usize..3, act, pass), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_firing_is_finished_at_most_once(acts in acts()) {
        let mut scene = Scene::new();
        for (host, act, pass) in acts {
            scene.act(host, act);
            scene.pass(pass);
        }
    }
}

#[test]
fn o5_a_restart_of_the_host_does_not_open_a_finished_firing() {
    let mut scene = Scene::new();
    for act in [Act::Acquire, Act::Begin, Act::Finish] {
        scene.act(0, act);
    }
    // The clock that judges leases begins again.
    scene.now.clock_us = 0;
    assert!(matches!(scene.once(&Step::Look), Reply::Finished(_)));
}

#[test]
fn firings_of_one_lock_and_locks_of_one_firing_are_apart() {
    let mut scene = Scene::new();
    for act in [Act::Acquire, Act::Begin, Act::Finish] {
        scene.act(0, act);
    }
    let (other, now) = (Firing::new("2026-11-28").unwrap(), scene.now);
    let mut look = |name: &LockName, firing: &Firing| {
        let answer = scene.world.apply_once(now, name, firing, &Step::Look);
        answer.reply
    };
    assert_eq!(look(&name(), &other), Reply::New);
    assert_eq!(
        look(&LockName::new("hourly").unwrap(), &firing()),
        Reply::New
    );
    assert!(matches!(look(&name(), &firing()), Reply::Finished(_)));
}

#[test]
fn names_and_times_have_bounds() {
    for bad in ["", "a\nb", &"x".repeat(257)] {
        let refused = Firing::new(bad).unwrap_err();
        assert_eq!(refused.what, "firing");
    }
    assert_eq!(Firing::new(&"x".repeat(256)).unwrap().as_str().len(), 256);
    for bad in [
        Duration::from_millis(999),
        Duration::from_secs(401 * 86_400),
    ] {
        let refused = Keep::new(bad).unwrap_err();
        assert!(refused.to_string().contains("1 s to 400 days"), "{refused}");
    }
}
