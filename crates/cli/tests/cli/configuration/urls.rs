//! Valid URLs, and invalid ones with the advice in their message.

use std::fs;

use testkit::RedisServer;

use super::{run, write};
use crate::common::{LEASEHOLD, Store, rows};

#[test]
fn the_database_of_a_url_is_the_one_that_is_used() {
    let store = Store::redis();
    let port = store.server().port();
    let exists = format!("redis-cli -p {port} -n 3 EXISTS q");
    for url in [
        format!("redis://127.0.0.1:{port}/?db=3"),
        format!("valkey://127.0.0.1:{port}/3"),
    ] {
        let words = ["--url", &url, "q", "sh", "-c", &exists];
        run(&store).words(&words).prints(0, "1\n");
    }
    let beyond = format!("redis://127.0.0.1:{port}/99");
    run(&store)
        .words(&["--url", &beyond, "q", "true"])
        .is(78, &["choose a database that the server has"]);
}

#[test]
fn what_is_not_understood_in_a_url_is_78() {
    let store = Store::local();
    let table = "
        redis://127.0.0.1:1/?nonsense=S3CR3T | option after ?
        redis://127.0.0.1:1/#3               | after #
        redis://127.0.0.1:99999/             | from 1 to 65535
        redis://user:S3CR3T@host:port/       | write redis://host[:port][/db]
        rediss://127.0.0.1:1/#insecure       | certificates are always checked
        local:/tmp/x?mode=0777               | mode=0660
        etcd://user:S3CR3T@host/             | unknown scheme
        host-S3CR3T                          | no scheme
        memory:                              | exclude no other process
    ";
    for [url, why] in rows(table) {
        let run = run(&store).words(&["--url", url, "x", "true"]);
        let done = run.is(78, &[why, "(exit 78)"]);
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
}

#[test]
fn a_valkey_url_with_an_ipv6_address_is_shown_as_it_was() {
    let server = RedisServer::builder().option("bind", "127.0.0.1 ::1");
    let mut store = Store::on(server.start());
    store.url = format!("valkey://[::1]:{}", store.server().port());
    let done = store.verb("inspect", "--json x").output();
    let shown = format!("\"{}\"", store.url);
    assert!(done.stdout.contains(&shown), "{done:?}");
}

#[test]
fn a_relative_local_path_is_absolute_or_refused() {
    let store = Store::local();
    let path = fs::canonicalize(store.dir.path()).unwrap();
    let path = path.join("here.db").display().to_string();
    let script = format!("cd / && echo $LEASEHOLD_URL && exec {LEASEHOLD} check");
    let words = ["x", "sh", "-c", &script];
    let by_variable = run(&store).env("LEASEHOLD_URL", "local:here.db");
    let by_option = run(&store).words("--url local:./here.db");
    for run in [by_variable, by_option] {
        run.words(&words).prints(0, &format!("local:{path}\n"));
    }
    let nowhere = run(&store).env("LEASEHOLD_URL", "local:no/such/file");
    let absolute = format!("local:{}/no/such/file", store.dir.path().display());
    nowhere.words("x true").is(78, &[&absolute]);

    let relative = "a relative path means another file";
    let config = write(&store, "c.toml", "url = \"local:here.db\"");
    let done = run(&store).words(&["--config", &config, "x", "true"]);
    done.is(78, &["c.toml, line 1", relative]);
    let file = write(&store, "url", "local:here.db\n");
    let done = run(&store).words(&["--url-file", &file, "x", "true"]);
    done.is(78, &["--url-file", relative]);
}

#[test]
fn the_name_of_a_file_gives_a_terminal_no_orders() {
    let store = Store::local();
    for option in ["--config", "--url-file", "--password-file"] {
        let named = run(&store).words(&[option, "/no\u{1b}[31m\u{202e}"]);
        let done = named.words("--url redis://127.0.0.1:1/ x true").output();
        assert_ne!(done.code(), 0);
        assert!(!done.stderr.contains(['\u{1b}', '\u{202e}']), "{done:?}");
    }
    let words = ["--config", "/no\u{1b}[31m", "x", "true"];
    run(&store).words(&words).is(78, &["/no\\u{1b}[31m"]);
}
