//! Each verb on a quorum of which one server is down, and on one without a majority.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Done, Run, Running, Store};

/// A verb with the store in its environment, as in a script.
fn leasehold(store: &Store, verb: &str, words: &[&str], token: &str) -> Done {
    let run = Run::verb(store.dir.path(), verb).words(words);
    let run = run.env("LEASEHOLD_URL", &store.url);
    run.env("LEASEHOLD_TOKEN", token).output()
}

fn nodes(store: &Store) -> Vec<Value> {
    let done = store.verb("inspect", &["--json", "x"]).output();
    assert_eq!(done.code(), 0, "{done:?}");
    let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let nodes = report["locks"][0]["nodes"].as_array();
    nodes.expect("the views of the nodes").clone()
}

fn watch(store: &Store) -> Running {
    let watching = store.verb("watch", &["--interval", "50ms", "x"]).start();
    watching.until_it_writes("free");
    watching
}

#[test]
fn inspect_shows_equal_fences_and_where_nodes_differ() {
    let store = Store::quorum();
    let holder = store.hold();
    let fence = store.number("fence");
    testkit::eventually(crate::common::LIMIT, "all votes", || {
        nodes(&store).iter().all(|node| node["fence"] == fence)
    });
    let done = store.verb("inspect", &["x"]).output();
    assert!(done.stdout.contains("votes   3 of 3\n"), "{done:?}");
    assert!(!done.stdout.contains("nodes  "), "{done:?}");

    // Its vote for this lock is gone; the mark and the counter are not.
    store.quorum[1].cli(&["DEL", "x"]);
    store.quorum[2].kill();
    let views = nodes(&store);
    let states: Vec<&Value> = views.iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["held", "free", "unknown"]);
    let address = |at: usize| format!("redis://127.0.0.1:{}", store.quorum[at].port());
    assert_eq!(views[0]["node"], address(0));
    assert_eq!(views[0]["fence"], fence);
    assert_eq!(views[0]["holder"]["pid"], holder.pid().as_raw());
    assert_eq!(
        (&views[1]["queue"], &views[2]["queue"]),
        (&0.into(), &Value::Null)
    );
    let error = views[2]["error"].as_str().expect("an error");
    assert!(error.starts_with(&address(2)), "{error}");

    // No majority names one holder, so it counts as free.
    let done = store.verb("inspect", &["x"]).output();
    assert_eq!(done.code(), 0);
    for line in [
        "\"x\" is free\n",
        &format!("    nodes   {}: ", address(0)),
        &format!(", fence {fence}\n"),
        &format!("            {}: cannot connect", address(2)),
    ] {
        assert!(done.stdout.contains(line), "{line:?}: {done:?}");
    }
    drop(holder);
}

#[test]
fn each_verb_works_without_any_one_server() {
    for killed in 0..3 {
        let store = Store::quorum();
        let is = |verb: &str, words: &[&str], token: &str, code: i32| {
            let done = leasehold(&store, verb, words, token);
            assert_eq!(done.code(), code, "{verb} {words:?}, {killed}: {done:?}");
            done.stdout.trim().to_owned()
        };
        let watching = watch(&store);
        let holder = store.hold();
        let fence = store.number("fence");
        store.quorum[killed].kill();

        watching.until_it_writes("acquired");
        let seen = is("inspect", &["x"], "", 0);
        assert!(seen.contains(&format!("fence   {fence}\n")), "{seen}");
        assert!(seen.contains("votes   2 of 3\n"), "{seen}");
        is("inspect", &["x", "y"], "", 0);
        is("run", &["-n", "x", "true"], "", 75);
        is("wait", &["-w", "200ms", "x"], "", 124);
        is("break", &["x", "--if-fence", "1"], "", 75);
        is("doctor", &["--quick"], "", 0);
        store.let_go();
        holder.end().is(0, &[]);
        watching.until_it_writes("released");
        watching.signal(Signal::SIGTERM);
        watching.end();
        is("wait", &["x"], "", 0);
        let holding = store.verb("hold", &["x"]).stdin(Stdio::piped());
        let mut holding = holding.start();
        holding.until_it_writes("\"acquired\"");
        drop(holding.child.stdin.take());
        assert_eq!(holding.end().code(), 0);
        is("run", &["--at-least", "300ms", "x", "true"], "", 0);

        let token = is("acquire", &["--ttl", "30s", "x"], "", 0);
        is("check", &["x"], &token, 0);
        is("renew", &["--ttl", "30s", "x"], &token, 0);
        is("release", &["x"], &token, 0);
        is("check", &["x"], &token, 79);
        let token = is("acquire", &["--ttl", "30s", "x"], "", 0);
        let (_, fence) = token.rsplit_once('#').expect("a fence");
        is("break", &["x", "--if-fence", fence], "", 0);
        is("renew", &["--ttl", "30s", "x"], &token, 79);
        is("run", &["-n", "x", "true"], "", 0);
        assert_eq!(is("inspect", &[], "", 0), "", "{killed}");
    }
}

#[test]
fn each_verb_says_69_without_two_servers() {
    let store = Store::quorum();
    let done = leasehold(&store, "acquire", &["--ttl", "30s", "x"], "");
    assert_eq!(done.code(), 0, "{done:?}");
    let token = done.stdout.trim().to_owned();
    store.quorum[0].kill();
    store.quorum[2].kill();
    for (verb, words) in [
        ("run", &["-n", "y", "true"][..]),
        ("acquire", &["-n", "--ttl", "30s", "y"]),
        ("check", &["x"]),
        ("renew", &["--ttl", "30s", "x"]),
        ("release", &["x"]),
        ("inspect", &["x"]),
        ("inspect", &[]),
        ("wait", &["-w", "0", "x"]),
        ("watch", &["x"]),
        ("break", &["x", "--if-fence", "1"]),
    ] {
        let done = leasehold(&store, verb, words, &token);
        assert_eq!(done.code(), 69, "{verb} {words:?}: {done:?}");
        let why = "no majority (2 of 3 nodes are needed)";
        assert!(done.stderr.contains(why), "{verb}: {done:?}");
    }
    // Its program is there until it ends.
    let holding = store.verb("hold", &["-n", "y"]).stdin(Stdio::piped());
    holding
        .start()
        .end()
        .is(69, &["no majority (2 of 3 nodes are needed)"]);
    // As each failed check.
    let done = leasehold(&store, "doctor", &["--quick"], "");
    assert_eq!(done.code(), 78, "{done:?}");
    assert!(done.stdout.contains("1 of 3 servers answer"), "{done:?}");
}
