//! Encryption: whom a connection trusts, and the certificate of this client.
//!
//! The program chooses its cryptography provider. This module uses that choice if there is one, and never makes it for the whole program.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Invalid;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Settings of encrypted connections, for [`ClientBuilder::tls`](crate::ClientBuilder::tls). Files are in PEM form.
///
/// By default the certificate of the server must be signed by an authority that the system trusts, or that the variable `SSL_CERT_FILE` or
/// `SSL_CERT_DIR` names. It must be valid now and name the host of the URL. A server that fails the check is refused with
/// [`StoreErrorKind::Untrusted`](crate::StoreErrorKind::Untrusted). There is no way to leave the check out.
///
/// Each new connection reads the files again, so a certificate can be replaced while the client lives. If they cannot be read then, or do
/// not fit together, the former ones count.
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// use leasehold::{Client, Tls};
///
/// let tls = Tls::new()
///     .ca_file("/etc/ssl/redis-ca.crt")
///     .client_certificate("/etc/ssl/app.crt", "/etc/ssl/app.key");
/// let client = Client::builder().tls(tls).connect("rediss://db.internal/").await?;
/// # client.close().await; Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "settings do nothing until a builder has them"]
pub struct Tls {
    given: Option<Arc<ClientConfig>>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    name: Option<String>,
    pins: Vec<String>,
    /// The last configuration that was built from files.
    built: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

impl Tls {
    /// The default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The only authorities to trust, in place of those of the system. A certificate of this file is also trusted if the server shows it
    /// itself, as with a self-signed one. It must be valid now and name the host.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        let ca = Some(path.into());
        Self { ca, ..self.anew() }
    }

    /// The certificate of this client, with those of its intermediate authorities, and its private key. Both may be in one file.
    pub fn client_certificate(self, file: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (Some(file.into()), Some(key.into()));
        Self {
            certificate,
            key,
            ..self.anew()
        }
    }

    /// The host name or IP address that the certificate of the server must have, in place of the one in the URL. The client also asks the
    /// server for it (SNI).
    pub fn server_name(self, name: impl Into<String>) -> Self {
        let name = Some(name.into());
        Self {
            name,
            ..self.anew()
        }
    }

    /// The SHA-256 fingerprint of the only certificate to trust, in hexadecimal digits, as `openssl x509 -noout -fingerprint -sha256` prints
    /// it. Neither its authority nor its name nor its dates count then. Several calls allow several certificates, for a change of them.
    pub fn pin(self, fingerprint: impl Into<String>) -> Self {
        let mut this = self.anew();
        this.pins.push(fingerprint.into());
        this
    }

    /// These settings, apart from what was built of them: other settings must not fall back to it.
    fn anew(self) -> Self {
        Self {
            built: Arc::default(),
            ..self
        }
    }
}

/// A configuration of [`leasehold::rustls`](crate::rustls). Besides it, only [`Tls::server_name`] can be set.
impl<C: Into<Arc<ClientConfig>>> From<C> for Tls {
    fn from(config: C) -> Self {
        Self {
            given: Some(config.into()),
            ..Self::default()
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .field("name", &self.name)
            .field("pins", &self.pins)
            .finish_non_exhaustive()
    }
}

/// The options of a URL, for an error message.
pub(crate) const OPTIONS: &str = "tls_ca, tls_cert, tls_key, tls_name and tls_pin";

impl Tls {
    /// Takes an option of a URL. Returns false for an unknown one.
    pub(crate) fn take(&mut self, key: &str, value: String) -> Result<bool, String> {
        let path = || {
            let why = format!("has a {key} without an absolute path");
            let path = PathBuf::from(&value);
            if path.is_absolute() {
                Ok(path)
            } else {
                Err(why)
            }
        };
        let is_second = match key {
            "tls_ca" => self.ca.replace(path()?).is_some(),
            "tls_cert" => self.certificate.replace(path()?).is_some(),
            "tls_key" => self.key.replace(path()?).is_some(),
            "tls_name" => self.name.replace(value).is_some(),
            "tls_pin" => {
                let is_second = !self.pins.is_empty();
                self.pins = value.split(',').map(str::to_owned).collect();
                is_second
            }
            _ => return Ok(false),
        };
        if is_second {
            return Err(format!("has two values of {key}"));
        }
        Ok(true)
    }

    /// True without any setting.
    pub(crate) fn is_default(&self) -> bool {
        let files = [&self.ca, &self.certificate, &self.key];
        let has_words = self.name.is_some() || !self.pins.is_empty();
        self.given.is_none() && !has_words && files.iter().all(|file| file.is_none())
    }

    /// Checks all settings. The authorities of the system are looked for only when they are needed.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if let Some(name) = &self.name {
            named(name).map_err(|why| Invalid::new(SETTING, name, why))?;
        }
        if self.is_default() {
            return Ok(());
        }
        self.config().map(drop)
    }

    /// Encrypts a connection to `host`.
    ///
    /// # Errors
    /// [`refusal`] tells those that are about a certificate.
    pub(crate) async fn over<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
    ) -> io::Result<TlsStream<S>> {
        let name = named(self.name.as_deref().unwrap_or(host)).map_err(refused)?;
        let config = self.config();
        let config = config.map_err(|invalid| refused(invalid.to_string()))?;
        TlsConnector::from(config).connect(name, stream).await
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Invalid> {
        if let Some(given) = &self.given {
            let other = Self {
                given: None,
                name: None,
                ..self.clone()
            };
            return if other.is_default() {
                Ok(given.clone())
            } else {
                let why = "has a configuration of rustls, and other settings besides: leave one of them out";
                Err(Invalid::new(SETTING, &format!("{other:?}"), why))
            };
        }
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        match self.build() {
            Ok(config) => Ok(built.insert(Arc::new(config)).clone()),
            // While files are replaced, a key may not fit its certificate for a moment.
            Err(why) => built.clone().ok_or(why),
        }
    }

    fn build(&self) -> Result<ClientConfig, Invalid> {
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Invalid::new(SETTING, "cryptography provider", error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(provider)?);
        let Some(file) = &self.certificate else {
            return match &self.key {
                None => Ok(config.with_no_client_auth()),
                Some(key) => Err(of_file(key, "is a key without its certificate (tls_cert)")),
            };
        };
        let key_file = self.key.as_ref().unwrap_or(file);
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| {
            unreadable(key_file, &error, "holds no private key without a password")
        })?;
        let why = |error| format!("and {} do not fit: {error}", key_file.display());
        let chain = certificates(file)?;
        let config = config.with_client_auth_cert(chain, key);
        config.map_err(|error| of_file(file, why(error)))
    }

    fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, Invalid> {
        let pins = self.pins.iter().map(|text| {
            let why = "is no SHA-256 fingerprint: 64 hexadecimal digits, with or without colons and sha256: before them";
            Fingerprint::parse(text).ok_or_else(|| Invalid::new(SETTING, text, why))
        });
        let pins: Vec<Fingerprint> = pins.collect::<Result<_, _>>()?;
        let mut authorities = RootCertStore::empty();
        let own = match (&self.ca, pins.is_empty()) {
            (Some(file), false) => {
                let why = "names authorities, and a fingerprint (tls_pin) says which certificate to trust: leave one of them out";
                return Err(of_file(file, why));
            }
            (Some(file), true) => {
                let own = certificates(file)?;
                for authority in &own {
                    let added = authorities.add(authority.clone());
                    added.map_err(|error| of_file(file, error.to_string()))?;
                }
                own
            }
            (None, true) => {
                let found = rustls_native_certs::load_native_certs();
                authorities.add_parsable_certificates(found.certs);
                if authorities.is_empty() {
                    let mut why = "this system names none: install its package ca-certificates, or name the authority of the server (tls_ca)".to_owned();
                    if let Some(error) = found.errors.first() {
                        why = format!("{why}; {error}");
                    }
                    return Err(Invalid::new(SETTING, "authorities of the system", why));
                }
                Vec::new()
            }
            (None, false) => Vec::new(),
        };
        let algorithms = provider.signature_verification_algorithms;
        let by_authorities = pins.is_empty().then(|| {
            WebPkiServerVerifier::builder_with_provider(authorities.into(), provider).build()
        });
        let authorities = by_authorities.transpose();
        let authorities =
            authorities.map_err(|error| Invalid::new(SETTING, "authorities", error.to_string()))?;
        let verifier = Verifier {
            pins,
            authorities,
            own,
            algorithms,
        };
        Ok(Arc::new(verifier))
    }
}

/// The name of these settings in errors.
pub(crate) const SETTING: &str = "TLS setting";

fn named(host: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
    name.map_err(|_| format!("{host} is neither a host name nor an IP address"))
}

fn of_file(file: &Path, why: impl Into<String>) -> Invalid {
    let path = file.to_string_lossy();
    if path.contains("-----BEGIN") {
        // It may be a private key.
        return Invalid::new(SETTING, "...", "is the text of a file; give its path");
    }
    Invalid::new(SETTING, &path, why.into())
}

fn unreadable(file: &Path, error: &pem::Error, lack: &str) -> Invalid {
    match error {
        pem::Error::Io(error) => of_file(file, error.to_string()),
        pem::Error::NoItemsFound => of_file(file, lack),
        other => of_file(file, format!("is not a PEM file: {other}")),
    }
}

/// All certificates of a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let lack = "holds no certificate";
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| unreadable(file, &error, lack))?;
    if read.is_empty() {
        return Err(of_file(file, lack));
    }
    Ok(read)
}

/// The SHA-256 of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// Reads hexadecimal digits, with or without colons, and `sha256:` before them.
    fn parse(text: &str) -> Option<Self> {
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
struct Verifier {
    pins: Vec<Fingerprint>,
    /// Without pins.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Trusted if a server shows one of them itself.
    own: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
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
        let unknown = format!(
            "its certificate ({fingerprint}) is signed by no authority that this client trusts"
        );
        Err(match why {
            // The name of its authority may be that of a trusted one, with another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => said(unknown),
            // A self-signed certificate that may sign others, and is not trusted itself.
            why if is_of_authority(&why) => said(unknown),
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
fn said(sentence: String) -> Error {
    let sentence = OtherError(Arc::new(Sentence(sentence)));
    Error::InvalidCertificate(CertificateError::Other(sentence))
}

/// A connection that was refused, in these words.
fn refused(sentence: String) -> io::Error {
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
    use super::*;

    #[test]
    fn the_program_keeps_its_choice_of_cryptography() {
        // The result depends on the certificates of this host.
        drop(Tls::new().config());
        // This test process has installed no provider, and no configuration must install one.
        assert!(CryptoProvider::get_default().is_none());
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_their_name() {
        let file = "/etc/hosts";
        for (tls, why) in [
            (Tls::new().ca_file("/no/such"), "\"/no/such\": No such file"),
            (Tls::new().ca_file(file), "holds no certificate"),
            (Tls::new().client_certificate(file, file), "no private key"),
            (Tls::new().server_name("a b"), "\"a b\""),
            (Tls::new().pin("12:34"), "64 hexadecimal digits"),
            (
                Tls::new().pin("0".repeat(64)).ca_file("/a"),
                "leave one of them out",
            ),
        ] {
            let refused = tls.check().unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        Tls::new().pin("0".repeat(64)).check().unwrap();
        Tls::new().check().unwrap();
        let text = Tls::new().ca_file("-----BEGIN EC PRIVATE KEY-----\nS3CR3T");
        let refused = text.check().unwrap_err().to_string();
        assert!(refused.contains("give its path") && !refused.contains("S3CR3T"));
    }

    #[test]
    fn settings_made_of_others_do_not_fall_back_to_them() {
        let pinned = Tls::new().pin("0".repeat(64));
        pinned.check().unwrap();
        let again = pinned.clone();
        again.check().unwrap();
        for other in [
            again.clone().pin("12:34"),
            again.clone().ca_file("/no/such"),
            again.client_certificate("/no/such", "/no/such"),
        ] {
            other.check().unwrap_err();
        }
    }

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
