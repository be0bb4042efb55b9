//! The rungs' programs in a race on real servers, in real time, with pauses, delays and crashes, and a referee that trusts no
//! lock. Must never count as an overlap what could be one only by the clocks that measure it.

mod args;
mod client;
mod nemesis;
mod print;
mod referee;

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::place::{Place, Servers};
use super::property::Property;
use super::rungs::Rung;
use super::wire::Wire;
use crate::host_time;

pub use args::RaceArgs;
pub use print::table;

use referee::{Found, Log};

/// How a race is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where.
    pub place: Place,
    /// How many clients, at most 200.
    pub clients: u8,
    /// How long a tick is; the TTLs of the rungs are two or so.
    pub tick: Duration,
    /// It ends after so many acquisitions,
    pub acquisitions: u64,
    /// or after so long.
    pub at_most: Duration,
    /// How long a client works once it has the lock, at most.
    pub work: Duration,
    /// How many of a thousand steps begin late, by up to three TTLs; so many commands arrive late where the rung has that.
    pub pauses: u64,
    /// What the random numbers begin with.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            place: Place::Own,
            clients: 8,
            tick: Duration::from_millis(3),
            acquisitions: 100_000,
            at_most: Duration::from_secs(90),
            work: Duration::ZERO,
            pauses: 20,
            seed: 1,
        }
    }
}

/// What came of a race.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Raced {
    /// The name of the rung.
    pub rung: &'static str,
    /// The property that the rung breaks in its model, or `None` if it breaks none.
    pub breaks: Option<&'static str>,
    /// How many clients ran.
    pub clients: u8,
    /// How long a tick was, in milliseconds.
    pub tick_ms: f64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// How often a client got the lock.
    pub acquisitions: u64,
    /// How often a client got the lock while another held it, each by its own clock.
    pub overlaps: u64,
    /// The same for each 100,000 acquisitions.
    pub overlaps_per_100k: f64,
    /// When that was first, in seconds since the race began; `None` if never.
    pub first_overlap_s: Option<f64>,
    /// How often nobody got the lock any more, although nobody alive held it, until the race deleted it. Here and
    /// below `None` where the rung does not ask for it.
    pub stuck: Option<u64>,
    /// How many acquisitions there were before that, on average.
    pub acquisitions_per_stuck: Option<f64>,
    /// Writes of an earlier holder that were accepted after one of a later holder.
    pub stale_writes: Option<u64>,
    /// Accepted writes that the data does not contain in the end.
    pub lost_updates: Option<u64>,
    /// Writes of a client that had lost the lock, while another held it.
    pub orphan_writes: Option<u64>,
    /// What went wrong on purpose.
    pub faults: Faults,
    /// Whether it is what the model says: what it calls broken broke, and what it calls safe did not.
    pub as_the_model_says: bool,
}

/// How often something went wrong on purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Faults {
    /// Steps that began late.
    pub pauses: u64,
    /// Commands that arrived late.
    pub delays: u64,
    /// Commands that arrived after their client had given up.
    pub given_up: u64,
    /// Replies that were lost.
    pub losses: u64,
    /// Clients that died.
    pub crashes: u64,
    /// Servers that lost their data.
    pub restarts: u64,
    /// Clocks that jumped ahead.
    pub jumps: u64,
}

/// What all threads of a race see.
struct Course<'a> {
    rung: &'static Rung,
    settings: &'a Settings,
    servers: &'a RwLock<Servers>,
    wire: &'a Wire,
    /// When the round began, on the clock of this host.
    from: Duration,
    acquired: AtomicU64,
    commands: AtomicU64,
    /// Counts so many acquisitions, then the round ends.
    enough: u64,
    ended: AtomicBool,
}

impl Course<'_> {
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.acquired.load(Ordering::Relaxed) >= self.enough
    }

    /// A failure is reported at once, not at the end of the round.
    fn ends_if_failed(&self, log: Result<Log, String>) -> Result<Log, String> {
        if log.is_err() {
            self.ended.store(true, Ordering::Relaxed);
        }
        log
    }
}

/// The times and fences of a rung have 15 bits, and so has the number of its writes: a race has rounds, each from empty keys.
const ROUND: u32 = 2_000;
const ROUND_ACQUISITIONS: u64 = 20_000;

/// Where servers restart, a tick is so many times as long, and the work takes up to two.
const RESTART_TICKS: u32 = 10;

/// Runs a race.
///
/// # Errors
/// When a server cannot be reached or says what no model of it would.
pub fn race(rung: &'static Rung, settings: &Settings) -> Result<Raced, String> {
    let settings = &fitting(rung, settings);
    let servers = RwLock::new(Servers::open(&settings.place, rung.servers)?);
    let wire = Wire::exact(read(&servers)?.prefix(), settings.tick);
    let began = host_time::up();
    let ran = rounds(rung, settings, &servers, &wire, began);
    // Also after a failure: somebody else's server is left as it was.
    read(&servers)?.clear(&wire)?;
    let (found, faults) = ran?;
    Ok(raced(rung, settings, &found, faults, since(began)))
}

fn rounds(
    rung: &'static Rung,
    settings: &Settings,
    servers: &RwLock<Servers>,
    wire: &Wire,
    began: Duration,
) -> Result<(Found, Faults), String> {
    let mut found = Found::default();
    let mut faults = Faults::default();
    let mut round = 0;
    while found.acquisitions < settings.acquisitions && since(began) < settings.at_most {
        read(servers)?.clear(wire)?;
        let course = Course {
            rung,
            settings,
            servers,
            wire,
            from: host_time::up(),
            acquired: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            enough: ROUND_ACQUISITIONS.min(settings.acquisitions - found.acquisitions),
            ended: AtomicBool::new(false),
        };
        let until = (began + settings.at_most).min(course.from + settings.tick * ROUND);
        let (logs, stuck) = run(&course, round, until)?;
        found.stuck += stuck;
        for log in &logs {
            faults.add(&log.faults);
        }
        let version = client::version(&course)?;
        found.judge(&logs, version, began);
        round += 1;
    }
    Ok((found, faults))
}

/// A server needs some hundredths of a second to come back: what is to be forgotten must live longer, and be held meanwhile.
fn fitting(rung: &Rung, settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    if rung.bounds.restarts > 0 {
        settings.tick *= RESTART_TICKS;
        settings.work = settings.work.max(settings.tick * 2);
    }
    settings
}

/// One round. Returns what each thread saw, and how often the lock was stuck.
fn run(course: &Course<'_>, round: u64, until: Duration) -> Result<(Vec<Log>, u64), String> {
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..course.settings.clients)
            .map(|client| {
                scope.spawn(move || course.ends_if_failed(client::run(course, client, round)))
            })
            .collect();
        if course.rung.bounds.restarts > 0 || course.rung.bounds.jumps > 0 {
            threads.push(scope.spawn(move || course.ends_if_failed(nemesis::run(course, round))));
        }
        let stuck = nemesis::watch(course, until);
        course.ended.store(true, Ordering::Relaxed);
        let logs = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err("a client of the race panicked".into()))
        });
        let logs = logs.collect::<Result<Vec<_>, _>>()?;
        Ok((logs, stuck?))
    })
}

fn raced(
    rung: &'static Rung,
    settings: &Settings,
    found: &Found,
    faults: Faults,
    took: Duration,
) -> Raced {
    let count = |property: Property| match property {
        Property::Exclusion | Property::Ownership => found.overlaps,
        Property::Recovery => found.stuck,
        Property::StaleWrite => found.stale_writes,
        Property::LostUpdate => found.lost_updates,
        Property::Child => found.orphan_writes,
    };
    let as_the_model_says = match rung.breaks {
        Some(property) => count(property) > 0,
        None => rung.asks.iter().all(|&property| count(property) == 0),
    };
    let asked = |property: Property| rung.asks.contains(&property).then(|| count(property));
    Raced {
        rung: rung.name,
        breaks: rung.breaks.map(Property::name),
        clients: settings.clients,
        tick_ms: settings.tick.as_secs_f64() * 1e3,
        took_s: took.as_secs_f64(),
        acquisitions: found.acquisitions,
        overlaps: found.overlaps,
        overlaps_per_100k: 1e5 * ratio(found.overlaps, found.acquisitions.max(1)),
        first_overlap_s: found.first_overlap.map(|after| after.as_secs_f64()),
        stuck: asked(Property::Recovery),
        acquisitions_per_stuck: (found.stuck > 0).then(|| ratio(found.acquisitions, found.stuck)),
        stale_writes: asked(Property::StaleWrite),
        lost_updates: asked(Property::LostUpdate),
        orphan_writes: asked(Property::Child),
        faults,
        as_the_model_says,
    }
}

impl Raced {
    /// Whether it broke what its model exhausted. That a race did not show what its model breaks says only that it was too
    /// short or too calm.
    pub fn contradicts_the_model(&self) -> bool {
        self.breaks.is_none() && !self.as_the_model_says
    }
}

impl Faults {
    fn add(&mut self, more: &Self) {
        self.pauses += more.pauses;
        self.delays += more.delays;
        self.given_up += more.given_up;
        self.losses += more.losses;
        self.crashes += more.crashes;
        self.restarts += more.restarts;
        self.jumps += more.jumps;
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of as f64
}

fn since(then: Duration) -> Duration {
    host_time::up().saturating_sub(then)
}

fn read(servers: &RwLock<Servers>) -> Result<std::sync::RwLockReadGuard<'_, Servers>, String> {
    servers
        .read()
        .map_err(|_| "a thread of the race panicked".to_owned())
}
