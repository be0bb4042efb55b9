//! Checks the architecture's invariants about dependencies between modules. Reads the sources.

use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::files;

/// Modules from the top to the bottom: each may use those below it, and those beside it on its own line.
const LAYERS: [&[&str]; 8] = [
    &["blocking", "testing"],
    &[
        "election",
        "entries",
        "locked",
        "once",
        "several",
        "timestamp",
    ],
    &["client", "mutex", "gate"],
    &["lease"],
    &["store"],
    &["telemetry"],
    &["doctor", "error"],
    &[
        "access", "backoff", "clock", "fold", "foreign", "kind", "runtime", "sync", "tls",
    ],
];

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        (path, text)
    };
    files(folder).into_iter().map(read).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The module of the crate that a file belongs to.
fn module(path: &Path) -> String {
    let inside = path.strip_prefix(root()).expect("a file of the crate");
    let first = inside
        .components()
        .next()
        .expect("a name")
        .as_os_str()
        .to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn no_module_imports_upwards() {
    let mut checked = 0;
    for (path, text) in sources(&root()) {
        let from = module(&path);
        let Some(mine) = layer(&from) else {
            assert_eq!(from, "lib", "{} has a place in the layers", path.display());
            continue;
        };
        for (line, used) in text.lines().flat_map(|line| {
            line.match_indices("crate::")
                .map(move |(at, _)| (line, &line[at..]))
        }) {
            let target = used["crate::".len()..]
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            let Some(theirs) = layer(target) else {
                continue;
            };
            assert!(theirs >= mine, "{}: {line}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} imports were found");
}

#[test]
fn only_the_redis_store_knows_redis() {
    for (path, text) in sources(&root()) {
        if path.starts_with(root().join("store/redis")) {
            continue;
        }
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        for word in [
            "redis::cmd",
            "use redis::",
            "::redis::",
            "EVALSHA",
            "PEXPIRE",
        ] {
            let known = code
                .replace("redis::Address", "")
                .replace("redis::RedisStore", "");
            assert!(!known.contains(word), "{} knows {word}", path.display());
        }
    }
}

#[test]
fn core_depends_on_nothing_and_reads_no_clock() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core");
    let manifest = fs::read_to_string(core.join("Cargo.toml")).expect("core's manifest");
    // Optional dependencies are allowed: they only convert types of `core` for other crates.
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").expect("a list");
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    for line in dependencies.lines().filter(|line| !line.is_empty()) {
        assert!(line.contains("optional = true"), "core needs {line}");
    }
    for (path, text) in sources(&core.join("src")) {
        for word in [
            "Instant",
            "SystemTime",
            "std::fs",
            "std::net",
            "std::thread",
            "getrandom",
            "rand::",
        ] {
            assert!(!text.contains(word), "{} uses {word}", path.display());
        }
    }
}

/// The workspace denies it. A library forbids it, so that no module of its own can allow it.
#[test]
fn unsafe_code_is_in_one_module_of_the_command() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for library in ["core", "leasehold", "cache", "serve", "macros"] {
        let head = crates.join(library).join("src/lib.rs");
        let head = fs::read_to_string(head).expect("a library");
        assert!(head.contains("#![forbid(unsafe_code)]"), "{library}");
    }
    let mut allow = sources(&crates.join("cli/src"));
    allow.retain(|(_, text)| text.contains("unsafe_code"));
    let allow: Vec<_> = allow.into_iter().map(|(path, _)| path).collect();
    assert_eq!(allow, [crates.join("cli/src/sys.rs")]);
}
