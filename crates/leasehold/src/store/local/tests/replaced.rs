//! Files that are removed or replaced under a holder: the file, and those that SQLite keeps beside it.

use std::os::unix::fs::symlink;

use super::*;
use crate::store::Scope;

impl Host {
    /// The number of locks that a process would find that opens the file now.
    fn locks_for_others(&self) -> i64 {
        let other = Self::still();
        for suffix in ["", "-wal"] {
            fs::copy(self.beside(suffix), other.beside(suffix)).unwrap();
        }
        other.count("locks")
    }
}

impl Peer {
    fn hears_of_a_replacement(&self) -> bool {
        let notices: Vec<_> = self.heard.try_iter().collect();
        matches!(
            notices[..],
            [
                Notice::Replaced(Replaced::File, Scope::All),
                Notice::Reconnected { .. }
            ]
        )
    }
}

#[test]
fn a_removed_log_or_memory_is_put_back_at_the_next_step() {
    for removed in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let host = Host::still();
        let a = host.peer(1);
        assert!(a.takes(30));
        for suffix in removed {
            fs::remove_file(host.beside(suffix)).unwrap();
        }
        assert!(a.extends(), "{removed:?}");
        assert!(a.hears_of_a_replacement(), "{removed:?}");
        for suffix in ["-wal", "-shm"] {
            assert!(fs::exists(host.beside(suffix)).unwrap(), "{removed:?}");
        }
        assert_eq!(host.locks_for_others(), 1, "{removed:?}");
        assert!(a.extends(), "{removed:?}");
        assert!(!a.hears_of_a_replacement(), "{removed:?}");
    }
}

/// The last steps were in the log that is gone, and other processes read the new one.
#[test]
fn a_replaced_log_is_a_data_loss() {
    let host = Host::still();
    // The last process to leave writes the log to the file.
    assert!(host.peer(2).takes(1));
    host.passes(2);
    let a = host.peer(1);
    assert!(a.takes(30));
    fs::write(host.beside("-new"), "").unwrap();
    fs::rename(host.beside("-new"), host.beside("-wal")).unwrap();
    assert!(matches!(a.extend().unwrap(), Reply::NotHeld(_)));
    assert!(a.hears_of_a_replacement());
}

/// As with `mv backup locks.db`: the log of the former file may still lie beside it.
#[test]
fn a_file_put_in_place_of_another_decides() {
    for removed in [&["-wal", "-shm"][..], &["-shm"], &[]] {
        let host = Host::still();
        host.sql("VACUUM");
        drop(host.peer(1));
        fs::copy(host.file(), host.beside("-backup")).unwrap();
        let a = host.peer(1);
        assert!(a.takes(30));
        for suffix in removed {
            fs::remove_file(host.beside(suffix)).unwrap();
        }
        fs::rename(host.beside("-backup"), host.file()).unwrap();
        let reply = a.extend().unwrap();
        assert_eq!(reply, Reply::NotHeld(None), "{removed:?}");
        assert!(a.hears_of_a_replacement(), "{removed:?}");
        assert!(a.takes(30), "{removed:?}");
        assert_eq!(host.locks_for_others(), 1, "{removed:?}");
    }
}

/// SQLite keeps its other files beside the file that the link leads to.
#[test]
fn a_link_to_a_file_is_as_good_as_the_file() {
    let host = Host::still();
    drop(host.peer(1));
    let link = host.beside("-link");
    symlink(host.file(), &link).unwrap();
    let a = host.open(&link, 1).unwrap();
    assert!(a.takes(30));
    assert!(host.peer(2).waits(30));
    assert!(a.extends());
    assert!(!a.hears_of_a_replacement());
}

/// As when a new version of a program is put in place: `current` leads to the directory of that version.
#[test]
fn a_link_that_leads_elsewhere_now_is_a_replacement() {
    let host = Host::still();
    let at = |name: &str| host.dir.path().join(name);
    for version in ["1", "2"] {
        fs::create_dir(at(version)).unwrap();
    }
    symlink(at("1"), at("current")).unwrap();
    let path = at("current/locks.db");
    let path = path.to_str().unwrap();
    let a = host.open(path, 1).unwrap();
    assert!(a.takes(30));
    symlink(at("2"), at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    let b = host.open(path, 2).unwrap();
    assert!(b.takes(30), "it knows the new file only");
    assert!(matches!(a.extend().unwrap(), Reply::NotHeld(Some(_))));
    assert!(a.hears_of_a_replacement());
}

/// SQLite shares the memory among the connections of a process. So a client cannot leave it alone.
#[test]
fn clients_of_one_process_leave_a_removed_memory_together() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(a.takes(30));
    fs::remove_file(host.beside("-shm")).unwrap();
    let refused = a.extend().unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("another client of this process"),
        "{refused}"
    );
    assert_eq!(
        (refused.kind, refused.may_have_taken_effect),
        (StoreErrorKind::Unavailable, false)
    );
    assert!(b.waits(30), "keeps the hold of the other one");
    assert!(a.extends());
    assert!(fs::exists(host.beside("-shm")).unwrap());
}
