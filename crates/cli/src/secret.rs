//! Reads files that contain a URL or a password. Messages never show their content.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::config::Value;
use crate::exit::{CONFIG, Exit, exit};
use crate::inherited_store;
use crate::messages::{pasteable, say};

/// The size limit of a file: `/dev/zero` by mistake must not fill the memory.
const MOST: u64 = 64 * 1024;

/// The only line of the file that `setting` names, without the line end.
pub(crate) fn line(setting: &Value) -> Result<String, Exit> {
    let path = setting.path();
    let refuse = |why: &str| {
        exit!(
            CONFIG,
            "cannot use the file {}, from {}: {why} (exit {CONFIG})",
            path.display(),
            setting.origin
        )
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| {
            if inherited_store::is_run_url_file(path) && !inherited_store::is_private(&file)? {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            file.take(MOST + 1).read_to_string(&mut text)
        })
        .map_err(|error| {
            let exit = refuse(&reason(&error));
            if inherited_store::is_run_url_file(path) {
                exit.adding(inherited_store::advice(&error))
            } else {
                exit
            }
        })?;
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

fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData {
        "it is not UTF-8".into()
    } else {
        error.to_string()
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
    let mode = |path: &Path| {
        path.metadata()
            .map(|found: Metadata| (found.is_file(), found.permissions().mode()))
    };
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let readable = mode(&path).is_ok_and(|(is_file, mode)| is_file && mode & 0o004 != 0);
    readable
        && path
            .ancestors()
            .skip(1)
            .all(|directory| mode(directory).is_ok_and(|(_, mode)| mode & 0o001 != 0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
}
