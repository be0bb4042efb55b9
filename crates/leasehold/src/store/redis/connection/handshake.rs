//! The handshake of a new connection. It checks the role of the server, identifies it, loads scripts and subscribes.
//!
//! An error of a busy server must not be mistaken for a missing permission.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value, cmd, pipe};

use super::refusal::refusal;
use super::server::{HelloReply, ServerId, adopted, start_of};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::codec::words::MARK;
use crate::store::redis::fault::is_forbidden;
use crate::store::redis::scripts::{NodeTerms, Scripts};

/// The questions of the handshake, and their inputs.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct Handshake<'a> {
    pub(in crate::store::redis) address: &'a Address,
    pub(in crate::store::redis) scripts: &'a Scripts,
    /// The channel on which the client receives messages.
    pub(in crate::store::redis) channel: &'a str,
}

/// The result of a handshake.
#[derive(Debug)]
pub(in crate::store::redis) struct HandshakeResult {
    /// The connection is subscribed. False if the user has no permission to subscribe.
    pub(in crate::store::redis) listening: bool,
    /// The identity of the server; `None` if the user has no permission to ask for it.
    pub(super) server: Option<ServerId>,
}

/// Replaces a mark, if it is still the one that was seen.
const ADOPT: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('SET', KEYS[1], ARGV[2])";

impl Handshake<'_> {
    /// Takes two round trips. The second one depends on the answers to the first.
    pub(in crate::store::redis) async fn exchange(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<HandshakeResult, StoreError> {
        let mut questions = pipe();
        questions.cmd("ROLE");
        questions.cmd("HELLO").arg(3);
        questions.cmd("INFO").arg("server");
        questions.cmd("INFO").arg("replication");
        questions.add_command(self.scripts.known());
        if self.scripts.node().is_some() {
            questions.cmd("GET").arg(MARK);
        }
        let answers = questions.ignore_errors().query_async(connection).await;
        let answers: Vec<RedisResult<Value>> = answers.map_err(|error| self.refused(&error))?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
        // If the user has no permission for ROLE, a replica shows itself later by the error READONLY.
        self.check_role(self.allowed(next())?)?;
        let hello = HelloReply::read(self.allowed(next())?);
        self.check_mode(&hello)?;
        let (server, replication) = (self.allowed(next())?, self.allowed(next())?);
        let knows = next();
        let marked = next().ok();
        let adopt = match self.scripts.node() {
            Some(node) => self.recognize(node, server.as_ref(), replication.as_ref(), marked)?,
            None => None,
        };
        let server = ServerId::read(server, replication);
        // If the server refuses this, scripts are sent by their text where necessary.
        let knows = knows.and_then(|known| Ok(redis::from_redis_value(known)?));
        let load = knows
            .ok()
            .and_then(|knows: Vec<bool>| self.scripts.to_load(&knows, hello.is_old()));
        let (mut loads, mut adopts) = (connection.clone(), connection.clone());
        // If the user has no permission, the node is in quarantine, as after a loss of its data.
        let adopted = async {
            if let Some(adopt) = adopt {
                drop(adopt.query_async::<Value>(&mut adopts).await);
            }
        };
        let loaded = async {
            if let Some(mut load) = load {
                let answer = load.ignore_errors().query_async::<Value>(&mut loads).await;
                drop(answer);
            }
        };
        // A client without permission to subscribe polls, and says so in the queue.
        let listening = async { self.permitted(connection.subscribe(self.channel).await) };
        // Started one after the other, so that all leave in one packet.
        let ((), (), listening) = futures_util::join!(adopted, loaded, listening);
        Ok(HandshakeResult {
            listening: listening?,
            server,
        })
    }

    /// Recognizes a node of a quorum, which compares the name of its start with its mark. Returns the request by which the mark of a
    /// node that was started again names the new start, if its disk has all changes.
    fn recognize(
        &self,
        node: NodeTerms,
        server: Option<&Value>,
        replication: Option<&Value>,
        marked: Option<Value>,
    ) -> Result<Option<Cmd>, StoreError> {
        let Some(start) = server.and_then(start_of) else {
            let detail = "it does not say which server it is; a quorum needs the permission +info";
            return Err(self.error(StoreErrorKind::Denied, detail));
        };
        let seen = marked.and_then(|mark| redis::from_redis_value::<String>(mark).ok());
        let mark = seen.as_deref().zip(replication).filter(|_| node.durable);
        let mark =
            mark.and_then(|(seen, replication)| adopted(seen, node.terms, &start, replication));
        self.scripts.leads_to(&start, node.terms);
        Ok(seen.zip(mark).map(|(seen, mark)| {
            let mut adopt = cmd("EVAL");
            adopt.arg(ADOPT).arg(1).arg(MARK).arg(seen).arg(mark);
            adopt
        }))
    }

    /// Refuses a replica: it would return old data and refuse writes.
    fn check_role(&self, role: Option<Value>) -> Result<(), StoreError> {
        let Some(Value::Array(role)) = role else {
            return Ok(());
        };
        let text = |at: usize| {
            role.get(at)
                .and_then(|value| redis::from_redis_value_ref::<String>(value).ok())
                .unwrap_or_default()
        };
        if !["slave", "replica"].contains(&text(0).as_str()) {
            return Ok(());
        }
        let (host, port) = (text(1), text(2));
        let detail = format!("it is a replica of {host}:{port}; connect to the primary");
        Err(self.error(StoreErrorKind::ReadOnly, &detail))
    }

    /// Refuses a cluster node: there, all locks of a batch would have to share a slot.
    fn check_mode(&self, hello: &HelloReply) -> Result<(), StoreError> {
        if !hello.is_cluster() {
            return Ok(());
        }
        let detail = "it is a node of a Redis Cluster, which is not supported yet; use a server with cluster-enabled no";
        Err(self.error(StoreErrorKind::Protocol, detail))
    }

    /// The answer; `None` if this command is refused.
    fn allowed(&self, answer: RedisResult<Value>) -> Result<Option<Value>, StoreError> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_forbidden(&error) => Ok(None),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// True if the user has the permission. Any other failure is an error, since the feature would be missing for the
    /// whole life of the connection.
    fn permitted(&self, answer: RedisResult<()>) -> Result<bool, StoreError> {
        let value = self.allowed(answer.map(|()| Value::Okay))?;
        Ok(value.is_some())
    }

    fn refused(&self, error: &RedisError) -> StoreError {
        refusal(self.address, error)
    }

    fn error(&self, kind: StoreErrorKind, detail: &str) -> StoreError {
        StoreError::new(self.address.to_string(), kind, detail)
    }
}
