//! The settings of encrypted connections: options, variables, and keys of a configuration file. In a URL they are options of the same names.

use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};

use clap::Args;
use leasehold::Tls;

use crate::address;
use crate::config::{Settings, TLS, Value, is_file};
use crate::exit::Exit;
use crate::inherited_store::Variables;

/// The options for `rediss://`.
#[derive(Debug, Clone, Default, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "they are the names of the options"
)]
pub(super) struct TlsArgs {
    /// For rediss://, the authorities to trust, or the server's own certificate
    #[arg(
        long,
        value_name = "FILE",
        help = "For rediss://: the only authorities to trust (PEM), or the server's own certificate [env: LEASEHOLD_TLS_CA] [default: those of the system]"
    )]
    tls_ca: Option<PathBuf>,

    /// For rediss://, the certificate of this client
    #[arg(
        long,
        value_name = "FILE",
        help = "For rediss://: the certificate of this client (PEM), for a server that asks for one [env: LEASEHOLD_TLS_CERT]"
    )]
    tls_cert: Option<PathBuf>,

    /// For rediss://, the private key of this client
    #[arg(
        long,
        value_name = "FILE",
        help = "For rediss://: the private key of that certificate (PEM) [env: LEASEHOLD_TLS_KEY] [default: in the same file]"
    )]
    tls_key: Option<PathBuf>,

    /// For rediss://, the host name in the server's certificate
    #[arg(
        long,
        value_name = "NAME",
        help = "For rediss://: the host name that the server's certificate must have [env: LEASEHOLD_TLS_NAME] [default: the host of the URL]"
    )]
    tls_name: Option<String>,

    /// For rediss://, the fingerprint of the server's certificate
    #[arg(
        long,
        value_name = "SHA256",
        help = "For rediss://: trust the certificate with this SHA-256 fingerprint and no other, whoever signed it; several with commas between [env: LEASEHOLD_TLS_PIN]"
    )]
    tls_pin: Option<String>,
}

impl TlsArgs {
    /// The typed options, in the order of [`TLS`].
    pub(super) fn options(&self) -> [(&'static str, Option<&OsStr>); 5] {
        [
            ("--tls-ca", self.tls_ca.as_deref().map(Path::as_os_str)),
            ("--tls-cert", self.tls_cert.as_deref().map(Path::as_os_str)),
            ("--tls-key", self.tls_key.as_deref().map(Path::as_os_str)),
            ("--tls-name", self.tls_name.as_deref().map(OsStr::new)),
            ("--tls-pin", self.tls_pin.as_deref().map(OsStr::new)),
        ]
    }
}

/// The settings that belong to this URL, by their variables; without a value if there is none. Files get absolute paths.
pub(super) fn settings(
    settings: &Settings,
    (url, of_url): (&str, &Value),
) -> Result<Variables, Exit> {
    let mut found: Variables = TLS.map(|(_, variable)| (variable, None)).into();
    for (at, (key, _)) in TLS.into_iter().enumerate() {
        let Some(value) = settings.get(key).filter(|value| value.is_for(of_url)) else {
            continue;
        };
        let text = value.text()?;
        let refused = if !address::is_encrypted(url) {
            "is not encrypted; write rediss://"
        } else if address::has_tls_options(url) {
            "has options of TLS already; put all of them in one place"
        } else {
            let path = || path::absolute(text).map(PathBuf::into_os_string);
            let absolute = if is_file(key) { path().ok() } else { None };
            let value = absolute.unwrap_or_else(|| text.into());
            found[at].1 = Some(value);
            continue;
        };
        // A setting of a stronger layer overrides one of a weaker layer.
        if of_url.level >= value.level {
            let why = format!("the URL from {} {refused}", of_url.origin);
            return Err(value.origin.refuse(why));
        }
    }
    Ok(found)
}

/// The settings for the library; `None` without any.
pub(super) fn of(settings: &Variables) -> Option<Tls> {
    let [ca, certificate, key, name, pins] = values(settings);
    let text = |value: &OsStr| value.to_string_lossy().into_owned();
    let mut tls = Tls::new();
    if let Some(ca) = ca {
        tls = tls.ca_file(ca);
    }
    if let Some(file) = certificate.or(key) {
        tls = tls.client_certificate(file, key.unwrap_or(file));
    }
    if let Some(name) = name {
        tls = tls.server_name(text(name));
    }
    let pins = pins.map(text).unwrap_or_default();
    for pin in pins.split(',').filter(|pin| !pin.is_empty()) {
        tls = tls.pin(pin);
    }
    let is_set = settings.iter().any(|(_, value)| value.is_some());
    is_set.then_some(tls)
}

/// The file with the private key.
pub(super) fn key_file(settings: &Variables) -> Option<&Path> {
    let [_, certificate, key, ..] = values(settings);
    key.or(certificate).map(Path::new)
}

/// The values, in the order of [`TLS`].
fn values(settings: &Variables) -> [Option<&OsStr>; 5] {
    TLS.map(|(_, variable)| {
        let set = settings.iter().find(|(name, _)| *name == variable);
        set.and_then(|(_, value)| value.as_deref())
    })
}
