//! Whether a file is fit for locks. Must never take a lock in it: that would leave a fence behind.

use std::path::Path;

use leasehold_core::ClientId;
use nix::unistd::{AccessFlags, access};

use super::path;
use super::store::LocalStore;
use crate::clock::Clock;
use crate::doctor::{Examination, Finding, Report, Server, State};
use crate::error::Error;
use crate::store::contract::{Attach, Store};

/// Opens the file as a client would, and looks at where it is.
///
/// # Errors
/// That it cannot be opened or read.
pub(in crate::store) async fn examine(
    given: &str,
    _how: &Examination,
    clock: &Clock,
) -> Result<Report, Error> {
    let attach = Attach {
        keeps_values: false,
        client: ClientId::new(0),
        listener: std::sync::Arc::new(|_| {}),
    };
    let store = LocalStore::open(given, attach, clock.clone())?;
    let names = store.index(None).await?;
    let path = path::locate(given)?.path;
    let finding = |id, state, text: String, remedy: &str| Finding {
        id,
        efficiency: state,
        correctness: state,
        text,
        remedy: remedy.into(),
    };
    let (writable, advice) = if may_write(&path) {
        (State::Ok, "")
    } else {
        (
            State::Fail,
            "give this user the right to write the file and its directory, or choose another with local:/path/to/file",
        )
    };
    let kind = file_system(&path);
    Ok(Report {
        store: path::label(&path),
        server: Server {
            engine: "SQLite file".into(),
            version: rusqlite::version().into(),
            ..Server::default()
        },
        findings: vec![
            finding(
                "file.write",
                writable,
                format!("the file can be read ({} locks) and, with its directory, {}be written", names.len(), if advice.is_empty() { "" } else { "not " }),
                advice,
            ),
            finding(
                "file.system",
                kind.map_or(State::Unknown, |_| State::Ok),
                kind.map_or_else(
                    || "the kind of its file system is not known; on one that hosts share, locks break".to_owned(),
                    |kind| format!("it is on {kind}, which no other host shares"),
                ),
                "",
            ),
            finding(
                "scope.host",
                State::Info,
                "these locks are for the processes of this host; others do not see them".into(),
                "for several hosts: redis://host:6379/",
            ),
        ],
        acl: None,
    })
}

/// SQLite keeps files beside the file, in the same directory.
fn may_write(path: &Path) -> bool {
    let write = AccessFlags::W_OK;
    access(path, write).is_ok()
        && path
            .parent()
            .is_none_or(|folder| access(folder, write).is_ok())
}

/// What it is on, if it is known not to be shared; what is known to be shared, is refused when it is opened.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn file_system(path: &Path) -> Option<&'static str> {
    use nix::sys::statfs;
    const OWN: [(statfs::FsType, &str); 6] = [
        (statfs::EXT4_SUPER_MAGIC, "ext4"),
        (statfs::TMPFS_MAGIC, "tmpfs"),
        (statfs::BTRFS_SUPER_MAGIC, "btrfs"),
        (statfs::XFS_SUPER_MAGIC, "XFS"),
        (statfs::OVERLAYFS_SUPER_MAGIC, "overlayfs"),
        (statfs::FsType(0x2fc1_2fc1), "ZFS"),
    ];
    let found = statfs::statfs(path.parent()?).ok()?.filesystem_type();
    OWN.iter()
        .find(|(kind, _)| *kind == found)
        .map(|(_, name)| *name)
}

/// Elsewhere it is not looked at.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn file_system(_path: &Path) -> Option<&'static str> {
    None
}
