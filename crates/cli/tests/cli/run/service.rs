//! Messages to the service manager (`sd_notify`), on a socket of the test.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;

use nix::sys::signal::Signal;

use crate::common::{LIMIT, Run, Store};

/// Says whether the command can reach the manager, and works until it is asked to end.
const WORK: &str = "echo ${NOTIFY_SOCKET-none}; exec sleep 1000";

/// The manager's end.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn at(address: &SocketAddr, name: &str) -> Self {
        let socket = UnixDatagram::bind_addr(address).expect("a socket");
        socket.set_read_timeout(Some(LIMIT)).expect("a limit");
        let name = name.to_owned();
        Self { socket, name }
    }

    fn of(store: &Store) -> Self {
        let path = store.file("notify");
        let address = SocketAddr::from_pathname(&path).expect("an address");
        Self::at(&address, path.to_str().expect("a path"))
    }

    /// The run with this manager.
    fn starts(&self, run: Run) -> Run {
        run.env("NOTIFY_SOCKET", &self.name)
    }

    fn next(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    /// True if it was told nothing that was not read.
    fn has_heard_all(&self) -> bool {
        self.socket.set_nonblocking(true).expect("no limit");
        self.socket.recv(&mut [0; 4096]).is_err()
    }
}

#[test]
fn manager_hears_of_wait_grant_and_end() {
    let store = Store::redis();
    let manager = Manager::of(&store);
    let holder = store.hold();
    let fence = store.number("fence");
    let run = manager.starts(store.script("--quiet x", WORK)).start();
    assert_eq!(manager.next(), "STATUS=waiting for \"x\"");
    let waits = manager.next();
    let begin = "STATUS=waiting for \"x\", 1st in line: held by ";
    let is_whole = waits.starts_with(begin) && waits.ends_with(&format!(", fence {fence}"));
    assert!(is_whole, "{waits}");
    store.let_go();
    holder.ends(0, &[]);
    // The socket is not passed on: the command's messages are not the run's.
    run.until_it_writes("none\n");
    let mut granted = manager.next();
    while granted.starts_with(begin) {
        granted = manager.next();
    }
    let ready = "READY=1\nSTATUS=holding the lease on \"x\" (fence ";
    assert!(granted.starts_with(ready), "{granted}");
    run.signal(Signal::SIGTERM);
    assert_eq!(manager.next(), "STOPPING=1\nSTATUS=releasing \"x\"");
    run.ends(143, &[]);
    assert!(manager.has_heard_all());
}

#[test]
fn manager_may_have_an_abstract_socket() {
    let store = Store::local();
    let name = format!("leasehold-test-{}", process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let manager = Manager::at(&address, &format!("@{name}"));
    manager.starts(store.run("x true")).is(0, &[]);
    assert_eq!(manager.next(), "STATUS=waiting for \"x\"");
    assert!(manager.next().starts_with("READY=1\n"));
    assert!(manager.next().starts_with("STOPPING=1\n"));
    assert!(manager.has_heard_all());
}

#[test]
fn manager_that_is_busy_hears_later_that_the_lock_is_held() {
    let store = Store::local();
    let manager = Manager::of(&store);
    let other = UnixDatagram::unbound().expect("a socket");
    other.connect(&manager.name).expect("a manager");
    other.set_nonblocking(true).expect("no limit");
    while other.send(b"of another service").is_ok() {}
    let work = "trap 'echo asked' USR1; echo started; while :; do sleep 0.02; done";
    let run = manager.starts(store.script("--quiet x", work)).start();
    run.until_it_writes("started\n");
    // This process passes signals on after it has told the manager.
    run.signal(Signal::SIGUSR1);
    run.until_it_writes("asked\n");
    while !manager.next().starts_with("READY=1\n") {}
    run.signal(Signal::SIGTERM);
    run.ends(143, &[]);
}

#[test]
fn manager_is_not_told_ready_without_the_lock() {
    let store = Store::local();
    let manager = Manager::of(&store);
    let holder = store.hold();
    manager.starts(store.run("-n x true")).is(75, &["is busy"]);
    assert_eq!(manager.next(), "STATUS=waiting for \"x\"");
    assert!(manager.has_heard_all());
    store.let_go();
    holder.ends(0, &[]);
}

#[test]
fn manager_that_is_gone_disturbs_no_run() {
    let store = Store::local();
    for socket in ["", "/nowhere/notify", "@", "vsock:2:1234", "notify"] {
        let run = store.run("x true").env("NOTIFY_SOCKET", socket);
        run.says_nothing(0);
    }
}

#[test]
fn manager_of_a_leader_hears_of_each_term() {
    let store = Store::redis();
    let manager = Manager::of(&store);
    let elect = store.verb("elect", "--ttl 6s x");
    let leader = manager.starts(elect.words(&["sh", "-c", WORK])).start();
    assert_eq!(manager.next(), "STATUS=waiting for \"x\"");
    let ready = manager.next();
    let (_, fence) = ready.rsplit_once("(fence ").expect("a fence");
    let fence = fence.trim_end_matches(')');
    let end = format!("x --if-fence {fence}");
    store.verb("break", &end).is(0, &[]);
    assert_eq!(
        manager.next(),
        "STATUS=stopping the command: \"x\" cannot be kept"
    );
    assert_eq!(manager.next(), "STATUS=waiting for \"x\"");
    assert!(manager.next().starts_with("READY=1\n"));
    leader.signal(Signal::SIGTERM);
    assert_eq!(manager.next(), "STOPPING=1");
    leader.end();
}
