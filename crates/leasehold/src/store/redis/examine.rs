//! Gathers the facts about a server that decide whether it is fit for locks. It changes nothing but a scratch lock under
//! `leasehold:doctor:`, which it removes. A refusal is a fact, not an error.
//!
//! [`probe`] asks over one connection and uses a scratch lock as this user; nothing else writes.

mod probe;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Now;
use redis::{ConnectionAddr, RedisResult, Value, cmd, from_redis_value_ref, pipe};
use tokio::sync::mpsc;

use self::probe::{Membership, Messages, Talk, Told, has_slot};
use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::cluster::is_alone;
use super::connection::dial::Dial;
use super::connection::handshake::is_of_cluster;
use super::connection::sentinel::Sentinels;
use super::fault::{refusal, silent};
use super::protocol::{INDEX, MARK, MARK_ID, WrittenMark};
use super::scripts::NodeTerms;
use super::slots::{self, ToldNode};
use crate::clock::Clock;
use crate::doctor::{
    ClockFacts, ClusterFacts, Examination, Examined, Facts, Fields, IndexedKey, MarkFacts,
    NodeFacts, NotAMark, QuorumFacts, ServerFacts, Transport,
};
use crate::error::StoreError;
use crate::store::contract::Listener;

/// The pause between two readings of the counters.
const BETWEEN: Duration = Duration::from_secs(2);

/// How long the clocks are compared.
const STEP: Duration = Duration::from_secs(5);

/// How long this host is watched.
const STALL: Duration = Duration::from_secs(1);

/// No more pings than these, in no more time than this.
const PINGS: usize = 200;
const PING_TIME: Duration = Duration::from_secs(1);

/// The number of index entries that are read: the newest.
const NAMES: isize = 1000;

/// Settings that INFO does not show.
const SETTINGS: [&str; 14] = [
    "appendfsync",
    "appendonly",
    "busy-reply-threshold",
    "cluster-node-timeout",
    "cluster-require-full-coverage",
    "latency-monitor-threshold",
    "lua-time-limit",
    "maxclients",
    "maxmemory-policy",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "save",
    "tcp-keepalive",
    "timeout",
];

/// Commands that only some servers have.
const SOME_HAVE: [&str; 4] = ["wait", "waitaof", "delex", "delifeq"];

/// What the first server is that answers.
enum First {
    Alone(Box<ServerFacts>),
    /// A node of a cluster; `None` if it does not tell which ones there are.
    OfCluster(Option<Vec<ToldNode>>),
}

/// Examines the server at `address`, or all nodes of the cluster that it leads to; each request may take `limit`.
///
/// # Errors
/// The server cannot be reached or does not answer; of a cluster, no node does. A refusal by a server that answers is a fact.
pub(crate) async fn examine(
    address: &Address,
    how: &Examination,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let named = match Sentinels::of(address, &Clock::system(), limit) {
        Some(sentinels) => Some(sentinels.primary().await?),
        None => None,
    };
    let given = named.as_ref().unwrap_or(address);
    let seeds = address.seeds.iter();
    let seeds = seeds.map(|(host, port)| address.of_node(host, *port));
    let seeds: Vec<Address> = std::iter::once(given.clone()).chain(seeds).collect();
    let mut failed = None;
    for seed in &seeds {
        let ask = async |talk: &Talk<'_>, messages: &mut Messages| match nodes(talk).await? {
            Some(told) => Ok(First::OfCluster(told)),
            None if address.is_cluster => Err(is_alone(address)),
            None => {
                let (facts, _) = gather(talk, how, Membership::Alone, messages).await?;
                Ok(First::Alone(facts))
            }
        };
        let facts = match over(seed, limit, ask).await {
            Ok(First::Alone(facts)) => Facts::Server(facts),
            Ok(First::OfCluster(told)) => examine_cluster(&seeds, told, how, limit).await?,
            Err(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        return Ok(Examined::new(address.to_string(), facts));
    }
    Err(failed.unwrap_or_else(|| silent(address, None)))
}

/// Whether the server is a node of a cluster, and which nodes it tells.
async fn nodes(talk: &Talk<'_>) -> Result<Option<Option<Vec<ToldNode>>>, StoreError> {
    let mut hello = cmd("HELLO");
    if talk.wire.has_pushes() {
        hello.arg(3);
    }
    let hello = talk.refusable(&hello).await?.ok();
    let server = talk.refusable(cmd("INFO").arg("server")).await?.ok();
    if !is_of_cluster(hello, server.as_ref()) {
        return Ok(None);
    }
    let told = talk.refusable(cmd("CLUSTER").arg("SLOTS")).await?.ok();
    let told = told.and_then(|told| slots::read(&told, talk.dial.address));
    Ok(Some(told.map(|(told, _)| slots::nodes(told))))
}

/// Examines the nodes of a cluster at once: those that were told, else those of the URL. A node that cannot be reached is a fact.
async fn examine_cluster(
    seeds: &[Address],
    told: Option<Vec<ToldNode>>,
    how: &Examination,
    limit: Duration,
) -> Result<Facts, StoreError> {
    let is_told = told.is_some();
    let nodes: Vec<(Address, Vec<RangeInclusive<u16>>)> = match told {
        Some(told) if !told.is_empty() => {
            let told = told.into_iter();
            told.map(|((host, port), slots)| (seeds[0].of_node(&host, port), slots))
                .collect()
        }
        // A cluster without slots names no node.
        _ => seeds
            .iter()
            .map(|seed| (seed.clone(), Vec::new()))
            .collect(),
    };
    let has_index = |(_, slots): &&(_, Vec<_>)| has_slot(slots, INDEX);
    let mut names = None;
    if let Some((node, _)) = nodes.iter().find(has_index).filter(|_| !how.glance) {
        let told = over(node, limit, async |talk: &Talk<'_>, _: &mut Messages| {
            newest(talk).await
        });
        names = told.await.ok().flatten();
    }
    let nodes = nodes.iter().map(async |(node, slots)| {
        let membership = Membership::Cluster {
            slots,
            names: names.as_deref(),
        };
        let ask = async |talk: &Talk<'_>, messages: &mut Messages| {
            gather(talk, how, membership, messages).await
        };
        let (facts, seen) = over(node, limit, ask).await.map_or_else(
            |error| (Err(error), None),
            |(facts, seen)| (Ok(facts), seen),
        );
        let mut node = NodeFacts::new(node.to_string(), facts);
        node.clock = seen.map(|(_, clock)| clock);
        let count = slots.iter().map(|slots| slots.end() - slots.start() + 1);
        node.slots = is_told.then(|| count.sum());
        node
    });
    let nodes = futures_util::future::join_all(nodes).await;
    some_answer(&nodes)?;
    let facts = ClusterFacts::new(how.ttl, nodes);
    Ok(Facts::Cluster(Box::new(facts)))
}

/// The error of the first node, if no node answers.
fn some_answer(nodes: &[NodeFacts]) -> Result<(), StoreError> {
    match nodes.first().map(|node| &node.facts) {
        Some(Err(error)) if nodes.iter().all(|node| node.facts.is_err()) => Err(error.clone()),
        _ => Ok(()),
    }
}

/// Examines the servers of a quorum at once; each request may take `limit`. A server that cannot be reached is a fact.
///
/// # Errors
/// No server answers.
pub(crate) async fn examine_quorum(
    address: &QuorumAddress,
    how: &Examination,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let terms = NodeTerms {
        terms: address.terms(),
        durable: address.durable,
    };
    let nodes = address.nodes.iter().map(async |node| {
        let server = node.to_string();
        let ask = async |talk: &Talk<'_>, messages: &mut Messages| {
            gather(talk, how, Membership::Quorum(terms), messages).await
        };
        match over(node, limit, ask).await {
            Ok((facts, seen)) => {
                let mut node = NodeFacts::new(server, Ok(facts));
                if let Some((mark, clock)) = seen {
                    (node.mark, node.clock) = (mark, Some(clock));
                }
                node
            }
            Err(error) => NodeFacts::new(server, Err(error)),
        }
    });
    let nodes = futures_util::future::join_all(nodes).await;
    some_answer(&nodes)?;
    let facts = QuorumFacts::new(address.longest_ttl, address.durable, nodes);
    let facts = Facts::Quorum(Box::new(facts));
    Ok(Examined::new(address.to_string(), facts))
}

/// Asks over a connection of its own, which leads to whatever it is: a replica and a sentinel are judged like all others.
async fn over<T>(
    address: &Address,
    limit: Duration,
    ask: impl AsyncFnOnce(&Talk<'_>, &mut Messages) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let clock = &Clock::system();
    let (sender, mut messages) = mpsc::unbounded_channel();
    // Sending fails after the receiver is gone.
    let listener: Listener = Arc::new(move |notice| drop(sender.send(notice)));
    let scripts = Arc::default();
    let dial = Dial {
        address,
        limit,
        clock,
        scripts: &scripts,
        listener: &listener,
        placement: None,
    };
    let (mut link, wire) = dial.open().await?;
    let talk = Talk { dial, wire };
    let answer = link.until(ask(&talk, &mut messages)).await;
    answer.map_err(|error| refusal(address, &error))?
}

/// Mark and clock of a node.
type AsNode = (Result<Option<MarkFacts>, NotAMark>, ClockFacts);

/// All facts about a server.
async fn gather(
    talk: &Talk<'_>,
    how: &Examination,
    membership: Membership<'_>,
    messages: &mut Messages,
) -> Result<(Box<ServerFacts>, Option<AsNode>), StoreError> {
    let Dial { address, clock, .. } = talk.dial;
    let measured = async {
        if how.quick {
            return Ok((None, None));
        }
        let stall = async { Ok(Some(stall(clock).await)) };
        tokio::try_join!(step(talk), stall)
    };
    let quorum = match membership {
        Membership::Quorum(terms) => Some(terms),
        Membership::Alone | Membership::Cluster { .. } => None,
    };
    let look = if how.glance && quorum.is_none() {
        None
    } else {
        look(talk).await?
    };
    let mut marked = Ok(Value::Nil);
    if quorum.is_some() {
        marked = talk.refusable(cmd("GET").arg(MARK)).await?;
    }
    let asked = ask(talk, how, membership, look.as_ref(), messages);
    let (mut facts, (step, stall)) = tokio::try_join!(asked, measured)?;
    let seen = look.map(|look| {
        let mark = quorum.map_or(Ok(None), |node| mark_of(node, &facts, &look, marked));
        (mark, clock_of(&look))
    });
    (facts.step, facts.stall) = (step, stall);
    facts.ttl = how.ttl;
    facts.transport = transport(address);
    let database = address.settings.db();
    let (version, known) = (facts.redis_version(), facts.commands.as_deref());
    let known = known.unwrap_or_default();
    facts.acl = probe::acl(version, known, database, &how.keys, membership);
    if let Some(replicas) = address.replicas {
        let waits = if replicas.fsync { "waitaof" } else { "wait" };
        facts.acl = format!("{} +{waits}", facts.acl);
    }
    Ok((Box::new(facts), seen))
}

fn transport(address: &Address) -> Transport {
    let is_loopback = match &address.addr {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
            let is_loopback = |ip: IpAddr| ip.is_loopback();
            host == "localhost" || host.parse().is_ok_and(is_loopback)
        }
        _ => true,
    };
    Transport {
        is_private: address.is_private(),
        is_loopback,
        has_password: address.has_password(),
    }
}

/// The facts that need no measurement over time, except the counters.
async fn ask(
    talk: &Talk<'_>,
    how: &Examination,
    membership: Membership<'_>,
    look: Option<&Look>,
    messages: &mut Messages,
) -> Result<ServerFacts, StoreError> {
    let mut facts = ServerFacts {
        info: info(talk).await?,
        ..ServerFacts::default()
    };
    if how.glance {
        facts.probe.left_out = true;
        return Ok(facts);
    }
    let role: Option<Vec<Value>> = talk.told(&cmd("ROLE")).await?;
    facts.role = role.and_then(|role| from_redis_value_ref(role.first()?).ok());
    facts.config = config(talk).await?;
    facts.user = talk.told(cmd("ACL").arg("WHOAMI")).await?;
    facts.commands = commands(talk).await?;
    facts.latency = latency(talk).await?;
    facts.ping = ping(talk, how.quick).await?;
    facts.offset = look.map(|look| {
        let apart = look.there_us.abs_diff(look.here_us);
        (Duration::from_micros(apart), look.took / 2)
    });
    let names = match membership {
        Membership::Cluster { slots, names } => {
            let told: Option<String> = talk.told(cmd("CLUSTER").arg("INFO")).await?;
            facts.cluster = told.map(|told| Fields::of_info(&told));
            let is_here = |name: &&Vec<u8>| has_slot(slots, &String::from_utf8_lossy(name));
            names.map(|names| names.iter().filter(is_here).cloned().collect())
        }
        Membership::Alone | Membership::Quorum(_) => newest(talk).await?,
    };
    if let Some(names) = names {
        locks(talk, &mut facts, &names).await?;
    }
    let clock = talk.dial.clock;
    let begun = clock.now();
    facts.probe.left_out = how.read_only;
    if !how.read_only {
        facts.probe = probe::probe(talk, &how.keys, membership, messages).await?;
    }
    if !how.quick && facts.info.is_some() {
        clock.sleep_until(begun.after(BETWEEN)).await;
        facts.later = info(talk).await?;
    }
    Ok(facts)
}

async fn info(talk: &Talk<'_>) -> Told<Fields> {
    let text: Option<String> = talk.told(&cmd("INFO")).await?;
    Ok(text.map(|text| Fields::of_info(&text)))
}

/// One by one: older servers take no more at once. The first refusal is one of all.
async fn config(talk: &Talk<'_>) -> Told<Fields> {
    let mut settings = Fields::default();
    for name in SETTINGS {
        let told = talk.told(cmd("CONFIG").arg("GET").arg(name)).await?;
        let Some(told): Option<BTreeMap<String, String>> = told else {
            return Ok(None);
        };
        settings.0.extend(told);
    }
    Ok(Some(settings))
}

async fn commands(talk: &Talk<'_>) -> Told<Vec<String>> {
    let asked = cmd("COMMAND").arg("INFO").arg(&SOME_HAVE).to_owned();
    let about = talk.told::<Vec<Value>>(&asked).await?;
    let is_known = |about: &Value| matches!(about, Value::Array(parts) if !parts.is_empty());
    Ok(about.map(|about| {
        let known = SOME_HAVE.iter().zip(about);
        let known = known.filter(|(_, about)| is_known(about));
        known.map(|(name, _)| (*name).to_owned()).collect()
    }))
}

/// Event, when, its latest and its longest in ms; newer servers say more after that.
async fn latency(talk: &Talk<'_>) -> Told<Vec<(String, u64)>> {
    let told: Option<Vec<Vec<Value>>> = talk.told(cmd("LATENCY").arg("LATEST")).await?;
    let event = |event: Vec<Value>| {
        let name = from_redis_value_ref(event.first()?).ok()?;
        Some((name, from_redis_value_ref(event.get(3)?).ok()?))
    };
    Ok(told.map(|events| events.into_iter().filter_map(event).collect()))
}

/// The newest names in the index.
async fn newest(talk: &Talk<'_>) -> Told<Vec<Vec<u8>>> {
    talk.told(cmd("ZRANGE").arg(INDEX).arg(-NAMES).arg(-1))
        .await
}

/// The keys of these names that this user may read, and how many more there are.
async fn locks(
    talk: &Talk<'_>,
    facts: &mut ServerFacts,
    names: &[Vec<u8>],
) -> Result<(), StoreError> {
    let mut locks = Vec::new();
    if !names.is_empty() {
        let mut look = pipe();
        look.ignore_errors();
        for name in names {
            look.cmd("TYPE").arg(name);
            look.cmd("PTTL").arg(name);
        }
        let mut wire = talk.wire.clone();
        let answers = look.query_async::<Vec<Value>>(&mut wire);
        let answers = talk.answered(answers).await?.unwrap_or_default();
        for (name, answer) in names.iter().zip(answers.chunks_exact(2)) {
            let kind = from_redis_value_ref(&answer[0]);
            let left = from_redis_value_ref(&answer[1]);
            if let (Ok(kind), Ok(left)) = (kind, left) {
                // Anything may stand in the index; one odd name must not hide the others.
                let name = String::from_utf8_lossy(name).into_owned();
                locks.push(IndexedKey { name, kind, left });
            }
        }
    }
    facts.hidden_locks = names.len() - locks.len();
    locks.retain(|lock| lock.kind != "none");
    facts.locks = Some(locks);
    Ok(())
}

/// How long 99 of 100 answers took at most.
async fn ping(talk: &Talk<'_>, quick: bool) -> Told<Duration> {
    let clock = talk.dial.clock;
    let begun = clock.now();
    let most = if quick { PINGS / 10 } else { PINGS };
    let mut took = Vec::new();
    while took.len() < most && clock.now().since(begun) < PING_TIME {
        let sent = clock.now();
        if talk.told::<String>(&cmd("PING")).await?.is_none() {
            return Ok(None);
        }
        took.push(clock.now().since(sent));
    }
    took.sort_unstable();
    let last = (took.len() * 99).div_ceil(100).saturating_sub(1);
    Ok(took.get(last).copied())
}

/// A look at the server's clock, half-way through the request, in us.
struct Look {
    there_us: u64,
    /// This host's time then.
    here_us: u64,
    /// This host's steady clock then.
    steady_us: u64,
    /// How long the request took.
    took: Duration,
}

/// The quickest of some looks at the server's clock, which is the most exact.
async fn look(talk: &Talk<'_>) -> Told<Look> {
    let clock = talk.dial.clock;
    let mut best: Option<Look> = None;
    for _ in 0..10 {
        let sent = clock.store_now();
        let Some((seconds, micros)) = talk.told::<(u64, u64)>(&cmd("TIME")).await? else {
            return Ok(None);
        };
        let took_us = clock.store_now().clock_us.saturating_sub(sent.clock_us);
        let took = Duration::from_micros(took_us);
        if best.as_ref().is_none_or(|best| took < best.took) {
            best = Some(Look {
                there_us: seconds * 1_000_000 + micros,
                here_us: sent.wall_us + took_us / 2,
                steady_us: sent.clock_us + took_us / 2,
                took,
            });
        }
    }
    Ok(best)
}

/// The difference between the time that passed there and here in a few seconds, beyond the error of both readings.
async fn step(talk: &Talk<'_>) -> Told<Duration> {
    let Some(first) = look(talk).await? else {
        return Ok(None);
    };
    talk.dial.clock.sleep(STEP).await;
    Ok(look(talk).await?.map(|second| {
        let there = i128::from(second.there_us) - i128::from(first.there_us);
        let here = i128::from(second.steady_us) - i128::from(first.steady_us);
        let apart = u64::try_from((there - here).unsigned_abs()).unwrap_or(u64::MAX);
        Duration::from_micros(apart).saturating_sub((first.took + second.took) / 2)
    }))
}

/// How long this host let a timer wait beyond its time.
async fn stall(clock: &Clock) -> Duration {
    let pause = Duration::from_millis(2);
    let begun = clock.now();
    let mut longest = Duration::ZERO;
    while clock.now().since(begun) < STALL {
        let slept = clock.now();
        clock.sleep(pause).await;
        longest = longest.max(clock.now().since(slept).saturating_sub(pause));
    }
    longest
}

/// The mark of a node of a quorum, which came in the reply to `GET`.
fn mark_of(
    node: NodeTerms,
    server: &ServerFacts,
    look: &Look,
    marked: RedisResult<Value>,
) -> Result<Option<MarkFacts>, NotAMark> {
    let start = server.info("run_id").and_then(|run| run.get(..MARK_ID));
    let offset = server.info("second_repl_offset");
    let judged = |seen: WrittenMark| {
        let start = start.unwrap_or(&seen.server);
        let terms = seen.mark.terms;
        MarkFacts {
            nodes: terms.nodes,
            longest_ttl: terms.longest_ttl.get(),
            of_another_start: seen.is_foreign(node, start, offset),
            votes_in: seen.votes_in(node, start, offset, Now::at_micros(look.there_us)),
        }
    };
    WrittenMark::in_reply(marked).map(|seen| seen.map(judged))
}

fn clock_of(look: &Look) -> ClockFacts {
    ClockFacts {
        ahead_us: look.there_us.cast_signed() - look.here_us.cast_signed(),
        error: look.took / 2,
    }
}
