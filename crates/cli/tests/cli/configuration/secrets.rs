//! Passwords: their sources. No failure shows one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use testkit::{RedisServer, eventually};

use super::{SECRET, run, store_url, write};
use crate::common::{Done, LEASEHOLD, LIMIT, Run, Store, tool};

#[test]
fn a_password_comes_from_a_file() {
    let password = "S3 CR3T/@:#?%";
    let server = RedisServer::builder().password(password).start();
    let mut store = Store::local();
    store.url = format!("redis://127.0.0.1:{}/", server.port());
    let file = write(&store, "password", &format!("{password}\n"));
    let lock = |run: Run| run.words("x true").output();
    let typed = || run(&store).words(&["--url", &store.url]);
    lock(typed()).is(77, &["(exit 77)"]);
    lock(typed().words(&["--password-file", &file])).is(0, &[]);
    lock(typed().env("LEASEHOLD_PASSWORD_FILE", &file)).is(0, &[]);
    let with_file = format!("url = \"{}\"\npassword_file = \"{file}\"\n", store.url);
    let config = write(&store, "c.toml", &with_file);
    lock(run(&store).words(&["--config", &config])).is(0, &[]);
    // The password of a file is not sent to a server from another source.
    lock(typed().words(&["--config", &config])).is(77, &[]);
    let local = store_url(&store);
    lock(run(&store).words(&["--config", &config, "--url", &local])).is(0, &[]);

    let twice = format!("redis://:{SECRET}@127.0.0.1:{}/", server.port());
    for (url, says) in [
        (twice.as_str(), "has a password already"),
        (&local, "is not a Redis URL"),
    ] {
        let done = lock(run(&store).words(&["--url", url, "--password-file", &file]));
        done.is(64, &["--password-file: the URL from --url", says]);
        assert!(!done.stderr.contains("CR3T"), "{done:?}");
    }
    // A password file that everyone can read is used, with a warning.
    fs::set_permissions(store.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let done = lock(typed().words(&["--password-file", &file]));
    done.is(0, &["warning: ", "any user of this host", "chmod o-r -- "]);
    assert!(!done.stderr.contains("CR3T"), "{done:?}");
}

/// How a file holds a password.
type Text<'a> = &'a dyn Fn(&str) -> String;

/// Each file that can hold a password holds another one while a command runs. Then the connection is cut.
#[test]
fn a_rotated_secret_costs_no_lease() {
    let server = RedisServer::builder().password("of today").start();
    let host = format!("127.0.0.1:{}", server.port());
    let url = |password: &str| format!("redis://:{password}@{host}/");
    let in_url = |password: &str| url(&password.replace(' ', "%20"));
    let in_settings = |password: &str| format!("url = \"{}\"\n", in_url(password));
    let plain = format!("redis://{host}/");
    let by_file = format!("--url {plain} --password-file");
    let sources: [(&str, Text<'_>); 3] = [
        (&by_file, &str::to_owned),
        ("--url-file", &in_url),
        ("--config", &in_settings),
    ];
    for (options, text) in sources {
        let store = Store::local();
        server.cli(&["CONFIG", "SET", "requirepass", "of today"]);
        let file = write(&store, "secret", &text("of today"));
        let script = "touch begun; until [ -e end ]; do sleep 0.05; done";
        let job = run(&store).words(options).words(&[file.as_str()]);
        let mut job = job.words(&["--ttl", "1h", "x", "sh", "-c", script]).start();
        store.until("begun");
        server.cli(&["CONFIG", "SET", "requirepass", "of tomorrow"]);
        let rotated = write(&store, "rotated", &text("of tomorrow"));
        fs::rename(rotated, &file).unwrap();
        for kind in ["normal", "pubsub"] {
            server.cli(&["CLIENT", "KILL", "TYPE", kind]);
        }
        eventually(LIMIT, "a new connection", || {
            let listening = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            !listening.text().is_empty()
        });
        assert!(!job.has_ended());
        store.touch("end");
        job.ends(0, &[]);
        assert_eq!(server.cli(&["EXISTS", "x"]).int(), 0, "{options:?}");
    }
}

/// Every failure of this file, with a secret in each possible place.
#[test]
fn no_failure_shows_a_secret() {
    let store = Store::local();
    let server = RedisServer::builder().password("other").start();
    let refusing = format!("redis://u:{SECRET}@127.0.0.1:{}/", server.port());
    let urls = [
        "redis://:S3CR3T@127.0.0.1:1/",
        "redis://u:S3/CR3T-S3CR3T@127.0.0.1:1/",
        "redis://S3CR3T:S3CR3T@:x/",
        "redis://u:S3CR3T",
        "rediss://u:S3CR3T@127.0.0.1:1/S3CR3T",
        "unix:/no/such?pass=S3CR3T",
        "unix:/no/such&pass=S3CR3T",
        "unix:/no/such?pass=S3CR3T&db=x",
        "S3CR3T",
        "etcd://S3CR3T:S3CR3T@h/",
        "redis://u:S3 CR3T S3CR3T@127.0.0.1:1/",
        "redis://u:S3CR3T@127.0.0.1:1/ redis://u:S3CR3T@127.0.0.1:2/",
        "redis+quorum://u:S3,CR3T-S3CR3T@127.0.0.1:1,b,c/",
        "redis+quorum://a,b,c?pass=S3CR3T",
        refusing.as_str(),
    ];
    // In parallel, since some wait for a server.
    thread::scope(|scope| {
        for urls in urls.chunks(3) {
            scope.spawn(|| urls.iter().for_each(|url| fails_without(url)));
        }
    });
    let words = ["-w", "1", "x", "true"];
    for text in ["", "\n", "S3CR3T\nS3CR3T\n", "S3CR3T\u{7}"] {
        let path = write(&store, "secret", text);
        for option in ["--url-file", "--password-file"] {
            let run = run(&store)
                .env("REDIS_URL", "redis://127.0.0.1:1/")
                .words(&[option, &path])
                .words(&words);
            let done = run.output();
            silent(&format!("{option} {text:?}"), &done);
            done.is(78, &["cannot use the file", option]);
        }
    }
}

/// The command has failed, with a message and without the secret.
fn silent(what: &str, done: &Done) {
    assert_ne!(done.code(), 0, "{what}");
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(said.contains("leasehold: "), "{what}: {said}");
    assert!(!said.contains(SECRET), "{what}: {said}");
}

/// No failure shows this URL, in each possible place.
fn fails_without(url: &str) {
    let store = Store::local();
    let file = |name: &str, text: &str| write(&store, name, text);
    let words = "-w 1 x true";
    let in_file = file("url", url);
    let toml = file("c.toml", &format!("url = '{url}'\n"));
    let broken = file("b.toml", &format!("url = \"{url}\nttl = \"50s\"\n"));
    let wrong = file("w.toml", &format!("url = ['{url}']\n"));
    let name = file("n.toml", &format!("'a' = 1\nttl = '{url}'\n"));
    let late = file("l.toml", &format!("ttl = '{url}'\nurl = '{url}'\n"));
    for config in [&toml, &broken, &wrong, &name, &late] {
        let run = run(&store).words(&["--config", config]).words(words);
        silent(&format!("{config} {url}"), &run.output());
    }
    // A word that is not a URL is recognized as a secret only where a URL belongs.
    let is_url = url != SECRET;
    for (option, value, quoted) in [
        ("--url", url, false),
        ("--url-file", &in_file, false),
        ("--password", url, false),
        ("--Url", url, true),
        ("--ttl", url, true),
        ("--wait", url, true),
    ] {
        if quoted && !is_url {
            continue;
        }
        let apart = run(&store).words(&[option, value]).words(words);
        silent(&format!("{option} {url}"), &apart.output());
        let joined = format!("{option}={value}");
        let run = run(&store).words(&[joined.as_str()]).words(words);
        silent(&format!("{option}={url}"), &run.output());
    }
    for variable in ["LEASEHOLD_URL", "REDIS_URL", "LEASEHOLD_TTL"] {
        let run = run(&store).env(variable, url).words(words);
        silent(&format!("{variable}={url}"), &run.output());
    }
    let help = run(&store).env("LEASEHOLD_URL", url).words("--help");
    assert!(!help.is(0, &[]).stdout.contains(SECRET));
    if !is_url {
        return;
    }
    for verb in ["", "help", "dev", "completions", "man", "no-such-verb"] {
        // In place of the verb, after it, and as a value.
        for option in ["", "--port", "--color"] {
            let mut words = vec![verb, option, url];
            words.retain(|word| !word.is_empty());
            let run = store.leasehold(&words).env("LEASEHOLD_URL", url);
            silent(&format!("{words:?}"), &run.output());
        }
    }
}

#[test]
fn a_secret_may_come_through_a_pipe() {
    let store = Store::local();
    let script = format!(
        "{LEASEHOLD} run --config <(echo 'ttl = \"41s\"') --url-file <(echo '{}') x sh -c 'echo $LEASEHOLD_TTL_MS'",
        store.url
    );
    let output = tool("bash", &["-c", &script]);
    assert_eq!(output.stdout, b"41000\n", "{output:?}");
    assert!(Path::new(&store.file("locks.db")).exists());
}
