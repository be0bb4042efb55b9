//! The command line options of a soak test.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::resource::Fencing;
use crate::history::{Status, judge, read};
use crate::host_time;
use crate::output::{CommandError, CommandOutput};
use crate::text::json_line;

/// The TTL of a lease, unless another one is given.
const TTL: Duration = Duration::from_millis(200);
/// That on a quorum, where each acquire is a request at five servers of one machine.
const QUORUM_TTL: Duration = Duration::from_millis(500);

/// That on a cluster, whose failovers take about as long.
const CLUSTER_TTL: Duration = Duration::from_millis(500);
/// That under sentinels: a failover takes two seconds, and no lease outlives it that is shorter.
const SENTINEL_TTL: Duration = Duration::from_secs(3);

/// The longest storm.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Let processes fight for locks while they and the server are stopped and killed, and judge what they did
#[derive(Debug, Clone, Args)]
pub struct Storm {
    /// For how long, the two controls included (an eighth each; of a quorum a twelfth; of a cluster and under sentinels a third)
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = |text: &str| within(text, 5_000, DAY_MS))]
    pub(super) time: Duration,

    /// How many processes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=200))]
    pub(super) workers: u64,

    /// How many locks
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) locks: u64,

    /// How long a lease lasts: 200ms by default, on a quorum or a cluster 500ms, under sentinels 3s
    #[arg(long, value_name = "DUR", value_parser = |text: &str| within(text, 20, 10_000))]
    ttl: Option<Duration>,

    /// How late a process may come to write what happened to it: more on a machine that has much else to do. The report says
    /// besides how late a loss was told for no reason known
    #[arg(long, value_name = "DUR", default_value = "250ms", value_parser = |text: &str| within(text, 0, 60_000))]
    pub(super) tolerance: Duration,

    /// What faults and work are drawn from; by default, another one each time
    #[arg(long, value_name = "N", default_value_t = drawn(), hide_default_value = true)]
    pub(super) seed: u64,

    /// What the resource asks for
    #[arg(long, value_enum, default_value = "fenced")]
    pub(super) resource: Fencing,

    /// Five servers that vote on each lock, instead of one server. In less than 75 s,
    /// some faults are left out. Its controls run without quarantine, and without majority;
    /// only the models have one without certificate: `leasehold-lab show quorum-no-certificate`
    #[arg(long, conflicts_with = "url")]
    pub(super) quorum: bool,

    /// A cluster of three primaries with a replica each, instead of one server. Slots move, and replicas take over that lack the last
    /// writes. The control has an unfenced resource. `confirmed` is the same with a fence, `replicas=1` and `min-replicas-to-write 1`
    #[arg(long, conflicts_with_all = ["quorum", "url"])]
    pub(super) cluster: bool,

    /// A server that three sentinels watch, with a replica, in the storm with two. Otherwise as `--cluster`, without slots
    #[arg(long, conflicts_with_all = ["quorum", "url", "cluster"])]
    pub(super) sentinel: bool,

    /// A server to use, instead of one of its own; it is then left alone, and only workers are stopped and killed
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,

    /// Keep the histories here, even if nothing is wrong
    #[arg(long, value_name = "DIR")]
    pub(super) keep: Option<PathBuf>,
}

impl Storm {
    /// The TTL of each lease.
    pub(super) fn ttl(&self) -> Duration {
        let default = match (self.quorum, self.cluster, self.sentinel) {
            (true, ..) => QUORUM_TTL,
            (_, true, _) => CLUSTER_TTL,
            (.., true) => SENTINEL_TTL,
            _ => TTL,
        };
        self.ttl.unwrap_or(default)
    }

    /// Whether replicas take over.
    pub(super) fn has_fleet(&self) -> bool {
        self.cluster || self.sentinel
    }
}

/// A seed that is short enough to type.
fn drawn() -> u64 {
    host_time::up_ns() / 1_000 % 1_000_000
}

/// A duration within these bounds, in milliseconds.
fn within(text: &str, least: u64, most: u64) -> Result<Duration, String> {
    let [least, most] = [least, most].map(Duration::from_millis);
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (least..=most).contains(&duration) {
        Ok(duration)
    } else {
        let [least, most] = [least, most].map(humantime::format_duration);
        Err(format!("not from {least} to {most}"))
    }
}

/// Judge the history of a storm once more
#[derive(Debug, Args)]
pub struct Judge {
    /// Where it is: a directory in what `storm --keep` was given
    #[arg(value_name = "DIR")]
    history: PathBuf,
}

impl Judge {
    /// Reads and judges it.
    ///
    /// # Errors
    /// When there is none that can be read.
    pub(crate) fn run(&self, json: bool) -> Result<CommandOutput, CommandError> {
        let history = read(&self.history).map_err(|unreadable| {
            CommandError::Usage(format!(
                "no history in {}: {unreadable}\n    next    leasehold-lab storm --keep NEW_DIR; leasehold-lab judge NEW_DIR/storm",
                self.history.display()
            ))
        })?;
        let verdict = judge(&history);
        Ok(CommandOutput {
            text: if json {
                json_line("leasehold.lab-judge/1", &verdict)
            } else {
                verdict.to_string()
            },
            fine: verdict.status == Status::Clean,
        })
    }
}
