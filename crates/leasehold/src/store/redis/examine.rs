//! Gathers the facts about a server that decide whether it is fit for locks. It changes nothing but a scratch lock under
//! `leasehold:doctor:`, which it removes. A refusal is a fact, not an error.
//!
//! [`probe`] asks over one connection and uses a scratch lock as this user; nothing else writes.

mod probe;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Now;
use redis::{ConnectionAddr, RedisResult, Value, cmd, from_redis_value_ref, pipe};
use tokio::sync::mpsc;

use self::probe::{Messages, Talk, Told};
use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::connection::dial::Dial;
use super::connection::sentinel::Sentinels;
use super::fault::refusal;
use super::protocol::{INDEX, MARK, MARK_ID, WrittenMark};
use super::scripts::NodeTerms;
use crate::clock::Clock;
use crate::doctor::{
    ClockFacts, Examination, Examined, Facts, Fields, IndexedKey, MarkFacts, NodeFacts, NotAMark,
    QuorumFacts, ServerFacts, Transport,
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
const SETTINGS: [&str; 12] = [
    "appendfsync",
    "appendonly",
    "busy-reply-threshold",
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

/// Examines the server at `address`; each request may take `limit`.
///
/// # Errors
/// The server cannot be reached or does not answer. A refusal by a server that answers is a fact.
pub(crate) async fn examine(
    address: &Address,
    how: &Examination,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let named = match Sentinels::of(address, &Clock::system(), limit) {
        Some(sentinels) => Some(sentinels.primary().await?),
        None => None,
    };
    let (facts, _) = gather(named.as_ref().unwrap_or(address), how, limit, None).await?;
    Ok(Examined::new(address.to_string(), Facts::Server(facts)))
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
        match gather(node, how, limit, Some(terms)).await {
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
    if let Some(Err(error)) = nodes.first().map(|node| &node.facts)
        && nodes.iter().all(|node| node.facts.is_err())
    {
        return Err(error.clone());
    }
    let facts = QuorumFacts::new(address.longest_ttl, address.durable, nodes);
    let facts = Facts::Quorum(Box::new(facts));
    Ok(Examined::new(address.to_string(), facts))
}

/// Mark and clock of a node of a quorum.
type AsNode = (Result<Option<MarkFacts>, NotAMark>, ClockFacts);

/// All facts, over a connection of their own, to whatever it is: a replica and a sentinel are judged like all others.
async fn gather(
    address: &Address,
    how: &Examination,
    limit: Duration,
    node: Option<NodeTerms>,
) -> Result<(Box<ServerFacts>, Option<AsNode>), StoreError> {
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
    let measured = async {
        if how.quick {
            return Ok((None, None));
        }
        let stall = async { Ok(Some(stall(clock).await)) };
        tokio::try_join!(step(&talk), stall)
    };
    let all = async {
        let look = if how.glance && node.is_none() {
            None
        } else {
            look(&talk).await?
        };
        let mut marked = Ok(Value::Nil);
        if node.is_some() {
            marked = talk.refusable(cmd("GET").arg(MARK)).await?;
        }
        let asked = ask(&talk, how, look.as_ref(), &mut messages);
        let (facts, measured) = tokio::try_join!(asked, measured)?;
        Ok::<_, StoreError>((facts, measured, look, marked))
    };
    let all = link.until(all).await;
    let (mut facts, (step, stall), look, marked) =
        all.map_err(|error| refusal(address, &error))??;
    let seen = node.zip(look);
    let seen = seen.map(|(node, look)| as_node(node, &facts, &look, marked));
    (facts.step, facts.stall) = (step, stall);
    facts.ttl = how.ttl;
    facts.transport = transport(address);
    let database = address.settings.db();
    let (version, known) = (facts.redis_version(), facts.commands.as_deref());
    let known = known.unwrap_or_default();
    facts.acl = probe::acl(version, known, database, &how.keys, node.is_some());
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
    look: Option<&Look>,
    messages: &mut Messages,
) -> Result<ServerFacts, StoreError> {
    let mut facts = ServerFacts {
        info: info(talk).await?,
        ..ServerFacts::default()
    };
    if how.glance {
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
    locks(talk, &mut facts).await?;
    let clock = talk.dial.clock;
    let begun = clock.now();
    facts.probe = probe::probe(talk, &how.keys, messages).await?;
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

/// The newest keys of the index that this user may read, and how many more there are.
async fn locks(talk: &Talk<'_>, facts: &mut ServerFacts) -> Result<(), StoreError> {
    let newest = cmd("ZRANGE").arg(INDEX).arg(-NAMES).arg(-1).to_owned();
    let Some(names) = talk.told::<Vec<Vec<u8>>>(&newest).await? else {
        return Ok(());
    };
    let mut locks = Vec::new();
    if !names.is_empty() {
        let mut look = pipe();
        look.ignore_errors();
        for name in &names {
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

/// The mark of a node, which came in the reply to `GET`, and its clock.
fn as_node(
    node: NodeTerms,
    server: &ServerFacts,
    look: &Look,
    marked: RedisResult<Value>,
) -> AsNode {
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
    let mark = WrittenMark::in_reply(marked).map(|seen| seen.map(judged));
    let clock = ClockFacts {
        ahead_us: look.there_us.cast_signed() - look.here_us.cast_signed(),
        error: look.took / 2,
    };
    (mark, clock)
}
