//! Files that are missing, locked, removed, or of other programs.

use super::*;

#[test]
fn a_file_that_is_removed_is_a_data_loss() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(a.takes(30));
    let before = a.fence().unwrap();
    // A person who deletes the file may leave its log and its shared memory, as here.
    fs::remove_file(host.file()).unwrap();
    host.passes(1);
    assert!(b.takes(30));
    assert!(b.fence().unwrap() > before);
    assert!(matches!(a.extend(), Ok(Reply::NotHeld(Some(_)))));
    fs::remove_dir_all(host.dir.path()).unwrap();
    let lost = a.asks(NAME, Step::Inspect).unwrap_err();
    assert_eq!(lost.kind, StoreErrorKind::Unreachable);
    assert!(lost.store.contains(&host.file()), "{lost}");
}

#[test]
fn a_locked_file_is_an_answer_in_bounded_time() {
    let host = Host::running();
    let a = host.peer(1);
    let stuck = Connection::open(host.file()).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = a.release(None).unwrap_err();
    let in_time = (StoreErrorKind::TimedOut, false);
    assert_eq!((refused.kind, refused.may_have_taken_effect), in_time);
    assert!(refused.to_string().contains(&host.file()), "{refused}");
    assert_eq!(a.fence(), None, "looking waits for nobody");
    stuck.execute_batch("COMMIT").unwrap();
    assert!(a.takes(30));
}

/// An earlier layout has a row for each holder. The program that wrote the file may still use it, and would not see a holder of this
/// layout.
#[test]
fn file_of_another_program_is_refused_and_left_alone() {
    let layout = |number| {
        format!(
            "CREATE TABLE holders (key TEXT NOT NULL, owner TEXT NOT NULL);
             INSERT INTO holders VALUES ('orders:42', 'lh1.');
             PRAGMA application_id = 0x4c486c64;
             PRAGMA user_version = {number};"
        )
    };
    let host = Host::running();
    for (sql, said) in [
        ("", &["not a database"][..]),
        ("CREATE TABLE theirs (x)", &["another program"]),
        (&layout(4), &["newer version"]),
        (
            &layout(2),
            &[
                "earlier version of leasehold (layout 2, this one knows 3)",
                "remove it when no program uses it, or use another file",
            ],
        ),
    ] {
        if sql.is_empty() {
            let text = "not a database, but long enough to look at: ".repeat(100);
            fs::write(host.file(), text).unwrap();
        } else {
            host.sql(sql);
        }
        let before = fs::read(host.file()).unwrap();
        let Error::Store(refused) = host.refused(&host.file()) else {
            panic!("{sql}")
        };
        assert_eq!(refused.kind, StoreErrorKind::Protocol, "{refused}");
        for said in said {
            assert!(refused.to_string().contains(said), "{refused}");
        }
        assert_eq!(fs::read(host.file()).unwrap(), before, "{refused}");
        // The test follows the advice of the last message.
        fs::remove_file(host.file()).unwrap();
    }
    assert!(host.peer(1).takes(30));
}

#[test]
fn a_place_that_cannot_be_written_is_refused() {
    let host = Host::running();
    let missing = format!("{}/missing/locks.db", host.dir.path().display());
    assert!(matches!(host.refused(&missing), Error::Invalid(_)));
    // Root may write despite file permissions, but cannot create a file in `/sys`.
    let closed = if nix::unistd::getuid().is_root() {
        "/sys".to_owned()
    } else {
        let closed = format!("{}/closed", host.dir.path().display());
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        closed
    };
    match host.refused(&format!("{closed}/locks.db")) {
        Error::Store(error) => assert_eq!(error.kind, StoreErrorKind::Denied, "{error}"),
        other => panic!("{other}"),
    }
}

#[test]
fn the_files_are_for_their_owner_only() {
    let host = Host::running();
    let a = host.peer(1);
    assert!(a.takes(30));
    for file in fs::read_dir(host.dir.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
}

/// A process that is the only one at the file reads the whole log. So the log must stay short even if many processes come and go.
#[test]
fn log_read_at_opening_stays_short() {
    let host = Host::still();
    // The last process to leave deletes the log.
    let _stays = host.peer(1);
    for client in 2..200 {
        assert!(host.peer(client).takes(30));
        host.passes(31);
    }
    let log = fs::metadata(host.beside("-wal")).unwrap().len();
    assert!((50_000..700_000).contains(&log), "{log} bytes");
}
