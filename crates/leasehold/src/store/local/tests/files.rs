//! Files that are missing, locked, removed, or of other programs.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_file_that_is_removed_is_a_data_loss() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    let before = a.fence().await.unwrap();
    // A person who deletes the file may leave its log and its shared memory, as here.
    fs::remove_file(host.file()).unwrap();
    host.clock.suspend(Duration::from_secs(1));
    assert!(held(&b.acquire(30).await));
    assert!(b.fence().await.unwrap() > before);
    assert!(matches!(
        a.step(Step::Extend {
            owner: a.owner(1),
            ttl: seconds(30),
            fence: None,
        })
        .await,
        Reply::NotHeld(Some(_))
    ));
    fs::remove_dir_all(host.dir.path()).unwrap();
    let lost = a.store.apply(&name(), Step::Inspect).await.unwrap_err();
    assert_eq!(lost.kind, StoreErrorKind::Unreachable);
    assert!(lost.store.contains(&host.file()), "{lost}");
}

#[test]
fn a_locked_file_is_an_answer_in_bounded_time() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    let stuck = Connection::open(host.file()).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = pollster::block_on(a.store.apply(
        &name(),
        Step::Release {
            owner: a.owner(1),
            keep: None,
            fence: None,
        },
    ))
    .unwrap_err();
    assert_eq!(
        (refused.kind, refused.may_have_taken_effect),
        (StoreErrorKind::TimedOut, false)
    );
    assert!(refused.to_string().contains(&host.file()), "{refused}");
    assert_eq!(
        pollster::block_on(a.fence()),
        None,
        "looking waits for nobody"
    );
    stuck.execute_batch("COMMIT").unwrap();
    assert!(held(&pollster::block_on(a.acquire(30))));
}

#[test]
fn file_of_another_program_is_refused_and_left_alone() {
    let host = Host::new(Clock::system());
    let refused = |why: &str| match host.refused(&host.file()) {
        Error::Store(error) => {
            assert_eq!(error.kind, StoreErrorKind::Protocol);
            assert!(error.to_string().contains(why), "{error}");
        }
        other => panic!("{other}"),
    };
    fs::write(
        host.file(),
        "not a database, but long enough to look at: ".repeat(100),
    )
    .unwrap();
    refused("not a database");
    fs::remove_file(host.file()).unwrap();

    host.sql("CREATE TABLE theirs (x)");
    let before = fs::read(host.file()).unwrap();
    refused("another program");
    assert_eq!(fs::read(host.file()).unwrap(), before);
    fs::remove_file(host.file()).unwrap();

    drop(host.peer(1));
    host.sql("PRAGMA user_version = 4");
    refused("newer version");
}

/// The second layout has a row for each holder. The program that wrote the file may still use it, and would not see a
/// holder of this layout.
#[test]
fn a_file_of_an_earlier_layout_is_refused_and_left_alone() {
    let host = Host::new(Clock::system());
    host.sql(
        "CREATE TABLE holders (key TEXT NOT NULL, owner TEXT NOT NULL);
         INSERT INTO holders VALUES ('orders:42', 'lh1.');
         PRAGMA application_id = 0x4c486c64;
         PRAGMA user_version = 2;",
    );
    let before = fs::read(host.file()).unwrap();
    let Error::Store(refused) = host.refused(&host.file()) else {
        panic!()
    };
    assert_eq!(refused.kind, StoreErrorKind::Protocol);
    for said in [
        "earlier version of leasehold (layout 2, this one knows 3)",
        "remove it when no program uses it, or use another file",
    ] {
        assert!(refused.to_string().contains(said), "{refused}");
    }
    assert_eq!(fs::read(host.file()).unwrap(), before);
    // The test follows the advice of the message.
    fs::remove_file(host.file()).unwrap();
    assert!(held(&pollster::block_on(host.peer(1).acquire(30))));
}

#[test]
fn a_mode_of_a_newer_version_is_refused() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    assert!(held(&pollster::block_on(a.acquire(30))));
    host.sql("UPDATE locks SET state = replace(state, 'exclusive', 'shared')");
    let refused = pollster::block_on(a.store.apply(&name(), Step::Inspect)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("\"shared\"; was it written by a newer version?"),
        "{refused}"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_refused() {
    let host = Host::new(Clock::system());
    assert!(matches!(
        host.refused(&format!("{}/missing/locks.db", host.dir.path().display())),
        Error::Invalid(_)
    ));
    // Root may write despite file permissions, but cannot create a file in `/sys`.
    let closed = if nix::unistd::getuid().is_root() {
        "/sys".to_owned()
    } else {
        format!("{}/closed", host.dir.path().display())
    };
    if !fs::exists(&closed).unwrap() {
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    }
    match host.refused(&format!("{closed}/locks.db")) {
        Error::Store(error) => assert_eq!(error.kind, StoreErrorKind::Denied, "{error}"),
        other => panic!("{other}"),
    }
}

#[test]
fn the_files_are_for_their_owner_only() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    assert!(held(&pollster::block_on(a.acquire(30))));
    for file in fs::read_dir(host.dir.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(
            file.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{file:?}"
        );
    }
}

/// A process that is the only one at the file reads the whole log. So the log must stay short even if many processes come and go.
#[test]
fn log_read_at_opening_stays_short() {
    let host = Host::new(Clock::virtual_time());
    // The last process to leave deletes the log.
    let _stays = host.peer(1);
    for client in 2..200 {
        assert!(held(&pollster::block_on(host.peer(client).acquire(30))));
        host.clock.suspend(Duration::from_secs(31));
    }
    let log = fs::metadata(format!("{}-wal", host.file())).unwrap().len();
    assert!((50_000..700_000).contains(&log), "{log} bytes");
}
