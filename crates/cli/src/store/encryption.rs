//! The settings of encrypted connections: options, variables, and keys of a configuration file. They become options of the URL.

use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};

use clap::Args;

use crate::address;
use crate::config::{Origin, Settings, TLS, Value, is_file};
use crate::exit::Exit;

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

/// The settings that belong to this URL, by their keys. Files get absolute paths.
pub(super) fn settings(
    settings: &Settings,
    (url, of_url): (&str, &Value),
) -> Result<Vec<(&'static str, String)>, Exit> {
    let mut found = Vec::new();
    for (key, _) in TLS {
        let Some(value) = settings.get(key).filter(|value| value.is_for(of_url)) else {
            continue;
        };
        let text = value.text()?;
        let refused = if !address::is_encrypted(url) {
            "is not encrypted; write rediss://"
        } else if address::has_tls_options(url) {
            "has options of TLS already; put all of them in one place"
        } else {
            found.push((
                key,
                if is_file(key) {
                    path_of(&value, text)?
                } else {
                    text.to_owned()
                },
            ));
            continue;
        };
        // Variables are for all URLs that can use them: also for those of a profile, or of an outer run.
        let is_general = matches!(value.origin, Origin::Variable(_));
        // A setting of a stronger layer overrides one of a weaker layer.
        if !is_general && of_url.level >= value.level {
            let why = format!("the URL from {} {refused}", of_url.origin);
            return Err(value.origin.refuse(why));
        }
    }
    Ok(found)
}

/// The absolute path in a value. The text of a key is not shown.
fn path_of(value: &Value, text: &str) -> Result<String, Exit> {
    if text.contains("-----BEGIN") {
        return Err(value.origin.refuse("is the text of a file; give its path"));
    }
    let absolute = path::absolute(text).ok();
    let absolute = absolute.as_deref().and_then(Path::to_str);
    let absolute = absolute.ok_or_else(|| value.origin.refuse("is no path of a file"))?;
    Ok(absolute.to_owned())
}

/// The file with the private key.
pub(super) fn key_file<'a>(settings: &'a [(&'static str, String)]) -> Option<&'a Path> {
    let value = |key: &str| settings.iter().find(|(set, _)| *set == key);
    let [_, (certificate, _), (key, _), ..] = TLS;
    let (_, file) = value(key).or_else(|| value(certificate))?;
    Some(Path::new(file))
}
