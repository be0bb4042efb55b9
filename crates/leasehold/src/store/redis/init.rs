//! Marks the servers of a quorum. A marked server remembers since when it votes, and whose clients it serves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::quorum::{BUCKETS, Mark, QuorumTerms, quarantine};
use leasehold_core::{Now, Ttl};
use redis::{FromRedisValue, Pipeline, RedisResult, Value, pipe};

use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::connection::dial::Dial;
use super::connection::handshake::{offset_of, start_of};
use super::fault::{NO_MARK, refusal};
use super::protocol::{MARK, WrittenMark, array, counter_in, text};
use super::scripts::NodeTerms;
use crate::clock::Clock;
use crate::error::{NotAMark, StoreError, StoreErrorKind};
use crate::store::contract::Listener;
use crate::store::quorum::QuorumInit;

/// Marks all servers, or none. With `again`, replaces the marks that they have.
pub(crate) async fn init(
    address: &QuorumAddress,
    again: bool,
    limit: Duration,
) -> Result<QuorumInit, StoreError> {
    let terms = address.terms();
    let nodes = address.nodes.iter();
    let servers = nodes.map(|address| Server { address, limit });
    let found = join_all(servers.map(Server::look)).await.into_iter();
    let found: Vec<Found<'_>> = found.collect::<Result<_, _>>()?;
    for (at, one) in found.iter().enumerate() {
        if let Some(other) = found[..at].iter().find(|other| other.run == one.run) {
            let other = other.server.address;
            let why = format!(
                "it is the server of {other}; each vote must come from a server of its own"
            );
            return Err(one.server.refuse(why));
        }
    }
    let marked = found.iter().find(|one| one.mark != Ok(None));
    if let Some(marked) = marked.filter(|_| !again) {
        if let Some(garbage) = found.iter().find(|one| one.mark.is_err()) {
            return Err(garbage.server.refuse(NO_MARK.into()));
        }
        if found.iter().all(|one| one.terms() == Some(terms)) {
            let durable = address.durable;
            let node = NodeTerms { terms, durable };
            let votes_in = found.iter().map(|one| one.votes_in(node)).max();
            let votes_in = votes_in.unwrap_or_default();
            return Ok(QuorumInit::Already { votes_in });
        }
        let why = match found.iter().find(|one| one.mark == Ok(None)) {
            Some(other) => format!(
                "it has a mark of a quorum, and {} has none: that server is new, or has lost its data. The first client that asks it for a vote marks it, and it votes a quarantine later. To begin anew, stop all clients and add --again",
                other.server.address
            ),
            None => "it has the mark of a quorum with another number of servers or another longest TTL. To change them, stop all clients and add --again".into(),
        };
        return Err(marked.server.refuse(why));
    }
    // Servers with new terms give no vote until all leases under the former terms have ended.
    let former = found.iter().filter_map(Found::terms);
    let longest = former.map(|terms| terms.longest_ttl);
    let votes_in = quarantine(longest.fold(terms.longest_ttl, Ttl::max));
    let later = votes_in.saturating_sub(quarantine(terms.longest_ttl));
    let later = u64::try_from(later.as_millis()).unwrap_or(u64::MAX);
    let writes = found.iter().map(|one| {
        // The quarantine is counted from here on. A new quorum has none.
        let made_at_ms = marked.map_or(0, |_| one.now_ms + later);
        one.write(terms, made_at_ms, again)
    });
    for written in join_all(writes).await {
        written?;
    }
    Ok(match marked {
        None => QuorumInit::New,
        Some(_) => QuorumInit::Again { votes_in },
    })
}

/// A server as it is found.
struct Found<'a> {
    server: Server<'a>,
    /// The begin of its `run_id`.
    run: String,
    /// Its `second_repl_offset`.
    offset: Option<String>,
    now_ms: u64,
    mark: Result<Option<WrittenMark>, NotAMark>,
}

impl Found<'_> {
    fn mark(&self) -> Option<&WrittenMark> {
        self.mark.as_ref().ok()?.as_ref()
    }

    /// The terms of its mark.
    fn terms(&self) -> Option<QuorumTerms> {
        self.mark().map(|seen| seen.mark.terms)
    }

    /// How long it gives no vote, counted from the next request.
    fn votes_in(&self, node: NodeTerms) -> Duration {
        let now = Now::at_micros(1_000 * self.now_ms);
        let left = |seen: &WrittenMark| seen.votes_in(node, &self.run, self.offset.as_deref(), now);
        self.mark().map(left).unwrap_or_default()
    }

    /// Writes a mark, and deletes the counters of the former terms and of the new ones: a node with a counter votes before its quarantine ends.
    async fn write(
        &self,
        terms: QuorumTerms,
        made_at_ms: u64,
        again: bool,
    ) -> Result<(), StoreError> {
        let mark = WrittenMark {
            mark: Mark { terms, made_at_ms },
            server: self.run.clone(),
            is_young: false,
        };
        let mut changes = pipe();
        let set = changes.cmd("SET").arg(MARK).arg(mark.to_string());
        if again {
            for terms in self.terms().into_iter().chain([terms]) {
                let counters = (0..BUCKETS).map(|bucket| counter_in(terms, bucket));
                changes.cmd("DEL").arg(counters.collect::<Vec<_>>());
            }
        } else {
            set.arg("NX");
        }
        let answers: Vec<Value> = self.server.ask(&changes).await?;
        if answers.first() == Some(&Value::Nil) {
            let why = "it was marked by another program meanwhile; look at the key leasehold:quorum of all servers";
            return Err(self.server.refuse(why.into()));
        }
        Ok(())
    }
}

/// A server, and how to ask it.
#[derive(Clone, Copy)]
struct Server<'a> {
    address: &'a Address,
    limit: Duration,
}

impl<'a> Server<'a> {
    async fn look(self) -> Result<Found<'a>, StoreError> {
        let mut questions = pipe();
        questions.cmd("ROLE");
        questions.cmd("INFO");
        questions.cmd("TIME");
        // GET would fail if the key has another type, and so would all questions.
        questions.cmd("EXISTS").arg(MARK);
        questions.cmd("MGET").arg(MARK);
        let (role, info, time, has_key, [mark]): (Value, Value, (u64, u64), bool, [Value; 1]) =
            self.ask(&questions).await?;
        let (seconds, micros) = time;
        if array(&role).and_then(|role| text(role.first()?)) != Some("master") {
            let why = "it is no primary: a quorum is made of servers that replicate no other one";
            return Err(self.refuse(why.into()));
        }
        let run = start_of(&info).ok_or_else(|| {
            let why = "it does not say which server it is (run_id in INFO server)";
            StoreError::new(self.address.to_string(), StoreErrorKind::Protocol, why)
        })?;
        Ok(Found {
            server: self,
            run,
            offset: offset_of(&info),
            now_ms: seconds * 1_000 + micros / 1_000,
            mark: match mark {
                Value::Nil if has_key => Err(NotAMark),
                mark => WrittenMark::in_reply(Ok(mark)),
            },
        })
    }

    fn refuse(&self, why: String) -> StoreError {
        let kind = StoreErrorKind::Misconfigured;
        StoreError::new(self.address.to_string(), kind, why)
    }

    /// Asks over a connection of its own.
    async fn ask<T: FromRedisValue>(&self, questions: &Pipeline) -> Result<T, StoreError> {
        let (scripts, listener): (_, Listener) = (Arc::default(), Arc::new(drop));
        let dial = Dial {
            address: self.address,
            limit: self.limit,
            clock: &Clock::system(),
            scripts: &scripts,
            listener: &listener,
            placement: None,
        };
        let (mut link, mut wire) = dial.open().await?;
        let asking = async {
            let answer: RedisResult<T> =
                link.until(questions.query_async(&mut wire)).await.flatten();
            answer.map_err(|error| refusal(self.address, &error))
        };
        dial.in_time(asking).await
    }
}
