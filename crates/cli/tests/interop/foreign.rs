//! The other programs: how each is started, where its locks stand, and what it can do. Must never say that one is missing for
//! any other reason than that it is not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::side;

/// A program that takes locks on keys of its own style.
pub(crate) struct Foreign {
    pub(crate) name: &'static str,
    /// Where its key has the name.
    pub(crate) template: &'static str,
    /// What `leasehold inspect` may take it for; nothing known, if none.
    pub(crate) formats: &'static [&'static str],
    /// Whether it can take a lock that never ends.
    pub(crate) endless: bool,
    /// The shortest TTL it knows.
    pub(crate) ttl: Duration,
    /// Its waiters sleep until a release of its own kind, or for as long as the lock that they want is to last.
    pub(crate) sleeps: bool,
    /// Whether its release says that the lock was no longer its own.
    pub(crate) knows_loss: bool,
    runs: Runs,
}

/// What runs it.
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
    ttl: Duration::from_millis(600),
    sleeps: false,
    knows_loss: true,
    runs: Runs::Shell,
};

/// 32 random hexadecimal digits, which may happen to look like a time-based UUID.
const HEX: &[&str] = &["node-redlock", "redis-py"];

/// All that are tried, the slowest first.
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
        ttl: Duration::from_secs(1),
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
    /// Why it cannot be tried here, if it cannot.
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

    /// The process that does what it is told on its standard input.
    pub(crate) fn command(&self, port: u16) -> Command {
        let script = |program: &Path, file: &str| {
            let mut command = Command::new(program);
            command.arg(here("tests/interop/foreign").join(file));
            command.args([self.name, &port.to_string()]);
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
            Runs::Rust => side::command(self.name, port, self.template),
        }
    }

    /// How long after our release its waiter asks again, at the latest, for a lock of this TTL.
    pub(crate) fn asks_each(&self, ttl: Duration) -> Duration {
        if self.sleeps {
            ttl
        } else {
            Duration::from_millis(20)
        }
    }

    /// The key of a lock of this name.
    pub(crate) fn key(&self, name: &str) -> String {
        self.template.replace("{}", name)
    }
}

/// Why the libraries of a kind are not there, if they are not, or not in the versions that are pinned now.
fn not_installed(kind: &str, pinned: &str) -> Option<String> {
    let cache = here("../../bench/.cache");
    let wanted = fs::read_to_string(here("../../bench").join(pinned)).expect("it is pinned");
    // Written when all is installed.
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

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether the program is there, and ends well.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
