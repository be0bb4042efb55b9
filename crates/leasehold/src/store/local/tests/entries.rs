//! Cache entries in a file: those from before a boot, unused ones, and files without tables for them.

use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, Format, Reply as CacheReply, Step as CacheStep, Token, Version,
};

use super::*;
use crate::error::StoreError;
use crate::store::entries::EntryStore;

impl Peer {
    fn takes(&self, step: &CacheStep) -> Result<CacheReply, StoreError> {
        let taken = pollster::block_on(self.store.take(&name(), step))?;
        Ok(taken.reply)
    }

    fn loads(&self) -> Version {
        let begin = CacheStep::Begin(Begin {
            token: Token(self.client.into()),
            seen: Version::default(),
            over: false,
            lease: seconds(30),
            listener: None,
        });
        match self.takes(&begin) {
            Ok(CacheReply::Load { version, .. }) => version,
            other => panic!("{other:?}"),
        }
    }

    fn commits(&self, version: Version) -> CommitOutcome {
        let commit = CacheStep::Commit(Commit {
            token: Token(self.client.into()),
            version,
            fresh_ms: 60_000,
            stale_ms: 60_000,
            load_ms: 1,
            format: Format::Raw,
            body: b"value"[..].into(),
        });
        match self.takes(&commit) {
            Ok(CacheReply::Committed(kept)) => kept,
            other => panic!("{other:?}"),
        }
    }

    fn finds(&self) -> bool {
        let looked = pollster::block_on(self.store.look(&[name()], false));
        looked.unwrap().values[0].is_some()
    }
}

const INVALIDATE: CacheStep = CacheStep::Invalidate { remove: false };

#[test]
fn what_was_stored_before_a_boot_is_gone_and_never_comes_back() {
    let host = Host::new(Clock::virtual_time());
    let a = host.peer(1);
    let version = a.loads();
    assert!(matches!(a.commits(version), CommitOutcome::Fresh(_)));
    assert!(a.finds());
    // The boot clock is unchanged. Only the wall time shows that the host has booted.
    let hour = Duration::from_secs(3_600);
    host.clock.step_wall_back(hour);
    assert!(!a.finds());
    assert_eq!(a.takes(&INVALIDATE).unwrap(), CacheReply::Invalidated);
    assert_eq!((host.count("entries"), host.count("controls")), (0, 0));
    assert_eq!(
        a.commits(version),
        CommitOutcome::Stale,
        "nobody remembers its load"
    );
    host.clock.step_wall_back(hour);
    drop(host.peer(2));
    assert_eq!(host.count("entries"), 0, "who comes tidies up");
}

#[test]
fn expired_rows_are_deleted_by_later_clients() {
    let host = Host::new(Clock::virtual_time());
    let a = host.peer(1);
    let version = a.loads();
    a.commits(version);
    host.clock.suspend(Duration::from_secs(121));
    drop(host.peer(2));
    assert_eq!((host.count("entries"), host.count("controls")), (0, 1));
    host.clock.suspend(Duration::from_secs(16 * 60));
    drop(host.peer(2));
    assert_eq!(host.count("controls"), 0);
}

#[test]
fn a_file_without_a_place_for_entries_is_given_one() {
    let host = Host::new(Clock::virtual_time());
    let a = host.peer(1);
    assert!(held(&pollster::block_on(a.acquire(30))));
    host.sql("DROP TABLE entries; DROP TABLE controls");
    assert_eq!(
        a.takes(&INVALIDATE).unwrap_err().kind,
        StoreErrorKind::Protocol
    );
    let b = host.peer(2);
    let version = b.loads();
    b.commits(version);
    assert!(a.finds());
    assert!(held(&pollster::block_on(a.acquire(30))));
}

#[test]
fn read_does_not_wait_and_step_waits_for_bounded_time() {
    let host = Host::new(Clock::system());
    let a = host.peer(1);
    let version = a.loads();
    a.commits(version);
    let stuck = Connection::open(host.file()).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(a.finds());
    let refused = a.takes(&INVALIDATE).unwrap_err();
    assert_eq!(
        (refused.kind, refused.may_have_taken_effect),
        (StoreErrorKind::TimedOut, false)
    );
    stuck.execute_batch("COMMIT").unwrap();
    assert_eq!(a.takes(&INVALIDATE).unwrap(), CacheReply::Invalidated);
}

#[test]
fn invalid_entry_is_reported() {
    let host = Host::new(Clock::virtual_time());
    let a = host.peer(1);
    let version = a.loads();
    a.commits(version);
    host.sql("UPDATE entries SET value = x'00'");
    let refused = a.takes(&INVALIDATE).unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Protocol);
    assert!(
        refused.to_string().contains("not a cache entry"),
        "{refused}"
    );
}
