//! The store of the locks, from the command line, the environment and configuration files. A URL is shown
//! without its secrets only. The settings of encryption become options of the URL.

#![expect(
    clippy::doc_markdown,
    reason = "comments that are help are read on a terminal"
)]

use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use leasehold::{Client, StoreUrl};
use leasehold_core::{KeyTemplate, Namespace};

use crate::config::{
    self, KEY_TEMPLATE, NAMESPACE, Origin, PASSWORD_FILE, REQUEST_TIMEOUT, Settings, TLS, TLS_CA,
    TLS_CERT, TLS_KEY, TLS_NAME, TLS_PIN, TTL, Typed, URL, URL_FILE, Value,
};
use crate::exit::{CONFIG, Exit, exit};
use crate::inherited_store::StoreLocation;
use crate::messages::pasteable;
use crate::session::Target;

/// Parts of the message for a missing store. `leasehold cache` replaces them.
pub(crate) const WHERE: &str = "where does the lock live?";
pub(crate) const ON_THIS_HOST: &str = "leasehold run --url local: LOCK -- CMD";
const SERVERS: &str = "try it now        eval \"$(leasehold dev)\"
    your Redis        export LEASEHOLD_URL=redis://host:6379/
    for all programs  write url = \"redis://host:6379/\" to ";

/// The section of these options in `--help`.
pub(crate) const SECTION: &str = "Where locks live";

/// The options that select the store. Every verb that uses a store has them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreArgs {
    /// Where locks live: redis://[user:password@]host[:port][/db], rediss://..., unix:/path/to/socket, local: for
    /// your processes on this host, or local:/path/to/file; for a quorum, 3 to 9 times, or
    /// redis+quorum://host1,host2,host3 [env: LEASEHOLD_URL]
    #[arg(long, help_heading = SECTION)]
    url: Vec<String>,

    /// A file that holds the URL [env: LEASEHOLD_URL_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "url", help_heading = SECTION, hide_short_help = true)]
    url_file: Option<PathBuf>,

    /// A file that holds the password for the URL [env: LEASEHOLD_PASSWORD_FILE]
    #[arg(long, value_name = "FILE", help_heading = SECTION, hide_short_help = true)]
    password_file: Option<PathBuf>,

    /// For rediss://: the only authorities to trust (PEM), or the server's own certificate [env:
    /// LEASEHOLD_TLS_CA] [default: those of the system]
    #[arg(long, value_name = "FILE", help_heading = SECTION, hide_short_help = true)]
    tls_ca: Option<PathBuf>,

    /// For rediss://: the certificate of this client (PEM), for a server that asks for one [env:
    /// LEASEHOLD_TLS_CERT]
    #[arg(long, value_name = "FILE", help_heading = SECTION, hide_short_help = true)]
    tls_cert: Option<PathBuf>,

    /// For rediss://: the private key of that certificate (PEM) [env: LEASEHOLD_TLS_KEY] [default: in the same
    /// file]
    #[arg(long, value_name = "FILE", help_heading = SECTION, hide_short_help = true)]
    tls_key: Option<PathBuf>,

    /// For rediss://: the host name that the server's certificate must have [env: LEASEHOLD_TLS_NAME] [default:
    /// the host of the URL]
    #[arg(long, value_name = "NAME", help_heading = SECTION, hide_short_help = true)]
    tls_name: Option<String>,

    /// For rediss://: trust the certificate with this SHA-256 fingerprint and no other, whoever signed it;
    /// several with commas between [env: LEASEHOLD_TLS_PIN]
    #[arg(long, value_name = "SHA256", help_heading = SECTION, hide_short_help = true)]
    tls_pin: Option<String>,

    /// A prefix for the name of the lock, followed by a colon [env: LEASEHOLD_NAMESPACE]
    #[arg(long, value_name = "NS", help_heading = SECTION, hide_short_help = true)]
    namespace: Option<String>,

    /// How the key is made from the name, to share it with other programs: lock:{} puts lock: before it [env:
    /// LEASEHOLD_KEY_TEMPLATE] [default: {}]
    #[arg(long, value_name = "TEXT", help_heading = SECTION, hide_short_help = true)]
    key_template: Option<String>,

    /// How long to wait for an answer of the store, 10ms to 60s; never longer than a third of the TTL [env:
    /// LEASEHOLD_REQUEST_TIMEOUT] [default: 2s]
    #[arg(long, value_name = "DUR", help_heading = SECTION, hide_short_help = true)]
    request_timeout: Option<String>,

    /// Read this configuration file only, instead of ~/.config/leasehold/config.toml and /etc/leasehold.toml
    #[arg(long, value_name = "FILE", help_heading = SECTION, hide_short_help = true)]
    config: Option<PathBuf>,
}

/// The TTL option of verbs that renew their leases.
#[derive(Debug, Args)]
pub(crate) struct TtlArgs {
    /// How long the lease lasts if this process dies or loses the store, 10ms to 24h; renewed each third of it
    /// [env: LEASEHOLD_TTL] [default: 30s, or max_ttl of a quorum if that is shorter]
    #[arg(long = "ttl", value_name = "DUR", value_parser = config::ttl)]
    pub(crate) typed: Option<Duration>,
}

impl StoreArgs {
    /// The typed store options, each followed by a space, for a command to paste. A password is not repeated.
    pub(crate) fn again(&self) -> String {
        let urls = self.url.iter().map(|url| {
            let has_none = |urls: Vec<StoreUrl>| !urls.iter().any(StoreUrl::has_password);
            let is_shown = StoreUrl::list(url).is_ok_and(has_none);
            (URL, OsStr::new(if is_shown { url.as_str() } else { "URL" }))
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
        let files = [
            (URL_FILE, &self.url_file),
            (PASSWORD_FILE, &self.password_file),
            (TLS_CA, &self.tls_ca),
            (TLS_CERT, &self.tls_cert),
            (TLS_KEY, &self.tls_key),
        ];
        let texts = [
            (TLS_NAME, &self.tls_name),
            (TLS_PIN, &self.tls_pin),
            (NAMESPACE, &self.namespace),
            (KEY_TEMPLATE, &self.key_template),
            (REQUEST_TIMEOUT, &self.request_timeout),
        ];
        let files = files.map(|(key, file)| (key, file.as_deref().map(Path::as_os_str)));
        let texts = texts.map(|(key, text)| (key, text.as_deref().map(OsStr::new)));
        let settings = files.into_iter().chain(texts);
        settings.filter_map(|(key, value)| Some((key, value?)))
    }

    /// The typed store options and the lock name, for the end of a command to paste.
    pub(crate) fn again_with(&self, lock: &str) -> String {
        self.again() + &pasteable(lock)
    }

    fn settings(&self) -> Result<Settings, Exit> {
        // With spaces between, as in `LEASEHOLD_URL`.
        let urls = self.url.join(" ");
        if StoreUrl::split(&urls).len() < self.url.len() {
            let why = "several URLs make a quorum, and each must be of a Redis or Valkey server";
            return Err(exit!(CONFIG, "--url: {why} (exit {CONFIG})"));
        }
        let urls = (!self.url.is_empty()).then_some(urls);
        let typed = Typed::default().with(URL, urls);
        let typed = self
            .typed()
            .fold(typed, |typed, (key, value)| typed.with(key, Some(value)));
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
            let limit = config::request_timeout(setting.text()?);
            let limit = limit.map_err(|why| setting.origin.refuse(why))?;
            builder = builder.request_timeout(limit);
        }
        let (location, origin) = place(&settings)?;
        warn_of_open_files(&location);
        let config = self.config.as_deref();
        if location.is_read_again() && config.is_none_or(Path::is_file) {
            let (again, known) = (self.clone(), Mutex::new(location.whole()));
            // A file that cannot be read now counts as unchanged: the connection may work, and the server says if not.
            builder = builder.credentials_of_urls(move || {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok((read, _)) = again.settings().and_then(|settings| place(&settings)) {
                    *known = read.whole();
                }
                known.clone()
            });
        }
        Ok(Target {
            place: location,
            origin,
            builder,
            naming,
            ttl: settings.get(TTL),
            patience: (Duration::ZERO, true),
        })
    }
}

/// Warns of each file with a secret that other users can read.
fn warn_of_open_files(location: &StoreLocation) {
    let [url_file, password_file] = &location.files;
    let of_url = [url_file, &location.settings_file].into_iter().flatten();
    let of_url = of_url.filter(|_| location.has_password());
    let with_password = of_url.chain(password_file);
    with_password.for_each(|file| config::warn_if_open(file, "password"));
    if let Some(file) = key_file(&location.tls) {
        config::warn_if_open(file, "private key");
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
        config::secret_line(&setting)?
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
    let url_file = (key == URL_FILE).then(|| setting.path().to_owned());
    let urls = StoreUrl::list(&url).map_err(|invalid| {
        let shown = invalid.input.clone();
        setting.origin.of_url(invalid.into(), &shown)
    })?;
    let (mut password, mut password_file) = (None, None);
    if let Some(file) = settings
        .get(PASSWORD_FILE)
        .filter(|one| one.is_for(&setting))
    {
        password = password_for(&urls, &setting, &file)?;
        password_file = password.is_some().then(|| file.path().to_owned());
    }
    let tls = of_tls(settings, &urls, &setting)?;
    let place = StoreLocation {
        urls,
        password,
        files: [url_file, password_file],
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
    let Some(file) = config::relative(&url) else {
        return Ok(url);
    };
    if key == URL_FILE {
        return Err(refuse(config::RELATIVE));
    }
    let absolute = absolute(file).ok_or_else(|| refuse("has no absolute path here"))?;
    Ok(format!("local:{absolute}"))
}

fn absolute(file: &str) -> Option<String> {
    path::absolute(file)
        .ok()?
        .into_os_string()
        .into_string()
        .ok()
}

/// The password in the file of the setting `password`, for `urls`, the value of the setting `of_url`.
fn password_for(
    urls: &[StoreUrl],
    of_url: &Value,
    password: &Value,
) -> Result<Option<String>, Exit> {
    let refused = if urls.iter().any(StoreUrl::has_password) {
        "has a password already"
    } else if urls.iter().all(StoreUrl::is_of_servers) {
        return config::secret_line(password).map(Some);
    } else {
        "is not a Redis URL, and only Redis takes a password"
    };
    // A setting of a stronger layer overrides one of a weaker layer.
    if of_url.level < password.level {
        return Ok(None);
    }
    Err(password
        .origin
        .refuse(format!("the URL from {} {refused}", of_url.origin)))
}

/// The settings of encryption that belong to `urls`, the value of the setting `of_url`, by their keys. Files get absolute paths.
fn of_tls(
    settings: &Settings,
    urls: &[StoreUrl],
    of_url: &Value,
) -> Result<Vec<(&'static str, String)>, Exit> {
    let why_not = why_not(urls);
    let mut found = Vec::new();
    for key in TLS {
        let Some(value) = settings.get(key).filter(|value| value.is_for(of_url)) else {
            continue;
        };
        let text = value.text()?;
        match why_not {
            None if config::is_file(key) => found.push((key, path_of(&value, text)?)),
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

/// Why these URLs take no setting of encryption, if they take none.
fn why_not(urls: &[StoreUrl]) -> Option<&'static str> {
    if !urls.iter().any(StoreUrl::is_encrypted) {
        Some("is not encrypted; write rediss://")
    } else if urls.iter().any(StoreUrl::has_tls_options) {
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
    absolute(text).ok_or_else(|| value.origin.refuse("is no path of a file"))
}

/// The file with the private key.
fn key_file<'a>(settings: &'a [(&'static str, String)]) -> Option<&'a Path> {
    let value = |key: &str| settings.iter().find(|(set, _)| *set == key);
    let (_, file) = value(TLS_KEY).or_else(|| value(TLS_CERT))?;
    Some(Path::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_paste_has_what_was_typed_but_no_password() {
        let args = |url: &str, namespace: Option<&str>| StoreArgs {
            url: url.split(' ').map(Into::into).collect(),
            password_file: Some("a b".into()),
            namespace: namespace.map(Into::into),
            key_template: namespace.map(|_| "lock:{}".into()),
            request_timeout: namespace.map(|_| "5s".into()),
            ..StoreArgs::default()
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
