//! One campaign, from the first process to the verdict, which a separate process gives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::json;
use testkit::Process;

use super::args::Storm;
use super::nemesis::{self, Nemesis};
use super::part::Part;
use super::pool::WorkerPool;
use super::report::{CampaignFindings, Control};
use super::resource::{Fencing, ResourceConfig};
use super::servers::Servers;
use super::stage::{Stage, planned};
use super::worker::{self, System};
use crate::history::{FaultKind, Invariant, Verdict};
use crate::host_time;

/// Server options: confirmed writes outlive a kill.
const DURABLE: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--maxmemory-policy",
    "noeviction",
];

/// The longest time of an acquire after the calm, for itself and for each one ahead of it.
const LIVELY: Duration = Duration::from_secs(3);

/// How long after its TTL an acquire without an outcome may still have the lock, if no process is late.
const ORPHAN: Duration = Duration::from_millis(500);

/// The plan of one campaign.
#[derive(Debug, Clone, Copy)]
pub(super) struct Campaign {
    pub(super) name: &'static str,
    pub(super) system: System,
    pub(super) resource: Fencing,
    /// For a control: the violations that it must show.
    pub(super) shows: Option<Invariant>,
    /// The duration of the faults, and of the calm after them.
    pub(super) storm: Duration,
    pub(super) calm: Duration,
    /// The percentage of leases that are outlived on purpose.
    pub(super) outlived: u64,
    /// The servers.
    pub(super) ground: Ground,
}

/// The servers of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ground {
    /// One server, of the storm or of `--url`.
    Server,
    /// Five servers that vote.
    Quorum,
    /// Five servers that vote, also after a loss of their memory.
    NoQuarantine,
    /// Five servers, two of which are enough for a lock.
    NoMajority,
}

/// What a campaign knows of its servers before it starts.
#[derive(Debug)]
pub(super) struct Setting {
    /// The name of the system that is judged.
    pub(super) system: &'static str,
    /// The least number of faults of each kind.
    pub(super) planned: BTreeMap<FaultKind, u64>,
    /// The faults that are not possible here, and why.
    pub(super) left_out: Option<String>,
    /// The URLs for workers, who take them in turn.
    pub(super) urls: Vec<String>,
    /// The longest time of an acquire after the calm, for itself and for each one ahead of it.
    pub(super) lively: Duration,
}

impl Campaign {
    /// Runs it on one server, with its history in `directory`, which exists and is empty.
    pub(super) fn on_a_server(
        &self,
        settings: &Storm,
        directory: &Path,
    ) -> Result<CampaignFindings, String> {
        let mut server = match settings.url {
            Some(_) => None,
            None => Some(Servers::start(&DURABLE, self.shows.is_none())?),
        };
        let own = server.as_ref().map(Servers::url);
        let url = settings.url.clone().or(own).unwrap_or_default();
        let harmed = server.as_ref().filter(|_| self.shows.is_none());
        let left_out = harmed.and_then(Servers::why_no_clock);
        let left_out = left_out.map(|why| format!("clock-forward, clock-back: {why}"));
        let deck = nemesis::deck(harmed);
        let faults = nemesis::schedule(settings.seed, self.storm, settings.ttl(), &deck);
        let setting = Setting {
            system: match self.system {
                System::Leasehold => "leasehold",
                System::SetDel => "set-del",
            },
            planned: planned(&faults),
            left_out,
            urls: vec![url],
            lively: LIVELY,
        };
        self.carry_out(settings, directory, setting, |stage| {
            let mut nemesis = Nemesis {
                servers: server.as_mut(),
                stage,
                locks: settings.locks,
                lost: None,
                epoch: 0,
            };
            nemesis.server_starts(host_time::up_ns())?;
            nemesis.act(&faults)?;
            nemesis.calm()
        })
    }

    /// Runs the workers while `storm` causes faults. After it has declared calm, they go on for a while.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn carry_out(
        &self,
        settings: &Storm,
        directory: &Path,
        setting: Setting,
        storm: impl FnOnce(&mut Stage) -> Result<(), String>,
    ) -> Result<CampaignFindings, String> {
        let scratch = tempfile::Builder::new()
            .prefix("leasehold-storm-")
            .tempdir();
        let scratch = scratch.map_err(|error| format!("cannot make a directory: {error}"))?;
        self.describe(settings, &setting, directory)?;
        let socket = scratch.path().join("resource");
        let mut resource = self.resource(&socket, directory)?;
        let began = host_time::up();
        let enough = scratch.path().join("enough");
        let config = worker::WorkerConfig {
            proc: 0,
            seed: settings.seed,
            system: self.system,
            urls: setting.urls,
            // On a foreign server, names of other programs must not be used.
            prefix: settings.url.as_ref().map_or_else(String::new, |_| {
                format!("leasehold-storm:{}:", host_time::up_ns())
            }),
            locks: settings.locks,
            ttl_ms: milliseconds(settings.ttl()),
            tasks: 2,
            outlived: self.outlived,
            directory: directory.to_owned(),
            socket,
            enough: enough.clone(),
        };
        let pool = WorkerPool::start(config, settings.workers)?;
        let mut stage = Stage::new(pool, directory)?;
        storm(&mut stage)?;
        stage.rest(host_time::up() + self.calm)?;
        File::create(&enough).map_err(|error| refused(&enough, &error))?;
        let stops = stage.end()?;
        let seconds = host_time::up().saturating_sub(began).as_secs_f64();
        resource.kill()?;

        let verdict = verdict(directory)?;
        Ok(CampaignFindings {
            seconds,
            acquisitions_per_second: verdict.counts.acquisitions as f64 / seconds,
            stalled_ms: worker::stalls::longest(directory, &stops).as_millis(),
            unexplained_ms: worker::stalls::unexplained(directory, &stops).as_millis(),
            tolerance_ms: settings.tolerance.as_millis(),
            left_out: setting.left_out,
            control: self.shows.map(|shows| Control {
                shows,
                times: verdict.found.get(&shows).copied().unwrap_or(0),
            }),
            verdict,
        })
    }

    fn describe(
        &self,
        settings: &Storm,
        setting: &Setting,
        directory: &Path,
    ) -> Result<(), String> {
        let path = directory.join("campaign.json");
        let described = json!({
            "format": 1, "run": self.name, "seed": settings.seed, "ttl_ms": milliseconds(settings.ttl()),
            "workers": settings.workers, "locks": settings.locks, "resource": self.resource,
            "control": self.shows.is_some(), "system": setting.system, "planned": setting.planned,
            "bounds": {
                "acquire_after_calm_ms": milliseconds(setting.lively),
                "orphan_ms": milliseconds(ORPHAN + settings.tolerance),
                "scheduling_ms": milliseconds(settings.tolerance),
            },
        });
        fs::write(&path, described.to_string()).map_err(|error| refused(&path, &error))
    }

    /// Starts the resource and waits until it listens.
    fn resource(&self, socket: &Path, directory: &Path) -> Result<Process, String> {
        let config = ResourceConfig {
            socket: socket.to_owned(),
            history: directory.join("resource.jsonl"),
            fencing: self.resource,
        };
        let mut process = Part::Resource(config).start()?;
        // The existence of its socket does not mean that it listens.
        while UnixStream::connect(socket).is_err() {
            if process
                .ended()
                .map_err(|error| error.to_string())?
                .is_some()
            {
                return Err("the resource does not start".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }
}

/// Has a history judged. The verdict is stored beside it.
fn verdict(directory: &Path) -> Result<Verdict, String> {
    let verdict = directory.join("verdict.json");
    let judge = Part::Judge {
        history: directory.to_owned(),
        verdict: verdict.clone(),
    };
    let mut judge = judge.start()?;
    let ended = loop {
        if let Some(status) = judge.ended().map_err(|error| error.to_string())? {
            break status;
        }
        thread::sleep(Duration::from_millis(2));
    };
    if !ended.success() {
        return Err(format!("the judge has failed: {ended}"));
    }
    let text = fs::read_to_string(&verdict);
    let text = text.map_err(|error| format!("{}: {error}", verdict.display()))?;
    serde_json::from_str::<Result<Verdict, String>>(&text).map_err(|error| error.to_string())?
}

fn refused(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
