//! The options of a race.

use std::time::Duration;

use clap::Args;

use super::settings::RaceSettings;
use crate::ladder::place::Place;
use crate::ladder::rungs::{self, Rung};

/// Race the recipes on a real server and count how often two clients hold a lock
#[derive(Debug, Clone, Args)]
pub struct RaceArgs {
    /// Which rungs; by default all
    #[arg(value_name = "RUNG")]
    pub rungs: Vec<String>,

    /// End after so many acquisitions of each rung
    #[arg(long, default_value_t = RaceSettings::default().acquisitions)]
    pub acquisitions: u64,

    /// End after so long with each rung, however many it were
    #[arg(long, value_name = "DUR", default_value = "90s", value_parser = humantime::parse_duration)]
    pub at_most: Duration,

    /// How many clients
    #[arg(long, default_value_t = RaceSettings::default().clients, value_parser = clap::value_parser!(u8).range(1..=200))]
    pub clients: u8,

    /// How long a tick is; the TTL of most rungs is two of them
    #[arg(long, value_name = "DUR", default_value = "3ms", value_parser = tick)]
    pub tick: Duration,

    /// How long a client works once it has the lock, at most
    #[arg(long, value_name = "DUR", default_value = "0s", value_parser = humantime::parse_duration)]
    pub work: Duration,

    /// How many of 1000 steps begin late, by up to three TTLs
    #[arg(long, default_value_t = RaceSettings::default().pauses, value_parser = clap::value_parser!(u64).range(..=1000))]
    pub pauses: u64,

    /// What the random numbers begin with
    #[arg(long, default_value_t = RaceSettings::default().seed)]
    pub seed: u64,

    /// Race on this server instead of one of the lab's own; as often as the rung needs servers
    #[arg(long, value_name = "URL")]
    pub url: Vec<String>,
}

/// A server's expiry is exact to a millisecond, so a tick is too.
fn tick(text: &str) -> Result<Duration, String> {
    let tick = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if tick.is_zero() || tick.subsec_nanos() % 1_000_000 != 0 {
        return Err("a tick is some whole milliseconds".into());
    }
    Ok(tick)
}

impl RaceArgs {
    /// The rungs to race, in the order in which they were named.
    ///
    /// # Errors
    /// When there is no such rung.
    pub fn rungs(&self) -> Result<Vec<&'static Rung>, String> {
        if self.rungs.is_empty() {
            return Ok(rungs::all().to_vec());
        }
        let find =
            |name: &String| rungs::find(name).ok_or_else(|| format!("there is no rung {name:?}"));
        self.rungs.iter().map(find).collect()
    }

    /// The settings of the race.
    pub fn settings(&self) -> RaceSettings {
        RaceSettings {
            place: Place::from_urls(&self.url),
            clients: self.clients,
            tick: self.tick,
            acquisitions: self.acquisitions,
            at_most: self.at_most,
            work: self.work,
            pauses: self.pauses,
            seed: self.seed,
        }
    }
}
