//! Maps the errors of redis-rs to those of this library. An unknown outcome is never reported as a refusal.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::address::Address;
use crate::error::{StoreError, StoreErrorKind};

/// What a node says whose mark is garbage, and so does a new connection to it. As in `lua/quorum/propose_many.lua`.
pub(super) const NO_MARK: &str = "its key leasehold:quorum holds no mark, so it gives no vote: find out what wrote the key, and delete it there; the server votes a quarantine after that";

/// The errors by which a server refuses a request before it begins, and their meaning. In scripts of Redis 6.2 the word
/// is inside the message, so it is searched anywhere in the text.
const REFUSALS: [(&str, StoreErrorKind); 21] = [
    (NO_MARK, StoreErrorKind::Misconfigured),
    ("READONLY", StoreErrorKind::ReadOnly),
    ("OOM", StoreErrorKind::Full),
    ("WRONGPASS", StoreErrorKind::Denied),
    ("NOAUTH", StoreErrorKind::Denied),
    ("NOPERM", StoreErrorKind::Denied),
    ("DENIED", StoreErrorKind::Denied),
    ("ACL failure in script", StoreErrorKind::Denied),
    ("can't run this command", StoreErrorKind::Denied),
    (
        "can't access at least one of the keys",
        StoreErrorKind::Denied,
    ),
    ("LOADING", StoreErrorKind::Unavailable),
    ("MISCONF", StoreErrorKind::Unavailable),
    ("NOREPLICAS", StoreErrorKind::Unavailable),
    ("MASTERDOWN", StoreErrorKind::Unavailable),
    ("CLUSTERDOWN", StoreErrorKind::Unavailable),
    ("TRYAGAIN", StoreErrorKind::Unavailable),
    ("BUSY", StoreErrorKind::Unavailable),
    ("max number of clients", StoreErrorKind::Unavailable),
    ("MOVED", StoreErrorKind::Protocol),
    ("CROSSSLOT", StoreErrorKind::Protocol),
    ("WRONGTYPE", StoreErrorKind::Protocol),
];

/// The meaning of an error, and whether the connection is still in step: requests and replies still match.
pub(super) fn classify(store: &str, error: &RedisError) -> (StoreError, bool) {
    let said = |kind, detail: &str| StoreError::new(store, kind, detail);
    let lost = |kind, detail: &str| (said(kind, detail).unknown(), false);
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            lost(StoreErrorKind::TimedOut, "the connection timed out")
        }
        ErrorKind::Io => {
            let cause = of_system(error);
            #[cfg(feature = "tls")]
            if let Some(why) = cause.and_then(crate::tls::refusal) {
                return lost(StoreErrorKind::Untrusted, &why);
            }
            let kind = cause.map_or(StoreErrorKind::Unreachable, |cause| {
                StoreErrorKind::of_io(cause, StoreErrorKind::Unreachable)
            });
            lost(kind, &error.to_string())
        }
        // The beginning of a valid answer arrived, so the other side may well be Redis.
        ErrorKind::Parse if is_cut_short(error) => {
            let detail = "the connection was closed in the middle of an answer";
            lost(StoreErrorKind::Unreachable, detail)
        }
        ErrorKind::Parse => {
            let detail = "the other side does not speak Redis' protocol; is it the right port, and with or without TLS?";
            lost(StoreErrorKind::Protocol, detail)
        }
        // The server answered, so it may have executed the request: in step, outcome unknown.
        ErrorKind::UnexpectedReturnType => {
            let error = said(StoreErrorKind::Protocol, &error.to_string());
            (error.unknown(), true)
        }
        ErrorKind::AuthenticationFailed => (said(StoreErrorKind::Denied, &error.to_string()), true),
        _ => {
            // redis-rs rewrites the codes that it knows. `code` is the server's own.
            let text = error.to_string().replacen("ResponseError: ", "ERR ", 1);
            let code = error.code().unwrap_or_default();
            let kind = (REFUSALS.iter().find(|(word, _)| *word == code))
                .or_else(|| REFUSALS.iter().find(|(word, _)| text.contains(word)))
                .map_or(StoreErrorKind::Protocol, |(_, kind)| *kind);
            let mut error = said(kind, &text);
            if text.contains("WRONGTYPE") {
                let hint = "a key beside the lock holds something else (leasehold:fence, or the lock's name with :lh-queue, :lh-waiters or :lh-once): ";
                error.detail.insert_str(0, hint);
            }
            // A command in the script failed. The commands before it may have taken effect.
            let inside = kind == StoreErrorKind::Protocol && text.contains("script:");
            (if inside { error.unknown() } else { error }, true)
        }
    }
}

/// Why an attempt to connect failed. No step was sent, so none can have taken effect.
pub(super) fn refusal(address: &Address, error: &RedisError) -> StoreError {
    let (mut refusal, _) = classify(&address.to_string(), error);
    if refusal.kind == StoreErrorKind::TimedOut {
        return silent(address, None);
    }
    let is_closed = error.is_connection_dropped() && !error.is_connection_refusal();
    if is_closed && refusal.kind == StoreErrorKind::Unreachable {
        refusal.detail += WRONG_DOOR;
    }
    refusal.may_have_taken_effect = false;
    refusal
}

const WRONG_DOOR: &str = "; is it the right port, and with or without TLS?";

/// The server did not answer an attempt to connect in time.
pub(super) fn silent(address: &Address, limit: Option<Duration>) -> StoreError {
    let waited = limit.map_or_else(String::new, |limit| format!(" for {limit:.1?}"));
    let detail = format!(
        "it did not answer{waited}; is it the right host and port, and with or without TLS?"
    );
    StoreError::new(address.to_string(), StoreErrorKind::TimedOut, detail)
}

/// Where a node of a cluster sends a request that it does not execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// To the owner of the slot: host and port. An empty host is that of the node which says so.
    Moved { slot: u16, to: (String, u16) },
    /// For this request only, to the node that takes the slot.
    Ask { to: (String, u16) },
    /// The keys are at two nodes for now.
    TryAgain,
    /// The slot has no node that serves it for now.
    Down,
}

impl Redirect {
    /// Why a request that meets it again and again cannot be executed.
    pub(super) const fn describe(&self) -> &'static str {
        match self {
            Self::Moved { .. } => "the nodes of the cluster send the request to each other",
            Self::Ask { .. } | Self::TryAgain => {
                "the slot of its keys is being moved to another node"
            }
            Self::Down => "no node of the cluster serves the slot of its keys",
        }
    }

    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let ErrorKind::Server(kind) = error.kind() else {
            return None;
        };
        match kind {
            ServerErrorKind::TryAgain => return Some(Self::TryAgain),
            ServerErrorKind::ClusterDown => return Some(Self::Down),
            // A script found its keys, deleted one of them, and looked for it again: in a slot that is being moved, a key that is missing
            // is at the other node.
            _ if error.to_string().contains("non local key") => return Some(Self::TryAgain),
            _ => {}
        }
        let (place, slot) = error.redirect_node()?;
        let (host, port) = place.rsplit_once(':')?;
        let to = (host.to_owned(), port.parse().ok()?);
        Some(match kind {
            ServerErrorKind::Ask => Self::Ask { to },
            _ => Self::Moved { slot, to },
        })
    }
}

/// True if the key holds another type of value.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE") || error.to_string().contains("WRONGTYPE")
}

/// True if the server denied a command, or one of a script.
pub(super) fn is_denied(refusal: &RedisError) -> bool {
    classify("", refusal).0.kind == StoreErrorKind::Denied
}

/// True if the server or a proxy does not take the request, whatever its words: the user has no permission, the command was renamed, or the
/// service has none. False for a server that takes no requests for now.
pub(super) fn is_forbidden(refusal: &RedisError) -> bool {
    let (said, in_step) = classify("", refusal);
    let is_refusal = matches!(said.kind, StoreErrorKind::Denied | StoreErrorKind::Protocol);
    in_step && is_refusal && !is_passing(&said.detail)
}

/// The words of a server itself: what it quotes is the request, which may have any text.
pub(super) fn without_arguments(said: &str) -> &str {
    said.split(", with args").next().unwrap_or_default()
}

/// True for words about a failure that passes, as of a proxy that has lost its server for a moment. The request may have been executed.
pub(super) fn is_passing(said: &str) -> bool {
    let said = without_arguments(said).to_lowercase();
    let words = [
        "timeout",
        "timed out",
        "try again",
        "temporar",
        "unavailable",
        "overload",
        "upstream",
    ];
    words.iter().any(|word| said.contains(word))
}

/// True if the parser ran out of bytes, as it does when a connection ends within an answer.
fn is_cut_short(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.contains("end of input"))
}

/// The error of the operating system, if there is one.
fn of_system(error: &RedisError) -> Option<&io::Error> {
    let cause = Error::source(error)?;
    let shared = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error line of a server.
    fn line(text: &str) -> RedisError {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
            .and_then(redis::Value::extract_error)
            .unwrap_err()
    }

    #[test]
    fn every_refusal_is_known_by_what_the_server_says() {
        for (word, kind) in REFUSALS {
            // A word that is not a code follows the general code in the text.
            let is_code = word.chars().all(char::is_uppercase);
            let code = if is_code { "" } else { "ERR it is said: " };
            let (error, in_step) = classify("store", &line(&format!("{code}{word} here")));
            assert_eq!(error.kind, kind, "{word}: {error}");
            assert!(in_step && !error.may_have_taken_effect, "{word}: {error:?}");
        }
    }

    /// Redis 6.2 says both in turn for keys of which one does not exist: any of them may be the last.
    #[test]
    fn both_refusals_of_a_slot_that_moves_say_so() {
        for said in ["TRYAGAIN wait", "ASK 866 127.0.0.1:7000"] {
            let redirect = Redirect::of(&line(said)).unwrap();
            assert!(redirect.describe().contains("is being moved"), "{said}");
        }
        let redirect = Redirect::of(&line("MOVED 866 127.0.0.1:7000")).unwrap();
        assert!(redirect.describe().contains("to each other"));
    }

    #[test]
    fn a_lack_of_descriptors_here_is_not_a_server_out_of_reach() {
        let (lack, refused) = (nix::libc::EMFILE, nix::libc::ECONNREFUSED);
        let kind = |errno| {
            let error = RedisError::from(io::Error::from_raw_os_error(errno));
            classify("store", &error).0.kind
        };
        assert_eq!(kind(lack), StoreErrorKind::Exhausted);
        assert_eq!(kind(refused), StoreErrorKind::Unreachable);
    }

    #[test]
    fn an_answer_of_an_unknown_form_may_follow_a_deed() {
        let form = RedisError::from((
            ErrorKind::UnexpectedReturnType,
            "an answer has an unknown form",
        ));
        let (error, in_step) = classify("store", &form);
        assert_eq!(error.kind, StoreErrorKind::Protocol);
        assert!(in_step && error.may_have_taken_effect, "{error:?}");
    }

    #[test]
    fn the_code_counts_before_the_words_after_it() {
        let denied = line("NOPERM User ROOM has no permissions to run the 'evalsha' command");
        assert_eq!(classify("store", &denied).0.kind, StoreErrorKind::Denied);
        let in_a_script =
            line("ERR Error running script: @user_script:1: -OOM command not allowed");
        assert_eq!(classify("store", &in_a_script).0.kind, StoreErrorKind::Full);
    }
}
