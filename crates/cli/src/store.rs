//! The store of the locks, from the command line, the environment and configuration files. A URL is shown
//! without its secrets only.

use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold_core::{KeyTemplate, Namespace};

mod encryption;
mod target;

use self::encryption::TlsArgs;
use self::target::Patience;
pub(crate) use self::target::Target;
use crate::address;
use crate::config::{
    self, KEY_TEMPLATE, NAMESPACE, Origin, PASSWORD_FILE, REQUEST_TIMEOUT, Settings, TTL, Typed,
    URL, URL_FILE, Value,
};
use crate::exit::{CONFIG, Exit, exit};
use crate::inherited_store::StoreLocation;
use crate::messages::pasteable;
use crate::{help, secret, values};

const URL_HELP: &str = "Where locks live: redis://[user:password@]host[:port][/db], rediss://..., unix:/path/to/socket, local: for your processes on this host, or local:/path/to/file; for a quorum, 3 to 9 times, or redis+quorum://host1,host2,host3 [env: LEASEHOLD_URL]";

/// Parts of the message for a missing store. `leasehold cache` replaces them.
pub(crate) const WHERE: &str = "where does the lock live?";
pub(crate) const ON_THIS_HOST: &str = "leasehold run --url local: LOCK -- CMD";
const SERVERS: &str = "try it now        eval \"$(leasehold dev)\"
    your Redis        export LEASEHOLD_URL=redis://host:6379/
    for all programs  write url = \"redis://host:6379/\" to ";

const TTL_HELP: &str = "How long the lease lasts if this process dies or loses the store, 10ms to 24h; renewed each third of it [env: LEASEHOLD_TTL] [default: 30s]";

/// The options that select the store. Every verb that uses a store has them.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    #[arg(long, help_heading = help::STORE, help = URL_HELP)]
    url: Vec<String>,

    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "url",
        help_heading = help::STORE,
        help = "A file that holds the URL [env: LEASEHOLD_URL_FILE]"
    )]
    url_file: Option<PathBuf>,

    #[arg(
        long,
        value_name = "FILE",
        help_heading = help::STORE,
        help = "A file that holds the password for the URL [env: LEASEHOLD_PASSWORD_FILE]"
    )]
    password_file: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArgs,

    #[arg(
        long,
        value_name = "NS",
        help_heading = help::STORE,
        help = "A prefix for the name of the lock, followed by a colon [env: LEASEHOLD_NAMESPACE]"
    )]
    namespace: Option<String>,

    #[arg(
        long,
        value_name = "TEXT",
        help_heading = help::STORE,
        help = "How the key is made from the name, to share it with other programs: lock:{} puts lock: before it [env: LEASEHOLD_KEY_TEMPLATE] [default: {}]"
    )]
    key_template: Option<String>,

    #[arg(
        long,
        value_name = "DUR",
        help_heading = help::STORE,
        help = "How long to wait for an answer of the store, 10ms to 60s; never longer than a third of the TTL [env: LEASEHOLD_REQUEST_TIMEOUT] [default: 2s]"
    )]
    request_timeout: Option<String>,

    #[arg(
        long,
        value_name = "FILE",
        help_heading = help::STORE,
        help = "Read this configuration file only, instead of ~/.config/leasehold/config.toml and /etc/leasehold.toml"
    )]
    config: Option<PathBuf>,
}

/// The TTL option of verbs that renew their leases.
#[derive(Debug, Args)]
pub(crate) struct TtlArgs {
    /// The typed TTL. [`Target::ttl`] gives the effective one.
    #[arg(long = "ttl", value_name = "DUR", value_parser = values::ttl, help = TTL_HELP)]
    pub(crate) typed: Option<Duration>,
}

impl StoreArgs {
    /// The typed store options, each followed by a space, for a command to paste. A password is not repeated.
    pub(crate) fn again(&self) -> String {
        let urls = self.url.iter().map(|url| {
            let is_secret = address::has_password(url);
            (URL, OsStr::new(if is_secret { "URL" } else { url }))
        });
        let config = self.config.iter().map(|file| ("config", file.as_os_str()));
        let option = |(key, value): (&'static str, &OsStr)| {
            let value = value.to_string_lossy();
            format!("{} {} ", config::option(key), pasteable(&value))
        };
        let options = urls.chain(self.typed()).chain(config);
        options.map(option).collect()
    }

    /// The typed settings but the URLs, by their keys.
    fn typed(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        let settings = [
            (URL_FILE, self.url_file.as_deref().map(OsStr::new)),
            (PASSWORD_FILE, self.password_file.as_deref().map(OsStr::new)),
            (NAMESPACE, self.namespace.as_deref().map(OsStr::new)),
            (KEY_TEMPLATE, self.key_template.as_deref().map(OsStr::new)),
            (
                REQUEST_TIMEOUT,
                self.request_timeout.as_deref().map(OsStr::new),
            ),
        ];
        let settings = settings.into_iter().chain(self.tls.settings());
        settings.filter_map(|(key, value)| Some((key, value?)))
    }

    /// The typed store options and the lock name, for the end of a command to paste.
    pub(crate) fn again_with(&self, lock: &str) -> String {
        self.again() + &pasteable(lock)
    }

    /// The typed URLs, with spaces between as in `LEASEHOLD_URL`.
    fn typed_url(&self) -> Result<Option<String>, Exit> {
        let urls = self.url.join(" ");
        if address::split(&urls).len() < self.url.len() {
            let why = "several URLs make a quorum, and each must be of a Redis or Valkey server";
            let text = format!("--url: {why} (exit {CONFIG})");
            return Err(Exit::saying(CONFIG, text));
        }
        Ok((!self.url.is_empty()).then_some(urls))
    }

    fn settings(&self) -> Result<Settings, Exit> {
        let urls = Typed::default().with(URL, self.typed_url()?);
        let typed = self
            .typed()
            .fold(urls, |typed, (key, value)| typed.with(key, Some(value)));
        Settings::load(typed, self.config.as_deref())
    }

    /// Determines the store. Reads files, but makes no connection.
    pub(crate) fn target(&self) -> Result<Target, Exit> {
        let settings = self.settings()?;
        // Each verb closes its client, with its own limit.
        let mut builder = Client::builder().drop_timeout(Duration::ZERO);
        let mut naming = Vec::new();
        // The library would refuse these values too, but could not name their source.
        if let Some(setting) = settings.get(NAMESPACE) {
            let text = setting.text()?;
            Namespace::new(text).map_err(|invalid| setting.origin.refuse(invalid))?;
            builder = builder.namespace(text);
            naming.push(("LEASEHOLD_NAMESPACE", text.to_owned()));
        }
        if let Some(setting) = settings.get(KEY_TEMPLATE) {
            let template = setting.text()?;
            KeyTemplate::new(template).map_err(|invalid| setting.origin.refuse(invalid))?;
            builder = builder.key_template(template);
            naming.push(("LEASEHOLD_KEY_TEMPLATE", template.to_owned()));
        }
        if let Some(setting) = settings.get(REQUEST_TIMEOUT) {
            let limit = values::request_timeout(setting.text()?);
            let limit = limit.map_err(|why| setting.origin.refuse(why))?;
            builder = builder.request_timeout(limit);
        }
        let (location, origin) = place(&settings)?;
        warn_of_open_files(&location);
        let config = self.config.as_deref();
        if location.is_read_again() && config.is_none_or(Path::is_file) {
            let (again, known) = (self.clone(), Mutex::new(location.whole.clone()));
            // A file that cannot be read now counts as unchanged: the connection may work, and the server says if not.
            builder = builder.credentials_of_urls(move || {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok((read, _)) = again.settings().and_then(|settings| place(&settings)) {
                    *known = read.whole;
                }
                let urls = address::split(&known).into_iter();
                urls.map(str::to_owned).collect()
            });
        }
        Ok(Target {
            place: location,
            origin,
            builder,
            naming,
            ttl: settings.get(TTL),
            patience: Patience::default(),
        })
    }
}

/// Warns of each file with a secret that other users can read.
fn warn_of_open_files(location: &StoreLocation) {
    let [url_file, password_file] = &location.files;
    let of_url = [url_file, &location.settings_file].into_iter().flatten();
    let of_url = of_url.filter(|_| address::has_password(&location.url));
    let with_password = of_url.chain(password_file);
    with_password.for_each(|file| secret::warn_if_open(file, "password"));
    if let Some(file) = encryption::key_file(&location.tls) {
        secret::warn_if_open(file, "private key");
    }
}

/// The location of the store, and the source of its URL.
fn place(settings: &Settings) -> Result<(StoreLocation, Origin), Exit> {
    let Some((key, setting)) = settings.either(URL, URL_FILE)? else {
        return Err(exit!(
            CONFIG,
            "no store given: {WHERE} (exit {CONFIG})\n    this host only    {ON_THIS_HOST}\n    {SERVERS}{}",
            config::HOST_FILE
        ));
    };
    let url = if key == URL_FILE {
        secret::line(&setting)?
    } else {
        setting.text()?.to_owned()
    };
    if url.is_empty() {
        return Err(exit!(
            CONFIG,
            "{}: no store given: is a variable unset? (exit {CONFIG})",
            setting.origin
        ));
    }
    if url == "memory:" {
        return Err(exit!(
            CONFIG,
            "memory: exists in one process only, so it would exclude no other process (exit {CONFIG})\n    next    {ON_THIS_HOST}"
        ));
    }
    let settings_file = match &setting.origin {
        Origin::File { path, .. } if key == URL => Some(path.clone()),
        _ => None,
    };
    let url = for_any_directory(url, key, &setting.origin)?;
    let whole = match settings.get(PASSWORD_FILE) {
        Some(password) if password.is_for(&setting) => {
            let whole = joined(&url, &setting, &password)?;
            (whole != url).then(|| (whole, password.path().to_owned()))
        }
        _ => None,
    };
    let url_file = (key == URL_FILE).then(|| setting.path().to_owned());
    let (whole, password_file) = match whole {
        Some((whole, file)) => (whole, Some(file)),
        None => (url.clone(), None),
    };
    let files = [url_file, password_file];
    let tls = encryption::settings(settings, &url, &setting)?;
    let place = StoreLocation {
        url: address::with_options(&url, &tls),
        whole: address::with_options(&whole, &tls),
        files,
        settings_file,
        tls,
        without: settings.without(),
    };
    Ok((place, setting.origin))
}

/// Makes a relative `local:` path absolute, for a process in another directory. A URL file must contain an
/// absolute path, so that it means the same file in each directory.
fn for_any_directory(url: String, key: &str, origin: &Origin) -> Result<String, Exit> {
    let refuse = |why: &str| exit!(CONFIG, "{origin}: {why} (exit {CONFIG})");
    match url.strip_prefix("local:") {
        Some(file) if !file.is_empty() && !file.starts_with(['/', '?']) => {
            if key == URL_FILE {
                return Err(refuse(config::RELATIVE));
            }
            let absolute = path::absolute(file).ok();
            let absolute = absolute.as_deref().and_then(Path::to_str);
            let absolute = absolute.ok_or_else(|| refuse("has no absolute path here"))?;
            Ok(format!("local:{absolute}"))
        }
        _ => Ok(url),
    }
}

fn joined(url: &str, setting: &Value, password: &Value) -> Result<String, Exit> {
    let refused = if address::has_password(url) {
        "has a password already"
    } else if address::takes_password(url) {
        let secret = secret::line(password)?;
        return Ok(address::with_password(url, &secret));
    } else {
        "is not a Redis URL, and only Redis takes a password"
    };
    // A setting of a stronger layer overrides one of a weaker layer.
    if setting.level < password.level {
        return Ok(url.to_owned());
    }
    Err(password
        .origin
        .refuse(format!("the URL from {} {refused}", setting.origin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_paste_has_what_was_typed_but_no_password() {
        let args = |url: &str, namespace: Option<&str>| StoreArgs {
            url: url.split(' ').map(Into::into).collect(),
            url_file: None,
            password_file: Some("a b".into()),
            tls: TlsArgs::default(),
            namespace: namespace.map(Into::into),
            key_template: namespace.map(|_| "lock:{}".into()),
            request_timeout: namespace.map(|_| "5s".into()),
            config: None,
        };
        assert_eq!(
            args("local:", Some("ns")).again_with("-x"),
            "--url local: --password-file 'a b' --namespace ns --key-template 'lock:{}' --request-timeout 5s -- '-x'"
        );
        assert_eq!(
            args("redis://:S3CR3T@host/", None).again_with("x"),
            "--url URL --password-file 'a b' x"
        );
        assert_eq!(
            args("redis://a redis://:S3CR3T@b redis://c", None).again_with("x"),
            "--url redis://a --url URL --url redis://c --password-file 'a b' x"
        );
    }
}
