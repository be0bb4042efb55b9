//! The guardian with a command, without a wrapper.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use nix::sys::signal::kill as signal;
use testkit::eventually;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

/// A guardian and its command.
fn scene() -> (Guardian, Child) {
    let mut guardian = Guardian::start(None).unwrap();
    let command = Command::new("sleep").arg("1000").process_group(0).spawn();
    let command = command.unwrap();
    let group = Pid::from_raw(i32::try_from(command.id()).unwrap());
    guardian.tell(Message::Group(group.as_raw())).unwrap();
    guardian.group = Some(group);
    (guardian, command)
}

#[test]
fn messages_arrive_as_they_were_sent() {
    for message in [Message::Group(4_121), Message::Done] {
        assert_eq!(Message::decode(message.encode()), Some(message));
    }
}

#[test]
fn no_command_begins_after_its_lease_though_it_may_outlive_it() {
    let (line, _its) = UnixStream::pair().unwrap();
    // The other end has no process to wait for.
    let mut guardian = std::mem::ManuallyDrop::new(Guardian {
        line,
        id: getpid(),
        deadline: sys::shared_number(0).unwrap(),
        last_start: 0,
        group: None,
        leftover: None,
        killed: false,
        gone: false,
    });
    guardian.set_deadline(None);
    guardian.set_start_deadline(Duration::from_secs(60));
    guardian.announcement_hook()().unwrap();
    guardian.set_start_deadline(Duration::ZERO);
    assert!(Guardian::was_too_late(
        &guardian.announcement_hook()().unwrap_err()
    ));
}

#[test]
fn a_group_that_would_be_everybody_is_none() {
    for group in [0, 1, -1] {
        assert_eq!(Message::decode(Message::Group(group).encode()), None);
    }
}

#[test]
fn stopped_guardian_does_not_kill_by_an_old_deadline() {
    let (mut guardian, mut command) = scene();
    signal(guardian.id, Signal::SIGSTOP).unwrap();
    for _ in 0..2_000 {
        guardian.set_deadline(Some(Duration::ZERO));
    }
    guardian.set_deadline(None);
    signal(guardian.id, Signal::SIGCONT).unwrap();
    guardian.dismiss();
    eventually(LIMIT, "the guardian ends", || {
        guardian.hear();
        guardian.gone || guardian.killed
    });
    assert!(!guardian.has_killed());
    assert!(command.try_wait().unwrap().is_none());
    command.kill().unwrap();
    command.wait().unwrap();
}

#[test]
fn one_that_is_dismissed_leaves_no_file_behind() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut guardian = Guardian::start(Some(file.path())).unwrap();
    assert!(file.path().exists());
    guardian.dismiss();
    assert!(!file.path().exists());
}

#[test]
fn another_guardian_knows_the_group_and_the_deadline() {
    let (mut guardian, mut command) = scene();
    assert!(!guardian.replace_if_gone().unwrap());
    guardian.set_deadline(Some(Duration::from_secs(60)));
    for _ in 0..3 {
        signal(guardian.id, Signal::SIGKILL).unwrap();
        let killed = guardian.id;
        eventually(LIMIT, "another one takes its place", || {
            guardian.replace_if_gone().unwrap()
        });
        sys::reap(killed);
    }
    guardian.set_deadline(Some(Duration::ZERO));
    eventually(LIMIT, "it kills the group", || guardian.has_killed());
    let status = command.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
}
