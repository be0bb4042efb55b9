//! The refusal of a certificate as a sentence: by this client, or by the server.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, OtherError};

/// A sentence instead of the name of an error.
#[derive(Debug)]
struct Sentence(String);

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Sentence {}

/// The refusal of a certificate, in these words.
pub(super) fn said(sentence: String) -> Error {
    let sentence = OtherError(Arc::new(Sentence(sentence)));
    Error::InvalidCertificate(CertificateError::Other(sentence))
}

/// A connection that was refused, in these words.
pub(super) fn of(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, said(sentence))
}

/// The sentence about a refused certificate, if the connection failed for that.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        Error::InvalidCertificate(why) => Some(by_us(why)),
        Error::NoCertificatesPresented => Some("it showed no certificate".into()),
        Error::AlertReceived(alert) => by_them(*alert).map(str::to_owned),
        _ => None,
    }
}

fn by_us(why: &CertificateError) -> String {
    match why {
        CertificateError::ExpiredContext { time, not_after } => {
            format!(
                "its certificate expired {} ago, {CLOCK}",
                between(*not_after, *time)
            )
        }
        CertificateError::Expired => "its certificate has expired".into(),
        CertificateError::NotValidYetContext { time, not_before } => {
            let wait = between(*time, *not_before);
            format!("its certificate is not valid yet, for another {wait}, {CLOCK}")
        }
        CertificateError::NotValidYet => "its certificate is not valid yet".into(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            let names = if names.is_empty() {
                "no host (it has no subjectAltName)".into()
            } else {
                names.join(", ")
            };
            format!(
                "its certificate is for {names}, not for {}",
                expected.to_str()
            )
        }
        CertificateError::NotValidForName => "its certificate is for another host".into(),
        CertificateError::UnknownIssuer => {
            "its certificate is signed by no authority that this client trusts".into()
        }
        CertificateError::Revoked => "its certificate was revoked".into(),
        CertificateError::Other(other) if other.0.is::<Sentence>() => other.to_string(),
        other => format!("its certificate cannot be trusted: {other}"),
    }
}

const CLOCK: &str = "by the clock of this host";

/// A name of a certificate without its kind, as in `DnsName("host")`.
fn plain(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// The time between two moments, in its largest unit.
fn between(earlier: UnixTime, later: UnixTime) -> String {
    let span = Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()));
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7_200 => format!("{} minutes", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// The alerts of RFC 8446, section 6.2, that are about the certificate of the client.
fn by_them(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "it wants a certificate of this client"
        }
        AlertDescription::UnknownCA => {
            "it does not trust the authority that signed the certificate of this client"
        }
        AlertDescription::CertificateExpired => {
            "it says that the certificate of this client has expired"
        }
        AlertDescription::CertificateRevoked => {
            "it says that the certificate of this client was revoked"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            "it refused the certificate of this client, or the lack of one"
        }
        // OpenSSL sends this over TLS 1.2 if it wants a certificate.
        AlertDescription::HandshakeFailure => {
            "it broke off the handshake: it may want a certificate of this client, or share no cipher with it"
        }
        AlertDescription::UnrecognisedName => {
            "it has no certificate for the name that it was asked for"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    fn told(error: Error) -> Option<String> {
        refusal(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn each_refusal_is_a_sentence() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let named = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("db.internal").unwrap(),
            presented: presented.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (why, sentence) in [
            (
                CertificateError::ExpiredContext {
                    time: at(900_000),
                    not_after: at(100_000),
                },
                "its certificate expired 9 days ago, by the clock of this host",
            ),
            (
                CertificateError::NotValidYetContext {
                    time: at(1_000),
                    not_before: at(8_200),
                },
                "its certificate is not valid yet, for another 2 hours, by the clock of this host",
            ),
            (
                named(&["DnsName(\"*.a.b\")", "IpAddress(10.0.0.7)"]),
                "its certificate is for *.a.b, 10.0.0.7, not for db.internal",
            ),
            (
                named(&[]),
                "its certificate is for no host (it has no subjectAltName), not for db.internal",
            ),
            (CertificateError::Revoked, "its certificate was revoked"),
            (
                CertificateError::BadSignature,
                "its certificate cannot be trusted: BadSignature",
            ),
        ] {
            assert_eq!(
                told(Error::InvalidCertificate(why)).as_deref(),
                Some(sentence)
            );
        }
        assert_eq!(told(said("so".into())).as_deref(), Some("so"));
        let alert = told(Error::AlertReceived(AlertDescription::CertificateRequired));
        assert_eq!(
            alert.as_deref(),
            Some("it wants a certificate of this client")
        );
    }

    #[test]
    fn what_is_about_no_certificate_is_none() {
        for error in [
            Error::AlertReceived(AlertDescription::ProtocolVersion),
            Error::DecryptError,
        ] {
            assert_eq!(told(error), None);
        }
        assert_eq!(refusal(&io::ErrorKind::BrokenPipe.into()), None);
    }
}
