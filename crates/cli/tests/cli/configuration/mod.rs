//! The sources of settings. No secret among them is ever shown.

// `setsid`, `env --default-signal` and namespaces are Linux'.
#![cfg(target_os = "linux")]

mod encryption;
mod inherited_store;
mod naming;
mod quorum;
mod secrets;
mod sharing;
mod urls;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Run, Store, tool};
use testkit::RedisServer;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
const SECRET: &str = "S3CR3T";

/// A command that prints its settings.
const SAY_TTL: [&str; 4] = ["x", "sh", "-c", "echo $LEASEHOLD_TTL_MS"];

/// Writes a file that only its user may read, and returns its path.
fn write(store: &Store, name: &str, text: &str) -> String {
    let path = store.file(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("make a directory");
    fs::write(&path, text).expect("write a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("protect a file");
    path.to_str().expect("UTF-8").to_owned()
}

/// `leasehold run` without store options.
fn run(store: &Store) -> Run {
    Run::new(store.dir.path())
}

/// True if a run with the URL [`local`] took a lock in the local store of this name.
fn used(store: &Store, name: &str) -> bool {
    store.file(name).exists()
}

fn local(store: &Store, name: &str) -> String {
    format!("local:{}/{name}", store.dir.path().display())
}

fn store_url(store: &Store) -> String {
    local(store, "local.db")
}

#[test]
fn each_setting_comes_from_the_strongest_that_has_it() {
    let store = Store::local();
    let user = |text: &str| write(&store, "config/leasehold/config.toml", text);
    let ttl = |run: Run| {
        let done = run.words(&SAY_TTL).output();
        done.is(0, &[]);
        done.stdout
    };
    user(&format!(
        "# of this user\nurl = \"{}\"\nttl = \"21s\"\n",
        store.url
    ));
    assert_eq!(ttl(run(&store)), "21000\n");
    let other = write(&store, "other.toml", &format!("url = '{}'", store.url));
    assert_eq!(ttl(run(&store).words(&["--config", &other])), "30000\n");
    let from_variable = || run(&store).env("LEASEHOLD_TTL", "22s");
    assert_eq!(ttl(from_variable()), "22000\n");
    assert_eq!(ttl(from_variable().words(&["--ttl", "23s"])), "23000\n");
    assert_eq!(ttl(run(&store).env("LEASEHOLD_TTL", "")), "21000\n");
    // A file that is overridden is not even opened, but a wrong one of a stronger layer is an error.
    user("ttl = \"soon\"");
    let typed = ["--url", &store.url, "--ttl", "24s"];
    assert_eq!(ttl(run(&store).words(&typed)), "24000\n");
    let done = run(&store)
        .words(&["--url", &store.url])
        .words(&SAY_TTL)
        .output();
    done.is(78, &["config.toml, line 1, ttl: invalid TTL"]);
    let done = run(&store)
        .words(&["--url", &store.url])
        .words(&SAY_TTL)
        .env("LEASEHOLD_TTL", "soon");
    done.output().is(64, &["LEASEHOLD_TTL: invalid TTL"]);
}

#[test]
fn the_time_limit_of_a_request_is_a_setting() {
    let store = Store::redis();
    store.server().pause();
    let user = |text: &str| write(&store, "config/leasehold/config.toml", text);
    let run = || run(&store).words(&["--url", &store.url]);
    let silent_for = |run: Run, millis: u64| {
        let done = run.words(&["x", "true"]).output();
        done.is(69, &["no answer in time"]);
        let limit = Duration::from_millis(millis);
        // A busy machine may take the whole time for the connection.
        let says = [
            format!("it did not answer for {limit:.1?};"),
            format!("still connecting after {:.1?} ", 2 * limit),
        ];
        assert!(
            says.iter().any(|said| done.stderr.contains(said)),
            "{done:?}"
        );
    };
    let named = |limit: &str| run().env("LEASEHOLD_REQUEST_TIMEOUT", limit);
    user("request_timeout = \"30ms\"");
    silent_for(named(""), 30);
    silent_for(named("20ms"), 20);
    silent_for(named("20ms").words(&["--request-timeout", "10ms"]), 10);

    let refused = named("9ms").words(&["x", "true"]).output();
    refused.is(64, &["LEASEHOLD_REQUEST_TIMEOUT: must be from 10ms to 60s"]);
    user("request_timeout = \"soon\"");
    let refused = named("").words(&["x", "true"]).output();
    refused.is(78, &["config.toml, line 1, request_timeout: write 30s"]);
}

#[test]
fn a_url_comes_from_wherever_it_may_stand() {
    let store = Store::local();
    let at = |name: &str| local(&store, name);
    let in_file = |name: &str| write(&store, &format!("{name}.url"), &format!("{}\n", at(name)));
    write(
        &store,
        "config/leasehold/config.toml",
        &format!("url_file = \"{}\"", in_file("from-config")),
    );
    let lock = |run: Run, name: &str| {
        run.words(&["x", "true"]).output().is(0, &[]);
        assert!(used(&store, name), "{name} was not used");
    };
    let everywhere = || {
        run(&store)
            .env("REDIS_URL", &at("from-redis-url"))
            .env("LEASEHOLD_URL_FILE", &in_file("from-variable-file"))
    };
    lock(
        everywhere().words(&["--url", &at("from-option")]),
        "from-option",
    );
    lock(
        everywhere().words(&["--url-file", &in_file("from-file")]),
        "from-file",
    );
    assert!(!used(&store, "from-variable-file"));
    lock(everywhere(), "from-variable-file");
    assert!(!used(&store, "from-config"));
    lock(run(&store).env("REDIS_URL", &at("no")), "from-config");
    lock(
        run(&store)
            .env("REDIS_URL", &at("from-redis-url"))
            .words(&["--config", "/dev/null"]),
        "from-redis-url",
    );
    assert!(!used(&store, "no"));

    let both = || {
        run(&store)
            .env("LEASEHOLD_URL", &at("no"))
            .env("LEASEHOLD_URL_FILE", "/no")
    };
    let done = both().words(&["x", "true"]).output();
    done.is(64, &["LEASEHOLD_URL: LEASEHOLD_URL_FILE", "(exit 64)"]);
    lock(both().words(&["--url", &at("typed")]), "typed");
    let done = run(&store)
        .words(&["--url", "local:", "--url-file", "/no", "x", "true"])
        .output();
    done.is(64, &["'--url <URL>' cannot be used with '--url-file"]);
}

#[test]
fn a_cache_that_redis_url_names_is_told_of() {
    let store = Store::redis();
    let said = |variable| {
        run(&store)
            .env(variable, &store.url)
            .words(&["x", "true"])
            .output()
    };
    said("REDIS_URL").is(0, &[]);
    store.server().cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    store
        .server()
        .cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let warning =
        "the store is that of REDIS_URL, which may be a cache: maxmemory_policy=volatile-lru";
    said("REDIS_URL").is(0, &[warning, "LEASEHOLD_URL"]);
    assert!(said("LEASEHOLD_URL").stderr.is_empty());
}

/// Runs in a mount namespace with its own `/etc`, where the system allows one.
#[test]
fn the_host_has_a_file_which_is_the_weakest() {
    if !tool("unshare", &["-rm", "mount", "-t", "tmpfs", "none", "/etc"])
        .status
        .success()
    {
        eprintln!("not tested: no namespaces here");
        return;
    }
    let store = Store::local();
    write(
        &store,
        "etc.toml",
        &format!("url = \"{}\"\nttl = \"31s\"", store.url),
    );
    let in_etc = |script: &str| {
        let script = format!(
            "cat etc.toml > text && mount -t tmpfs none /etc && cat text > /etc/leasehold.toml && {script}"
        );
        let output = std::process::Command::new("unshare")
            .args(["-rm", "sh", "-c", &script])
            .current_dir(store.dir.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", store.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    let line = format!("{LEASEHOLD} run x sh -c 'echo $LEASEHOLD_TTL_MS'");
    assert_eq!(in_etc(&line), "31000\n");
    write(&store, ".config/leasehold/config.toml", "ttl = \"32s\"");
    assert_eq!(in_etc(&line), "32000\n");
    let said = in_etc(&format!("REDIS_URL=redis://127.0.0.1:1/ {line}"));
    assert_eq!(said, "32000\n");
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line() {
    let store = Store::local();
    let config = |text: &str| {
        let path = write(&store, "c.toml", text);
        run(&store)
            .words(&["--url", &store.url, "--config", &path, "x", "touch", "ran"])
            .output()
    };
    config("ttl = \"5s\"\n\nttll = \"5s\"").is(78, &["c.toml, line 3: unknown key \"ttll\""]);
    config("namespace = 'a{'").is(78, &["c.toml, line 1, namespace: invalid namespace"]);
    config("ttl = 5").is(78, &["c.toml, line 1: ttl must be text", "(exit 78)"]);
    config("url = \"a\"\nurl = \"b\"").is(78, &["c.toml, line 2: is not TOML"]);
    let done = run(&store)
        .words(&["--config", "/no/such/file", "x", "touch", "ran"])
        .output();
    done.is(78, &["/no/such/file", "No such file"]);
    // A directory exists but cannot be read as a file.
    fs::create_dir_all(store.file("config/leasehold/config.toml")).unwrap();
    let done = run(&store)
        .words(&["--url", &store.url, "x", "touch", "ran"])
        .output();
    done.is(
        78,
        &["cannot read the configuration", "leasehold/config.toml"],
    );
    assert!(!store.file("ran").exists());
}

#[test]
fn an_error_names_the_source_of_a_url_that_was_not_typed() {
    let store = Store::local();
    let url = format!("redis://u:{SECRET}@127.0.0.1:1/");
    let words = ["x", "true"];
    let from = "the URL came from REDIS_URL: redis://127.0.0.1:1/";
    let done = run(&store).env("REDIS_URL", &url).words(&words).output();
    done.is(69, &[from, "(exit 69)"]);
    let config = write(&store, "c.toml", &format!("\nurl = \"{url}\""));
    let done = run(&store)
        .words(&["--config", &config, "x", "true"])
        .output();
    done.is(69, &["c.toml, line 2, url: redis://127.0.0.1:1/"]);
    let done = run(&store).words(&["--url", &url, "x", "true"]).output();
    assert!(!done.stderr.contains("came from"), "{done:?}");
    // An empty option is a mistake of a script; other sources are not used instead.
    let done = run(&store)
        .env("REDIS_URL", &url)
        .words(&["--url", "", "x", "true"]);
    done.output().is(78, &["--url: no store given", "unset"]);
}

/// For each source of the store, a nested `leasehold` finds the same locks.
#[test]
fn a_command_finds_the_store_of_its_run() {
    let store = Store::local();
    let server = RedisServer::builder().password(SECRET).start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let secret_url = format!("redis://:{SECRET}@127.0.0.1:{}/", server.port());
    let password = write(&store, "password", SECRET);
    let (in_file, elsewhere) = (
        write(&store, "url", &secret_url),
        write(&store, "local-url", &store_url(&store)),
    );
    let script = format!("cd / && env && exec {LEASEHOLD} check");
    let check = |run: Run| {
        let done = run.words(&["x", "sh", "-c", &script]).output();
        assert_eq!((done.code(), done.stderr.as_str()), (0, ""), "{done:?}");
        assert!(!done.stdout.contains(SECRET), "{done:?}");
    };
    // A file that holds the URL, with a password in it and without.
    check(run(&store).env("LEASEHOLD_URL_FILE", &elsewhere));
    check(run(&store).env("LEASEHOLD_URL_FILE", &in_file));
    check(run(&store).words(&["--url-file", "url"]));
    // The command line overrides the environment.
    check(run(&store).env("LEASEHOLD_URL_FILE", &elsewhere).words(&[
        "--url",
        &url,
        "--password-file",
        "password",
    ]));
    check(
        run(&store)
            .env("LEASEHOLD_PASSWORD_FILE", &password)
            .words(&["--url", &store_url(&store)]),
    );
    check(
        run(&store)
            .env("LEASEHOLD_URL", &url)
            .env("LEASEHOLD_PASSWORD_FILE", &password),
    );
    // A typed URL with a password overrides it too.
    check(
        run(&store)
            .env("LEASEHOLD_URL_FILE", &elsewhere)
            .words(&["--url", &secret_url]),
    );
}
