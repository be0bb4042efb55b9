//! Finds the file that a URL names. A directory that another user could have prepared is refused.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use leasehold_core::Invalid;
use nix::unistd::getuid;

use super::fault;
use crate::error::{Error, StoreError, StoreErrorKind};

/// The default file name, in a directory of this library.
const FILE: &str = "locks.db";

/// Readable and writable by its owner alone.
const PRIVATE: u32 = 0o600;

/// The file that the part after `local:` in a URL names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileLocation {
    /// The path as it was given. A link in it may lead elsewhere later.
    pub(super) given: PathBuf,
    /// The absolute path of the file, without links: SQLite keeps its other files beside it.
    pub(super) path: PathBuf,
    /// The mode of the file if it is created.
    pub(super) mode: u32,
}

/// Finds the file for the part after `local:`. Creates the default directory, and no other.
pub(super) fn locate(given: &str) -> Result<FileLocation, Error> {
    if given.is_empty() {
        let environment = Environment::look();
        let directory = environment.directory();
        let unfit = make_private(&directory, environment.uid);
        unfit.map_err(|why| refused(&directory, &why))?;
        let path = directory.join(FILE);
        return Ok(FileLocation {
            given: path.clone(),
            path,
            mode: PRIVATE,
        });
    }
    let (path, options) = given.split_once('?').unwrap_or((given, ""));
    let mode = mode(given, options)?;
    let (given, path) = (path.into(), explicit(path)?);
    Ok(FileLocation { given, path, mode })
}

/// The mode of the file: for its user only, unless the options add its group or all users.
fn mode(given: &str, options: &str) -> Result<u32, Invalid> {
    let mut mode = None;
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let said = match option {
            "mode=0600" => Some(PRIVATE),
            "mode=0660" => Some(0o660),
            "mode=0666" => Some(0o666),
            _ => None,
        };
        let known = said.is_some() && mode.is_none_or(|before| said == Some(before));
        if !known {
            let why = "the only option is mode=0600, mode=0660 for the file's group, or mode=0666 for everybody";
            return Err(Invalid::new("store URL", &format!("local:{given}"), why));
        }
        mode = said;
    }
    Ok(mode.unwrap_or(PRIVATE))
}

/// The name of the store in errors.
pub(super) fn label(path: &Path) -> String {
    format!("local:{}", path.display())
}

/// Checks a path that the user gave. It must be absolute, so that it names one file in all directories, and none of
/// SQLite's special names (`:memory:`, `file:...`). Resolves its links.
fn explicit(given: &str) -> Result<PathBuf, Invalid> {
    let refuse = |why: String| Invalid::new("store URL", &format!("local:{given}"), why);
    if given.starts_with("//") {
        return Err(refuse(format!(
            "has no host part; use local:/{}",
            given.trim_start_matches('/')
        )));
    }
    let path = Path::new(given);
    if !path.is_absolute() {
        return Err(refuse(
            "a relative path means another file in each directory; write local:/path/to/file"
                .into(),
        ));
    }
    let (Some(parent), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(refuse("must name a file, as in local:/path/to/file".into()));
    };
    let parent = match parent.canonicalize() {
        Ok(found) if found.is_dir() => found,
        Ok(found) => return Err(refuse(format!("{} is not a directory", found.display()))),
        Err(error) => {
            let hint = if error.kind() == io::ErrorKind::NotFound {
                "; create it first"
            } else {
                ""
            };
            return Err(refuse(format!(
                "its directory {} cannot be used: {error}{hint}",
                parent.display()
            )));
        }
    };
    let path = parent.join(file);
    if given.ends_with('/') || path.is_dir() {
        return Err(refuse(format!(
            "{} is a directory; name a file in it",
            path.display()
        )));
    }
    // The file may not exist yet.
    Ok(path.canonicalize().unwrap_or(path))
}

/// The inputs of the default directory.
#[derive(Debug)]
struct Environment {
    /// `$XDG_RUNTIME_DIR`.
    runtime_dir: Option<PathBuf>,
    /// `/run/user/<uid>`, if it exists and belongs to this user.
    run_user: Option<PathBuf>,
    /// A directory for this user under the shared directory of temporary files, independent of the environment.
    fallback: PathBuf,
    /// The fallback's file exists.
    fallback_in_use: bool,
    uid: u32,
}

impl Environment {
    fn look() -> Self {
        let uid = getuid().as_raw();
        let run_user = PathBuf::from(format!("/run/user/{uid}"));
        let ours =
            fs::symlink_metadata(&run_user).is_ok_and(|found| found.is_dir() && found.uid() == uid);
        let fallback = PathBuf::from(format!("/tmp/leasehold-{uid}"));
        Self {
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            run_user: ours.then_some(run_user),
            fallback_in_use: fallback.join(FILE).exists(),
            fallback,
            uid,
        }
    }

    /// The directory of the default file. A cron job has no runtime directory before its user logs in. So once the
    /// fallback is in use, it remains the default; otherwise the job and the session would not exclude each other. A
    /// relative `$XDG_RUNTIME_DIR` is ignored, as its specification requires.
    fn directory(&self) -> PathBuf {
        let runtime_dir = self.runtime_dir.as_ref().filter(|dir| dir.is_absolute());
        match runtime_dir.or(self.run_user.as_ref()) {
            Some(runtime_dir) if !self.fallback_in_use => runtime_dir.join("leasehold"),
            _ => self.fallback.clone(),
        }
    }
}

/// Creates `directory` if needed, for its user only. Checks that it belongs to this user, and that no other user can write in it: in a
/// shared directory of temporary files, another user may have created it. The command makes its own by this, too; it is not part of the
/// stable API.
///
/// # Errors
/// That of the system, or one of the kind `Other` that says what is wrong with the directory.
pub fn make_private(directory: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Does not follow a link, which could lead anywhere.
    let found = fs::symlink_metadata(directory)?;
    Err(io::Error::other(if !found.is_dir() {
        "is not a directory"
    } else if found.uid() != uid {
        "belongs to another user"
    } else if found.mode() & 0o022 != 0 {
        "can be written by other users"
    } else {
        return Ok(());
    }))
}

/// The error for a directory that [`make_private`] refused.
fn refused(directory: &Path, why: &io::Error) -> StoreError {
    let store = label(directory);
    if why.kind() != io::ErrorKind::Other {
        return fault::of_io(&store, "cannot create the directory", why);
    }
    let detail = format!(
        "{} {why}; remove it, or choose a file with local:/path/to/file",
        directory.display()
    );
    StoreError::new(store, StoreErrorKind::Denied, detail)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn environment(runtime_dir: Option<&str>, run_user: Option<&str>) -> Environment {
        Environment {
            runtime_dir: runtime_dir.map(Into::into),
            run_user: run_user.map(Into::into),
            fallback: "/tmp/leasehold-7".into(),
            fallback_in_use: false,
            uid: 7,
        }
    }

    #[test]
    fn default_is_runtime_directory_then_run_user_then_temporary() {
        let directory = |xdg, run| environment(xdg, run).directory();
        assert_eq!(
            directory(Some("/x"), Some("/run/user/7")),
            Path::new("/x/leasehold")
        );
        assert_eq!(
            directory(None, Some("/run/user/7")),
            Path::new("/run/user/7/leasehold")
        );
        assert_eq!(directory(None, None), Path::new("/tmp/leasehold-7"));
        for useless in ["", "relative"] {
            assert_eq!(
                directory(Some(useless), None),
                Path::new("/tmp/leasehold-7")
            );
        }
    }

    #[test]
    fn a_fallback_that_is_in_use_stays_the_default() {
        let before_login = Environment {
            fallback_in_use: true,
            ..environment(Some("/x"), Some("/run/user/7"))
        };
        assert_eq!(before_login.directory(), Path::new("/tmp/leasehold-7"));
    }

    #[test]
    fn a_directory_prepared_by_someone_else_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let uid = getuid().as_raw();
        let ours = temp.path().join("ours");
        make_private(&ours, uid).unwrap();
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o777, 0o700);
        make_private(&ours, uid).unwrap();

        let link = temp.path().join("link");
        symlink(&ours, &link).unwrap();
        let open = temp.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        for (bad, uid) in [(&link, uid), (&open, uid), (&file, uid), (&ours, uid + 1)] {
            let refused = refused(bad, &make_private(bad, uid).unwrap_err());
            assert_eq!(refused.kind, StoreErrorKind::Denied);
            assert!(refused.detail.contains(bad.to_str().unwrap()), "{refused}");
        }
    }

    #[test]
    fn a_path_is_resolved_or_refused_by_name() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let within = |file: &str| format!("{}/{file}", temp.path().display());
        assert_eq!(
            explicit(&within("locks.db")).unwrap(),
            root.join("locks.db")
        );
        let file = within("file");
        fs::write(&file, "").unwrap();
        for bad in [
            within("missing/locks.db"),
            within("file/locks.db"),
            within(""),
            within("."),
            within(".."),
            "//host/x".into(),
            "/".into(),
            "locks.db".into(),
            "./locks.db".into(),
            ":memory:".into(),
        ] {
            let refused = explicit(&bad).unwrap_err().input;
            assert!(
                format!("local:{bad}").starts_with(refused.trim_end_matches('…')),
                "{refused}"
            );
        }
        assert!(
            explicit("///var/x")
                .unwrap_err()
                .why
                .ends_with("use local:/var/x")
        );
    }
    #[test]
    fn mode_option_sets_file_permissions() {
        let temp = tempfile::tempdir().unwrap();
        let file = format!("{}/locks.db", temp.path().display());
        for (options, mode) in [
            ("", 0o600),
            ("?", 0o600),
            ("?mode=0600", 0o600),
            ("?mode=0660", 0o660),
            ("?mode=0666&mode=0666", 0o666),
        ] {
            let place = locate(&format!("{file}{options}")).unwrap();
            assert_eq!(place.mode, mode, "{options}");
            assert!(place.path.ends_with("locks.db"), "{place:?}");
        }
        let wrong = [
            "mode=0640",
            "mode=0777",
            "mode=",
            "mode",
            "x=1",
            "mode=0660&mode=0666",
            "mode=mode=0660x",
        ];
        for options in wrong {
            let refused = locate(&format!("{file}?{options}")).unwrap_err();
            assert!(refused.to_string().contains("mode=0660 for"), "{refused}");
        }
        locate("?mode=0660").unwrap_err();
    }
}
