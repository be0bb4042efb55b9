//! The settings of encrypted connections, and what a refused certificate tells.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::RedisServer;

use super::{SECRET, run, write};
use crate::common::{Done, LEASEHOLD, Run, Store, rows};

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// A server that takes only clients with a certificate, its URL, and the five settings: the last is a fingerprint.
struct Scene {
    store: Store,
    server: RedisServer,
    url: String,
}

impl Scene {
    fn new() -> Self {
        let builder = RedisServer::builder().tls().password(SECRET);
        let server = builder.arg("--tls-auth-clients").arg("yes").start();
        let url = format!("rediss://:{SECRET}@127.0.0.1:{}/", server.tls_port());
        let store = Store::local();
        Self { store, server, url }
    }

    /// The settings, by their names in a URL.
    fn settings(&self) -> [(&'static str, String); 3] {
        let (certificate, key) = self.server.certificate_paths();
        [
            ("tls_ca", text(self.server.ca_path())),
            ("tls_cert", text(certificate)),
            ("tls_key", text(key)),
        ]
    }

    fn lock(&self, run: Run) -> Done {
        let nested = format!("{LEASEHOLD} check && {LEASEHOLD} run b true");
        let done = run.words(&["x", "sh", "-c", &nested]).output();
        assert!(!format!("{done:?}").contains(SECRET), "{done:?}");
        let used = self.server.cli(&["EXISTS", "leasehold:fence"]).int();
        assert_eq!(used == 1, done.code() == 0, "{done:?}");
        self.server.cli(&["DEL", "leasehold:fence"]);
        done
    }
}

/// A nested `leasehold` finds them too.
#[test]
fn settings_of_encryption_come_from_each_source() {
    let scene = Scene::new();
    let (store, url) = (&scene.store, &scene.url);
    let typed = || run(store).words(&["--url", url]);
    let options = |run: Run| {
        scene.settings().iter().fold(run, |run, (name, value)| {
            run.words(&[&*format!("--{}", name.replace('_', "-")), value])
        })
    };
    let variables = |run: Run| {
        scene.settings().iter().fold(run, |run, (name, value)| {
            run.env(&format!("LEASEHOLD_{}", name.to_uppercase()), value)
        })
    };
    let joined = |quote: &str, between: &str| {
        let settings = scene.settings();
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name}={quote}{value}{quote}"));
        settings.collect::<Vec<_>>().join(between)
    };
    let in_url = format!("{url}?{}", joined("", "&"));
    let config = format!("url = \"{url}\"\n{}\n", joined("\"", "\n"));
    let config = write(store, "c.toml", &config);
    let url_file = write(store, "url", url);
    for run in [
        options(typed()),
        variables(typed()),
        options(run(store)).env("LEASEHOLD_URL", url),
        options(run(store)).words(&["--url-file", &url_file]),
        variables(run(store)).words(&["--config", &config]),
        run(store).words(&["--config", &config]),
        run(store).words(&["--url", &in_url]),
    ] {
        scene.lock(run).is(0, &[]);
    }
    // Those of a file are not for a server from a stronger source.
    let foreign = typed().words(&["--config", &config]);
    scene.lock(foreign).is(78, &["signed by no authority"]);
    // They do not count for another store, unless it was meant.
    let elsewhere = || run(store).words(&["--url", &super::store_url(store)]);
    variables(elsewhere()).words("x true").is(0, &[]);
    let why = "--tls-ca: the URL from --url is not encrypted; write rediss://";
    options(elsewhere()).words("x true").is(64, &[why]);
    let twice = run(store).words(&["--url", &in_url, "--tls-name", "a", "x", "true"]);
    let why = "--tls-name: the URL from --url has options of TLS already";
    twice.is(64, &[why]);
}

/// A script within a run may name another store: the settings of the run are not for that.
#[test]
fn settings_of_a_run_are_for_its_store() {
    let scene = Scene::new();
    let [(_, ca), (_, certificate), (_, key)] = scene.settings();
    let own = RedisServer::builder().self_signed().start();
    let url_file = write(&scene.store, "url", &scene.url);
    let script = format!(
        "LEASEHOLD_URL={} {LEASEHOLD} run y true && LEASEHOLD_URL='rediss://localhost:{}/?tls_ca={}' {LEASEHOLD} run y true && {LEASEHOLD} check",
        super::store_url(&scene.store),
        own.tls_port(),
        own.ca_path().display(),
    );
    let with_file = || run(&scene.store).words(&["--url-file", &url_file]);
    let options = format!("--tls-ca {ca} --tls-cert {certificate} --tls-key {key}");
    let variables = (with_file().env("LEASEHOLD_TLS_CA", &ca))
        .env("LEASEHOLD_TLS_CERT", &certificate)
        .env("LEASEHOLD_TLS_KEY", &key);
    for run in [with_file().words(&options), variables] {
        run.words(&["x", "sh", "-c", &script]).is(0, &[]);
    }
}

/// Each is a wrong setting, not a server that is away: no verb waits for it, and the doctor agrees.
#[test]
fn a_refused_certificate_is_told_with_the_next_step() {
    let scene = Scene::new();
    let own = RedisServer::builder().self_signed().start();
    let own_url = format!("rediss://localhost:{}/", own.tls_port());
    let [(_, ca), (_, certificate), (_, key)] = scene.settings();
    let own_ca = text(own.ca_path());
    let zeros = "0".repeat(64);
    let not_private = write(&scene.store, "not-private", "these are no certificates");
    let own_key = text(own.certificate_paths().1);
    let pair = "--tls-cert FILE --tls-key FILE";
    let table = format!(
        "
        own |                                      | is signed by no authority | --tls-ca FILE
        own | --tls-pin {zeros}                    | is not the pinned one     | --tls-pin sha256:
        own | --tls-ca {own_ca} --tls-name db.internal | not for db.internal   | --tls-name NAME
        its | --tls-ca {ca}                        | it wants a certificate of this client | {pair}
        its | --tls-ca {ca} --tls-cert {own_ca} --tls-key {own_key} | certificate of this client | {pair}
        its | --tls-ca /no/such                    | \"/no/such\": No such file |
        its | --tls-ca {not_private}               | holds no certificate      |
        its | --tls-ca {ca} --tls-cert {certificate} --tls-key {not_private} | no private key |
        its | --tls-ca {ca} --tls-cert {own_ca} --tls-key {key} | do not fit |
        its | --tls-pin ,                          | 64 hexadecimal digits     |
    "
    );
    for [server, options, why, step] in rows(&table) {
        let url = if server == "own" {
            &own_url
        } else {
            &scene.url
        };
        let line = format!("--url {url} {options}");
        let waits = run(&scene.store).words(&line).words("--wait 60 x true");
        let done = waits.is(78, &[why, step, "(exit 78)"]);
        assert!(!done.stderr.contains(SECRET), "{done:?}");
        let doctor = Run::verb(scene.store.dir.path(), "doctor");
        doctor.words("--quick").words(&line).is(78, &[why, step]);
    }
}

#[test]
fn the_fingerprint_of_the_message_can_be_pinned() {
    let store = Store::local();
    let server = RedisServer::builder().self_signed().start();
    let url = format!("rediss://localhost:{}/", server.tls_port());
    let refused = run(&store).words(&["--url", &url, "x", "true"]).output();
    let at = refused.stderr.find("sha256:").expect("a fingerprint");
    let pin = &refused.stderr[at..at + "sha256:".len() + 64];
    let pinned = ["--url", &url, "--tls-pin", pin, "x", "true"];
    run(&store).words(&pinned).is(0, &[]);
}

#[test]
fn a_key_that_everyone_can_read_is_used_with_a_warning() {
    let scene = Scene::new();
    let [(_, ca), (_, certificate), (_, key)] = scene.settings();
    let open = write(&scene.store, "key", &fs::read_to_string(key).unwrap());
    fs::set_permissions(scene.store.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let options = format!("--tls-ca {ca} --tls-cert {certificate} --tls-key {open}");
    let with_key = run(&scene.store).words(&["--url", &scene.url]);
    let says = [
        "holds a private key, and any user of this host",
        "chmod o-r -- ",
    ];
    with_key.words(&options).words("x true").is(0, &says);
}
