//! `wait`: until a lock is free.

use nix::sys::signal::Signal;
use testkit::FaultProxy;

use crate::common::{LEASEHOLD, Store, json, on_each_store, tool};

on_each_store! {
    wait_ends_when_the_lock_is_free_and_takes_nothing,
    wait_has_a_limit,
}

fn wait_ends_when_the_lock_is_free_and_takes_nothing(store: &Store) {
    store.verb("wait", "x").is(0, &[]);

    let holder = store.hold();
    let fence = store.number("fence");
    let waiting = store.verb("wait", "--json x").start();
    waiting.until_it_says("waiting until \"x\" is free: held ");
    waiting.until_it_says(&format!("(pid {}: sh), fence {fence}", holder.pid()));
    // `wait` does not join the queue.
    let lock = &store.json("inspect", "x", 0)["locks"][0];
    assert_eq!(lock["queue"], json("[]"));
    store.let_go();
    holder.ends(0, &[]);
    let done = waiting.ends(0, &["\"x\" is free after "]);
    let report = done.json();
    assert_eq!(report["schema"], "leasehold.wait/1");
    assert_eq!(report["outcome"], "free");
    assert_eq!(report["lock"]["state"], "free");
}

fn wait_has_a_limit(store: &Store) {
    let _holder = store.hold();
    let says = ["\"x\" is not free after ", "(exit 124): held ", "0 in line"];
    let done = store.verb("wait", "--json -w 1 x").is(124, &says);
    assert!((1.0..20.0).contains(&done.seconds_after("not free after ")));
    assert_eq!(done.json()["outcome"], "timeout");
    store.verb("wait", "-q -w 0 x").says_nothing(124);
    let waiting = store.verb("wait", "x").start();
    waiting.until_it_says("waiting until");
    waiting.signal(Signal::SIGTERM);
    waiting.ends(143, &[]);
}

#[test]
fn wait_outlives_store_outage_and_does_not_report_it_as_busy() {
    let mut store = Store::redis();
    let proxy = FaultProxy::start(store.server().port());
    let holder = store.hold();
    store.url = proxy.url();
    let patient = store.verb("wait", "x").start();
    let limited = store.verb("wait", "-w 10s x").start();
    for waiting in [&patient, &limited] {
        waiting.until_it_says("waiting until \"x\" is free");
    }
    proxy.refuse(true);
    proxy.cut();
    patient.until_it_says("; still trying");
    limited.ends(69, &["(exit 69)", "this is not known"]);
    proxy.refuse(false);
    store.let_go();
    holder.ends(0, &[]);
    patient.ends(0, &["\"x\" is free after "]);
}

#[test]
fn the_exit_code_is_the_answer_though_nobody_reads_the_document() {
    let store = Store::local();
    let _holder = store.hold();
    for (words, code) in [
        ("wait -w 0", "124"),
        ("break", "64"),
        ("break --if-fence 1", "75"),
    ] {
        let script = format!(
            "cd '{}' && trap '' PIPE; {{ while [ -e reads ]; do sleep 0.01; done; {LEASEHOLD} {words} --url '{}' --json x; echo $? >code; }} | rm -f reads",
            store.dir.path().display(),
            store.url
        );
        store.touch("reads");
        tool("sh", &["-c", &script]);
        let told = std::fs::read_to_string(store.file("code")).unwrap();
        assert_eq!(told.trim(), code, "{words}");
    }
}
