//! Programs that use the wrappers of `docs/cli.md`, exactly as printed there.

use std::fs;

use testkit::eventually;

use super::is_free;
use crate::common::{LIMIT, Running, Store, lives, on_each_store};

on_each_store! {
    a_forked_child_keeps_no_lock_of_a_killed_program,
    a_parent_that_is_killed_holds_nothing,
    the_wrappers_of_the_docs_work,
}

/// The fenced blocks of this language in the page.
fn blocks(language: &str) -> Vec<String> {
    let page = include_str!("../../../../../docs/cli.md");
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// Runs a script of the docs' wrapper and `body`.
fn script(store: &Store, (language, program, name): Language, body: &str) -> Running {
    let wrapper = &blocks(language)[0];
    fs::write(store.file(name), format!("{wrapper}\n{body}")).expect("write a script");
    let run = store.program(&[program, name]);
    run.env("LEASEHOLD_URL", &store.url).start()
}

/// The name of a language in the page, its program, and that of a script.
type Language = (&'static str, &'static str, &'static str);

const PYTHON: Language = ("python", "python3", "program.py");
const NODE: Language = ("js", "node", "program.mjs");

/// Holds "x" until the file `let-go` is there.
const IN_PYTHON: &str = r#"
import pathlib, time
with hold("x", "--ttl", "1h") as lease:
    pathlib.Path("held").write_text(str(lease["fence"]))
    while not pathlib.Path("let-go").exists(): time.sleep(0.02)
print("done")
"#;

const IN_NODE: &str = r"
import { existsSync, writeFileSync } from 'node:fs';
await hold('x', async (lease) => {
  writeFileSync('held', String(lease.fence));
  while (!existsSync('let-go')) await new Promise((wake) => setTimeout(wake, 20));
}, { options: ['--ttl', '1h'] });
console.log('done');
";

/// Forks a worker that has a copy of the pipe and lives until the file `let-go` is there. Then holds "x" until the
/// file `leave` is there.
const FORKING: &str = r#"
import pathlib, time
def until(name):
    while os.path.exists("program.py") and not os.path.exists(name): time.sleep(0.02)
with hold("x", "--ttl", "1h") as lease:
    worker = os.fork()
    if worker == 0:
        os.close(1)
        until("let-go")
        os._exit(0)
    pathlib.Path("worker").write_text(str(worker))
    until("leave")
print("done")
"#;

/// The same with a pair of sockets in place of the pipe, as asyncio makes it.
const FORKING_SOCKETS: &str = r#"
import os, pathlib, socket, subprocess, time
ours, its = socket.socketpair()
child = subprocess.Popen(["leasehold", "hold", "x", "--ttl", "1h"], stdin=its, stdout=subprocess.PIPE)
its.close()
child.stdout.readline()
worker = os.fork()
if worker: pathlib.Path("worker").write_text(str(worker))
while os.path.exists("program.py") and not os.path.exists("let-go"): time.sleep(0.02)
"#;

fn a_forked_child_keeps_no_lock_of_a_killed_program(store: &Store) {
    for body in [FORKING, FORKING_SOCKETS] {
        let parent = script(store, PYTHON, body);
        let worker = store.number("worker");
        store.is_busy();
        // Kills it.
        drop(parent);
        is_free(store);
        assert!(lives(worker));
        store.let_go();
        eventually(LIMIT, "the worker ends", || !lives(worker));
        for name in ["worker", "let-go"] {
            fs::remove_file(store.file(name)).expect("it is there");
        }
    }
}

#[test]
fn the_python_of_the_docs_does_not_wait_for_a_forked_child() {
    let store = Store::local();
    let parent = script(&store, PYTHON, FORKING);
    let worker = store.number("worker");
    store.is_busy();
    store.touch("leave");
    parent.prints(0, "done\n");
    assert!(lives(worker));
    is_free(&store);
    store.let_go();
}

/// A forked child that leaves the block does not release the lock of its parent.
#[test]
fn the_python_of_the_docs_releases_in_its_own_process_only() {
    let store = Store::local();
    let body = r#"
import pathlib, sys, time
with hold("x", "--ttl", "1h"):
    child = os.fork()
    if child == 0: sys.exit(0)
    os.waitpid(child, 0)
    pathlib.Path("forked").write_text("1")
    while not pathlib.Path("let-go").exists(): time.sleep(0.02)
print("done")
"#;
    let parent = script(&store, PYTHON, body);
    store.number("forked");
    store.is_busy();
    store.let_go();
    parent.prints(0, "done\n");
    is_free(&store);
}

fn a_parent_that_is_killed_holds_nothing(store: &Store) {
    for (language, body) in [(PYTHON, IN_PYTHON), (NODE, IN_NODE)] {
        let parent = script(store, language, body);
        store.number("held");
        store.is_busy();
        drop(parent);
        is_free(store);
        fs::remove_file(store.file("held")).expect("it is there");
    }
}

fn the_wrappers_of_the_docs_work(store: &Store) {
    for (language, body) in [(PYTHON, IN_PYTHON), (NODE, IN_NODE)] {
        let blocks = blocks(language.0);
        let lines = blocks[0].trim().lines().count();
        assert!(lines <= 20, "it is said to be short");
        let parent = script(store, language, body);
        assert!(store.number("held") > 0);
        store.is_busy();
        store.let_go();
        parent.prints(0, "done\n");
        is_free(store);
        // The example below it.
        let example = script(store, language, &blocks[1]).ends(0, &[]);
        assert!(example.stdout.starts_with("working with fence "));
        for name in ["held", "let-go"] {
            fs::remove_file(store.file(name)).expect("it is there");
        }
    }
}

#[test]
fn a_lost_lease_ends_the_program_by_default() {
    std::thread::scope(|scope| {
        for (language, body) in [(PYTHON, IN_PYTHON), (NODE, IN_NODE)] {
            scope.spawn(move || {
                let store = Store::redis();
                let parent = script(&store, language, &body.replace("1h", "6s"));
                store.number("held");
                store.server().cli(&["DEL", "x"]);
                // By the wrapper's default.
                parent.prints(79, "");
            });
        }
    });
}
