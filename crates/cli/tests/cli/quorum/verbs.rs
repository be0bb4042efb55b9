//! Each verb on a quorum, for each set of servers that are down.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::eventually;

use super::seen;
use crate::common::{Done, LIMIT, Running, Store};

/// A verb, with a token in its environment as in a script.
fn leasehold(store: &Store, verb: &str, token: &str) -> Done {
    let run = store.leasehold(verb).env("LEASEHOLD_TOKEN", token);
    run.output()
}

fn nodes(store: &Store) -> Vec<Value> {
    let report = store.json("inspect", "x", 0);
    let nodes = report["locks"][0]["nodes"].as_array();
    nodes.expect("the views of the nodes").clone()
}

fn watch(store: &Store) -> Running {
    let watching = store.verb("watch", "--interval 50ms x").start();
    watching.until_it_writes("free");
    watching
}

#[test]
fn inspect_shows_equal_fences_and_where_nodes_differ() {
    let store = Store::quorum();
    let holder = store.hold();
    let fence = store.number("fence");
    store.all_vote("x", fence);
    let done = seen(&store, "votes   3 of 3\n");
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
    assert_eq!(views[1]["queue"], 0);
    assert_eq!(views[2]["queue"], Value::Null);
    let error = views[2]["error"].as_str().expect("an error");
    assert!(error.starts_with(&address(2)), "{error}");

    // No majority names one holder, so it counts as free.
    store.verb("inspect", "x").is(0, &[]).shows(&[
        "\"x\" is free\n",
        &format!("    nodes   {}: ", address(0)),
        &format!(", fence {fence}\n"),
        &format!("            {}: cannot connect", address(2)),
    ]);
}

#[test]
fn each_verb_works_without_any_one_server() {
    for killed in [None, Some(0), Some(1), Some(2)] {
        let store = Store::quorum();
        let with = |token: &str, line: &str, code: i32| {
            let done = leasehold(&store, line, token);
            assert_eq!(done.code(), code, "{line}, {killed:?}: {done:?}");
            done.stdout.trim().to_owned()
        };
        let is = |line: &str, code: i32| with("", line, code);
        let watching = watch(&store);
        let holder = store.hold();
        let fence = store.number("fence");
        let votes = if let Some(killed) = killed {
            store.quorum[killed].kill();
            "votes   2 of 3\n"
        } else {
            store.all_vote("x", fence);
            "votes   3 of 3\n"
        };

        watching.until_it_writes("acquired");
        seen(&store, votes).shows(&[&format!("fence   {fence}\n")]);
        for (line, code) in [
            ("inspect x y", 0),
            ("run -n x true", 75),
            ("wait -w 200ms x", 124),
            ("break x --if-fence 1", 75),
            ("doctor --quick", 0),
        ] {
            is(line, code);
        }
        let waiter = store.run("x true").start();
        waiter.until_it_says("1st in line");
        store.let_go();
        holder.ends(0, &[]);
        waiter.ends(0, &["got \"x\" after "]);
        watching.until_it_writes("released");
        watching.signal(Signal::SIGTERM);
        watching.end();
        is("wait x", 0);
        let mut holding = store.verb("hold", "x").stdin(Stdio::piped()).start();
        holding.until_it_writes("\"acquired\"");
        drop(holding.child.stdin.take());
        holding.ends(0, &[]);
        is("run --at-least 300ms x true", 0);

        let token = is("acquire --ttl 30s x", 0);
        for (line, code) in [
            ("check x", 0),
            ("renew --ttl 30s x", 0),
            ("release x", 0),
            ("check x", 79),
        ] {
            with(&token, line, code);
        }
        let token = is("acquire --ttl 30s x", 0);
        let (_, fence) = token.rsplit_once('#').expect("a fence");
        is(&format!("break x --if-fence {fence}"), 0);
        with(&token, "renew --ttl 30s x", 79);
        is("run -n x true", 0);
        assert_eq!(is("inspect", 0), "", "{killed:?}");
    }
}

/// Each renewal is by another process, which knows no votes.
#[test]
fn renew_gets_back_the_vote_of_each_server() {
    let store = Store::quorum();
    let done = store.leasehold("acquire --ttl 30s x").is(0, &[]);
    let token = done.stdout.trim();
    let (owner, _) = token.rsplit_once('#').expect("a fence");
    // A process that ends waits only briefly for a server that is slower than the others.
    let all_vote = || {
        eventually(LIMIT, "all votes", || {
            leasehold(&store, "renew --ttl 30s x", token).is(0, &[]);
            store.quorum.iter().all(|server| {
                let vote = server.cli(&["GET", "x"]);
                !vote.is_nil() && vote.text().starts_with(owner)
            })
        });
    };
    all_vote();
    for server in &store.quorum {
        server.cli(&["DEL", "x"]);
        all_vote();
    }
    // Each server holds by a higher fence now than the token has.
    leasehold(&store, "check x", token).is(0, &[]);
    leasehold(&store, "release x", token).is(0, &[]);
    leasehold(&store, "check x", token).is(79, &[]);
}

#[test]
fn each_verb_says_69_without_two_servers() {
    for killed in [&[0, 1][..], &[0, 2], &[1, 2], &[0, 1, 2]] {
        each_verb_says_69(killed);
    }
}

fn each_verb_says_69(killed: &[usize]) {
    let store = Store::quorum();
    let taken = store.leasehold("acquire --ttl 30s x").is(0, &[]);
    for at in killed {
        store.quorum[*at].kill();
    }
    let why = "no majority (2 of 3 nodes are needed)";
    for line in [
        "run -n y true",
        "acquire -n --ttl 30s y",
        "check x",
        "renew --ttl 30s x",
        "release x",
        "inspect x",
        "inspect",
        "wait -w 0 x",
        "watch x",
        "break x --if-fence 1",
    ] {
        leasehold(&store, line, taken.stdout.trim()).is(69, &[why]);
    }
    // The document has what each node says.
    let shown = leasehold(&store, "inspect --json x", "");
    shown.is(69, &[why]);
    let lock = &shown.json()["locks"][0];
    assert_eq!(lock["state"], "unknown", "{lock}");
    let views = lock["nodes"].as_array().expect("the views of the nodes");
    for (at, view) in views.iter().enumerate() {
        let address = format!("redis://127.0.0.1:{}", store.quorum[at].port());
        assert_eq!(view["node"], address, "{lock}");
        let is_down = killed.contains(&at);
        assert_eq!(view["state"] == "unknown", is_down, "{lock}");
        assert_eq!(!view["error"].is_null(), is_down, "{lock}");
        // The verdict and the message name the nodes that failed.
        let verdict = lock["error"].as_str().expect("an error");
        for text in [verdict, &shown.stderr] {
            let (_, failed) = text.split_once(why).expect("no majority");
            assert_eq!(failed.contains(&address), is_down, "{text}");
        }
    }
    // Its program is there until it ends.
    let holding = store.verb("hold", "-n y").stdin(Stdio::piped());
    holding.is(69, &[why]);
    if killed.len() == 3 {
        store.leasehold("doctor --quick").is(69, &[]);
    } else {
        // As each failed check.
        let done = store.leasehold("doctor --quick").is(78, &[]);
        done.shows(&["1 of 3 servers answer"]);
    }
}
