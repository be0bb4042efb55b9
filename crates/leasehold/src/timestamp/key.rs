//! A key of the protocol: its requests and the meaning of their answers. A foreign value may be a secret, so it is never shown.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::timestamp::{Content, Reply, Step, Unit};
use leasehold_core::{HolderIdentity, HolderView, Invalid, LockName, Owner};

use crate::error::{Error, StoreError, StoreErrorKind};
use crate::lease::Engine;
use crate::store::TimestampRequest;

/// A key of the protocol.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) engine: Arc<Engine>,
    pub(super) name: LockName,
    pub(super) unit: Unit,
    pub(super) by_script: bool,
}

impl Key {
    /// Takes a step on the client's thread. The last step of a hold has no shorter limit, since no step has to follow it within the TTL.
    pub(super) async fn asking(self, step: Step, is_last: bool) -> Result<Reply, Error> {
        let ask = TimestampRequest {
            unit: self.unit,
            step,
            by_script: self.by_script,
            is_last,
        };
        let Some(answer) = self.engine.store.timestamp(&self.name, &ask) else {
            let why = format!(
                "is for keys shared with other programs in a Redis, and {} is none: use a mutex",
                self.engine.store.label()
            );
            return Err(Invalid::new("protocol", "timestamp", why).into());
        };
        Ok(self.engine.telemetry.answered(answer.await)?)
    }

    /// The error of a request whose answer came too late.
    pub(super) fn unanswered(&self) -> Error {
        let detail = "its deadline passed first";
        let error = StoreError::new(self.engine.store.label(), StoreErrorKind::TimedOut, detail);
        error.unknown().into()
    }

    /// The holder of a lock with this deadline, as far as a time tells.
    pub(super) fn holder(&self, deadline: u64, at_us: u64) -> HolderView {
        let value = deadline.to_string().into();
        view("string".into(), value, Some(self.left(deadline, at_us)))
    }

    /// The value in the key instead of this hold's deadline.
    pub(super) fn instead(&self, content: &Content, at_us: u64) -> Option<HolderView> {
        let left = content
            .deadline(self.unit)
            .map(|deadline| self.left(deadline, at_us));
        match content {
            Content::Nothing => None,
            Content::Text(value) => Some(view("string".into(), value.clone(), left)),
            Content::Other(kind) => Some(view(kind.clone(), Vec::new(), left)),
        }
    }

    /// How long until another client may take over (T2).
    fn left(&self, deadline: u64, at_us: u64) -> Duration {
        let free_at = deadline
            .saturating_add(1)
            .saturating_mul(self.unit.micros());
        Duration::from_micros(free_at.saturating_sub(at_us))
    }

    /// An unexpected verdict.
    pub(super) fn refused(&self, reply: &Reply) -> Error {
        let detail = match reply {
            Reply::Foreign(content) => format!(
                "the key \"{}\" holds {}, which is no time in {}: it is left alone",
                self.name.key().escape_debug(),
                described(content),
                match self.unit {
                    Unit::Seconds => "seconds",
                    Unit::Millis => "milliseconds",
                }
            ),
            Reply::BadClock { at_us } => {
                format!("its clock says that {at_us} microseconds have passed since 1970")
            }
            Reply::Again { at_us } => format!(
                "its clock moved by more than half a second while it was asked twice for a deadline; now it says {at_us} microseconds since 1970"
            ),
            other => format!("{other:?}"),
        };
        StoreError::new(self.engine.store.label(), StoreErrorKind::Protocol, detail).into()
    }
}

/// Whether the same request may succeed a moment later.
pub(super) fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.kind.is_transient())
}

pub(super) fn may_have_taken_effect(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.may_have_taken_effect)
}

/// The failure of a request that was sent `earlier` as well: what may have been carried out stays so.
pub(super) fn after(earlier: Option<Error>, error: Error) -> Error {
    match error {
        Error::Store(error) if earlier.is_some_and(|earlier| may_have_taken_effect(&earlier)) => {
            error.unknown().into()
        }
        error => error,
    }
}

fn view(kind: String, value: Vec<u8>, expires_in: Option<Duration>) -> HolderView {
    HolderView::new(
        HolderIdentity::Foreign { kind, value },
        None,
        None,
        expires_in,
    )
}

/// The content of a key, without a foreign value, which may be a secret.
fn described(content: &Content) -> String {
    match content {
        Content::Nothing => "nothing".into(),
        Content::Other(kind) => format!("a {kind}"),
        Content::Text(value) => {
            let owner = std::str::from_utf8(value).ok().and_then(Owner::parse);
            if let Some(owner) = owner {
                return format!("the token of a mutex, held by {owner}");
            }
            format!("a string of {} bytes", value.len())
        }
    }
}
