//! Several steps in one request, which costs the server a fraction of several requests. Must never change the order of
//! steps, nor let the failure of one be another's.

use futures_util::future::join_all;
use leasehold_core::{Fence, LockName, Mode, Reply, Step, Ttl};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind};

use super::reply;
use super::script::{ACQUIRE, BREAK, INSPECT, SETTLE, Scripts, is_unknown};

/// The most steps in one batch: long enough for the request to cost next to nothing beside its steps, short enough (half a
/// millisecond) not to hold up other clients of the server.
pub(super) const MOST: usize = 32;

/// Says that nobody listens for wakes: a waiter only polls.
pub(super) const DEAF: &str = "-";

/// Which steps may share a batch: those that a full server treats alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Extends or releases, which also a full server carries out.
    Settle,
    /// Takes memory, and is refused by a full server.
    Acquire,
    /// Break and inspect: seldom, and never in company.
    Alone,
}

impl Kind {
    /// In the order in which they are sent: what frees a lock goes before what takes one.
    pub(super) const ALL: [Self; 3] = [Self::Settle, Self::Acquire, Self::Alone];

    /// How many steps of this kind may go together.
    pub(super) const fn most(self) -> usize {
        match self {
            Self::Acquire | Self::Settle => MOST,
            Self::Alone => 1,
        }
    }
}

/// Which batch a step may go into.
pub(super) fn kind(step: &Step) -> Kind {
    match step {
        Step::Acquire { .. } => Kind::Acquire,
        Step::Extend { .. } | Step::Release { .. } => Kind::Settle,
        Step::Break { .. } | Step::Inspect => Kind::Alone,
    }
}

/// How a script is sent.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// By its hash only.
    Hash,
    /// In whatever form the server takes it.
    Any,
}

impl Scripts {
    /// [`run_batch`](Self::run_batch) in one request; `None` if the server refused it as a whole, and `run_batch` knows another way.
    pub(super) async fn try_batch(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        steps: &[(LockName, Step)],
    ) -> Option<RedisResult<Vec<RedisResult<Reply>>>> {
        let is_refused =
            |error: &RedisError| is_unknown(error) || steps.len() > 1 && is_denied(error);
        let answer = self.run_together(connection, channel, steps, Form::Hash);
        Some(answer.await).filter(|answer| !answer.as_ref().is_err_and(is_refused))
    }

    /// Carries out `steps` in their order, at one moment: at most [`MOST`] of one [`Kind`], or a single one that is
    /// [`Kind::Alone`]. The locks may be different ones or the same; there is no cluster as yet, where they would have to
    /// share a slot. Waiters are told on `channel`, which is [`DEAF`] when the connection does not listen.
    ///
    /// An error inside of the answer is that step's own. The outer one is about the whole request: that it was refused
    /// (and then none of the steps was carried out) or lost (and then nobody knows).
    pub(super) async fn run_batch(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        steps: &[(LockName, Step)],
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        match self
            .run_together(connection, channel, steps, Form::Any)
            .await
        {
            // Redis checks the permission for all keys at once, so this says nothing of each step.
            Err(error) if steps.len() > 1 && is_denied(&error) => {
                let alone = |step| {
                    let mut connection = connection.clone();
                    async move {
                        let reply = self
                            .run_together(&mut connection, channel, step, Form::Any)
                            .await;
                        reply.unwrap_or_else(|error| vec![Err(error)])
                    }
                };
                // The connection keeps their order, and nothing else is under way (`flights`, F1).
                let replies = join_all(steps.chunks(1).map(alone)).await;
                Ok(replies.into_iter().flatten().collect())
            }
            answer => answer,
        }
    }

    async fn run_together(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        steps: &[(LockName, Step)],
        form: Form,
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        let Some((_, first)) = steps.first() else {
            return Ok(Vec::new());
        };
        debug_assert!(steps.len() <= MOST, "{} steps", steps.len());
        debug_assert!(
            steps.iter().all(|(_, step)| kind(step) == kind(first)),
            "{steps:?}"
        );
        let script = match first {
            Step::Acquire { .. } => ACQUIRE,
            Step::Extend { .. } | Step::Release { .. } => SETTLE,
            Step::Break { .. } => BREAK,
            Step::Inspect => INSPECT,
        };
        let write = |command: &mut Cmd| {
            command.arg(steps.len() * 4);
            for (name, _) in steps {
                command.arg(name.key());
                for suffix in [":lh-fence", ":lh-queue", ":lh-waiters"] {
                    command.arg(name.beside(suffix));
                }
            }
            for (_, step) in steps {
                encode(step, channel, command);
            }
        };
        let value = match form {
            Form::Hash => self.run_known(script, connection, write).await?,
            Form::Any => self.run(script, connection, write).await?,
        };
        reply::decode(&value, steps.iter().map(|(name, _)| name)).ok_or_else(|| {
            let detail = format!("the answer of a script: {value:?}");
            (ErrorKind::UnexpectedReturnType, "has no known form", detail).into()
        })
    }
}

fn is_denied(refusal: &RedisError) -> bool {
    refusal.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// The arguments of a step, as the script of its kind reads them.
fn encode(step: &Step, channel: &str, into: &mut Cmd) {
    match step {
        Step::Acquire {
            owner,
            mode,
            ttl,
            wait,
        } => {
            let channel = match wait {
                None => "",
                Some(wait) if wait.listening => channel,
                Some(_) => DEAF,
            };
            into.arg(owner.token()).arg(ttl.millis());
            into.arg(mode_word(*mode)).arg(channel)
        }
        Step::Extend {
            owner,
            ttl,
            block,
            fence,
        } => {
            let verb = if *block { "refill" } else { "extend" };
            into.arg(verb).arg(owner.token()).arg(ttl.millis());
            into.arg(known(*fence))
        }
        Step::Release { owner, keep, fence } => {
            let keep = keep.map_or(0, Ttl::millis);
            into.arg("release").arg(owner.token()).arg(keep);
            into.arg(known(*fence))
        }
        Step::Break { fence } => into.arg(fence.get()),
        Step::Inspect => into,
    };
}

/// The fence under which an owner believes to hold.
fn known(fence: Option<Fence>) -> String {
    fence.map_or_else(String::new, |fence| fence.to_string())
}

/// A mode as scripts and records spell it.
pub(super) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
    }
}
