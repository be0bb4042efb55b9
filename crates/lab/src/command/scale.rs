//! The verb `scale`: compares ways of waiting with ten to a million clients. All assumptions are options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::save::save;
use crate::output::{CommandError, CommandOutput, Terminal};
use crate::scale::{self, Figures, ScaleSettings};

/// Simulate ten to a million clients that want one lock
#[derive(Debug, Args)]
pub(super) struct Scale {
    /// How many clients
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10,100,1000,10000,100000,1000000"
    )]
    clients: Vec<u32>,

    /// How they wait
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "leasehold,poller,broadcast"
    )]
    way: Vec<WayArg>,

    /// Let one in a hundred waiting clients end: its process (dead), or so that the server does not notice (stuck)
    #[arg(long)]
    crash: Option<CrashArg>,

    /// What the random numbers begin with
    #[arg(long, default_value_t = ScaleSettings::default().seed)]
    seed: u64,

    /// How many hand-overs to measure; by default, what some seconds allow
    #[arg(long)]
    hand_overs: Option<u64>,

    /// How long a client holds the lock
    #[arg(long, value_name = "DUR", default_value = "5ms", value_parser = humantime::parse_duration)]
    section: Duration,

    /// After how long it wants the lock again, more or less by a half
    #[arg(long, value_name = "DUR", default_value = "20ms", value_parser = humantime::parse_duration)]
    think: Duration,

    /// How long a message takes one way
    #[arg(long, value_name = "DUR", default_value = "50us", value_parser = humantime::parse_duration)]
    latency: Duration,

    /// How long the server is busy with a script
    #[arg(long, value_name = "DUR", default_value = "10us", value_parser = humantime::parse_duration)]
    script: Duration,

    /// How long the server is busy with SET NX
    #[arg(long, value_name = "DUR", default_value = "2us", value_parser = humantime::parse_duration)]
    set: Duration,

    /// Draw a picture into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum WayArg {
    Leasehold,
    Poller,
    Broadcast,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum CrashArg {
    Dead,
    Stuck,
}

impl Scale {
    pub(super) fn run(
        &self,
        json: bool,
        terminal: &Terminal,
    ) -> Result<CommandOutput, CommandError> {
        let mut figures = Vec::new();
        for &clients in &self.clients {
            for way in &self.way {
                let found = one(self, *way, clients).map_err(CommandError::Usage)?;
                // Some take a minute.
                (terminal.progress)(&format!(
                    "{} with {clients} clients: {} hand-overs",
                    found.way, found.hand_overs
                ));
                figures.push(found);
            }
        }
        if let Some(path) = &self.svg {
            save(path, &scale::picture(&figures))?;
        }
        Ok(CommandOutput::fine(if json {
            scale::json(&figures)
        } else {
            scale::table(&figures)
        }))
    }
}

fn one(args: &Scale, way: WayArg, clients: u32) -> Result<Figures, String> {
    // With a million clients in the queue, each scan of it takes milliseconds.
    let deep_polls = if clients > 20_000 { 500 } else { 1 };
    let settings = ScaleSettings {
        clients,
        seed: args.seed,
        section: args.section,
        think: args.think,
        latency: args.latency,
        script: args.script,
        set: args.set,
        hand_overs: args.hand_overs,
        deep_polls,
        crash: args.crash.map(|crash| match crash {
            CrashArg::Dead => scale::Crash::Dead,
            CrashArg::Stuck => scale::Crash::Stuck,
        }),
        ..ScaleSettings::default()
    };
    let way = match way {
        WayArg::Leasehold => scale::WaitMethod::Leasehold,
        WayArg::Poller => scale::WaitMethod::Poller,
        WayArg::Broadcast => scale::WaitMethod::Broadcast,
    };
    scale::run(way, &settings).map_err(|invalid| invalid.to_string())
}
