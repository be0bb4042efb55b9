//! The URL has a password, and no variable of the command contains it. A nested `leasehold` uses this store, or
//! refuses to run.

use std::fs;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::{RedisServer, eventually};

use super::{SECRET, run, store_url, write};
use crate::common::users::everybodys_leasehold;
use crate::common::{LEASEHOLD, LIMIT, Run, Store};

const NOT_ALONE: [&str; 2] = ["cannot use the file", "for its own user only"];

/// A server with a password, its URL, and an environment in which all other settings name another store.
struct Scene {
    store: Store,
    server: RedisServer,
    url: String,
}

impl Scene {
    fn new() -> Self {
        let store = Store::local();
        let server = RedisServer::builder().password(SECRET).start();
        let url = format!("redis://:{SECRET}@127.0.0.1:{}/", server.port());
        let other = format!("url = '{}'\n", store_url(&store));
        write(&store, "config/leasehold/config.toml", &other);
        fs::create_dir(store.file("runtime")).expect("make a directory");
        Self { store, server, url }
    }

    /// `leasehold VERB` where the weaker layers of the environment name other stores.
    fn verb(&self, verb: &str) -> Run {
        Run::verb(self.store.dir.path(), verb)
            .env("REDIS_URL", &store_url(&self.store))
            .env(
                "XDG_RUNTIME_DIR",
                &self.store.file("runtime").to_string_lossy(),
            )
    }

    /// `leasehold run --url URL words... sh -c SCRIPT`.
    fn script(&self, words: &str, script: &str) -> Run {
        let run = self.run().words(&["--url", &self.url]);
        run.words(words).words(&["sh", "-c", script])
    }

    fn run(&self) -> Run {
        self.verb("run")
    }

    /// The existing URL files.
    fn files(&self) -> Vec<String> {
        let folder = fs::read_dir(self.store.file("runtime/leasehold"));
        let files = folder.into_iter().flatten().flatten();
        files
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

#[test]
fn nested_leasehold_uses_same_store_for_each_url_source() {
    let scene = Scene::new();
    let script = "echo $LEASEHOLD_FENCE > fence; while ! [ -e let-go ]; do sleep 0.02; done";
    let _holder = scene.script("held", script).start();
    scene.store.number("fence");

    let script = format!(
        "cd / && env && stat -c %a $LEASEHOLD_URL_FILE && {LEASEHOLD} check && {LEASEHOLD} run b {LEASEHOLD} check && exec {LEASEHOLD} run --try held true"
    );
    let config = write(&scene.store, "c.toml", &format!("url = '{}'", scene.url));
    for run in [
        scene.run().words(&["--url", &scene.url]),
        scene.run().env("LEASEHOLD_URL", &scene.url),
        scene.run().words(&["--config", &config]),
    ] {
        let run = run.words(&["x", "sh", "-c", &script]);
        let done = run.is(75, &["\"held\" is busy"]);
        assert!(done.stdout.contains("\n600\n"), "{done:?}");
        assert!(!done.stdout.contains(SECRET), "{done:?}");
    }
    // The file of the killed holder is left.
    assert_eq!(scene.files().len(), 1, "{:?}", scene.files());
}

#[test]
fn a_url_from_pipes_or_from_redis_url_is_handed_on_too() {
    let scene = Scene::new();
    let plain = format!("redis://127.0.0.1:{}/", scene.server.port());
    for words in [
        format!("--url-file <(echo '{}')", scene.url),
        format!("--url {plain} --password-file <(echo {SECRET})"),
    ] {
        let script = format!("{LEASEHOLD} run {words} x {LEASEHOLD} check");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script])
            .env("XDG_RUNTIME_DIR", scene.store.file("runtime"))
            .env("REDIS_URL", store_url(&scene.store));
        let output = bash.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let empty = write(&scene.store, "empty.toml", "");
    let script = format!("unset REDIS_URL; exec {LEASEHOLD} check");
    let by_redis_url = run(&scene.store).env("REDIS_URL", &scene.url);
    let words = ["--config", &empty, "x", "sh", "-c", &script];
    by_redis_url.words(&words).is(0, &[]);
}

#[test]
fn a_command_that_names_another_store_gets_that_one() {
    let scene = Scene::new();
    let script = format!("LEASEHOLD_URL={} {LEASEHOLD} run x true", scene.store.url);
    scene.script("x", &script).is(0, &[]);
    assert!(scene.store.file("locks.db").exists());
}

#[test]
fn the_url_of_a_killed_run_does_not_stay() {
    let scene = Scene::new();
    let start = |name: &str| {
        let script = format!("echo $$ > {name}; exec sleep 60");
        let running = scene.script(&format!("--ttl 1h {name}"), &script).start();
        scene.store.number(name);
        running
    };
    let first = start("a");
    assert_eq!(scene.files().len(), 1);
    first.signal(Signal::SIGKILL);
    eventually(LIMIT, "the guardian removes it", || {
        scene.files().is_empty()
    });

    // If the guardian is dead too, the next run removes the file.
    let second = start("b");
    let of_second = scene.files();
    let children = format!("/proc/{0}/task/{0}/children", second.pid());
    for child in fs::read_to_string(children).unwrap().split_whitespace() {
        kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGSTOP).unwrap();
        let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
        if name.trim() == "lease-guardian" {
            kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL).unwrap();
        }
    }
    second.signal(Signal::SIGKILL);
    drop(second);
    assert_eq!(scene.files(), of_second);
    let third = start("c");
    assert_eq!(scene.files().len(), 1);
    assert_ne!(scene.files(), of_second);
    third.signal(Signal::SIGTERM);
    third.end();
    assert!(scene.files().is_empty());
}

#[test]
fn what_outlives_its_run_is_refused_and_told_why() {
    let scene = Scene::new();
    let script = "echo $LEASEHOLD_URL_FILE > name";
    scene.script("x", script).is(0, &[]);
    let name = fs::read_to_string(scene.store.file("name")).unwrap();
    let later = scene.run().env("LEASEHOLD_URL_FILE", name.trim());
    let says = [name.trim(), "removed it when its command ended"];
    later.words("x true").is(78, &says);
}

#[test]
fn where_no_file_can_be_written_a_nested_leasehold_is_refused() {
    let scene = Scene::new();
    let nowhere = |script: &str| {
        let run = scene.script("x", script);
        run.env("XDG_RUNTIME_DIR", "/no/such")
            .env("TMPDIR", "/no/such")
    };
    let script = format!("env; exec {LEASEHOLD} check");
    let says = ["is not known here", "/no/such", "--url-file FILE"];
    let done = nowhere(&script).is(78, &says);
    assert!(!done.stdout.contains(SECRET), "{done:?}");
    // This does not affect a run with its own store.
    let script = format!(
        "{LEASEHOLD} run --url {} a {LEASEHOLD} check",
        scene.store.url
    );
    nowhere(&script).says_nothing(0);
}

#[test]
fn another_user_is_refused_and_told_why() {
    let Some((_folder, leasehold)) = everybodys_leasehold() else {
        eprintln!("skipped: another_user_is_refused_and_told_why needs root and setpriv");
        return;
    };
    let scene = Scene::new();
    let script = format!(
        "cd / && exec setpriv --reuid 65534 --regid 65534 --clear-groups {} inspect --config /dev/null x",
        leasehold.display()
    );
    scene.script("x", &script).is(78, &NOT_ALONE);
}

#[test]
fn a_loader_of_the_cache_asks_the_same_store() {
    let scene = Scene::new();
    let script = format!("env; exec {LEASEHOLD} cache get --must-be-fresh other");
    let put = scene.verb("cache").env("LEASEHOLD_URL", &scene.url);
    let put = put.words("get-or-refresh other -- echo its-value");
    put.is(0, &[]);
    let load = scene.verb("cache").env("LEASEHOLD_URL", &scene.url);
    let load = load.words(&["get-or-refresh", "k", "--", "sh", "-c", &script]);
    let done = load.is(0, &[]);
    assert!(done.stdout.contains("its-value"), "{done:?}");
    assert!(!done.stdout.contains(SECRET), "{done:?}");
    assert!(scene.files().is_empty());
}

#[test]
fn a_file_of_this_users_own_is_none_of_a_run() {
    let scene = Scene::new();
    let own = write(&scene.store, "runtime/leasehold/url-prod", &scene.url);
    let done = scene.run().words(&["--url", &scene.url, "x", "true"]);
    done.is(0, &[]);
    assert_eq!(scene.files(), ["url-prod"]);
    let both = scene.run().env("LEASEHOLD_URL_FILE", &own);
    let both = both.env("LEASEHOLD_URL", &scene.store.url);
    let says = ["LEASEHOLD_URL: LEASEHOLD_URL_FILE", "(exit 64)"];
    both.words("x true").is(64, &says);
}

#[test]
fn a_file_that_is_not_this_users_alone_is_refused() {
    let scene = Scene::new();
    let script = format!("chmod 640 $LEASEHOLD_URL_FILE && exec {LEASEHOLD} check");
    scene.script("x", &script).is(78, &NOT_ALONE);
}
