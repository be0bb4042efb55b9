//! Marks the servers of a quorum. A marked server remembers since when it votes, and whose clients it serves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::quorum::{BUCKETS, Mark, QuorumTerms, quarantine};
use leasehold_core::{Now, Ttl};
use redis::{FromRedisValue, Pipeline, RedisResult, pipe};

use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::connection::dial::Dial;
use super::connection::handshake::start_of;
use super::fault::refusal;
use super::protocol::{MARK, counter_in};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Listener;
use crate::store::quorum::QuorumInit;

/// A server as it is found.
struct Found {
    /// The begin of its `run_id`.
    run: String,
    now_ms: u64,
    mark: Option<String>,
}

impl Found {
    /// How long it gives no vote.
    fn votes_in(&self) -> Duration {
        let mark = self.mark.as_deref().and_then(read_mark);
        let left = mark.and_then(|mark| mark.quarantined_for(Now::at_micros(1_000 * self.now_ms)));
        left.unwrap_or_default()
    }
}

/// Marks all servers, or none. With `again`, replaces the marks that they have.
pub(crate) async fn init(
    address: &QuorumAddress,
    again: bool,
    clock: &Clock,
    limit: Duration,
) -> Result<QuorumInit, StoreError> {
    let terms = address.terms();
    let looks = address.nodes.iter().map(|node| look(node, clock, limit));
    let found: Vec<Found> = join_all(looks)
        .await
        .into_iter()
        .collect::<Result<_, _>>()?;
    let refuse = |node: usize, why: String| {
        let server = address.nodes[node].to_string();
        Err(StoreError::new(server, StoreErrorKind::Misconfigured, why))
    };
    for (node, server) in found.iter().enumerate() {
        let first = found.iter().position(|other| other.run == server.run);
        if let Some(first) = first.filter(|first| *first < node) {
            let other = &address.nodes[first];
            return refuse(
                node,
                format!(
                    "it is the server of {other}; each vote must come from a server of its own"
                ),
            );
        }
    }
    let own = format!("{} {} ", terms.nodes, terms.longest_ttl.millis());
    let is_own = |server: &Found| {
        server
            .mark
            .as_ref()
            .is_some_and(|mark| mark.starts_with(&own))
    };
    let marked = found.iter().position(|server| server.mark.is_some());
    let marks: Vec<(String, Option<QuorumTerms>)> = match marked {
        None => found
            .iter()
            .map(|server| (mark(terms, 0, &server.run), None))
            .collect(),
        Some(_) if again => {
            let longest = found
                .iter()
                .filter_map(|server| terms_of(server.mark.as_deref()?));
            let longest = longest.map(|terms| terms.longest_ttl).max();
            let wait = pause(terms, longest);
            let mark = |server: &Found| {
                // The quarantine is counted from here on.
                let made_at_ms =
                    server.now_ms + millis(wait.saturating_sub(quarantine(terms.longest_ttl)));
                let before = server.mark.as_deref().and_then(terms_of);
                (mark(terms, made_at_ms, &server.run), before)
            };
            found.iter().map(mark).collect()
        }
        Some(_) if found.iter().all(is_own) => {
            let votes_in = found.iter().map(Found::votes_in).max();
            return Ok(QuorumInit::Already {
                votes_in: votes_in.unwrap_or_default(),
            });
        }
        Some(node) => {
            let why = match found.iter().position(|server| server.mark.is_none()) {
                Some(other) => format!(
                    "it has a mark of a quorum, and {} has none: that server is new, or has lost its data. The first client that asks it for a vote marks it, and it votes a quarantine later. To begin anew, stop all clients and add --again",
                    address.nodes[other]
                ),
                None => "it has the mark of a quorum with another number of servers or another longest TTL. To change them, stop all clients and add --again".into(),
            };
            return refuse(node, why);
        }
    };
    let writes = address.nodes.iter().zip(&marks);
    let writes =
        writes.map(|(node, (mark, before))| write(node, mark, *before, terms, again, clock, limit));
    for written in join_all(writes).await {
        written?;
    }
    if marked.is_none() {
        return Ok(QuorumInit::New);
    }
    let before = marks.iter().filter_map(|(_, before)| *before);
    let longest = before.map(|terms| terms.longest_ttl).max();
    Ok(QuorumInit::Again {
        votes_in: pause(terms, longest),
    })
}

/// How long servers with new terms give no vote: until all leases under the former terms have ended.
fn pause(terms: QuorumTerms, before: Option<Ttl>) -> Duration {
    quarantine(before.map_or(terms.longest_ttl, |before| before.max(terms.longest_ttl)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn mark(terms: QuorumTerms, made_at_ms: u64, run: &str) -> String {
    let longest = terms.longest_ttl.millis();
    format!("{} {longest} {made_at_ms} {run}", terms.nodes)
}

fn terms_of(mark: &str) -> Option<QuorumTerms> {
    let mut words = mark.split(' ');
    let (nodes, longest) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(QuorumTerms {
        nodes,
        longest_ttl: Ttl::new(Duration::from_millis(longest)).ok()?,
    })
}

/// Reads the mark of a node.
pub(super) fn read_mark(text: &str) -> Option<Mark> {
    Some(Mark {
        terms: terms_of(text)?,
        made_at_ms: text.split(' ').nth(2)?.parse().ok()?,
    })
}

/// Looks at a server.
async fn look(node: &Address, clock: &Clock, limit: Duration) -> Result<Found, StoreError> {
    let mut questions = pipe();
    questions.cmd("ROLE");
    questions.cmd("INFO").arg("server");
    questions.cmd("TIME");
    questions.cmd("GET").arg(MARK);
    let (role, info, (seconds, micros), mark): (
        redis::Value,
        redis::Value,
        (u64, u64),
        Option<String>,
    ) = ask(node, &questions, clock, limit).await?;
    let refuse = |kind, why: &str| StoreError::new(node.to_string(), kind, why);
    let role: Vec<redis::Value> = redis::from_redis_value(role).unwrap_or_default();
    let role = role
        .first()
        .and_then(|role| redis::from_redis_value_ref::<String>(role).ok());
    if role.is_none_or(|role| role != "master") {
        let why = "it is no primary: a quorum is made of servers that replicate no other one";
        return Err(refuse(StoreErrorKind::Misconfigured, why));
    }
    let run = start_of(&info).ok_or_else(|| {
        refuse(
            StoreErrorKind::Protocol,
            "it does not say which server it is (run_id in INFO server)",
        )
    })?;
    Ok(Found {
        run,
        now_ms: seconds * 1_000 + micros / 1_000,
        mark,
    })
}

/// Writes a mark, and deletes the counters of the former terms and of the new ones: a node with a counter votes before its quarantine ends.
async fn write(
    node: &Address,
    mark: &str,
    before: Option<QuorumTerms>,
    terms: QuorumTerms,
    again: bool,
    clock: &Clock,
    limit: Duration,
) -> Result<(), StoreError> {
    let mut changes = pipe();
    let set = changes.cmd("SET").arg(MARK).arg(mark);
    if !again {
        set.arg("NX");
    }
    if again {
        for terms in before.into_iter().chain([terms]) {
            let counters = (0..BUCKETS).map(|bucket| counter_in(terms, bucket));
            changes.cmd("DEL").arg(counters.collect::<Vec<_>>());
        }
    }
    let answers: Vec<redis::Value> = ask(node, &changes, clock, limit).await?;
    if answers.first() == Some(&redis::Value::Nil) {
        let why = "it was marked by another program meanwhile; look at the key leasehold:quorum of all servers";
        return Err(StoreError::new(
            node.to_string(),
            StoreErrorKind::Misconfigured,
            why,
        ));
    }
    Ok(())
}

/// Asks over a connection of its own.
async fn ask<T: FromRedisValue>(
    node: &Address,
    questions: &Pipeline,
    clock: &Clock,
    limit: Duration,
) -> Result<T, StoreError> {
    let (scripts, listener): (_, Listener) = (Arc::default(), Arc::new(drop));
    let dial = Dial {
        address: node,
        limit,
        clock,
        scripts: &scripts,
        listener: &listener,
        placement: None,
    };
    let (mut link, mut wire) = dial.open().await?;
    let asking = async {
        let answer: RedisResult<T> = link.until(questions.query_async(&mut wire)).await.flatten();
        answer.map_err(|error| refusal(node, &error))
    };
    dial.in_time(asking).await
}
