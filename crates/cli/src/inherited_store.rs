//! Passes the store of `leasehold run` on to its command, without a password in the environment.
//!
//! A URL without a password is passed in a variable. A URL with a password stays in the file that it was read
//! from. Without such a file, a temporary one is written that only this user can read, for the time of the
//! command. If that fails, a variable has the reason, and a nested `leasehold` is refused with it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};
use std::process::{self, Command};

use leasehold::StoreUrl;
use nix::unistd::getuid;

use crate::sys;

/// The variable with the reason why the URL was not passed on.
pub(crate) const WITHHELD: &str = "LEASEHOLD_URL_WITHHELD";

/// Variables to set, or to remove if they have no value.
pub(crate) type Variables = Vec<(&'static str, Option<OsString>)>;

/// Sets and removes variables of a command.
pub(crate) fn apply(variables: &[(&'static str, Option<OsString>)], command: &mut Command) {
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// The prefixes of the file names: while a file is written, and afterwards.
const NEW: &str = "new-";
const URL: &str = "url-";

/// The URL of the store, and the files it came from.
#[derive(Clone)]
pub(crate) struct StoreLocation {
    /// The URL as given, or those of the servers of a quorum.
    pub(crate) urls: Vec<StoreUrl>,
    /// The password of the password file. The URL has none then.
    pub(crate) password: Option<String>,
    /// The URL file and the password file.
    pub(crate) files: [Option<PathBuf>; 2],
    /// The configuration file that has the URL.
    pub(crate) settings_file: Option<PathBuf>,
    /// The settings of encryption, which become options of the URL.
    pub(crate) tls: Vec<(&'static str, String)>,
    /// The variables that mark naming settings as absent for this store, where configuration files may have
    /// them.
    pub(crate) without: Vec<&'static str>,
}

impl StoreLocation {
    /// The URLs with password and settings of encryption.
    pub(crate) fn whole(&self) -> Vec<String> {
        self.with(self.password.as_deref())
    }

    fn with(&self, password: Option<&str>) -> Vec<String> {
        let urls = self.urls.iter();
        urls.map(|url| url.with(password, &self.tls)).collect()
    }

    /// True if the URL has a password.
    pub(crate) fn has_password(&self) -> bool {
        self.urls.iter().any(StoreUrl::has_password)
    }

    /// True if the credentials came from files that can be read again.
    pub(crate) fn is_read_again(&self) -> bool {
        let [url_file, password_file] = &self.files;
        let sources = [url_file, password_file, &self.settings_file];
        let mut sources = sources.into_iter().flatten().peekable();
        sources.peek().is_some() && sources.all(|file| lasting(file).is_some())
    }

    /// True if another `leasehold` process with the same arguments finds the same store. False for a pipe, as in
    /// `--url-file <(...)`, and for the temporary file of an outer run.
    #[cfg(feature = "cache")]
    pub(crate) fn is_found_again(&self) -> bool {
        let of_tls = self.tls.iter().map(|(_, value)| Path::new(value));
        let of_tls = of_tls.filter(|file| file.is_absolute());
        let files = self.files.iter().flatten().map(PathBuf::as_path);
        files.chain(of_tls).all(|file| lasting(file).is_some())
    }

    /// The variables by which a command in any directory finds the same store. Variables without a value are
    /// removed, since they may name another store. The returned file must be kept until the command has ended.
    pub(crate) fn hand_on(&self) -> (Variables, Option<UrlFile>) {
        let files = self.files.each_ref();
        let [url_file, password_file] = files.map(|file| file.as_deref().and_then(lasting));
        let with_password = self.has_password();
        let as_given = || Some(OsString::from(self.with(None).join(" ")));
        let (mut url, mut by_file, mut by_password) = (None, None, None);
        let (mut written, mut withheld) = (None, None);
        match (url_file, password_file) {
            (Some(file), _) if with_password && self.tls.is_empty() => by_file = Some(file),
            (_, Some(file)) if !with_password => {
                url = as_given();
                by_password = Some(file);
            }
            _ if self.password.is_none() && !with_password => url = as_given(),
            _ => match UrlFile::write(&self.whole().join(" ")) {
                Ok(file) => {
                    by_file = Some(file.path.clone().into_os_string());
                    written = Some(file);
                }
                Err(why) => withheld = Some(why.into()),
            },
        }
        let store = url.clone().or_else(|| by_file.clone());
        let mut variables = vec![
            ("LEASEHOLD_URL", url),
            ("LEASEHOLD_URL_FILE", by_file),
            ("LEASEHOLD_PASSWORD_FILE", by_password),
            (WITHHELD, withheld),
            // The password is for this process only, so the command cannot print it.
            ("LEASEHOLD_PASSWORD", None),
        ];
        variables.extend(self.without.iter().map(|name| (*name, store.clone())));
        (variables, written)
    }
}

/// The absolute path of a file that can be read again. `None` for a pipe, as in `--url-file <(...)`, and for the file of
/// an outer run, which may be removed before a command of this run ends.
fn lasting(file: &Path) -> Option<OsString> {
    if is_run_url_file(file) {
        return None;
    }
    let file = path::absolute(file).ok()?;
    file.is_file().then(|| file.into_os_string())
}

/// True if a run wrote this file for its command, judged by its path.
pub(crate) fn is_run_url_file(file: &Path) -> bool {
    has_our_name(file) && folders().any(|folder| file.parent() == Some(&folder))
}

/// True for a name that only [`UrlFile`] uses: `url-PID-HEX`.
fn has_our_name(file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str);
    let Some((pid, time)) = name
        .and_then(|name| name.strip_prefix(URL))
        .and_then(|unique| unique.split_once('-'))
    else {
        return false;
    };
    let all = |text: &str, fits: fn(char) -> bool| !text.is_empty() && text.chars().all(fits);
    all(pid, |c| c.is_ascii_digit()) && all(time, |c| matches!(c, '0'..='9' | 'a'..='f'))
}

/// True if only this user may read the open file, as with each file that a run writes. The file of another user
/// is not accepted, even if readable.
pub(crate) fn is_private(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.uid() == getuid().as_raw() && found.mode() & 0o777 == 0o600)
}

/// The advice for a file of a run that cannot be read.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "The outer leasehold wrote it, and removed it when its command ended.\n    next    set LEASEHOLD_URL_FILE=FILE for a process that outlives the command"
        }
        io::ErrorKind::PermissionDenied => {
            "The outer leasehold wrote it for its own user only.\n    next    set LEASEHOLD_URL_FILE=FILE to a file of this user"
        }
        _ => "",
    }
}

/// A URL with a password, in a file that only this user can read. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct UrlFile {
    path: PathBuf,
    /// Locked while this process lives: an unlocked file may be removed by others.
    _file: File,
}

impl UrlFile {
    /// Writes a file, and removes those of killed processes. The error has the directory and the cause.
    fn write(url: &str) -> Result<Self, String> {
        let mut failed = None;
        for folder in folders() {
            let written = prepare(&folder).and_then(|()| {
                sweep(&folder);
                Self::write_in(&folder, url)
            });
            match written {
                Ok(file) => return Ok(file),
                Err(error) => failed = Some(format!("{}: {error}", folder.display())),
            }
        }
        Err(failed.unwrap_or_else(|| "there is no directory for temporary files".into()))
    }

    fn write_in(folder: &Path, url: &str) -> io::Result<Self> {
        let unique = format!("{}-{:x}", process::id(), sys::clock_micros());
        let (new, path) = (
            folder.join(format!("{NEW}{unique}")),
            folder.join(format!("{URL}{unique}")),
        );
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        // The file is locked before it gets its final name, and is empty until then.
        let named = file.try_lock().map_err(io::Error::from);
        if let Err(error) = named.and_then(|()| fs::rename(&new, &path)) {
            remove(&new);
            return Err(error);
        }
        let written = file.write_all(url.as_bytes());
        let this = Self { path, _file: file };
        written.map(|()| this)
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UrlFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a file, which may already be gone.
pub(crate) fn remove(path: &Path) {
    let _removed: io::Result<()> = fs::remove_file(path);
}

/// The directories for the file: the user's runtime directory, or the temporary directory.
fn folders() -> impl Iterator<Item = PathBuf> {
    let uid = getuid();
    let runtime = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .unwrap_or_else(|| format!("/run/user/{uid}").into());
    let temporary = env::temp_dir().join(format!("leasehold-{uid}"));
    let folders = [runtime.join("leasehold"), temporary];
    folders.into_iter().filter(|folder| folder.is_absolute())
}

/// Creates `folder` if needed, and checks that no other user can write in it or replace it.
fn prepare(folder: &Path) -> io::Result<()> {
    let around = fs::metadata(folder.parent().unwrap_or(folder))?;
    if !protects_entries(around.uid(), around.mode()) {
        return Err(io::Error::other(
            "is in a directory where another user may replace it",
        ));
    }
    leasehold::make_private(folder, getuid().as_raw())
}

/// True if in a directory with this owner and mode no other user can remove entries of this user.
fn protects_entries(uid: u32, mode: u32) -> bool {
    let is_sticky = mode & 0o1000 != 0;
    let is_trusted = uid == 0 || uid == getuid().as_raw();
    is_sticky || is_trusted && mode & 0o002 == 0
}

/// Removes the files of runs that were killed together with their guardian.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let left = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| has_our_name(path));
    for path in left {
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_url_file_is_private_and_goes_when_it_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("leasehold");
        prepare(&folder).unwrap();
        let file = UrlFile::write_in(&folder, "redis://:S3CR3T@h/").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder), mode(file.path())), (0o700, 0o600));
        assert!(has_our_name(file.path()));
        let other = UrlFile::write_in(&folder, "redis://:S3CR3T@h/").unwrap();
        drop(other);
        // The file of a killed process, not one in use.
        let left = folder.join("url-1-0");
        fs::write(&left, "").unwrap();
        // Files with other names stay.
        let others = ["url-prod", "url-1-prod", "url-1-", "url--0", "url-1-0-1"];
        for other in others {
            fs::write(folder.join(other), "").unwrap();
        }
        sweep(&folder);
        assert!(!left.exists());
        for other in others {
            fs::remove_file(folder.join(other)).unwrap();
        }
        assert_eq!(
            fs::read_to_string(file.path()).unwrap(),
            "redis://:S3CR3T@h/"
        );
        drop(file);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_somebody_else_could_replace_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let set = |mode| {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o777);
        prepare(&home.path().join("a")).unwrap_err();
        set(0o1777);
        prepare(&home.path().join("a")).unwrap();
        let us = getuid().as_raw();
        let another = us + 1;
        for (uid, mode, keeps) in [
            (us, 0o700, true),
            (0, 0o755, true),
            (another, 0o1777, true),
            (another, 0o700, false),
            (another, 0o755, false),
        ] {
            assert_eq!(protects_entries(uid, mode), keeps, "{uid} {mode:o}");
        }
    }

    #[test]
    fn a_file_is_handed_on_only_in_the_folders_for_that() {
        for folder in folders() {
            assert!(is_run_url_file(&folder.join("url-12-a0")));
            assert!(!is_run_url_file(&folder.join("url-prod")));
            assert!(!is_run_url_file(&folder.join("sub/url-12-a0")));
        }
        assert!(!is_run_url_file(Path::new("/etc/leasehold/url-12-a0")));
    }

    #[cfg(feature = "cache")]
    #[test]
    fn a_handed_file_is_not_found_again() {
        let home = tempfile::tempdir().unwrap();
        let at = |file: &Path| StoreLocation {
            urls: StoreUrl::list("redis://:S3CR3T@h/").unwrap(),
            password: None,
            files: [Some(file.into()), None],
            settings_file: None,
            tls: Vec::new(),
            without: Vec::new(),
        };
        let own = home.path().join("url-prod");
        fs::write(&own, "").unwrap();
        assert!(at(&own).is_found_again());
        let handed = UrlFile::write("redis://:S3CR3T@h/").unwrap();
        assert!(!at(handed.path()).is_found_again());
    }
}
