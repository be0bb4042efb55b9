//! Settings from environment variables and configuration files. Values may be secrets and are never shown. The
//! current directory has no influence. Also the parsers for durations, TTLs and sizes in them and on the command line.
//!
//! Settings have layers: the command line, the environment, the user's file, the host's file, and last
//! `REDIS_URL`. For each setting, the first layer that has it wins. Unknown keys of a file are errors.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Ttl;
use toml::de::{DeTable, DeValue};

use crate::exit::{CONFIG, Exit, USAGE, exit};
use crate::inherited_store;
use crate::messages::{self, pasteable, say};

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
const KEYS: [(&str, &str); 12] = [
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

/// The path in a URL such as `local:locks.db`.
pub(crate) fn relative(url: &str) -> Option<&str> {
    let file = url.strip_prefix("local:")?;
    (!file.is_empty() && !file.starts_with(['/', '?'])).then_some(file)
}

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

    /// The exit for a URL from this source that cannot be used. Unless it was typed, the source is added.
    pub(crate) fn of_url(&self, exit: Exit, shown: &str) -> Exit {
        match self {
            Self::Typed(_) => exit,
            _ => exit.adding(&format!("the URL came from {self}: {shown}")),
        }
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
    raw: OsString,
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
type Layer = BTreeMap<&'static str, (OsString, Origin)>;

/// Many platforms set this variable. It may name a cache, so it comes last.
pub(crate) const REDIS_URL: &str = "REDIS_URL";

/// Set by a run without a namespace or key template, to the URL or URL file that it passes on. For this store,
/// the command ignores these settings of files.
const NONE: [(&str, &str); 2] = [
    (NAMESPACE, "LEASEHOLD_NO_NAMESPACE"),
    (KEY_TEMPLATE, "LEASEHOLD_NO_KEY_TEMPLATE"),
];

/// The configuration file of the host.
pub(crate) const HOST_FILE: &str = "/etc/leasehold.toml";

/// All settings, with the strongest layer first.
pub(crate) struct Settings(Vec<Layer>);

impl Settings {
    /// Collects the settings. `file` replaces the files of the user and the host.
    pub(crate) fn load(typed: Typed, file: Option<&Path>) -> Result<Self, Exit> {
        Self::gather(typed, |name| env::var_os(name), file)
    }

    fn gather(
        typed: Typed,
        variable: impl Fn(&str) -> Option<OsString>,
        file: Option<&Path>,
    ) -> Result<Self, Exit> {
        // An empty variable counts as unset.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let named = |key, name| Some((key, (variable(name)?, Origin::Variable(name))));
        let mut variables: Layer = KEYS
            .into_iter()
            .filter_map(|(key, name)| named(key, name))
            .collect();
        if let (Some(_), Some((file, _))) = (variables.get(URL), variables.get(URL_FILE))
            && inherited_store::is_run_url_file(Path::new(file))
        {
            // A URL that was set inside the run overrides the run's own URL file.
            variables.remove(URL_FILE);
        }
        let named_here = [&typed.0, &variables]
            .iter()
            .any(|layer| layer.contains_key(URL) || layer.contains_key(URL_FILE));
        if let (false, Some(why)) = (named_here, variable(inherited_store::WITHHELD)) {
            // No other store may take its place.
            let why = why.to_string_lossy();
            return Err(exit!(
                CONFIG,
                "the store of the outer leasehold is not known here (exit {CONFIG})\n    Its URL has a password, so it is passed in a file, which could not be written:\n    {}\n    next    set XDG_RUNTIME_DIR or TMPDIR to a directory of this user, or give the URL with --url-file FILE",
                why.escape_debug()
            ));
        }
        let hidden = NONE.map(|(key, marker)| (key, variable(marker)));
        let mut layers = vec![typed.0, variables];
        if let Some(chosen) = file {
            layers.push(read(chosen, false)?);
        } else {
            let files = [user_file(variable), Some(HOST_FILE.into())];
            for path in files.into_iter().flatten() {
                layers.push(read(&path, true)?);
            }
        }
        layers.push(named(URL, REDIS_URL).into_iter().collect());
        let mut this = Self(layers);
        if file.is_none() {
            this.hide(hidden);
        }
        Ok(this)
    }

    /// Removes the naming settings of files that an outer run does not have, if its store is used here.
    fn hide(&mut self, hidden: [(&'static str, Option<OsString>); 2]) {
        // A conflict of two settings is refused later.
        let Ok(Some((_, store))) = self.either(URL, URL_FILE) else {
            return;
        };
        if !matches!(store.origin, Origin::Variable(name) if name != REDIS_URL) {
            return;
        }
        for (key, of_store) in hidden {
            if of_store.as_ref() == Some(&store.raw) {
                for layer in self.0.iter_mut().skip(2) {
                    layer.remove(key);
                }
            }
        }
    }

    /// The variables that mark naming settings as absent.
    pub(crate) fn without(&self) -> Vec<&'static str> {
        let missing = NONE.into_iter().filter(|(key, _)| self.get(key).is_none());
        missing.map(|(_, marker)| marker).collect()
    }

    /// A setting, from the first layer that has it.
    pub(crate) fn get(&self, key: &'static str) -> Option<Value> {
        (0..self.0.len()).find_map(|level| self.at(level, key))
    }

    /// One of two alternative settings, from the first layer that has either. A layer with both is refused.
    pub(crate) fn either(
        &self,
        key: &'static str,
        other: &'static str,
    ) -> Result<Option<(&'static str, Value)>, Exit> {
        for level in 0..self.0.len() {
            match (self.at(level, key), self.at(level, other)) {
                (None, None) => {}
                (Some(value), None) => return Ok(Some((key, value))),
                (None, Some(value)) => return Ok(Some((other, value))),
                (Some(one), Some(two)) => {
                    return Err(one.origin.refuse(format!(
                        "{} is set as well; set only one of them",
                        two.origin
                    )));
                }
            }
        }
        Ok(None)
    }

    fn at(&self, level: usize, key: &'static str) -> Option<Value> {
        let (raw, origin) = self.0.get(level)?.get(key)?.clone();
        Some(Value { origin, level, raw })
    }
}

/// The settings of the command line, the strongest layer.
#[derive(Default)]
pub(crate) struct Typed(Layer);

impl Typed {
    /// Adds the value of the option for `key`, if given.
    pub(crate) fn with(mut self, key: &'static str, value: Option<impl AsRef<OsStr>>) -> Self {
        if let Some(value) = value {
            let option = Origin::Typed(option(key));
            self.0.insert(key, (value.as_ref().to_owned(), option));
        }
        self
    }
}

/// The configuration file of the user, if a home directory is known.
pub(crate) fn user_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths.
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let directory =
        absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(directory.join("leasehold/config.toml"))
}

/// Reads the file at `path`. An optional one may be missing.
fn read(path: &Path, is_optional: bool) -> Result<Layer, Exit> {
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if is_optional && missing.contains(&error.kind()) => return Ok(Layer::new()),
        Err(error) => {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let next = if denied && is_optional {
                "next    set HOME to the home of this user, or choose a configuration: --config FILE"
            } else {
                ""
            };
            let exit = exit!(
                CONFIG,
                "cannot read the configuration {}: {error} (exit {CONFIG})\n    Its settings may select another store, so nothing was done.",
                path.display()
            );
            return Err(exit.adding(next));
        }
    };
    parse(path, &text)
}

/// Parses the text of a file. Unknown settings are refused with their line, since the user relies on them.
fn parse(path: &Path, text: &str) -> Result<Layer, Exit> {
    let refuse = |at: usize, why: String| {
        let line = line_of(text, at);
        exit!(
            CONFIG,
            "{}, line {line}: {why} (exit {CONFIG})",
            path.display()
        )
    };
    // The message only: the full error quotes the line, which may hold a password.
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        refuse(at, format!("is not TOML: {}", error.message()))
    })?;
    let mut layer = Layer::new();
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        let Some((key, _)) = KEYS.into_iter().find(|(key, _)| *key == name.get_ref()) else {
            return Err(refuse(at, unknown(name.get_ref())));
        };
        let DeValue::String(value) = value.get_ref() else {
            return Err(refuse(at, format!("{key} must be text in quotes")));
        };
        if value.is_empty() {
            return Err(refuse(at, format!("{key} is empty; leave it out")));
        }
        if is_file(key) && !Path::new(value.as_ref()).is_absolute() {
            return Err(refuse(at, format!("{key} must be an absolute path")));
        }
        if key == URL && relative(value).is_some() {
            return Err(refuse(at, format!("{key}: {RELATIVE}")));
        }
        let origin = Origin::File {
            path: path.to_owned(),
            line: line_of(text, at),
            key,
        };
        layer.insert(key, (value.as_ref().into(), origin));
    }
    Ok(layer)
}

fn unknown(name: &str) -> String {
    let known = KEYS.map(|(key, _)| key).join(", ");
    let hint = if name == "password" {
        "; a password belongs in a file of its own: password_file"
    } else {
        ""
    };
    format!(
        "unknown key {}{hint}; known: {known}",
        messages::quoted(name)
    )
}

/// The line number of the byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.split(|byte| *byte == b'\n').count()
}

/// The size limit of a file: `/dev/zero` by mistake must not fill the memory.
const MOST: u64 = 64 * 1024;

/// The only line of the file that `setting` names, without the line end: a URL or a password, which messages never
/// show.
pub(crate) fn secret_line(setting: &Value) -> Result<String, Exit> {
    let path = setting.path();
    let refuse = |why: &str| {
        exit!(
            CONFIG,
            "cannot use the file {}, from {}: {why} (exit {CONFIG})",
            path.display(),
            setting.origin
        )
    };
    let is_of_run = inherited_store::is_run_url_file(path);
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        if is_of_run && !inherited_store::is_private(&file)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        file.take(MOST + 1).read_to_string(&mut text)
    });
    if let Err(error) = read {
        let exit = match error.kind() {
            io::ErrorKind::InvalidData => refuse("it is not UTF-8"),
            _ => refuse(&error.to_string()),
        };
        let advice = inherited_store::advice(&error);
        return Err(exit.adding(if is_of_run { advice } else { "" }));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line {
        "" => Err(refuse("it is empty")),
        _ if line.len() as u64 > MOST => Err(refuse("it is too long")),
        _ if line.contains(char::is_control) => {
            Err(refuse("it holds more than one line, or control characters"))
        }
        _ => Ok(line.to_owned()),
    }
}

/// Warns of a file with a secret that every user of this host can read. It is used anyway: containers mount secrets
/// like that.
pub(crate) fn warn_if_open(path: &Path, secret: &str) {
    if is_open(path) {
        say(&format!(
            "warning: {} holds a {secret}, and any user of this host can read it\n    next    chmod o-r -- {}",
            path.display(),
            pasteable(&path.to_string_lossy())
        ));
    }
}

/// True if every user of this host can read the file: the file and all its parent directories are open.
fn is_open(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let has = |path: &Path, bit| path.metadata().is_ok_and(|found| found.mode() & bit != 0);
    path.is_file() && has(&path, 0o004) && path.ancestors().skip(1).all(|above| has(above, 0o001))
}

const WRITE: &str = "write 30s, 5m, 2h, or a number of seconds";

/// `5s`, `1h 30m`, `0.5` (seconds).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        let seconds = text.parse().map_err(|_| WRITE.to_owned())?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| "is too long".to_owned());
    }
    // The messages of humantime are about byte positions.
    humantime::parse_duration(text).map_err(|_| WRITE.to_owned())
}

/// Parses the TTL of a lease.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    // The library validates it before the connection is made.
    Ttl::new(duration(text)?)
        .map(Ttl::get)
        .map_err(|invalid| invalid.why.into_owned())
}

/// Parses the time limit of a request to a store.
pub(crate) fn request_timeout(text: &str) -> Result<Duration, String> {
    let limit = duration(text)?;
    if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&limit) {
        return Err("must be from 10ms to 60s".into());
    }
    Ok(limit)
}

/// Parses a total time of holding, which may exceed the maximal TTL.
pub(crate) fn hold(text: &str) -> Result<Duration, String> {
    at_least(Ttl::MIN, text)
}

/// Parses a duration that has a lower limit.
pub(crate) fn at_least(least: Duration, text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < least => Err(format!("must be at least {least:?}")),
        duration => Ok(duration),
    }
}

/// `512`, `64k`, `16MiB`: bytes, in powers of 1024.
#[cfg(feature = "cache")]
pub(crate) fn size(text: &str) -> Result<usize, String> {
    const WRITE: &str = "write a number of bytes, or 64KiB, 16MiB, 1GiB";
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let power = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" if !unit.starts_with('i') => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        _ => return Err(WRITE.into()),
    };
    let number: usize = number.parse().map_err(|_| WRITE.to_owned())?;
    let bytes = number.checked_mul(1 << (10 * power));
    bytes.ok_or_else(|| "is too much".into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_users_file_is_where_xdg_says() {
        for (variables, path) in [
            (
                [("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")].as_slice(),
                Some("/x/leasehold/config.toml"),
            ),
            (
                &[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")],
                Some("/h/.config/leasehold/config.toml"),
            ),
            (&[("HOME", "h")], None),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| value.into())
            };
            assert_eq!(user_file(variable), path.map(PathBuf::from));
        }
    }

    #[test]
    fn file_of_the_package_names_each_setting_and_sets_none() {
        let file = include_str!("../debian/leasehold.toml");
        let path = Path::new("/etc/leasehold.toml");
        assert_eq!(parse(path, file).unwrap().len(), 0);
        let all = parse(path, &file.replace("\n#", "\n").replace("\n ", "\n# ")).unwrap();
        assert!(KEYS.iter().all(|(key, _)| all.contains_key(key)));
    }

    fn refused(text: &str) -> String {
        let Err(exit) = parse(Path::new("/c.toml"), text) else {
            panic!("{text:?} was taken")
        };
        format!("{exit:?}")
    }

    #[test]
    fn a_fault_in_a_file_has_its_line_and_quotes_no_value() {
        for (text, says) in [
            ("ttl = \"5s\"\nurl = \"redis://:S3CR3T@h/\nx = 1", "line 2"),
            ("\nurl = redis://:S3CR3T@h/", "line 2"),
            ("url = \"redis://:S3CR3T@h/\"\nurl = \"x\"", "line 2"),
            ("\n\nuri = \"redis://:S3CR3T@h/\"", "line 3: unknown key"),
            ("[store]\nurl = \"redis://:S3CR3T@h/\"", "line 1: unknown"),
            ("password = \"S3CR3T\"", "password_file"),
            ("url = [\"redis://:S3CR3T@h/\"]", "line 1: url must be text"),
            ("ttl = 30", "line 1: ttl must be text in quotes"),
            ("namespace = \"\"", "line 1: namespace is empty"),
            ("url_file = \"S3CR3T\"", "must be an absolute path"),
            (
                "\nurl = \"local:S3CR3T.db\"",
                "line 2: url: a relative path",
            ),
            ("url = \"redis://:S3CR3T@h/\" \"", "line 1"),
            ("url = \"redis://:\\S3CR3T@h/\"", "line 1"),
        ] {
            let said = refused(text);
            assert!(said.contains(says) && said.contains("/c.toml"), "{said}");
            assert!(!said.contains("S3CR3T"), "{said}");
        }
    }

    #[test]
    fn a_file_is_as_open_as_the_way_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        fs::write(&file, "x").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (way, mode, open) in [
            (0o755, 0o644, true),
            (0o755, 0o640, false),
            (0o700, 0o644, false),
        ] {
            set(directory.path(), way);
            set(&file, mode);
            assert_eq!(is_open(&file), open, "{way:o} {mode:o}");
        }
    }

    #[cfg(feature = "cache")]
    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64k", 64 << 10),
            ("64KB", 64 << 10),
            ("16 MiB", 16 << 20),
            ("1g", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5m",
            "1x",
            "1 ib",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            size(text).unwrap_err();
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("5s", 5_000),
            ("2h", 7_200_000),
            ("7", 7_000),
            ("0.5", 500),
            ("1m 30s", 90_000),
            ("0", 0),
            ("250ms", 250),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(hold("30h"), Ok(Duration::from_secs(30 * 60 * 60)));
        hold("9ms").unwrap_err();
        for text in [
            "",
            "nonsense",
            "5 parsecs",
            "1.2.3",
            "-1",
            "inf",
            &"9".repeat(400),
        ] {
            duration(text).unwrap_err();
        }
    }
}
