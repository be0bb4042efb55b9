//! Files that are removed or replaced under a holder: the file, and those that SQLite keeps beside it.

use super::*;

impl Host {
    fn beside(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.file())
    }

    /// The number of holders that a process would find that opens the file now.
    fn holders_for_others(&self) -> i64 {
        let other = Host::new(Clock::virtual_time());
        for suffix in ["", "-wal"] {
            fs::copy(self.beside(suffix), other.beside(suffix)).unwrap();
        }
        other.count("holders")
    }
}

impl Peer {
    async fn extend(&self) -> Result<Reply, StoreError> {
        let step = Step::Extend {
            owner: self.owner(1),
            ttl: seconds(30),
            fence: None,
        };
        self.store.apply(&name(), step).await
    }

    fn hears_of_a_replacement(&self) -> bool {
        let notices: Vec<_> = self.heard.try_iter().collect();
        matches!(
            notices[..],
            [Notice::Replaced(Replaced::File), Notice::Reconnected]
        )
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_log_or_memory_is_put_back_at_the_next_step() {
    for removed in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let host = Host::new(Clock::virtual_time());
        let a = host.peer(1);
        assert!(held(&a.acquire(30).await));
        for suffix in removed {
            fs::remove_file(host.beside(suffix)).unwrap();
        }
        assert!(held(&a.extend().await.unwrap()), "{removed:?}");
        assert!(a.hears_of_a_replacement(), "{removed:?}");
        for suffix in ["-wal", "-shm"] {
            assert!(fs::exists(host.beside(suffix)).unwrap(), "{removed:?}");
        }
        assert_eq!(host.holders_for_others(), 1, "{removed:?}");
        assert!(held(&a.extend().await.unwrap()), "{removed:?}");
        assert!(!a.hears_of_a_replacement(), "{removed:?}");
    }
}

/// The last steps were in the log that is gone, and other processes read the new one.
#[tokio::test(start_paused = true)]
async fn a_replaced_log_is_a_data_loss() {
    let host = Host::new(Clock::virtual_time());
    // The last process to leave writes the log to the file.
    assert!(held(&host.peer(2).acquire(1).await));
    host.clock.suspend(Duration::from_secs(2));
    let a = host.peer(1);
    assert!(held(&a.acquire(30).await));
    fs::write(host.beside("-new"), "").unwrap();
    fs::rename(host.beside("-new"), host.beside("-wal")).unwrap();
    assert!(matches!(a.extend().await.unwrap(), Reply::NotHeld(_)));
    assert!(a.hears_of_a_replacement());
}

#[tokio::test(start_paused = true)]
async fn a_file_put_in_place_of_another_decides() {
    let host = Host::new(Clock::virtual_time());
    host.sql("VACUUM");
    drop(host.peer(1));
    fs::copy(host.file(), host.beside("-backup")).unwrap();
    let a = host.peer(1);
    assert!(held(&a.acquire(30).await));
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(host.beside(suffix)).unwrap();
    }
    fs::rename(host.beside("-backup"), host.file()).unwrap();
    assert_eq!(a.extend().await.unwrap(), Reply::NotHeld(None));
    assert!(a.hears_of_a_replacement());
}

/// SQLite shares the memory among the connections of a process. So a client cannot leave it alone.
#[tokio::test(start_paused = true)]
async fn clients_of_one_process_leave_a_removed_memory_together() {
    let host = Host::new(Clock::virtual_time());
    let (a, b) = (host.peer(1), host.peer(2));
    assert!(held(&a.acquire(30).await));
    fs::remove_file(host.beside("-shm")).unwrap();
    let refused = a.extend().await.unwrap_err();
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
    assert!(
        busy(&b.acquire(30).await),
        "keeps the hold of the other one"
    );
    assert!(held(&a.extend().await.unwrap()));
    assert!(fs::exists(host.beside("-shm")).unwrap());
}
