//! The handshake of a new connection: checks the role of the server, identifies it, loads scripts and subscribes.
//!
//! An error of a busy server must not be mistaken for a missing permission.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value, cmd, pipe};

use super::link::Wire;
use crate::error::{NotAMark, Replaced, StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::fault::{NO_MARK, is_forbidden, refusal};
use crate::store::redis::protocol::{
    INDEX, MARK, MARK_ID, WrittenMark, cannot_wait, is_of_replica, texts, wait_for,
};
use crate::store::redis::scripts::{NATIVE, NodeTerms, Scripts, is_in_script};

/// The questions of the handshake, and their inputs.
#[derive(Clone, Copy)]
pub(crate) struct Handshake<'a> {
    pub(crate) address: &'a Address,
    pub(crate) scripts: &'a Scripts,
    /// The channel on which the client receives messages.
    pub(crate) channel: &'a str,
}

/// The result of a handshake.
#[derive(Debug)]
pub(crate) struct HandshakeResult {
    /// The connection is subscribed. False if the user has no permission to subscribe.
    pub(crate) listening: bool,
    /// The server is a node of a cluster.
    pub(super) in_cluster: bool,
    /// The identity of the server; `None` if the user has no permission to ask for it.
    pub(super) server: Option<ServerId>,
}

/// Said of a node that does not answer `INFO`. The user of a URL is shown nowhere.
const UNNAMED: &str = "it does not say which server it is, and a quorum has to know: permit it with ACL SETUSER USER +info; leasehold doctor --acl prints the whole line for such a user";

/// Said of a server without scripts.
const NO_SCRIPTS: &str = "it runs no scripts, and each lock is taken by one. Remove rename-command for EVAL, load the Lua module of Valkey, or use a service that permits EVAL";

/// Said to a user without the permission. The user of a URL is shown nowhere.
const NO_SCRIPTS_FOR_USER: &str = "this user may not run scripts, and each lock is taken by one. Permit it with ACL SETUSER USER +eval +evalsha +script|exists +script|load; leasehold doctor --acl prints the whole line for such a user";

/// Said of a server that refuses what the script of a lock needs.
const NO_TIME: &str = "it lets no script use TIME, and each lock is taken by a script that does. Remove rename-command for TIME, or use a service that permits TIME in scripts";

/// Said to a user without that permission.
const NO_TIME_FOR_USER: &str = "this user may not use TIME in scripts, and each lock is taken by a script that does. Permit it with ACL SETUSER USER +time; leasehold doctor --acl prints the whole line for such a user";

/// Said of a server that is older than all that are tested.
const TOO_OLD: &str = "the server is too old: Redis 6.2 or newer is needed";

/// Replaces a mark, if it is still the one that was seen.
const ADOPT: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('SET', KEYS[1], ARGV[2])";

impl Handshake<'_> {
    /// Takes two round trips. The second one depends on the answers to the first.
    pub(crate) async fn exchange(&self, wire: &mut Wire) -> Result<HandshakeResult, StoreError> {
        let mut questions = pipe();
        questions.cmd("ROLE");
        let hello = questions.cmd("HELLO");
        if wire.has_pushes() {
            hello.arg(3);
        }
        questions.cmd("INFO").arg("server");
        questions.cmd("INFO").arg("replication");
        questions.add_command(self.scripts.known());
        let key = if self.scripts.node().is_some() {
            questions.cmd("GET").arg(MARK);
            MARK
        } else {
            INDEX
        };
        questions.add_command(Scripts::trial(key));
        let replicas = self.address.replicas;
        if let Some(replicas) = replicas {
            // Whether it can be used at all.
            let words = wait_for(replicas, 0, Duration::ZERO);
            questions.cmd(&words[0]).arg(&words[1..]);
        }
        let answers = questions.ignore_errors().query_async(wire).await;
        let answers: Vec<RedisResult<Value>> = answers.map_err(|error| self.refused(&error))?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
        // If the user has no permission for ROLE, a replica shows itself later by the error READONLY.
        let role = self.allowed(next())?;
        let hello = self.allowed(next())?;
        let (server, replication) = (self.allowed(next())?, self.allowed(next())?);
        let knows_hello = hello.is_some();
        let hello = HelloReply::read(hello, server.as_ref());
        if !knows_hello && hello.is_too_old() {
            return Err(self.error(StoreErrorKind::Protocol, TOO_OLD));
        }
        let in_cluster = hello.is_cluster();
        if in_cluster && self.scripts.node().is_some() {
            let why = "it is a node of a cluster, and a node of a quorum must be a server of its own: use one with cluster-enabled no";
            return Err(self.error(StoreErrorKind::Misconfigured, why));
        }
        // A replica in a cluster names the node that has the slot of a step.
        if !in_cluster {
            self.check_role(role)?;
        }
        self.scripts.is_in_cluster(in_cluster);
        self.scripts.frees_by(hello.native());
        let knows = next();
        let marked = match self.scripts.node() {
            Some(_) => next(),
            None => Ok(Value::Nil),
        };
        // The connection is of use without: for the timestamp protocol, which has a form without scripts, and to read cached values.
        let refused = match next() {
            Err(error) => self.check_scripts(wire, key, error).await?,
            Ok(_) => None,
        };
        self.scripts.are_refused(refused);
        if let Some(replicas) = replicas
            && let Err(error) = next()
            && !is_of_replica(&error)
        {
            let (kind, why) = cannot_wait(replicas, &error);
            return Err(self.error(kind, &why));
        }
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
        let (mut loads, mut adopts) = (wire.clone(), wire.clone());
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
        let listening = async {
            if in_cluster {
                // By channels of slots (`Flight`), which version 7 knows, and over the same connection.
                return Ok(wire.has_pushes() && hello.is_old() == Some(false));
            }
            self.permitted(wire.subscribe(self.channel).await)
        };
        // Started one after the other, so that all leave in one packet.
        let ((), (), listening) = futures_util::join!(adopted, loaded, listening);
        Ok(HandshakeResult {
            listening: listening?,
            in_cluster,
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
        marked: RedisResult<Value>,
    ) -> Result<Option<Cmd>, StoreError> {
        let Some(start) = server.and_then(start_of) else {
            return Err(self.error(StoreErrorKind::Denied, UNNAMED));
        };
        let seen = WrittenMark::in_reply(marked);
        let seen = seen.map_err(|NotAMark| self.error(StoreErrorKind::Misconfigured, NO_MARK))?;
        let offset = replication.and_then(offset_of);
        self.scripts.leads_to(&start, node.terms);
        Ok(seen.and_then(|seen| {
            let mark = seen.adopted(node, &start, offset.as_deref())?;
            let mut adopt = cmd("EVAL");
            adopt.arg(ADOPT).arg(1).arg(MARK);
            adopt.arg(seen.to_string()).arg(mark.to_string());
            Some(adopt)
        }))
    }

    /// What to tell if the server runs no scripts of locks, or not for this user. It has refused the trial with this error.
    async fn check_scripts(
        &self,
        wire: &mut Wire,
        key: &str,
        error: RedisError,
    ) -> Result<Option<StoreError>, StoreError> {
        let refused = Scripts::refuses(error, wire, key).await;
        let Some(error) = refused.map_err(|error| self.refused(&error))? else {
            return Ok(None);
        };
        let refused = self.refused(&error);
        let is_user = refused.kind == StoreErrorKind::Denied;
        let (kind, why) = match (is_user, is_in_script(&error)) {
            (true, false) => (StoreErrorKind::Denied, NO_SCRIPTS_FOR_USER),
            (true, true) => (StoreErrorKind::Denied, NO_TIME_FOR_USER),
            (false, false) => (StoreErrorKind::Misconfigured, NO_SCRIPTS),
            (false, true) => (StoreErrorKind::Misconfigured, NO_TIME),
        };
        let said = refused.detail.split(", with args").next();
        let why = format!("{why}. It said: {}", said.unwrap_or_default());
        Ok(Some(self.error(kind, &why)))
    }

    /// Refuses a replica, which would return old data and refuse writes, and a sentinel.
    fn check_role(&self, role: Option<Value>) -> Result<(), StoreError> {
        let Some(Value::Array(role)) = role else {
            return Ok(());
        };
        let text = |at: usize| {
            role.get(at)
                .and_then(|value| redis::from_redis_value_ref::<String>(value).ok())
                .unwrap_or_default()
        };
        if text(0) == "sentinel" {
            let names = role.get(1).map(texts).unwrap_or_default();
            let names = if names.is_empty() {
                "NAME".into()
            } else {
                names.join(" or ")
            };
            let why = format!(
                "it is a sentinel, which has no locks; write redis+sentinel://host[:26379]/{names}, with rediss for TLS"
            );
            return Err(self.error(StoreErrorKind::Misconfigured, &why));
        }
        if !["slave", "replica"].contains(&text(0).as_str()) {
            return Ok(());
        }
        let (host, port) = (text(1), text(2));
        let detail = format!("it is a replica of {host}:{port}; connect to the primary");
        Err(self.error(StoreErrorKind::ReadOnly, &detail))
    }

    /// The answer; `None` if this command is refused.
    fn allowed(&self, answer: RedisResult<Value>) -> Result<Option<Value>, StoreError> {
        match answer {
            Ok(value) => Ok(Some(value)),
            // The same for all commands, so it is no matter of one permission.
            Err(error) if error.code() == Some("NOAUTH") => Err(self.refused(&error)),
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

/// The first version that understands flags of scripts.
const FLAGS: u32 = 7;

/// The first version that knows HELLO.
const HELLO: u32 = 6;

/// The reply to HELLO, which needs no permission; without one, what `INFO server` says of the same.
#[derive(Debug, Default)]
struct HelloReply(HashMap<String, Value>);

/// True if a reply to HELLO is that of a node of a cluster; without one, if `INFO server` says so.
#[cfg(feature = "doctor")]
pub(crate) fn is_of_cluster(hello: Option<Value>, server: Option<&Value>) -> bool {
    HelloReply::read(hello, server).is_cluster()
}

impl HelloReply {
    fn read(answer: Option<Value>, server: Option<&Value>) -> Self {
        let fields = answer.and_then(|answer| redis::from_redis_value(answer).ok());
        Self(fields.or_else(|| fields_of(server?)).unwrap_or_default())
    }

    /// True if the server is older than HELLO. A newer one that does not know HELLO can be used.
    fn is_too_old(&self) -> bool {
        self.version().is_some_and(|(major, _)| major < HELLO)
    }

    fn text(&self, field: &str) -> Option<String> {
        redis::from_redis_value_ref(self.0.get(field)?).ok()
    }

    fn is_cluster(&self) -> bool {
        self.text("mode").is_some_and(|mode| mode == "cluster")
    }

    /// True if the server is too old for scripts with flags; `None` if it does not report its version.
    fn is_old(&self) -> Option<bool> {
        self.version().map(|(major, _)| major < FLAGS)
    }

    /// The command by which the server compares and deletes, if its version has one. Some servers of that version may lack it, and
    /// refuse it when it is used.
    fn native(&self) -> Option<&'static str> {
        let [of_redis, of_valkey] = NATIVE;
        match (self.text("server")?.as_str(), self.version()?) {
            ("redis", version) => (version >= (8, 4)).then_some(of_redis),
            ("valkey", version) => (version >= (9, 0)).then_some(of_valkey),
            _ => None,
        }
    }

    fn version(&self) -> Option<(u32, u32)> {
        let version = self.text("version")?;
        let mut numbers = version.split('.').map_while(|number| number.parse().ok());
        Some((numbers.next()?, numbers.next().unwrap_or(0)))
    }
}

/// The fields of a reply to HELLO, as the reply to `INFO server` has them.
fn fields_of(server: &Value) -> Option<HashMap<String, Value>> {
    let text: String = redis::from_redis_value_ref(server).ok()?;
    let of_valkey = field(&text, "valkey_version").map(|version| ("valkey", version));
    let (server, version) = match of_valkey {
        Some(of_valkey) => of_valkey,
        None => ("redis", field(&text, "redis_version")?),
    };
    let mode = field(&text, "redis_mode").unwrap_or_default();
    let fields = [
        ("server", server.to_owned()),
        ("version", version),
        ("mode", mode),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), Value::SimpleString(value)));
    Some(fields.into())
}

/// A field of a reply to `INFO`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| *key == name);
    found.map(|(_, value)| value.trim().to_owned())
}

/// The identity of a server and of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerId {
    /// Drawn at each start of the server (`run_id`).
    run: String,
    /// Drawn for each history of the data (`master_replid`). Replicas share it. `before` is the history that this one
    /// continues.
    history: String,
    before: String,
}

impl ServerId {
    /// The identity of this start of the server.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Reads the replies to `INFO server` and `INFO replication`.
    pub(super) fn read(server: Option<Value>, replication: Option<Value>) -> Option<Self> {
        let text = |answer: Option<Value>| redis::from_redis_value::<String>(answer?).ok();
        let (server, replication) = (text(server)?, text(replication)?);
        Some(Self {
            run: field(&server, "run_id")?,
            history: field(&replication, "master_replid")?,
            before: field(&replication, "master_replid2").unwrap_or_default(),
        })
    }
}

/// The start of a server as the mark of a node names it: the begin of its `run_id`. `None` if the reply to `INFO server` has none.
pub(crate) fn start_of(server: &Value) -> Option<String> {
    let text: String = redis::from_redis_value_ref(server).ok()?;
    Some(field(&text, "run_id")?.get(..MARK_ID)?.to_owned())
}

/// The `second_repl_offset` in the reply to `INFO`: -1 if the server was no replica since its start.
pub(crate) fn offset_of(replication: &Value) -> Option<String> {
    let text: String = redis::from_redis_value_ref(replication).ok()?;
    field(&text, "second_repl_offset")
}

/// How the server `now` replaced the server `before`; `None` if it is the same. A server that was a replica in between
/// has another history.
pub(super) fn replaced(before: Option<&ServerId>, now: Option<&ServerId>) -> Option<Replaced> {
    let (Some(before), Some(now)) = (before, now) else {
        return Some(Replaced::Unknown);
    };
    if before.run == now.run && before.history == now.history {
        None
    } else if now.before == before.history || now.history == before.history {
        Some(Replaced::Successor)
    } else {
        Some(Replaced::Other)
    }
}

/// The servers to which the nodes of a quorum are connected, by the identity of their start (`run_id`).
/// A server that two addresses lead to is one node only: otherwise it would vote twice.
#[derive(Default)]
pub(crate) struct Seats(Mutex<HashMap<String, Arc<str>>>);

/// The place of one node.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// The address of the node, without user and password. Each node of a quorum has another one.
    node: Arc<str>,
}

impl Seat {
    pub(crate) fn new(seats: Arc<Seats>, node: &str) -> Self {
        let node = node.into();
        Self { seats, node }
    }

    /// The node is connected to this server.
    ///
    /// # Errors
    /// The address of another node that is connected to it.
    pub(crate) fn take(&self, server: &str) -> Result<(), Arc<str>> {
        let mut seats = self.lock();
        seats.retain(|_, node| *node != self.node);
        if let Some(other) = seats.get(server) {
            return Err(other.clone());
        }
        seats.insert(server.to_owned(), self.node.clone());
        Ok(())
    }

    /// The node is connected to no server.
    pub(crate) fn leave(&self) {
        self.lock().retain(|_, node| *node != self.node);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<str>>> {
        // Each change is one step.
        self.seats.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn server(run: &str, history: &str, before: &str) -> Option<ServerId> {
        let server = format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{run}\r\n");
        let replication = format!(
            "# Replication\r\nrole:master\r\nmaster_replid:{history}\r\nmaster_replid2:{before}\r\n"
        );
        ServerId::read(Some(info(&server)), Some(info(&replication)))
    }

    #[test]
    fn a_server_is_known_again_by_its_run_and_its_history() {
        let known = server("run", "history", "000");
        assert!(known.is_some());
        let by = |now: Option<ServerId>| replaced(known.as_ref(), now.as_ref());
        assert_eq!(by(server("run", "history", "000")), None);
        // A replica was promoted, or the server was restarted with its data.
        assert_eq!(
            by(server("other", "new", "history")),
            Some(Replaced::Successor)
        );
        assert_eq!(
            by(server("other", "history", "000")),
            Some(Replaced::Successor)
        );
        // The server was a replica of another one for a while.
        assert_eq!(by(server("run", "new", "foreign")), Some(Replaced::Other));
        assert_eq!(by(server("other", "new", "000")), Some(Replaced::Other));
        assert_eq!(by(None), Some(Replaced::Unknown));
        assert_eq!(replaced(None, known.as_ref()), Some(Replaced::Unknown));
    }

    #[test]
    fn a_start_is_named_by_the_begin_of_its_run_id() {
        let told = |run: &str| info(&format!("run_id:{run}\r\nuptime_in_seconds:5\r\n"));
        let start = start_of(&told("0123456789abcdef0123"));
        assert_eq!(start.as_deref(), Some("0123456789abcdef"));
        assert_eq!(start_of(&told("0123")), None);
    }

    #[test]
    fn server_without_identity_is_unknown() {
        assert_eq!(ServerId::read(None, None), None);
        assert_eq!(
            ServerId::read(Some(info("run_id:x\r\n")), Some(info("role:master\r\n"))),
            None
        );
    }

    #[test]
    fn the_version_says_what_the_server_can_do() {
        let hello = |server: &str, version: &str| {
            let field = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let fields = vec![
                (field("server"), field(server)),
                (field("version"), field(version)),
                (field("mode"), field("standalone")),
                (field("modules"), Value::Array(Vec::new())),
            ];
            HelloReply::read(Some(Value::Map(fields)), None)
        };
        for (server, version, is_old, native) in [
            ("redis", "6.2.14", true, None),
            ("redis", "7.0.15", false, None),
            ("redis", "8.2.9", false, None),
            ("redis", "8.4.0", false, Some("DELEX")),
            ("redis", "10", false, Some("DELEX")),
            ("valkey", "8.1.4", false, None),
            ("valkey", "9.0.0", false, Some("DELIFEQ")),
            ("another", "9.1.2", false, None),
        ] {
            let hello = hello(server, version);
            assert_eq!((hello.is_old(), hello.is_cluster()), (Some(is_old), false));
            assert_eq!(hello.native(), native, "{server} {version}");
        }
        let unknown = [hello("redis", "df-1"), HelloReply::read(None, None)];
        assert!(unknown.iter().all(|hello| hello.is_old().is_none()));
        assert!(unknown.iter().all(|hello| hello.native().is_none()));
    }

    #[test]
    fn a_server_that_does_not_know_hello_is_read_from_info() {
        for (said, old, too_old, native, in_cluster) in [
            (
                "redis_version:7.0.15\r\nredis_mode:standalone",
                false,
                false,
                None,
                false,
            ),
            (
                "redis_version:8.4.0\r\nredis_mode:cluster",
                false,
                false,
                Some("DELEX"),
                true,
            ),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1",
                false,
                false,
                Some("DELIFEQ"),
                false,
            ),
            ("redis_version:6.2.14", true, false, None, false),
            ("redis_version:5.0.14", true, true, None, false),
        ] {
            let hello = HelloReply::read(None, Some(&info(&format!("# Server\r\n{said}\r\n"))));
            assert_eq!(
                (hello.is_old(), hello.is_too_old()),
                (Some(old), too_old),
                "{said}"
            );
            assert_eq!(
                (hello.native(), hello.is_cluster()),
                (native, in_cluster),
                "{said}"
            );
        }
        assert!(!HelloReply::read(None, Some(&info("# Server"))).is_too_old());
    }

    #[test]
    fn a_server_is_one_node_until_that_node_leaves_it() {
        let seats = Arc::new(Seats::default());
        let [a, b] = ["a", "b"].map(|node| Seat::new(seats.clone(), node));
        assert_eq!(a.take("run-1"), Ok(()));
        assert_eq!(a.take("run-1"), Ok(()), "connected again");
        assert_eq!(b.take("run-1"), Err("a".into()));
        assert_eq!(b.take("run-2"), Ok(()));
        // It was started again.
        assert_eq!(a.take("run-3"), Ok(()));
        assert_eq!(b.take("run-1"), Ok(()));
        assert_eq!(a.take("run-1"), Err("b".into()));
        b.leave();
        assert_eq!(a.take("run-1"), Ok(()));
    }
}
