//! A setting: its key, its value and its source. The value may be a secret and is never shown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::{CONFIG, Exit, USAGE, exit};

pub(crate) const URL: &str = "url";
pub(crate) const URL_FILE: &str = "url_file";
pub(crate) const PASSWORD_FILE: &str = "password_file";
pub(crate) const NAMESPACE: &str = "namespace";
pub(crate) const KEY_TEMPLATE: &str = "key_template";
pub(crate) const TTL: &str = "ttl";
pub(crate) const REQUEST_TIMEOUT: &str = "request_timeout";

pub(crate) const TLS_CA: &str = "tls_ca";
pub(crate) const TLS_CERT: &str = "tls_cert";
pub(crate) const TLS_KEY: &str = "tls_key";
pub(crate) const TLS_NAME: &str = "tls_name";
pub(crate) const TLS_PIN: &str = "tls_pin";

/// The settings of encryption.
pub(crate) const TLS: [&str; 5] = [TLS_CA, TLS_CERT, TLS_KEY, TLS_NAME, TLS_PIN];

/// True for a setting whose value is the path of a file.
pub(crate) fn is_file(key: &str) -> bool {
    [URL_FILE, PASSWORD_FILE, TLS_CA, TLS_CERT, TLS_KEY].contains(&key)
}

/// The option of the command line for a setting.
pub(crate) fn option(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The keys of a configuration file, with the corresponding variables.
pub(super) const KEYS: [(&str, &str); 12] = [
    (URL, "LEASEHOLD_URL"),
    (URL_FILE, "LEASEHOLD_URL_FILE"),
    (PASSWORD_FILE, "LEASEHOLD_PASSWORD_FILE"),
    (NAMESPACE, "LEASEHOLD_NAMESPACE"),
    (KEY_TEMPLATE, "LEASEHOLD_KEY_TEMPLATE"),
    (TTL, "LEASEHOLD_TTL"),
    (REQUEST_TIMEOUT, "LEASEHOLD_REQUEST_TIMEOUT"),
    (TLS_CA, "LEASEHOLD_TLS_CA"),
    (TLS_CERT, "LEASEHOLD_TLS_CERT"),
    (TLS_KEY, "LEASEHOLD_TLS_KEY"),
    (TLS_NAME, "LEASEHOLD_TLS_NAME"),
    (TLS_PIN, "LEASEHOLD_TLS_PIN"),
];

/// The error for `local:locks.db` in a file.
pub(crate) const RELATIVE: &str =
    "a relative path means another file in each directory; write local:/path/to/file";

/// The source of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This option of the command line.
    Typed(String),
    /// This environment variable.
    Variable(&'static str),
    /// A line of a file.
    File {
        path: PathBuf,
        line: usize,
        key: &'static str,
    },
}

impl Origin {
    /// The exit for an invalid value from this source.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Exit {
        let code = match self {
            Self::File { .. } => CONFIG,
            _ => USAGE,
        };
        exit!(code, "{self}: {why} (exit {code})")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed(option) => f.write_str(option),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line, key } => {
                write!(f, "{}, line {line}, {key}", path.display())
            }
        }
    }
}

/// A setting with its source.
#[derive(Clone)]
pub(crate) struct Value {
    pub(crate) origin: Origin,
    /// The layer's number; a smaller one is stronger.
    pub(crate) level: usize,
    pub(super) raw: OsString,
}

impl Value {
    /// The value as text.
    pub(crate) fn text(&self) -> Result<&str, Exit> {
        self.raw
            .to_str()
            .ok_or_else(|| self.origin.refuse("is not UTF-8"))
    }

    /// True if a password or a setting of encryption belongs to this URL. One from a file belongs to a URL of the same or a weaker layer: it
    /// must not be sent to another server from the command line.
    pub(crate) fn is_for(&self, url: &Self) -> bool {
        !matches!(self.origin, Origin::File { .. }) || self.level <= url.level
    }

    /// The value as a path.
    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.raw)
    }
}

/// The settings of one layer, by key.
pub(super) type Layer = BTreeMap<&'static str, (OsString, Origin)>;
