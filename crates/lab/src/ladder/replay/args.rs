//! The options of a replay.

use std::time::Duration;

use clap::Args;

use crate::ladder::place::Place;

/// Play the shortest counterexample of a rung on a real server, and compare every reply
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Which rung
    #[arg(value_name = "RUNG")]
    pub rung: String,

    /// Play it on this server instead of one of the lab's own; as often as the rung needs servers
    #[arg(long, value_name = "URL")]
    pub url: Vec<String>,

    /// How long a tick is; made longer by itself if a step was late
    #[arg(long, value_name = "DUR", default_value = "200ms", value_parser = humantime::parse_duration)]
    pub tick: Duration,
}

impl ReplayArgs {
    /// The servers of the replay.
    pub fn place(&self) -> Place {
        Place::from_urls(&self.url)
    }
}
