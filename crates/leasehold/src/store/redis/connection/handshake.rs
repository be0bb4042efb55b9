//! The first words over a new connection: may it be used, which server is it, does it know the scripts, are messages heard on it.
//! Must never take a server that is busy for one that refuses its messages.

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value, cmd, pipe};

use super::refusal::refusal;
use super::server::{HelloReply, ServerId};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::fault::classify;
use crate::store::redis::scripts::Scripts;

/// What is asked of a server, and what for.
#[derive(Clone, Copy)]
pub(super) struct Handshake<'a> {
    pub(super) address: &'a Address,
    pub(super) scripts: &'a Scripts,
    /// Where the client's messages arrive.
    pub(super) channel: &'a str,
    /// The server is to say when something changes that was looked at.
    pub(super) tracks: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct HandshakeResult {
    /// Messages are heard; not if the user may not subscribe.
    pub(super) listening: bool,
    /// The server says what changes.
    pub(super) tracking: bool,
    /// Which server it is; `None` where the user may not ask.
    pub(super) server: Option<ServerId>,
}

impl Handshake<'_> {
    /// Two round trips: the questions; then what depends on the answers.
    pub(super) async fn exchange(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<HandshakeResult, StoreError> {
        let mut questions = pipe();
        questions.cmd("ROLE");
        questions.cmd("HELLO").arg(3);
        questions.cmd("INFO").arg("server");
        questions.cmd("INFO").arg("replication");
        questions.add_command(self.scripts.known());
        let answers = questions.ignore_errors().query_async(connection).await;
        let answers: Vec<RedisResult<Value>> = answers.map_err(|error| self.refused(&error))?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
        // A user who may not ask for the role learns it by READONLY.
        self.check_role(self.allowed(next())?)?;
        let hello = HelloReply::read(self.allowed(next())?);
        self.check_mode(&hello)?;
        let (server, replication) = (self.allowed(next())?, self.allowed(next())?);
        let server = ServerId::read(server, replication);
        // Whatever is refused here, each script is sent in full where it has to be.
        let knows = next().and_then(|known| Ok(redis::from_redis_value(known)?));
        let load = knows
            .ok()
            .and_then(|knows: Vec<bool>| self.scripts.to_load(&knows, hello.is_old()));

        let (mut loads, mut tracks) = (connection.clone(), connection.clone());
        let loaded = async {
            if let Some(mut load) = load {
                let answer = load.ignore_errors().query_async::<Value>(&mut loads).await;
                drop(answer);
            }
        };
        // Only of what a look asks for: a lock's keys are none of its business. Where the user may not, the bound on what is
        // kept is all there is.
        let tracking = async {
            if !self.tracks {
                return Ok(false);
            }
            let mut on = cmd("CLIENT");
            on.arg(&["TRACKING", "ON", "OPTIN"]);
            self.permitted(on.query_async::<Value>(&mut tracks).await.map(drop))
        };
        // Who may not subscribe polls, and says so in the queue.
        let listening = async { self.permitted(connection.subscribe(self.channel).await) };
        // Begun one after the other: they leave in one packet.
        let ((), listening, tracking) = futures_util::join!(loaded, listening, tracking);
        Ok(HandshakeResult {
            listening: listening?,
            tracking: tracking?,
            server,
        })
    }

    /// A replica would answer reads from the past and refuse writes.
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

    /// The locks of a batch would have to share a slot.
    fn check_mode(&self, hello: &HelloReply) -> Result<(), StoreError> {
        if !hello.is_cluster() {
            return Ok(());
        }
        let detail = "it is a node of a Redis Cluster, which is not supported yet; use a server with cluster-enabled no";
        Err(self.error(StoreErrorKind::Protocol, detail))
    }

    /// What was answered; nothing where the user may not ask.
    fn allowed(&self, answer: RedisResult<Value>) -> Result<Option<Value>, StoreError> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.is_forbidden(&error) => Ok(None),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// Whether the user may. What fails for another reason would be missing for as long as the connection lives.
    fn permitted(&self, answer: RedisResult<()>) -> Result<bool, StoreError> {
        let value = self.allowed(answer.map(|()| Value::Okay))?;
        Ok(value.is_some())
    }

    /// An operator who takes a command away from everybody does not permit it either.
    fn is_forbidden(&self, error: &RedisError) -> bool {
        let (said, in_step) = classify(&self.address.to_string(), error);
        in_step && (said.kind == StoreErrorKind::Denied || said.detail.contains("unknown command"))
    }

    fn refused(&self, error: &RedisError) -> StoreError {
        refusal(self.address, error)
    }

    fn error(&self, kind: StoreErrorKind, detail: &str) -> StoreError {
        StoreError::new(self.address.to_string(), kind, detail)
    }
}
