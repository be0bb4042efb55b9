//! `leasehold doctor`: checks whether a store is fit for locks. It changes nothing but a scratch lock, of which only the fence
//! counter stays.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use leasehold::doctor::{Examination, Examined, Facts, NodeFacts, ServerFacts};
use leasehold_serve::documents::millis;
use serde::Serialize;

use crate::config;
use crate::diagnosis::{Finding, Purpose, State, diagnose};
use crate::exit::{CONFIG, Exit, LOCK_UNKNOWN, exit};
use crate::messages::{self, is_direction, span};
use crate::output;
use crate::session::in_runtime;
use crate::store::StoreArgs;

const TTL_HELP: &str = "The TTL that the locks have: most limits are a share of it [env: LEASEHOLD_TTL] [default: 30s, or max_ttl of a quorum if that is shorter]";

const ABOUT: &str = "\
Prints what is wrong, the worst first, and what to do about it. What the server refuses to tell is
\"unknown\" and never a failure. It takes 5 s, or less with --quick. A scratch lock
leasehold:doctor:... is taken and freed; only the fence counter leasehold:fence stays. Nothing
else is changed. Of a cluster, all nodes are examined. docs/reference/doctor.md lists the checks.
  leasehold doctor --for correctness
  leasehold doctor --acl --keys 'jobs:*'

Exit codes: 0 no failure; 78 at least one, or no store; 69 the store does not answer; 77 it refused
the login; 64 wrong use";

/// Check whether a store is fit for locks
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Doctor {
    #[command(flatten)]
    store: StoreArgs,

    /// What the locks are for: efficiency (two at once are a cost) or correctness (two at once are damage)
    #[arg(
        long = "for",
        value_name = "PURPOSE",
        value_enum,
        default_value_t = Purpose::Efficiency
    )]
    purpose: Purpose,

    #[arg(long, value_name = "DUR", value_parser = config::ttl, help = TTL_HELP)]
    ttl: Option<Duration>,

    /// One JSON document instead of text (leasehold.doctor/1)
    #[arg(long)]
    json: bool,

    /// List what is in order, too
    #[arg(long)]
    all: bool,

    /// Leave out what takes seconds: evictions going on, jumping clocks, a host that stalls
    #[arg(long)]
    quick: bool,

    /// Take warnings for failures
    #[arg(long, hide_short_help = true)]
    strict: bool,

    /// Leave out a check; may be repeated
    #[arg(long, value_name = "ID", hide_short_help = true)]
    ignore: Vec<String>,

    /// Print only the ACL line for a user who may do what locks need, and nothing else
    #[arg(long, conflicts_with_all = ["json", "all"])]
    acl: bool,

    /// The names of the locks that this user may use, as a pattern, without namespace and template: jobs:*
    #[arg(long, value_name = "PATTERN", default_value = "*", value_parser = pattern, hide_short_help = true)]
    keys: String,
}

/// An ACL rule is one word.
fn pattern(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("must be one word, as in jobs:*".into());
    }
    Ok(text.to_owned())
}

/// Examines, and says what was found.
pub(crate) fn doctor(args: &Doctor) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl)?;
    let how = Examination::new(ttl)
        .quick(args.quick || args.acl)
        .keys(&args.keys);
    let examined = in_runtime(async { target.examine(&how).await.map_err(Exit::from) });
    let examined = examined.map_err(|exit| {
        let exit = exit.without_command();
        exit.reworded(LOCK_UNKNOWN, "There was nothing to examine.")
    })?;
    if args.acl {
        let store = &examined.store;
        let line = acl(&examined.facts).ok_or_else(|| {
            let why = "has no users of its own, so there is no ACL line";
            exit!(CONFIG, "{store} {why} (exit {CONFIG})")
        })?;
        return Ok(tell(&format!("{line}\n"), 0));
    }
    let mut findings = diagnose(&examined.facts, args.purpose);
    leave_out(&mut findings, &args.ignore);
    let bad = if args.strict {
        State::Warn
    } else {
        State::Fail
    };
    let report = Report::new(&examined, &how, findings, args.purpose, bad);
    let text = if args.json {
        output::json_for_people(&report)
    } else {
        report.text(args, ttl)
    };
    Ok(tell(&text, report.exit_code))
}

/// What the page of `leasehold ui` shows of a store: the document, without checks that write or take seconds.
#[cfg(feature = "serve")]
pub(crate) async fn quick_document(
    target: &crate::session::Target,
    ttl: Duration,
) -> Result<String, leasehold::Error> {
    let how = Examination::new(ttl).quick(true).read_only();
    let examined = target.examine(&how).await?;
    let purpose = Purpose::Efficiency;
    let findings = diagnose(&examined.facts, purpose);
    let report = Report::new(&examined, &how, findings, purpose, State::Fail);
    Ok(output::json(&report))
}

/// A reader that stops early (`leasehold doctor | head -1`) has the exit code.
fn tell(text: &str, code: u8) -> Exit {
    let _read: std::io::Result<()> = output::write(text.as_bytes());
    Exit::quiet(code)
}

/// Leaves out the findings of these checks.
fn leave_out(findings: &mut Vec<Finding>, ids: &[String]) {
    for id in ids {
        if findings.iter().all(|finding| finding.id != id) {
            let id = messages::quoted(id);
            messages::say(&format!(
                "warning: --ignore {id}: no such check was made; `leasehold doctor --all` lists them"
            ));
        }
    }
    findings.retain(|finding| !ids.iter().any(|id| id == finding.id));
}

/// On Redis and Valkey: the ACL rule of a user with the permissions that locks need, and no others.
fn acl(facts: &Facts) -> Option<&str> {
    let nodes = match facts {
        Facts::Server(facts) => return Some(&facts.acl),
        Facts::Quorum(facts) => &facts.nodes,
        Facts::Cluster(facts) => &facts.nodes,
        Facts::File(_) | Facts::Memory => return None,
    };
    let mut nodes = nodes.iter();
    nodes.find_map(|node| Some(node.facts.as_ref().ok()?.acl.as_str()))
}

/// What was found. The JSON document has the fields in this order.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.doctor/1")]
struct Report<'a> {
    /// The store's address, without user and password.
    store: &'a str,
    server: Server,
    /// The servers of the store, as far as they are known.
    nodes: Vec<NodeReport>,
    #[serde(rename = "for")]
    purpose: Purpose,
    ttl_ms: u128,
    quick: bool,
    /// In the order of the documentation.
    findings: Vec<Finding>,
    /// How many findings have each state.
    counts: BTreeMap<State, usize>,
    acl: Option<&'a str>,
    exit_code: u8,
}

/// The description that a store gives of itself; `None` where it gives none.
#[derive(Debug, Default, Serialize)]
struct Server {
    /// `Redis`, `Valkey`, `SQLite file`, ...
    engine: Option<String>,
    version: Option<String>,
    /// `standalone`, `cluster` or `sentinel`.
    mode: Option<String>,
    /// `master` or `slave`.
    role: Option<String>,
    uptime_ms: Option<u64>,
}

impl Server {
    fn of(facts: &Facts) -> Self {
        let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (engine, version) = match facts {
            Facts::Server(facts) => facts.engine().unwrap_or_default(),
            Facts::Quorum(facts) => (format!("{} servers", facts.nodes.len()), String::new()),
            Facts::Cluster(facts) if facts.nodes.len() == 1 => ("1 node".into(), String::new()),
            Facts::Cluster(facts) => (format!("{} nodes", facts.nodes.len()), String::new()),
            Facts::File(facts) => ("SQLite file".into(), facts.sqlite.clone()),
            Facts::Memory => ("memory".into(), String::new()),
        };
        let named = Self {
            engine: said(&engine),
            version: said(&version),
            ..Self::default()
        };
        let facts = match facts {
            Facts::Server(facts) => facts,
            Facts::Cluster(_) => {
                return Self {
                    mode: Some("cluster".into()),
                    ..named
                };
            }
            Facts::Quorum(_) | Facts::File(_) | Facts::Memory => return named,
        };
        let uptime = facts.info_number("uptime_in_seconds");
        Self {
            mode: facts.mode().and_then(said),
            role: facts.role().and_then(said),
            uptime_ms: uptime.map(|seconds| seconds.saturating_mul(1_000)),
            ..named
        }
    }
}

/// A server of the store.
#[derive(Debug, Default, Serialize)]
struct NodeReport {
    /// Its address, without user and password.
    server: String,
    /// `master` or `slave`.
    role: Option<String>,
    version: Option<String>,
    uptime_ms: Option<u64>,
    /// How many slots of a cluster it has.
    slots: Option<u16>,
    /// In a quorum: for how long it gives no vote.
    votes_in_ms: Option<u64>,
    /// The primary that it follows.
    primary: Option<String>,
    /// The replicas that follow it, as it knows them.
    replicas: Vec<Replica>,
    /// Why its state is not known.
    error: Option<String>,
}

/// A replica, as its primary knows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Replica {
    server: String,
    /// `online` if it is in step.
    state: String,
    /// The time since the primary last heard of it.
    lag_ms: Option<u64>,
}

impl NodeReport {
    fn all_of(examined: &Examined) -> Vec<Self> {
        let nodes = match &examined.facts {
            Facts::Server(facts) => return vec![Self::of(examined.store.clone(), facts)],
            Facts::Quorum(facts) => &facts.nodes,
            Facts::Cluster(facts) => &facts.nodes,
            Facts::File(_) | Facts::Memory => return Vec::new(),
        };
        nodes.iter().map(Self::of_several).collect()
    }

    fn of_several(node: &NodeFacts) -> Self {
        let server = node.server.clone();
        // `q.marks` tells of a wrong mark.
        let mark = node.mark.ok().flatten();
        let facts = node.facts.as_ref();
        let known = facts.map_or_else(|_| Self::default(), |facts| Self::of(String::new(), facts));
        Self {
            server,
            slots: node.slots,
            votes_in_ms: mark.map(|mark| millis(mark.votes_in)),
            error: facts.err().map(ToString::to_string),
            ..known
        }
    }

    fn of(server: String, facts: &ServerFacts) -> Self {
        let uptime = facts.info_number("uptime_in_seconds");
        let primary = facts.info("master_host").zip(facts.info("master_port"));
        let replicas = (0..).map_while(|at| facts.info(&format!("slave{at}")));
        Self {
            server,
            role: facts.role().map(str::to_owned),
            version: facts
                .engine()
                .map(|(name, version)| format!("{name} {version}")),
            uptime_ms: uptime.map(|seconds| seconds.saturating_mul(1_000)),
            primary: primary.map(|(host, port)| format!("{host}:{port}")),
            replicas: replicas.filter_map(Replica::of).collect(),
            ..Self::default()
        }
    }
}

impl Replica {
    /// Reads a line of `INFO`: `ip=10.0.0.2,port=6379,state=online,offset=28,lag=1`.
    fn of(line: &str) -> Option<Self> {
        let fields: BTreeMap<_, _> = line
            .split(',')
            .filter_map(|field| field.split_once('='))
            .collect();
        let lag: Option<u64> = fields.get("lag").and_then(|lag| lag.parse().ok());
        Some(Self {
            server: format!("{}:{}", fields.get("ip")?, fields.get("port")?),
            state: (*fields.get("state")?).to_owned(),
            lag_ms: lag.map(|seconds| seconds.saturating_mul(1_000)),
        })
    }
}

impl<'a> Report<'a> {
    /// A finding of the state `bad`, or a worse one, is a failure.
    fn new(
        examined: &'a Examined,
        how: &Examination,
        findings: Vec<Finding>,
        purpose: Purpose,
        bad: State,
    ) -> Self {
        let count = |state: State| {
            let found = findings.iter().filter(|finding| finding.state == state);
            (state, found.count())
        };
        let counts = BTreeMap::from(State::ALL.map(count));
        let is_bad = findings.iter().any(|finding| finding.state >= bad);
        Self {
            store: &examined.store,
            server: Server::of(&examined.facts),
            nodes: NodeReport::all_of(examined),
            purpose,
            ttl_ms: how.ttl.as_millis(),
            quick: how.quick,
            findings,
            counts,
            acl: acl(&examined.facts),
            exit_code: if is_bad { CONFIG } else { 0 },
        }
    }

    /// The report for people, the worst first, without control characters.
    fn text(&self, args: &Doctor, ttl: Duration) -> String {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        // Stable: those that are equally bad stay in the order of the documentation.
        findings.sort_by_key(|finding| Reverse(finding.state));
        let least = if args.all { State::Ok } else { State::Unknown };
        findings.retain(|finding| finding.state >= least);
        let findings: String = findings.into_iter().map(shown).collect();
        self.header(ttl) + &findings + &self.summary(args)
    }

    fn header(&self, ttl: Duration) -> String {
        let server = &self.server;
        let words = [&server.engine, &server.version, &server.mode, &server.role];
        let words = words.into_iter().flatten().map(|word| clean(word));
        let mut about = words.collect::<Vec<_>>().join(" ");
        if !about.is_empty() {
            about.insert_str(0, "  ");
        }
        let uptime = server.uptime_ms.map(Duration::from_millis).map(span);
        let uptime = uptime.map_or_else(String::new, |uptime| format!(", up {uptime}"));
        let (store, lease, renew) = (clean(self.store), span(ttl), span(ttl / 3));
        format!("{store}{about}{uptime}    lease {lease}, renew {renew}\n")
    }

    fn summary(&self, args: &Doctor) -> String {
        let mut bad = Vec::new();
        for state in [State::Fail, State::Warn, State::Unknown, State::Info] {
            let count = self.counts[&state];
            if count > 0 {
                let word = format!("{state:?}").to_lowercase();
                bad.push(format!("{count} {word}"));
            }
        }
        let again = format!("leasehold doctor {}", args.store.again());
        let more = format!("  ({again}--all)");
        let more = if args.all { "" } else { &more };
        // Efficiency is the weaker purpose; the summary says so.
        let fails_only_the_other =
            |finding: &&Finding| finding.correctness == State::Fail && finding.state != State::Fail;
        let note = match self.findings.iter().filter(fails_only_the_other).count() {
            0 => String::new(),
            hidden => format!(
                "{:5}for locks that prevent damage, {hidden} more would fail: {again}--for correctness\n",
                ""
            ),
        };
        let (good, bad, code) = (self.counts[&State::Ok], bad.join(" "), self.exit_code);
        format!("ok   {good} checks{more}  {bad} -> exit {code}\n{note}")
    }
}

/// State, id and text; the advice below the text.
fn shown(finding: &Finding) -> String {
    let mark = match finding.state {
        State::Ok => "ok",
        State::Info => "info",
        State::Unknown => " ?",
        State::Warn => "WARN",
        State::Fail => "FAIL",
    };
    let what = format!("{mark:<5}{:<14}{}\n", finding.id, clean(&finding.text));
    let remedy = finding.remedy.as_deref().unwrap_or_default();
    let fixes = remedy.lines().enumerate().map(|(at, line)| {
        let fix = if at == 0 { "fix: " } else { "     " };
        format!("{:19}{fix}{}\n", "", clean(line))
    });
    what + &fixes.collect::<String>()
}

/// Text of a server may contain any character.
fn clean(text: &str) -> String {
    let visible = |c: char| {
        if c.is_control() || is_direction(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(visible).collect()
}
