//! Maps the errors of redis-rs to those of this library. An unknown outcome is never reported as a refusal.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::error::{StoreError, StoreErrorKind};

/// The errors by which a server refuses a request before it begins, and their meaning. In scripts of Redis 6.2 the word
/// is inside the message, so it is searched anywhere in the text.
const REFUSALS: [(&str, StoreErrorKind); 20] = [
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
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => (
            said(StoreErrorKind::TimedOut, "the connection timed out").unknown(),
            false,
        ),
        ErrorKind::Io => {
            let cause = of_system(error);
            #[cfg(feature = "tls")]
            if let Some(why) = cause.and_then(crate::tls::refusal) {
                return (said(StoreErrorKind::Untrusted, &why).unknown(), false);
            }
            let kind = cause.map_or(StoreErrorKind::Unreachable, |cause| {
                StoreErrorKind::of_io(cause, StoreErrorKind::Unreachable)
            });
            (said(kind, &error.to_string()).unknown(), false)
        }
        // The beginning of a valid answer arrived, so the other side may well be Redis.
        ErrorKind::Parse if is_cut_short(error) => {
            let detail = "the connection was closed in the middle of an answer";
            (said(StoreErrorKind::Unreachable, detail).unknown(), false)
        }
        ErrorKind::Parse => {
            let detail = "the other side does not speak Redis' protocol; is it the right port, and with or without TLS?";
            (said(StoreErrorKind::Protocol, detail).unknown(), false)
        }
        // The server answered, so it may have executed the request: in step, outcome unknown.
        ErrorKind::UnexpectedReturnType => (
            said(StoreErrorKind::Protocol, &error.to_string()).unknown(),
            true,
        ),
        ErrorKind::RESP3NotSupported => (
            said(
                StoreErrorKind::Protocol,
                "the server is too old: Redis 6.2 or newer is needed",
            ),
            true,
        ),
        ErrorKind::AuthenticationFailed => (said(StoreErrorKind::Denied, &error.to_string()), true),
        _ => {
            // redis-rs rewrites the codes that it knows. `code` is the server's own.
            let text = error.to_string().replacen("ResponseError: ", "ERR ", 1);
            let code = error.code().unwrap_or_default();
            let kind = (REFUSALS.iter().find(|(word, _)| *word == code))
                .or_else(|| REFUSALS.iter().find(|(word, _)| text.contains(word)))
                .map_or(StoreErrorKind::Protocol, |(_, kind)| *kind);
            let beside = "a key beside the lock holds something else (leasehold:fence, or the lock's name with :lh-queue or :lh-waiters): ";
            let hint = if text.contains("WRONGTYPE") {
                beside
            } else {
                ""
            };
            let error = said(kind, &format!("{hint}{text}"));
            // A command in the script failed. The commands before it may have taken effect.
            let inside = kind == StoreErrorKind::Protocol && text.contains("script:");
            (if inside { error.unknown() } else { error }, true)
        }
    }
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

/// True for words about a failure that passes, as of a proxy that has lost its server for a moment. The request may have been executed.
pub(super) fn is_passing(said: &str) -> bool {
    let said = said.to_lowercase();
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

/// The error of the operating system, if there is one. redis-rs shares it among all requests.
fn of_system(error: &RedisError) -> Option<&io::Error> {
    let cause = Error::source(error)?;
    let shared = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests {
    use redis::AsyncConnectionConfig;
    use redis::aio::MultiplexedConnection;
    use tokio::net::UnixStream;

    use super::*;

    /// The error of a connection whose other side sends these bytes and closes.
    async fn after(said: &[u8]) -> StoreError {
        let (near, far) = UnixStream::pair().unwrap();
        let url = redis::IntoConnectionInfo::into_connection_info("redis://there/").unwrap();
        let settings = url.redis_settings().clone();
        let settings = settings.set_protocol(redis::ProtocolVersion::RESP3);
        let answering = async move {
            far.readable().await.unwrap();
            // Reads the whole request, or closing would reset the connection.
            let mut asked = [0; 1024];
            assert!(far.try_read(&mut asked).unwrap() < asked.len());
            if !said.is_empty() {
                assert_eq!(far.try_write(said).unwrap(), said.len());
            }
            drop(far);
        };
        let config = AsyncConnectionConfig::new();
        let connecting = MultiplexedConnection::new_with_config(&settings, near, config);
        let (connected, ()) = tokio::join!(connecting, answering);
        classify("store", &connected.err().unwrap()).0
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_anywhere_is_a_lost_connection() {
        let hello = b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:8\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
        for bytes in 0..=hello.len() {
            let error = after(&hello[..bytes]).await;
            assert_eq!(error.kind, StoreErrorKind::Unreachable, "{bytes}: {error}");
        }
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            b"\x15\x03\x01\x00\x02\x02\x0a",
        ] {
            let error = after(other).await;
            assert_eq!(error.kind, StoreErrorKind::Protocol, "{error}");
        }
    }

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
