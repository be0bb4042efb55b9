//! The settings of encrypted connections: options, variables, and keys of a configuration file. They become options of the URL.

use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};

use clap::Args;

use crate::config::{
    Origin, Settings, TLS, TLS_CA, TLS_CERT, TLS_KEY, TLS_NAME, TLS_PIN, Value, is_file,
};
use crate::exit::Exit;
use crate::{address, help};

/// The options for `rediss://`.
#[derive(Debug, Clone, Default, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "they are the names of the options"
)]
pub(super) struct TlsArgs {
    #[arg(
        long,
        value_name = "FILE",
        help_heading = help::STORE,
        help = "For rediss://: the only authorities to trust (PEM), or the server's own certificate [env: LEASEHOLD_TLS_CA] [default: those of the system]"
    )]
    tls_ca: Option<PathBuf>,

    #[arg(
        long,
        value_name = "FILE",
        help_heading = help::STORE,
        help = "For rediss://: the certificate of this client (PEM), for a server that asks for one [env: LEASEHOLD_TLS_CERT]"
    )]
    tls_cert: Option<PathBuf>,

    #[arg(
        long,
        value_name = "FILE",
        help_heading = help::STORE,
        help = "For rediss://: the private key of that certificate (PEM) [env: LEASEHOLD_TLS_KEY] [default: in the same file]"
    )]
    tls_key: Option<PathBuf>,

    #[arg(
        long,
        value_name = "NAME",
        help_heading = help::STORE,
        help = "For rediss://: the host name that the server's certificate must have [env: LEASEHOLD_TLS_NAME] [default: the host of the URL]"
    )]
    tls_name: Option<String>,

    #[arg(
        long,
        value_name = "SHA256",
        help_heading = help::STORE,
        help = "For rediss://: trust the certificate with this SHA-256 fingerprint and no other, whoever signed it; several with commas between [env: LEASEHOLD_TLS_PIN]"
    )]
    tls_pin: Option<String>,
}

impl TlsArgs {
    /// The typed settings, by their keys.
    pub(super) fn settings(&self) -> [(&'static str, Option<&OsStr>); 5] {
        [
            (TLS_CA, self.tls_ca.as_deref().map(OsStr::new)),
            (TLS_CERT, self.tls_cert.as_deref().map(OsStr::new)),
            (TLS_KEY, self.tls_key.as_deref().map(OsStr::new)),
            (TLS_NAME, self.tls_name.as_deref().map(OsStr::new)),
            (TLS_PIN, self.tls_pin.as_deref().map(OsStr::new)),
        ]
    }
}

/// The settings that belong to `url`, the value of the setting `of_url`, by their keys. Files get absolute paths.
pub(super) fn settings(
    settings: &Settings,
    url: &str,
    of_url: &Value,
) -> Result<Vec<(&'static str, String)>, Exit> {
    let why_not = why_not(url);
    let mut found = Vec::new();
    for key in TLS {
        let Some(value) = settings.get(key).filter(|value| value.is_for(of_url)) else {
            continue;
        };
        let text = value.text()?;
        match why_not {
            None if is_file(key) => found.push((key, path_of(&value, text)?)),
            None => found.push((key, text.to_owned())),
            Some(why) if is_meant_for(&value, of_url) => {
                let why = format!("the URL from {} {why}", of_url.origin);
                return Err(value.origin.refuse(why));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}

/// True if the setting was meant for this URL in particular. A URL that cannot use it is then an error.
fn is_meant_for(value: &Value, url: &Value) -> bool {
    // Variables are for all URLs that can use them: also for those of a profile, or of an outer run.
    let is_for_all = matches!(value.origin, Origin::Variable(_));
    // A setting of a stronger layer overrides one of a weaker layer.
    !is_for_all && value.level <= url.level
}

/// Why this URL takes no setting of encryption, if it takes none.
fn why_not(url: &str) -> Option<&'static str> {
    if !address::is_encrypted(url) {
        Some("is not encrypted; write rediss://")
    } else if address::has_tls_options(url) {
        Some("has options of TLS already; put all of them in one place")
    } else {
        None
    }
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
    let (_, file) = value(TLS_KEY).or_else(|| value(TLS_CERT))?;
    Some(Path::new(file))
}
