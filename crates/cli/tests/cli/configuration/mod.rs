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
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{LEASEHOLD, Run, Store, tool};

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
    let url = &store.url;
    let user = |text: &str| write(&store, "config/leasehold/config.toml", text);
    let is = |run: Run, ttl: &str| run.words(&SAY_TTL).prints(0, &format!("{ttl}\n"));
    user(&format!("# of this user\nurl = \"{url}\"\nttl = \"21s\"\n"));
    is(run(&store), "21000");
    let other = write(&store, "other.toml", &format!("url = '{url}'"));
    is(run(&store).words(&["--config", &other]), "30000");
    let from_variable = || run(&store).env("LEASEHOLD_TTL", "22s");
    is(from_variable(), "22000");
    is(from_variable().words("--ttl 23s"), "23000");
    is(run(&store).env("LEASEHOLD_TTL", ""), "21000");
    // A file that is overridden is not even opened, but a wrong one of a stronger layer is an error.
    user("ttl = \"soon\"");
    is(store.run("--ttl 24s"), "24000");
    let wrong = store.run(&SAY_TTL);
    wrong.is(78, &["config.toml, line 1, ttl: invalid TTL"]);
    let wrong = store.run(&SAY_TTL).env("LEASEHOLD_TTL", "soon");
    wrong.is(64, &["LEASEHOLD_TTL: invalid TTL"]);
}

#[test]
fn the_time_limit_of_a_request_is_a_setting() {
    let store = Store::redis();
    store.server().pause();
    let user = |text: &str| write(&store, "config/leasehold/config.toml", text);
    let run = || run(&store).words(&["--url", &store.url]);
    let silent_for = |run: Run, millis: u64| {
        let done = run.words("x true").is(69, &["no answer in time"]);
        let limit = Duration::from_millis(millis);
        // A busy machine may take the whole time for the connection.
        let answer = format!("it did not answer for {limit:.1?};");
        let connection = format!("still connecting after {:.1?} ", 2 * limit);
        let says = [answer, connection].map(|says| done.stderr.contains(&says));
        assert!(says.contains(&true), "{done:?}");
    };
    let named = |limit: &str| run().env("LEASEHOLD_REQUEST_TIMEOUT", limit);
    user("request_timeout = \"30ms\"");
    silent_for(named(""), 30);
    silent_for(named("20ms"), 20);
    silent_for(named("20ms").words("--request-timeout 10ms"), 10);

    named("9ms")
        .words("x true")
        .is(64, &["LEASEHOLD_REQUEST_TIMEOUT: must be from 10ms to 60s"]);
    user("request_timeout = \"soon\"");
    named("")
        .words("x true")
        .is(78, &["config.toml, line 1, request_timeout: write 30s"]);
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
        run.words("x true").is(0, &[]);
        assert!(used(&store, name), "{name} was not used");
    };
    let redis_url = |url: &str| run(&store).env("REDIS_URL", url);
    let everywhere = |words: &[&str]| {
        let run = redis_url(&at("from-redis-url")).words(words);
        run.env("LEASEHOLD_URL_FILE", &in_file("from-variable-file"))
    };
    lock(everywhere(&["--url", &at("typed")]), "typed");
    let typed_file = ["--url-file", &in_file("from-file")];
    lock(everywhere(&typed_file), "from-file");
    assert!(!used(&store, "from-variable-file"));
    lock(everywhere(&[]), "from-variable-file");
    assert!(!used(&store, "from-config"));
    lock(redis_url(&at("no")), "from-config");
    let last = redis_url(&at("from-redis-url")).words("--config /dev/null");
    lock(last, "from-redis-url");
    assert!(!used(&store, "no"));

    let both = || {
        let url = "redis://:S3CR3T@127.0.0.1:1/";
        let run = run(&store).env("LEASEHOLD_URL", url);
        run.env("LEASEHOLD_URL_FILE", "/no")
    };
    let done = both().words("x true");
    let done = done.is(64, &["LEASEHOLD_URL: LEASEHOLD_URL_FILE", "(exit 64)"]);
    assert!(!done.stderr.contains(SECRET), "{done:?}");
    lock(both().words(&["--url", &at("instead")]), "instead");
    let typed = run(&store).words("--url local: --url-file /no x true");
    typed.is(64, &["'--url <URL>' cannot be used with '--url-file"]);
}

#[test]
fn a_cache_that_redis_url_names_is_told_of() {
    let store = Store::redis();
    let said = |variable| run(&store).env(variable, &store.url).words("x true");
    said("REDIS_URL").is(0, &[]);
    let server = store.server();
    server.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let warning =
        "the store is that of REDIS_URL, which may be a cache: maxmemory_policy=volatile-lru";
    said("REDIS_URL").is(0, &[warning, "LEASEHOLD_URL"]);
    said("LEASEHOLD_URL").says_nothing(0);
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
    let settings = format!("url = \"{}\"\nttl = \"31s\"", store.url);
    write(&store, "etc.toml", &settings);
    let in_etc = |script: &str| {
        let script = format!(
            "exec 2>&1; cat etc.toml > text && mount -t tmpfs none /etc && cat text > /etc/leasehold.toml && {script}"
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["-rm", "sh", "-c", &script]).env_clear();
        unshare
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", store.dir.path());
        unshare.current_dir(store.dir.path()).stdin(Stdio::null());
        String::from_utf8_lossy(&unshare.output().unwrap().stdout).into_owned()
    };
    let line = format!("{LEASEHOLD} run x sh -c 'echo $LEASEHOLD_TTL_MS'");
    assert_eq!(in_etc(&line), "31000\n");
    write(&store, ".config/leasehold/config.toml", "ttl = \"32s\"");
    assert_eq!(in_etc(&line), "32000\n");
    let said = in_etc(&format!("REDIS_URL=redis://127.0.0.1:1/ {line}"));
    assert_eq!(said, "32000\n");
}

/// Each fault of a file is in a table of `config`.
#[test]
fn file_that_cannot_be_used_is_told_with_its_name() {
    let store = Store::local();
    let unknown = write(&store, "c.toml", "ttl = \"5s\"\n\nttll = \"5s\"");
    let namespace = write(&store, "n.toml", "namespace = 'a{'");
    for (config, says) in [
        (&*unknown, "c.toml, line 3: unknown key \"ttll\""),
        (&namespace, "n.toml, line 1, namespace: invalid namespace"),
        ("/no/such/file", "/no/such/file"),
    ] {
        let run = store.run(&["--config", config, "x", "touch", "ran"]);
        run.is(78, &[says, "(exit 78)"]);
    }
    // A directory exists but cannot be read as a file.
    fs::create_dir_all(store.file("config/leasehold/config.toml")).unwrap();
    let says = ["cannot read the configuration", "leasehold/config.toml"];
    store.run("x touch ran").is(78, &says);
    assert!(!store.file("ran").exists());
}

#[test]
fn an_error_names_the_source_of_a_url_that_was_not_typed() {
    let store = Store::local();
    let url = format!("redis://u:{SECRET}@127.0.0.1:1/");
    let by_variable = || run(&store).env("REDIS_URL", &url);
    let from = "the URL came from REDIS_URL: redis://127.0.0.1:1/";
    by_variable().words("x true").is(69, &[from, "(exit 69)"]);
    let config = write(&store, "c.toml", &format!("\nurl = \"{url}\""));
    let by_file = run(&store).words(&["--config", &config, "x", "true"]);
    by_file.is(69, &["c.toml, line 2, url: redis://127.0.0.1:1/"]);
    let done = run(&store).words(&["--url", &url, "x", "true"]).output();
    assert!(!done.stderr.contains("came from"), "{done:?}");
    // An empty option is a mistake of a script; other sources are not used instead.
    let empty = by_variable().words(&["--url", "", "x", "true"]);
    empty.is(78, &["--url: no store given", "unset"]);
}

/// Variables without `LEASEHOLD_` before their names.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// For each source of the store, a nested `leasehold` finds the same locks.
#[test]
fn a_command_finds_the_store_of_its_run() {
    let store = Store::local();
    let guarded = Store::with_password();
    let secret_url = &guarded.url;
    let url = &guarded.server().url();
    let password = &write(&store, "password", SECRET);
    let in_file = &write(&store, "url", secret_url);
    let elsewhere = &write(&store, "local-url", &store_url(&store));
    let script = format!("cd / && env && exec {LEASEHOLD} check");
    let local = &store_url(&store);
    // Variables and options. A file may hold the URL, with a password in it and without; the command line overrides
    // the environment, and so does a typed URL with a password. The last variable is the command's: a secret in a
    // file stays there.
    let by_url = &format!("URL={local}");
    let by_file = &format!("URL_FILE={in_file}");
    let by_password = &format!("PASSWORD_FILE={password}");
    let written = &format!("URL_FILE={}/leasehold/url-", store.dir.path().display());
    let sources: [(Variables<'_>, &[&str], &str); 7] = [
        (&[("URL_FILE", elsewhere)], &[], by_url),
        (&[("URL_FILE", in_file)], &[], by_file),
        (&[], &["--url-file", "url"], by_file),
        (
            &[("URL_FILE", elsewhere)],
            &["--url", url, "--password-file", "password"],
            by_password,
        ),
        (&[("PASSWORD_FILE", password)], &["--url", local], by_url),
        (
            &[("URL", url), ("PASSWORD_FILE", password)],
            &[],
            by_password,
        ),
        (&[("URL_FILE", elsewhere)], &["--url", secret_url], written),
    ];
    for (variables, words, expected) in sources {
        let run = variables.iter().fold(run(&store), |run, (name, value)| {
            run.env(&format!("LEASEHOLD_{name}"), value)
        });
        let run = run.env("XDG_RUNTIME_DIR", &store.dir.path().to_string_lossy());
        let run = run.words(words).words(&["x", "sh", "-c", &script]);
        let done = run.says_nothing(0);
        assert!(!done.stdout.contains(SECRET), "{done:?}");
        let line = format!("LEASEHOLD_{expected}");
        assert!(done.stdout.contains(&line), "{line}: {done:?}");
    }
}
