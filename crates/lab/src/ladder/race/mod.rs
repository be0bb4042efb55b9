//! Races the rungs' programs on real servers, in real time, with pauses, delays and crashes. A referee judges; it does not count
//! an overlap that may be an error of measurement.

mod args;
mod client;
mod course;
mod nemesis;
mod print;
mod raced;
mod referee;
mod settings;

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::place::RealServers;
use super::property::LadderProperty;
use super::rungs::Rung;
use super::wire::Wire;
use crate::host_time;

pub use self::args::RaceArgs;
use self::course::{Course, read, since};
pub use self::print::table;
pub use self::raced::{Faults, Raced};
use self::referee::{RaceFindings, RaceLog};
pub use self::settings::RaceSettings;

/// The times and fences of a rung have 15 bits, and so has the number of its writes: a race has rounds, each with empty keys.
const ROUND: u32 = 2_000;
const ROUND_ACQUISITIONS: u64 = 20_000;

/// Where servers restart, a tick is so many times longer, and the work takes up to two ticks.
const RESTART_TICKS: u32 = 10;

/// Runs a race.
///
/// # Errors
/// When a server cannot be reached or gives a reply that no model gives.
pub fn race(rung: &'static Rung, settings: &RaceSettings) -> Result<Raced, String> {
    let settings = &fitting(rung, settings);
    let servers = RwLock::new(RealServers::open(&settings.place, rung.servers)?);
    let wire = Wire::exact(read(&servers)?.prefix(), settings.tick);
    let began = host_time::up();
    let ran = rounds(rung, settings, &servers, &wire, began);
    // Also after a failure: a foreign server is left as it was.
    read(&servers)?.clear(&wire)?;
    let (found, faults) = ran?;
    Ok(raced(rung, settings, &found, faults, since(began)))
}

fn rounds(
    rung: &'static Rung,
    settings: &RaceSettings,
    servers: &RwLock<RealServers>,
    wire: &Wire,
    began: Duration,
) -> Result<(RaceFindings, Faults), String> {
    let mut found = RaceFindings::default();
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

/// A server takes some hundredths of a second to restart: the TTL and the hold must be longer than that.
fn fitting(rung: &Rung, settings: &RaceSettings) -> RaceSettings {
    let mut settings = settings.clone();
    if rung.bounds.restarts > 0 {
        settings.tick *= RESTART_TICKS;
        settings.work = settings.work.max(settings.tick * 2);
    }
    settings
}

/// One round. Returns the log of each thread, and how often the lock was stuck.
fn run(course: &Course<'_>, round: u64, until: Duration) -> Result<(Vec<RaceLog>, u64), String> {
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
    settings: &RaceSettings,
    found: &RaceFindings,
    faults: Faults,
    took: Duration,
) -> Raced {
    let count = |property: LadderProperty| match property {
        LadderProperty::Exclusion | LadderProperty::Ownership => found.overlaps,
        LadderProperty::Recovery => found.stuck,
        LadderProperty::StaleWrite => found.stale_writes,
        LadderProperty::FenceOrder => found.low_fences,
        LadderProperty::LostUpdate => found.lost_updates,
        LadderProperty::Child => found.orphan_writes,
    };
    let as_the_model_says = match rung.breaks {
        Some(property) => count(property) > 0,
        None => rung.asks.iter().all(|&property| count(property) == 0),
    };
    let asked = |property: LadderProperty| rung.asks.contains(&property).then(|| count(property));
    Raced {
        rung: rung.name,
        breaks: rung.breaks.map(LadderProperty::name),
        clients: settings.clients,
        tick_ms: settings.tick.as_secs_f64() * 1e3,
        took_s: took.as_secs_f64(),
        acquisitions: found.acquisitions,
        overlaps: found.overlaps,
        overlaps_per_100k: 1e5 * ratio(found.overlaps, found.acquisitions.max(1)),
        first_overlap_s: found.first_overlap.map(|after| after.as_secs_f64()),
        stuck: asked(LadderProperty::Recovery),
        acquisitions_per_stuck: (found.stuck > 0).then(|| ratio(found.acquisitions, found.stuck)),
        stale_writes: asked(LadderProperty::StaleWrite),
        low_fences: asked(LadderProperty::FenceOrder),
        lost_updates: asked(LadderProperty::LostUpdate),
        orphan_writes: asked(LadderProperty::Child),
        faults,
        as_the_model_says,
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of as f64
}
