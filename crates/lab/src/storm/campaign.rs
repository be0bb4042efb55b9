//! One campaign, from the first process to the verdict, which a separate process gives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::Process;

use super::args::Storm;
use super::fleet::Fleet;
use super::kinds::LockKind;
use super::nemesis::Nemesis;
use super::part::{Part, scratch, succeeds};
use super::report::{CampaignFindings, Control, Stray};
use super::resource::{Fencing, ResourceConfig};
use super::schedule::{ON_A_FLEET, Possible, Schedule, planned};
use super::servers::{NODES, Servers};
use super::stage::Stage;
use super::worker::{System, WorkerConfig, stalls};
use crate::history::{FaultKind, Invariant, Verdict};
use crate::host_time;

/// How long after its TTL an acquire without an outcome may still have the lock, if no process is late.
const ORPHAN: Duration = Duration::from_millis(500);

/// The longest time of an acquire after the calm, for itself and for each one ahead of it.
const LIVELY: Duration = Duration::from_secs(3);
/// That on a quorum, where a node alone that keeps the vote of a dead client delays the others by some seconds, and where replicas take
/// over.
const LIVELY_QUORUM: Duration = Duration::from_secs(8);

/// How long a client may take to reach a node of a quorum again: it reconnects within 250 ms, and renews a lease thrice in a TTL.
const RECOVERY: Duration = Duration::from_millis(500);

/// The longest wait for a lock of a quorum that nobody holds, after a TTL in which votes that were left behind end.
const IDLE: Duration = Duration::from_secs(2);

/// The longest calm on a quorum.
const CALM_QUORUM: Duration = Duration::from_secs(8);

/// The plan of one campaign.
#[derive(Debug, Clone, Copy)]
pub(super) struct Campaign {
    pub(super) kind: CampaignKind,
    /// Its duration, with the calm at the end.
    pub(super) time: Duration,
}

/// What is judged. All but the last two are controls, each without some protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CampaignKind {
    /// The recipe `SET NX PX`, work, `DEL`.
    SetDel,
    /// A resource that asks for no fences.
    Unfenced,
    /// A quorum, whose nodes vote also after a loss of their memory: each is marked as one of a new quorum at once.
    NoQuarantine,
    /// A quorum, where two of five votes are enough: each worker knows three of the nodes only, as a quorum of three.
    NoMajority,
    /// A cluster, or what sentinels watch, where the only replica of each primary confirms each lease.
    Confirmed,
    /// Leasehold.
    Storm,
}

impl CampaignKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SetDel => "set-del",
            Self::Unfenced => "unfenced",
            Self::NoQuarantine => "no-quarantine",
            Self::NoMajority => "no-majority",
            Self::Confirmed => "confirmed",
            Self::Storm => "storm",
        }
    }

    /// The name of the judged system: another one than `leasehold` may break promises of the lock.
    const fn system(self) -> &'static str {
        match self {
            Self::Unfenced | Self::Confirmed | Self::Storm => "leasehold",
            _ => self.name(),
        }
    }

    /// For a control: the violations that it must show.
    const fn shows(self) -> Option<Invariant> {
        match self {
            Self::Unfenced => Some(Invariant::NoLostUpdate),
            Self::SetDel | Self::NoQuarantine | Self::NoMajority => Some(Invariant::Exclusion),
            Self::Confirmed | Self::Storm => None,
        }
    }
}

impl Campaign {
    /// The campaigns of a run: two controls, or a control and `Confirmed`, and the storm.
    pub(super) fn all(settings: &Storm) -> [Self; 3] {
        use CampaignKind::{Confirmed, NoMajority, NoQuarantine, SetDel, Unfenced};
        let (controls, parts) = if settings.quorum {
            ([NoQuarantine, NoMajority], 12)
        } else if settings.has_fleet() {
            ([Unfenced, Confirmed], 3)
        } else {
            ([SetDel, Unfenced], 8)
        };
        let time = settings.time / parts;
        let [one, other] = controls.map(|kind| Self { kind, time });
        let storm = Self {
            kind: CampaignKind::Storm,
            time: settings.time.saturating_sub(time * 2),
        };
        [one, other, storm]
    }

    /// Runs it, with its history in `directory`, which exists and is empty.
    pub(super) fn run(
        &self,
        settings: &Storm,
        directory: &Path,
    ) -> Result<CampaignFindings, String> {
        let has_faults = self.kind == CampaignKind::Storm;
        let mut servers = match &settings.url {
            Some(_) => Servers::default(),
            None if settings.quorum => Servers::quorum(settings.ttl(), has_faults)?,
            None if settings.has_fleet() => Servers::of_a_fleet(self.fleet(settings)?),
            None => Servers::one(has_faults)?,
        };
        let seventh = self.time / 7;
        let calm = if settings.quorum {
            seventh.min(CALM_QUORUM)
        } else {
            seventh
        };
        let storm = self.time.saturating_sub(calm);
        let possible = Possible {
            on_servers: has_faults && settings.url.is_none(),
            on_clocks: servers.have_clocks(),
        };
        let schedule = Schedule::new(settings.seed, settings.ttl());
        let plan = match self.kind {
            CampaignKind::NoQuarantine | CampaignKind::NoMajority => Vec::new(),
            _ if settings.has_fleet() => {
                let kinds = self.faults_of_a_fleet(settings);
                schedule.of_a_fleet(storm, &kinds, pace(settings))
            }
            _ if settings.quorum => schedule.of_a_quorum(storm, possible),
            _ => schedule.of_a_server(storm, possible),
        };
        let planned = match self.kind {
            CampaignKind::NoQuarantine => BTreeMap::from([(FaultKind::Flush, 3)]),
            _ => planned(&plan),
        };
        if settings.quorum {
            let few = self.kind == CampaignKind::NoMajority;
            servers.mark_all(if few { 3 } else { NODES })?;
        }
        let path = directory.join("campaign.json");
        let described = self.describe(settings, &planned).to_string();
        fs::write(&path, described).map_err(|error| refused(&path, &error))?;
        let scratch = scratch()?;
        let config = self.config(settings, &servers, directory, scratch.path());
        let mut resource = self.resource(settings, &config.socket, directory)?;
        let enough = config.enough.clone();
        let began = host_time::up();
        let mut stage = Stage::new(config, settings.workers, directory)?;
        let mut nemesis = Nemesis::new(&mut servers, &mut stage, settings.locks)?;
        if self.kind == CampaignKind::NoQuarantine {
            nemesis.forget_and_vote(storm)?;
        } else {
            nemesis.act(&plan, storm)?;
        }
        nemesis.calm()?;
        stage.rest(host_time::up() + calm)?;
        File::create(&enough).map_err(|error| refused(&enough, &error))?;
        let stops = stage.end()?;
        let seconds = host_time::up().saturating_sub(began).as_secs_f64();
        resource.kill()?;
        self.findings(settings, directory, &stops, seconds, servers.left_out())
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn findings(
        &self,
        settings: &Storm,
        directory: &Path,
        stops: &[(u64, u64, u64)],
        seconds: f64,
        left_out: Option<String>,
    ) -> Result<CampaignFindings, String> {
        let verdict = verdict(directory)?;
        Ok(CampaignFindings {
            seconds,
            acquisitions_per_second: verdict.counts.acquisitions as f64 / seconds,
            stalled_ms: stalls::longest(directory, stops).as_millis(),
            unexplained_ms: stalls::unexplained(directory, stops).as_millis(),
            tolerance_ms: settings.tolerance.as_millis(),
            left_out,
            stray: self.is_punctual(settings).then(|| Stray::of(&verdict)),
            control: self.kind.shows().map(|shows| Control {
                shows,
                times: verdict.found.get(&shows).copied().unwrap_or(0),
            }),
            verdict,
        })
    }

    /// The configuration of the workers, without a number.
    fn config(
        &self,
        settings: &Storm,
        servers: &Servers,
        directory: &Path,
        scratch: &Path,
    ) -> WorkerConfig {
        let urls = match &settings.url {
            Some(url) => vec![url.clone()],
            None if self.kind == CampaignKind::NoMajority => {
                vec![servers.url(0..3), servers.url(2..5)]
            }
            None => vec![servers.url(0..servers.count())],
        };
        WorkerConfig {
            proc: 0,
            seed: settings.seed,
            system: match self.kind {
                CampaignKind::SetDel => System::SetDel,
                _ => System::Leasehold,
            },
            urls,
            // On a foreign server, names of other programs must not be used.
            prefix: settings.url.as_ref().map_or_else(String::new, |_| {
                format!("leasehold-storm:{}:", host_time::up_ns())
            }),
            kinds: self.kinds(settings),
            ttl_ms: milliseconds(settings.ttl()),
            tasks: 2,
            outlived: self.outlived(),
            punctual: self.is_punctual(settings),
            directory: directory.to_owned(),
            socket: scratch.join("resource"),
            enough: scratch.join("enough"),
        }
    }

    /// The kinds of the locks. The recipe has mutexes only. So have the controls of a quorum: the judge knows by the nodes which readers
    /// need no fence, and a control names none.
    fn kinds(&self, settings: &Storm) -> Vec<LockKind> {
        let is_storm = self.kind == CampaignKind::Storm;
        if settings.quorum && !is_storm || self.kind == CampaignKind::SetDel {
            let locks = usize::try_from(settings.locks).unwrap_or(usize::MAX);
            return vec![LockKind::Mutex; locks];
        }
        LockKind::mixed(settings.seed, settings.locks, settings.quorum)
    }

    /// Whether the nemesis causes failovers only, so that a stray write has no other cause.
    fn is_punctual(&self, settings: &Storm) -> bool {
        settings.has_fleet() && self.kind != CampaignKind::Storm
    }

    /// The servers whose replicas take over.
    fn fleet(&self, settings: &Storm) -> Result<Fleet, String> {
        let confirms = self.kind == CampaignKind::Confirmed;
        if settings.cluster {
            return Fleet::cluster(settings.locks, confirms);
        }
        let replicas = if self.kind == CampaignKind::Storm {
            2
        } else {
            1
        };
        Fleet::watched(settings.locks, replicas, confirms)
    }

    /// The faults that the nemesis causes at these servers.
    fn faults_of_a_fleet(&self, settings: &Storm) -> Vec<FaultKind> {
        if self.is_punctual(settings) {
            return vec![FaultKind::Failover];
        }
        let all = ON_A_FLEET.into_iter();
        all.filter(|kind| settings.cluster || *kind != FaultKind::MoveSlot)
            .collect()
    }

    /// The percentage of leases that are outlived on purpose. Those of a control last for a TTL, so a second holder is never too late.
    fn outlived(&self) -> u64 {
        if self.kind == CampaignKind::Storm {
            1
        } else {
            30
        }
    }

    /// What the resource asks for.
    fn fencing(&self, settings: &Storm) -> Fencing {
        match self.kind {
            CampaignKind::SetDel | CampaignKind::Unfenced => Fencing::Unfenced,
            _ => settings.resource,
        }
    }

    fn describe(&self, settings: &Storm, planned: &BTreeMap<FaultKind, u64>) -> Value {
        let lively = if settings.quorum || settings.has_fleet() {
            LIVELY_QUORUM
        } else {
            LIVELY
        };
        json!({
            "format": 2, "run": self.kind.name(), "seed": settings.seed, "ttl_ms": milliseconds(settings.ttl()),
            "workers": settings.workers, "locks": settings.locks, "resource": self.fencing(settings),
            "control": self.kind.shows().is_some(), "system": self.kind.system(), "planned": planned,
            // The nemesis of a control tells of no node that it is unwell.
            "nodes": if settings.quorum && self.kind == CampaignKind::Storm { NODES } else { 0 },
            "bounds": {
                "acquire_after_calm_ms": milliseconds(lively),
                "orphan_ms": milliseconds(ORPHAN + settings.tolerance),
                "scheduling_ms": milliseconds(settings.tolerance),
                "recovery_ms": milliseconds(RECOVERY),
                "idle_ms": milliseconds(settings.ttl() + IDLE + settings.tolerance),
            },
        })
    }

    /// Starts the resource and waits until it listens.
    fn resource(
        &self,
        settings: &Storm,
        socket: &Path,
        directory: &Path,
    ) -> Result<Process, String> {
        let config = ResourceConfig {
            socket: socket.to_owned(),
            history: directory.join("resource.jsonl"),
            fencing: self.fencing(settings),
        };
        let mut process = Part::Resource(config).start()?;
        // The existence of its socket does not mean that it listens.
        while UnixStream::connect(socket).is_err() {
            let ended = process.ended().map_err(|error| error.to_string())?;
            if ended.is_some() {
                return Err("the resource does not start".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }
}

/// How long a failover takes, with the return of the former primary.
fn pace(settings: &Storm) -> Duration {
    Duration::from_millis(if settings.cluster { 2_500 } else { 8_000 })
}

/// Has a history judged. The verdict is stored beside it.
fn verdict(directory: &Path) -> Result<Verdict, String> {
    let verdict = directory.join("verdict.json");
    let judge = Part::Judge {
        history: directory.to_owned(),
        verdict: verdict.clone(),
    };
    succeeds(&mut judge.start()?, "the judge", Duration::MAX)?;
    let text = fs::read_to_string(&verdict).map_err(|error| refused(&verdict, &error))?;
    serde_json::from_str::<Result<Verdict, String>>(&text).map_err(|error| error.to_string())?
}

fn refused(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
