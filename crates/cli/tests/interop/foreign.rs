//! The foreign programs: how to start each, its key template and its abilities. Only a program that is not
//! installed is reported as missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::scene::EXPIRES_SOON;
use crate::servers::Servers;
use crate::side;

/// A foreign program that takes locks.
pub(crate) struct Foreign {
    pub(crate) name: &'static str,
    /// The key template.
    pub(crate) template: &'static str,
    /// The formats that `leasehold inspect` may report; none if unknown.
    pub(crate) formats: &'static [&'static str],
    /// True if it can take a lock without a TTL.
    pub(crate) endless: bool,
    /// The TTL of a lock that it waits for, and that nobody uses then. A stall does no harm: it tries again.
    pub(crate) ttl: Duration,
    /// True if its waiters sleep until a release by the same library, or for the TTL of the lock they want.
    pub(crate) sleeps: bool,
    /// True if its release reports a lost lock.
    knows_loss: bool,
    runs: Runs,
}

/// The runtime of a program.
enum Runs {
    Python,
    Node,
    Php,
    Shell,
    Rust,
}

const PLAIN: Foreign = Foreign {
    name: "",
    template: "{}",
    formats: &[],
    endless: false,
    ttl: EXPIRES_SOON,
    sleeps: false,
    knows_loss: true,
    runs: Runs::Shell,
};

/// 32 random hexadecimal digits, which may look like a time-based UUID.
const HEX: &[&str] = &["node-redlock", "redis-py"];

/// All tested programs, the slowest first.
pub(crate) const ALL: &[Foreign] = &[
    Foreign {
        name: "redis-cli",
        endless: true,
        runs: Runs::Shell,
        ..PLAIN
    },
    Foreign {
        name: "redis-py",
        formats: &["redis-py"],
        endless: true,
        runs: Runs::Python,
        ..PLAIN
    },
    Foreign {
        name: "python-redis-lock",
        template: "lock:{}",
        formats: &["python-redis-lock"],
        endless: true,
        sleeps: true,
        runs: Runs::Python,
        ..PLAIN
    },
    Foreign {
        name: "pottery",
        template: "redlock:{}",
        formats: &["pottery or redis-semaphore"],
        runs: Runs::Python,
        ..PLAIN
    },
    Foreign {
        name: "redlock-4",
        formats: HEX,
        runs: Runs::Node,
        ..PLAIN
    },
    Foreign {
        name: "redlock-5",
        formats: HEX,
        runs: Runs::Node,
        ..PLAIN
    },
    Foreign {
        name: "redis-semaphore",
        template: "mutex:{}",
        formats: &["pottery or redis-semaphore"],
        knows_loss: false,
        runs: Runs::Node,
        ..PLAIN
    },
    Foreign {
        name: "phpredis",
        formats: HEX,
        endless: true,
        runs: Runs::Php,
        ..PLAIN
    },
    Foreign {
        name: "predis",
        formats: HEX,
        endless: true,
        runs: Runs::Php,
        ..PLAIN
    },
    Foreign {
        name: "rslock",
        formats: &["rslock"],
        knows_loss: false,
        runs: Runs::Rust,
        ..PLAIN
    },
];

impl Foreign {
    /// The reason why the program cannot be tested here, if any.
    pub(crate) fn missing(&self) -> Option<String> {
        match self.runs {
            Runs::Python => not_installed("python", "python/requirements.txt").or_else(|| {
                let python = python();
                let says = format!("{} does not run: remove it", python.display());
                (!works(python.to_str()?, &["--version"])).then_some(says)
            }),
            Runs::Node if !works("node", &["--version"]) => Some("node is not installed".into()),
            Runs::Node => not_installed("node", "node/package-lock.json"),
            Runs::Php if !works("php", &["--version"]) => Some("php is not installed".into()),
            Runs::Php => {
                let (has, package) = if self.name == "phpredis" {
                    ("extension_loaded('redis')", "php-redis")
                } else {
                    (
                        "stream_resolve_include_path('Predis/Autoloader.php') !== false",
                        "php-nrk-predis",
                    )
                };
                let asks = format!("exit({has} ? 0 : 1);");
                (!works("php", &["-r", &asks])).then(|| format!("{package} is not installed"))
            }
            Runs::Shell if !works("redis-cli", &["--version"]) => {
                Some("redis-cli is not installed".into())
            }
            Runs::Shell | Runs::Rust => None,
        }
    }

    /// The process that serves requests on stdin.
    pub(crate) fn command(&self, servers: impl Into<Servers>) -> Command {
        let servers = servers.into();
        let script = |program: &Path, file: &str| {
            let mut command = Command::new(program);
            command.arg(here("tests/interop/foreign").join(file));
            command.arg(self.name).args(servers.args());
            command
        };
        match self.runs {
            Runs::Python => script(&python(), "python.py"),
            Runs::Node => {
                let mut command = script(Path::new("node"), "node.js");
                command.env("NODE_PATH", node_modules());
                command
            }
            Runs::Php => script(Path::new("php"), "php.php"),
            Runs::Shell => script(Path::new("bash"), "redis-cli.sh"),
            Runs::Rust => side::command(self.name, servers, self.template),
        }
    }

    /// The maximal time until its waiter asks again after a release by Leasehold, for a lock of this TTL.
    pub(crate) fn asks_each(&self, ttl: Duration) -> Duration {
        if self.sleeps {
            ttl
        } else {
            Duration::from_millis(20)
        }
    }

    /// The answer to a release of a lost lock.
    pub(crate) fn after_a_loss(&self) -> &'static str {
        if self.knows_loss { "lost" } else { "released" }
    }

    /// The key of a lock of this name.
    pub(crate) fn key(&self, name: &str) -> String {
        self.template.replace("{}", name)
    }
}

/// The reason why the libraries of a kind are missing or not in the pinned versions, if so.
fn not_installed(kind: &str, pinned: &str) -> Option<String> {
    let cache = here("../../bench/.cache");
    let wanted = fs::read_to_string(here("../../bench").join(pinned)).expect("it is pinned");
    // Written after a complete installation.
    let has = fs::read_to_string(cache.join(kind).join("pinned"));
    if has.is_ok_and(|has| has == wanted) {
        return None;
    }
    let why = fs::read_to_string(cache.join(format!("{kind}.missing")));
    Some(match why {
        Ok(why) => format!("its libraries could not be installed: {}", why.trim_end()),
        Err(_) => "its libraries are not installed; scripts/test installs them".into(),
    })
}

/// Shared with the benchmark, which pins the versions.
pub(crate) fn python() -> PathBuf {
    here("../../bench/.cache/python/bin/python")
}

fn node_modules() -> PathBuf {
    here("../../bench/.cache/node/node_modules")
}

/// A path from the folder of this crate.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// True if the program exists and exits with 0.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
