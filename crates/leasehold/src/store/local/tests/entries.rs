//! Cache entries in a file: those from before a boot, unused ones, and files without tables for them.

use leasehold_core::cache::{
    Begin, Commit, CommitOutcome, Format, Header, POLL_UNSUBSCRIBED, Reply as CacheReply,
    Step as CacheStep, Token, Value, Version,
};

use super::*;
use crate::store::entries::EntryStore;

impl Peer {
    fn take_entry(&self, step: &CacheStep) -> Result<CacheReply, StoreError> {
        let key = LockName::new(self.name).unwrap();
        let taken = crate::block_on(self.store.take(&key, step))?;
        Ok(taken.reply)
    }

    fn begins(&self) -> CacheReply {
        let begin = CacheStep::Begin(Begin {
            token: Token(self.client.into()),
            seen: Version::default(),
            over: false,
            lease: seconds(30),
            listener: Some(ClientId::new(self.client)),
        });
        self.take_entry(&begin).unwrap()
    }

    fn loads(&self) -> Version {
        match self.begins() {
            CacheReply::Load { version, .. } => version,
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
        match self.take_entry(&commit) {
            Ok(CacheReply::Committed(kept)) => kept,
            other => panic!("{other:?}"),
        }
    }

    fn looks(&self, names: &[LockName]) -> Vec<Option<Value>> {
        let looked = crate::block_on(self.store.look(names, false));
        looked.unwrap().values
    }

    fn finds(&self) -> bool {
        self.looks(&[LockName::new(self.name).unwrap()])[0].is_some()
    }
}

const INVALIDATE: CacheStep = CacheStep::Invalidate { remove: false };
const REMOVE: CacheStep = CacheStep::Invalidate { remove: true };

/// Its waiter is not told of the end of a load, so it polls more often.
#[test]
fn one_of_many_entries_is_read_as_another_client_stored_it() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    let version = a.loads();
    let CacheReply::Busy { poll_after, .. } = b.begins() else {
        panic!("another loads")
    };
    assert_eq!(poll_after, POLL_UNSUBSCRIBED);
    a.commits(version);
    let mut names: Vec<_> = (0..1_200).map(|at| format!("entry {at}")).collect();
    names[700] = NAME.into();
    let names = names.iter().map(|name| LockName::new(name).unwrap());
    let values = b.looks(&names.collect::<Vec<_>>());
    assert_eq!(values.len(), 1_200);
    for (at, value) in values.into_iter().enumerate() {
        assert_eq!(value.is_some(), at == 700, "{at}");
        let Some(Value { header, body }) = value else {
            continue;
        };
        let Header {
            load_ms, format, ..
        } = header;
        assert_eq!((load_ms, format), (1, Format::Raw));
        assert_eq!((header.version, &*body), (version, &b"value"[..]));
    }
    assert!(a.takes(30), "its name is also that of a free lock");
    assert!(b.finds());
}

#[tokio::test(start_paused = true)]
async fn load_is_read_as_another_client_left_it() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    let first = a.loads();
    assert_eq!(a.loads(), first, "the token is known");
    b.take_entry(&INVALIDATE).unwrap();
    let second = b.loads();
    assert!(second.get() > first.get() + 1, "the invalidation has one");
    host.passes(30);
    let CacheReply::Busy { poll_after, .. } = a.begins() else {
        panic!("the last millisecond of the lease")
    };
    assert_eq!(poll_after.as_millis(), 1);
    assert_eq!(a.commits(first), CommitOutcome::Stale);
    assert!(matches!(b.commits(second), CommitOutcome::Fresh(_)));
}

#[tokio::test(start_paused = true)]
async fn back_off_is_read_as_another_client_left_it() {
    let host = Host::still();
    let (a, b) = (host.peer(1), host.peer(2));
    for failures_before in 0..3 {
        let CacheReply::Load { failures, .. } = a.begins() else {
            panic!("nobody loads")
        };
        assert_eq!(failures, failures_before);
        let abandon = CacheStep::Abandon {
            token: Token(1),
            back_off: Some((seconds(1), "größe 7 < 8".to_owned())),
        };
        assert_eq!(a.take_entry(&abandon).unwrap(), CacheReply::Abandoned);
        let CacheReply::BackOff { left, error, .. } = b.begins() else {
            panic!("the source is left alone")
        };
        assert_eq!((left.as_millis(), &*error), (1_001, "größe 7 < 8"));
        host.passes(2);
    }
}

#[test]
fn removal_and_expiry_of_one_key_leave_the_other_alone() {
    let host = Host::still();
    let (a, mut b) = (host.peer(1), host.peer(2));
    b.name = "another";
    let (first, second) = (a.loads(), b.loads());
    a.commits(first);
    b.commits(second);
    a.take_entry(&REMOVE).unwrap();
    assert_eq!((a.finds(), b.finds()), (false, true));
    // What is remembered of the first key's loads expires; the second key has been used since.
    host.passes(15 * 60);
    let third = b.loads();
    host.passes(31);
    a.take_entry(&REMOVE).unwrap();
    assert_eq!(host.count("controls"), 1);
    assert!(matches!(b.commits(third), CommitOutcome::Fresh(_)));
}

#[test]
fn what_was_stored_before_a_boot_is_gone_and_never_comes_back() {
    let host = Host::still();
    let a = host.peer(1);
    let version = a.loads();
    assert!(matches!(a.commits(version), CommitOutcome::Fresh(_)));
    assert!(a.finds());
    // The boot clock is unchanged. Only the wall time shows that the host has booted.
    let hour = Duration::from_secs(3_600);
    host.clock.step_wall_back(hour);
    assert!(!a.finds());
    assert_eq!(a.take_entry(&INVALIDATE).unwrap(), CacheReply::Invalidated);
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
    let host = Host::still();
    let a = host.peer(1);
    let version = a.loads();
    a.commits(version);
    host.passes(121);
    drop(host.peer(2));
    assert_eq!((host.count("entries"), host.count("controls")), (0, 1));
    host.passes(16 * 60);
    drop(host.peer(2));
    assert_eq!(host.count("controls"), 0);
}

#[test]
fn a_file_without_a_place_for_entries_is_given_one() {
    let host = Host::still();
    let a = host.peer(1);
    assert!(a.takes(30));
    host.sql("DROP TABLE entries; DROP TABLE controls");
    assert_eq!(
        a.take_entry(&INVALIDATE).unwrap_err().kind,
        StoreErrorKind::Protocol
    );
    let b = host.peer(2);
    let version = b.loads();
    b.commits(version);
    assert!(a.finds());
    assert!(a.takes(30));
}

#[test]
fn read_does_not_wait_and_step_waits_for_bounded_time() {
    let host = Host::running();
    let a = host.peer(1);
    let version = a.loads();
    a.commits(version);
    let stuck = Connection::open(host.file()).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(a.finds());
    let refused = a.take_entry(&INVALIDATE).unwrap_err();
    assert_eq!(
        (refused.kind, refused.may_have_taken_effect),
        (StoreErrorKind::TimedOut, false)
    );
    stuck.execute_batch("COMMIT").unwrap();
    assert_eq!(a.take_entry(&INVALIDATE).unwrap(), CacheReply::Invalidated);
}

#[test]
fn invalid_entry_is_reported() {
    let host = Host::still();
    let a = host.peer(1);
    let version = a.loads();
    a.commits(version);
    host.sql("UPDATE entries SET value = x'00'");
    let refused = a.take_entry(&INVALIDATE).unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Protocol);
    assert!(
        refused.to_string().contains("not a cache entry"),
        "{refused}"
    );
}
