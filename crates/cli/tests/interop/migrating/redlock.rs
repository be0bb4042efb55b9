//! Libraries that use `SET NX PX` and compare-and-delete: the real ones, as far as installed.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::eventually;

use super::rollout::{Rollout, TURNS};
use crate::foreign::{self, Foreign};
use crate::peer::Peer;

const LONG: Duration = Duration::from_secs(30);

/// The number of libraries tested in parallel.
const AT_ONCE: usize = 3;

/// Reads, adds one and writes, in separate commands.
const COUNT: &str = "count=$(redis-cli -p $PORT GET count); sleep 0.01; redis-cli -p $PORT SET count $((count + 1)) >/dev/null";

pub(super) fn redlock_libraries() -> String {
    let (missing, there): (Vec<&Foreign>, Vec<&Foreign>) =
        (foreign::ALL.iter()).partition(|foreign| foreign.missing().is_some());
    for some in there.chunks(AT_ONCE) {
        thread::scope(|scope| {
            for foreign in some {
                scope.spawn(|| {
                    steps_1_and_2(foreign);
                    steps_3_and_4(foreign);
                });
            }
        });
    }
    let names = |of: &[&Foreign]| of.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    let skipped = if missing.is_empty() {
        String::new()
    } else {
        format!("; SKIPPED {}", names(&missing))
    };
    format!("beside {}{skipped}", names(&there))
}

/// These steps apply to some libraries.
fn steps_1_and_2(foreign: &Foreign) {
    match foreign.name {
        "pottery" => a_majority_and_one_server_do_not_exclude_each_other(foreign),
        "python-redis-lock" => without_an_expire_its_waiter_sleeps_on(foreign),
        "redis-py" => without_a_timeout_its_crash_leaves_a_lock_without_an_end(foreign),
        _ => {}
    }
}

/// Each library and Leasehold exclude each other.
fn steps_3_and_4(foreign: &Foreign) {
    let rollout = Rollout::start();
    let mut peer = Peer::start(&foreign.command(rollout.server.port()));
    let template = format!("--key-template '{}'", foreign.template);
    let inspect = |options: &str, says: &str| {
        let asks =
            "\"$LEASEHOLD\" inspect --url redis://127.0.0.1:$PORT/ --config \"$DIR/none.toml\"";
        rollout.run(&format!("{asks} {options} lock | grep -q '{says}'"))
    };
    // Both use one key, as the first rule of the page says about `inspect`.
    assert_eq!(peer.ask("try lock 30000"), "held", "{}", foreign.name);
    assert_eq!(inspect(&template, "a foreign lock"), 0, "{}", foreign.name);
    if foreign.template != "{}" {
        assert_eq!(inspect("", "is free"), 0, "{}", foreign.name);
        assert_eq!(rollout.run("new --try lock -- true"), 0, "two locks");
    }
    let leasehold_tries = format!("new --try {template} lock -- true");
    assert_eq!(rollout.run(&leasehold_tries), 75, "{}", foreign.name);
    assert_eq!(peer.ask("release"), "released");
    let leasehold = rollout.leasehold_holds(&template);
    assert_eq!(peer.ask("try lock 30000"), "busy", "{}", foreign.name);
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);

    // New programs start while old ones work.
    rollout.server.cli(&["SET", "count", "0"]);
    peer.tell(&format!("count lock 10000 {TURNS} peer"));
    let leasehold = rollout.begin(&format!(
        "each_turn new {template} lock -- bash -c '{COUNT}'"
    ));
    assert_eq!(peer.answer(), "counted", "{}", foreign.name);
    assert_eq!(leasehold.ends(), 0);
    let count = rollout.server.cli(&["GET", "count"]).int();
    assert_eq!(usize::try_from(count), Ok(2 * TURNS), "{}", foreign.name);
}

/// Three servers; Leasehold uses the first.
fn a_majority_and_one_server_do_not_exclude_each_other(pottery: &Foreign) {
    let (rollout, second, third) = (Rollout::start(), Rollout::start(), Rollout::start());
    let leasehold = rollout.leasehold_holds("--key-template 'redlock:{}'");
    let ports = [&rollout, &second, &third].map(|one| one.server.port().to_string());
    let asks = |ports: &[String]| {
        let python = pottery.command(0).get_program().to_owned();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/interop/foreign/majority.py"
        );
        let mut asking = Command::new(python);
        let said = asking.args([script, "lock"]).args(ports).output();
        let said = said.expect("it runs");
        String::from_utf8(said.stdout).expect("text")
    };
    assert_eq!(asks(&ports[..1]), "busy\n", "moved to the one server");
    assert_eq!(asks(&ports), "held\n", "not yet moved");
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
}

fn without_an_expire_its_waiter_sleeps_on(python: &Foreign) {
    let rollout = Rollout::start();
    let options = format!("--key-template '{}'", python.template);
    for (expire, wakes) in [("0", false), ("1000", true)] {
        let leasehold = rollout.leasehold_holds(&options);
        let mut peer = Peer::start(&python.command(rollout.server.port()));
        peer.tell(&format!("wait lock {expire}"));
        let clients = || rollout.server.cli(&["CLIENT", "LIST"]).text();
        eventually(LONG, "it sleeps", || clients().contains("cmd=blpop"));
        rollout.touch("done");
        assert_eq!(leasehold.ends(), 0);
        let soon = Duration::from_millis(if wakes { 10_000 } else { 1500 });
        assert_eq!(peer.answers_within(soon), wakes, "expire {expire}");
        peer.kill();
        fs::remove_file(rollout.path("done")).expect("a file");
    }
}

fn without_a_timeout_its_crash_leaves_a_lock_without_an_end(redis_py: &Foreign) {
    let rollout = Rollout::start();
    let mut peer = Peer::start(&redis_py.command(rollout.server.port()));
    assert_eq!(peer.ask("try lock 0"), "held");
    peer.kill();
    assert_eq!(rollout.run("new --wait 1s lock -- true"), 124);
    assert_eq!(rollout.left(), -1);
}
