//! Runs the recipes of `docs/operations.md`, and checks the effects that the page promises.

#![allow(
    clippy::disallowed_methods,
    reason = "tests drive real processes in real time"
)]

mod recipes;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use self::recipes::{Recipe, Workplace, all, each, each_on, recipe, succeeds};
use crate::common::{LIMIT, Store, Words, rows};
use testkit::{RedisServer, eventually};

#[test]
fn every_recipe_is_of_a_kind_that_is_run() {
    for recipe in all() {
        let kinds =
            "shell held script crontab unit entrypoint command actions toml redis.conf refusals";
        let is_run = kinds.split(' ').any(|kind| kind == recipe.kind);
        assert!(is_run, "{recipe:?}");
    }
}

#[test]
fn shell() {
    each("shell", |workplace, recipe| {
        workplace.shell(&recipe.text);
    });
}

/// These scripts call leasehold again, with a password that must not be visible to them.
#[test]
fn shell_and_github_actions_with_a_password_in_the_url() {
    each_on("shell", Store::with_password, |workplace, recipe| {
        workplace.shell(&recipe.text);
    });
    each_on("actions", Store::with_password, as_a_runner);
}

/// Runs the commands for a held lock "db-migrate".
#[test]
fn with_a_held_lock() {
    each("held", |workplace, recipe| {
        let script = "echo $LEASEHOLD_FENCE > fence; exec sleep 60";
        let holder = workplace.store.script("--ttl=30s db-migrate", script);
        let _holder = holder.start();
        let fence = workplace.store.number("fence").to_string();
        workplace.shell(&recipe.text.replace("41", &fence));
        if recipe.name == "break" {
            workplace.assert_free("db-migrate");
        }
    });
}

/// Runs the job in the environment of cron. It must print nothing, because cron would mail the output.
#[test]
fn cron() {
    // Its clock stands still, so that no period ends between two runs.
    let store = || Store::on(RedisServer::builder().virtual_clock().start());
    each_on("crontab", store, |workplace, recipe| {
        let text = workplace.adapted(&recipe.text);
        let (settings, jobs): (Vec<_>, Vec<_>) = text
            .lines()
            .partition(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
        let mut field = jobs[0].split_whitespace();
        assert_eq!(field.by_ref().take(5).count(), 5);
        let job = field.collect::<Vec<_>>().join(" ");
        let run = || {
            let home = format!("HOME={}", workplace.store.dir.path().display());
            let cron = ["-i", "LOGNAME=root", "SHELL=/bin/sh", "PATH=/usr/bin:/bin"];
            let mut line = Command::new("env");
            line.args(cron).arg(home).args(&settings);
            let output = succeeds(line.args(["/bin/sh", "-c", &job]));
            assert!(output.stdout.is_empty() && output.stderr.is_empty());
        };
        run();
        workplace.assert_ran("report");
        fs::remove_file(workplace.store.file("ran.report")).expect("it ran");
        // Simulates another host whose clock is a little late.
        run();
        assert!(!workplace.store.file("ran.report").exists());
        workplace
            .store
            .server()
            .clock()
            .advance(Duration::from_secs(300));
        run();
        workplace.assert_ran("report");
    });
}

/// Runs the command of each unit.
#[test]
fn what_units_start() {
    each("unit", |workplace, recipe| {
        let text = workplace.adapted(&recipe.text);
        let mut lines = text.lines();
        if let Some(start) = lines.find_map(|line| line.strip_prefix("ExecStart=")) {
            succeeds(workplace.command("env").args(start.split(' ')));
        }
    });
}

/// `systemd-analyze` reports no problem in the units.
#[test]
fn systemd_verifies_the_units() {
    let mut version = Command::new("systemd-analyze");
    if version.arg("--version").output().is_err() {
        eprintln!("not verified: systemd-analyze is not installed");
        return;
    }
    let workplace = Workplace::of(&recipe("cron"));
    let units: Vec<_> = all().into_iter().filter(|r| r.kind == "unit").collect();
    for unit in &units {
        let text = workplace.adapted(&unit.text);
        fs::write(workplace.store.file(&unit.name), text).expect("write the unit");
    }
    for unit in &units {
        let mut verify = Command::new("systemd-analyze");
        let verified = succeeds(verify.arg("verify").arg(workplace.store.file(&unit.name)));
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(!said.contains(&unit.name), "{said}");
    }
}

/// Runs the entry point as PID 1, where the system allows it.
#[test]
fn containers() {
    each("entrypoint", |workplace, recipe| {
        let text = workplace.adapted(&recipe.text);
        let words = |name| list(&text, name);
        as_first_process(workplace, &[words("ENTRYPOINT "), words("CMD ")].concat());
    });
    each("command", |workplace, recipe| {
        let text = workplace.adapted(&recipe.text);
        as_first_process(workplace, &list(&text, "command: "));
    });
}

/// The list of words after `name`, which is JSON in a Dockerfile as well as in YAML.
fn list(text: &str, name: &str) -> Vec<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name}in {text}"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn as_first_process(workplace: &Workplace, words: &[String]) {
    let ways = ["", "--user --map-root-user "];
    let ways = ways.map(|user| format!("{user}--pid --fork --mount-proc"));
    let permitted = ways.iter().map(Words::list).find(|way| {
        let tried = Command::new("unshare").args(way).arg("true").output();
        tried.is_ok_and(|tried| tried.status.success())
    });
    if let Some(way) = permitted {
        succeeds(workplace.command("unshare").args(way).args(words));
    } else {
        eprintln!("not as PID 1: unshare is not permitted");
        succeeds(workplace.command("env").args(words));
    }
}

/// Runs the steps like a CI runner: each in its own bash, with the variables that earlier steps put into
/// `GITHUB_ENV`.
#[test]
fn github_actions() {
    each("actions", as_a_runner);
}

fn as_a_runner(workplace: &Workplace, recipe: &Recipe) {
    let variables = workplace.store.file("github-env");
    fs::write(&variables, "").expect("write a file");
    let steps = steps(&recipe.text);
    assert!(!steps.is_empty());
    for step in steps {
        let known = fs::read_to_string(&variables).expect("read the variables");
        let mut bash = workplace.command("bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &step])
            .env("GITHUB_ENV", &variables)
            .envs(known.lines().filter_map(|line| line.split_once('=')));
        succeeds(&mut bash);
    }
    workplace.assert_free("deploy");
}

/// The text after each `run:`, on the same line or indented below it.
fn steps(workflow: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = workflow.lines().peekable();
    let mut steps = Vec::new();
    while let Some(line) = lines.next() {
        let Some(step) = line.trim_start().strip_prefix("run: ") else {
            continue;
        };
        let mut step = step.to_owned();
        if step == "|" {
            step.clear();
            while let Some(more) = lines.next_if(|next| indent(next) > indent(line)) {
                step.push_str(more.trim_start());
                step.push('\n');
            }
        }
        steps.push(step);
    }
    steps
}

/// `leasehold` finds the configuration without options and variables.
#[test]
fn configuration() {
    each("toml", |workplace, recipe| {
        let folder = workplace.store.file(".config/leasehold");
        fs::create_dir_all(&folder).expect("a directory");
        fs::write(folder.join("config.toml"), workplace.adapted(&recipe.text)).expect("write it");
        let mut run = workplace.command("leasehold");
        run.env_remove("LEASEHOLD_URL");
        let script = "test -n \"$LEASEHOLD_FENCE\"";
        succeeds(run.args(["run", "--try", "x", "sh", "-c", script]));
    });
}

/// The server accepts the settings, and locks work on it.
#[test]
fn redis_conf() {
    let Recipe { text, .. } = recipe("redis");
    let settings = text.lines().filter(|line| !line.starts_with('#'));
    let mut server = RedisServer::builder();
    for (key, value) in settings.filter_map(|line| line.split_once(' ')) {
        server = server.option(key, value);
    }
    let store = Store::on(server.start());
    store.run("x true").is(0, &[]);
    let examined = store.verb("doctor", "--for correctness").raw();
    assert!(examined.status.success(), "{examined:?}");
}

/// Checks the table of the requests that still work when the server refuses writes.
#[test]
fn refusals() {
    let Recipe { text, .. } = recipe("refusals");
    let table: Vec<&str> = text.lines().map(|row| row.trim_matches('|')).collect();
    let table = table[2..].join("\n");
    let rows = rows(&table);
    assert_eq!(rows.len(), 4);
    thread::scope(|scope| {
        for [state, new, held] in rows {
            scope.spawn(move || refusal(state, new, held));
        }
    });
}

fn refusal(state: &str, new: &str, held: &str) {
    // Lets the test remove the directory of the server's data later.
    let server = RedisServer::builder().option("enable-protected-configs", "yes");
    let store = Store::on(server.start());
    let ttl = if held == "79" { "6s" } else { "18s" };
    let script = "echo $LEASEHOLD_FENCE > fence; while ! [ -e let-go ]; do sleep 0.05; done";
    let holder = store.script(&format!("--ttl {ttl} held"), script).start();
    store.number("fence");
    refuse_writes(&store, state);
    let done = store.run("--try new true").output();
    assert_eq!(done.code().to_string(), new, "{state}: {done:?}");
    if held == "79" {
        holder.ends(79, &["was lost"]);
        return;
    }
    let expires = || store.server().cli(&["PEXPIRETIME", "held"]).int();
    let before = expires();
    eventually(LIMIT, state, || expires() > before);
    store.let_go();
    let done = holder.ends(0, &[]);
    assert_eq!(done.stderr, "", "{state}: it was given back");
}

/// Brings the server into the state that a row of the table begins with.
fn refuse_writes(store: &Store, state: &str) {
    let set = |name: &str, value: &str| {
        let reply = store.server().cli(&["CONFIG", "SET", name, value]);
        assert!(!format!("{reply:?}").contains("Err"), "{reply:?}");
    };
    match state.split(' ').next() {
        Some("OOM") => set("maxmemory", "1"),
        Some("NOREPLICAS") => set("min-replicas-to-write", "1"),
        Some("READONLY") => {
            store.server().cli(&["REPLICAOF", "127.0.0.1", "1"]);
        }
        Some("MISCONF") => {
            let gone = store.file("gone");
            fs::create_dir(&gone).expect("a directory");
            set("dir", &gone.display().to_string());
            fs::remove_dir(&gone).expect("remove it");
            set("save", "3600 1");
            store.server().cli(&["BGSAVE"]);
            eventually(LIMIT, "the save fails", || {
                let reply = store.server().cli(&["SET", "probe", "x"]);
                format!("{reply:?}").contains("MISCONF")
            });
        }
        other => panic!("unknown state {other:?}"),
    }
}
