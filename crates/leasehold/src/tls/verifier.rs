//! The check of a server's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::refusal::said;

/// The SHA-256 of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// Reads hexadecimal digits, with or without colons, and `sha256:` before them.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let digits = text.strip_prefix("sha256:").unwrap_or(&text);
        let digits: String = digits.chars().filter(|c| *c != ':').collect();
        if digits.len() != 64 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Trusts pinned certificates if there are pins, else what authorities have signed.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) pins: Vec<Fingerprint>,
    /// Without pins.
    pub(super) authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Trusted if a server shows one of them itself.
    pub(super) own: Vec<CertificateDer<'static>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fingerprint = Fingerprint::of(certificate);
        let Some(authorities) = &self.authorities else {
            return if self.pins.contains(&fingerprint) {
                Ok(ServerCertVerified::assertion())
            } else {
                let why = format!("its certificate ({fingerprint}) is not the pinned one");
                Err(said(why))
            };
        };
        let verified = authorities.verify_server_cert(certificate, intermediates, name, ocsp, now);
        let Err(Error::InvalidCertificate(why)) = verified else {
            return verified;
        };
        if self.own.iter().any(|own| own == certificate) && !is_about_time(&why) {
            // Only an authority may sign, and an authority may not be a server: neither matters for a certificate that is trusted itself.
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        Err(match why {
            // So is a self-signed certificate that may sign others, and is not trusted itself.
            why if why == CertificateError::UnknownIssuer || is_of_authority(&why) => {
                said(format!(
                    "its certificate ({fingerprint}) is signed by no authority that this client trusts"
                ))
            }
            CertificateError::Other(rule) => {
                said(format!("its certificate breaks a rule of X.509: {rule}"))
            }
            why => Error::InvalidCertificate(why),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// True for the certificate of an authority, which is no server. The type of this error is that of another crate.
fn is_of_authority(why: &CertificateError) -> bool {
    matches!(why, CertificateError::Other(rule) if rule.to_string() == "CaUsedAsEndEntity")
}

/// True if another time of day would change the verdict.
fn is_about_time(why: &CertificateError) -> bool {
    matches!(
        why,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_tools_print_them() {
        let fingerprint = Fingerprint::of(&CertificateDer::from(b"abc".as_slice()));
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint.to_string(), format!("sha256:{digits}"));
        let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
        for text in [
            digits,
            &format!("SHA256:{}", digits.to_uppercase()),
            &pairs.join(":").to_uppercase(),
            &format!(" sha256:{}\n", pairs.join(":")),
        ] {
            assert_eq!(
                Fingerprint::parse(text),
                Some(fingerprint.clone()),
                "{text}"
            );
        }
        for text in [
            "",
            "sha256:",
            &digits[1..],
            &format!("{digits}0"),
            &"é".repeat(32),
        ] {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
        let not_hexadecimal = digits.replace('b', "+");
        assert_eq!(Fingerprint::parse(&not_hexadecimal), None);
    }
}
