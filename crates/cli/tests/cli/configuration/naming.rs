//! From the name of a lock to its key, and back: the namespace and the template.

use super::write;
use crate::common::Store;

#[test]
fn key_template_shapes_the_key_and_passes_to_the_command() {
    let store = Store::redis();
    let port = store.server().port();
    let script = format!(
        "echo $LEASEHOLD_LOCK $LEASEHOLD_KEY_TEMPLATE; redis-cli -p {port} KEYS 'lock:*'; {} inspect --json x",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let done = store
        .run("--key-template lock:{} --namespace prod")
        .words(&["x", "sh", "-c", &script])
        .is(0, &[]);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [said, key, seen] = lines[..] else {
        panic!("{done:?}")
    };
    assert_eq!((said, key), ("x lock:{}", "lock:prod:x"));
    assert!(seen.contains("\"name\":\"x\",\"state\":\"held\""), "{seen}");
}

#[test]
fn key_template_from_variable_or_file_hides_keys_of_others() {
    let store = Store::redis();
    let file = write(&store, "c.toml", "key_template = \"mutex:{}:lock\"");
    let held = |script: &str| {
        let run = store.run(&["--config", &file, "x", "sh", "-c", script]);
        let done = run.is(0, &[]);
        done.stdout
    };
    let port = store.server().port();
    let exists = format!("redis-cli -p {port} EXISTS mutex:x:lock");
    assert_eq!(held(&exists), "1\n");

    // A name in the index, with its template and without.
    store.server().cli(&["SET", "mutex:x:lock", "somebody"]);
    let index = ["ZADD", "leasehold:index", "9e15", "mutex:x:lock"];
    store.server().cli(&index);
    let all = |template: &str| {
        let inspect = store.verb("inspect", "--json");
        let done = inspect.env("LEASEHOLD_KEY_TEMPLATE", template).is(0, &[]);
        done.stdout
    };
    assert!(all("mutex:{}:lock").contains("\"name\":\"x\""));
    assert!(all("{}").contains("\"name\":\"mutex:x:lock\""));
    assert!(all("lock:{}").contains("\"locks\":[]"));
}

#[test]
fn invalid_key_template_is_refused_with_its_source() {
    let store = Store::local();
    for bad in ["lock:", "{a}:{}", "{}{}", "{}:lh-fence"] {
        let words = ["--key-template", bad, "x", "touch", "ran"];
        let says = ["--key-template: invalid key template", "(exit 64)"];
        store.run(&words).is(64, &says);
    }
    let file = write(&store, "c.toml", "key_template = \"lock\"");
    store
        .run(&["--config", &file, "x", "touch", "ran"])
        .is(78, &["c.toml, line 1, key_template: invalid key template"]);
    assert!(!store.file("ran").exists());
}

#[test]
fn command_finds_outer_lock_despite_a_different_config_file() {
    let store = Store::redis();
    let chosen = write(&store, "chosen.toml", "");
    write(
        &store,
        "config/leasehold/config.toml",
        "key_template = 'mutex:{}'\nnamespace = 'prod'",
    );
    let inspect = [env!("CARGO_BIN_EXE_leasehold"), "inspect", "--json", "x"];
    let run = store.run(&["--config", &chosen, "x"]).words(&inspect);
    let done = run.is(0, &[]);
    assert!(done.stdout.contains("\"state\":\"held\""), "{done:?}");
}

#[test]
fn command_with_another_store_or_config_uses_those_names() {
    let store = Store::redis();
    let other = Store::local();
    let chosen = write(&store, "chosen.toml", "");
    let typed = write(&store, "typed.toml", "namespace = 'typed'");
    let naming = "key_template = 'mutex:{}'\nnamespace = 'prod'";
    write(&store, "config/leasehold/config.toml", naming);
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let key = |nested: &str| {
        let script = format!("{nested} sh -c 'echo $LEASEHOLD_KEY_TEMPLATE $LEASEHOLD_NAMESPACE'");
        let run = store.run(&["--config", &chosen, "outer", "sh", "-c", &script]);
        let done = run.is(0, &[]);
        done.stdout.trim().to_owned()
    };
    let url = &other.url;
    let own = "mutex:{} prod";
    assert_eq!(key(&format!("{leasehold} run --url {url} job")), own);
    assert_eq!(
        key(&format!("LEASEHOLD_URL={url} {leasehold} run job")),
        own
    );
    let nested = format!("{leasehold} run --config {typed} job");
    assert_eq!(key(&nested), "typed");
    // The run has neither a namespace nor a template.
    assert_eq!(key(&format!("{leasehold} run job")), "");
}
