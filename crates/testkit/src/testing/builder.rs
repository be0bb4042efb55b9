//! The options of a redis-server, and its first start.

use std::env;
use std::ffi::OsString;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use super::clock::ServerClock;
use super::launch::{Launch, Options};
use super::net::ReservedPort;
use super::server::RedisServer;
use super::tls::{self, Signed};
use super::wait::done;
use crate::directory::Directory;
use crate::process::find_program;

const PORT_ATTEMPTS: u32 = 20;

/// Options of a server to start; made by [`RedisServer::builder`].
#[derive(Debug, Default, Clone)]
#[must_use = "nothing is started before `start`"]
pub struct RedisServerBuilder {
    pub(crate) options: Options,
}

impl RedisServerBuilder {
    /// A configuration option, as in `redis.conf`: `.option("maxmemory", "3mb")`. The value is one
    /// argument; give options with several through [`arg`](Self::arg). Options given here override
    /// those that the kit sets itself.
    pub fn option(self, key: &str, value: &str) -> Self {
        self.arg(format!("--{}", key.trim_start_matches('-')))
            .arg(value)
    }

    /// One more argument of the command line, as it is.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.options.args.push(arg.into());
        self
    }

    /// More arguments of the command line: `["--appendonly", "yes"]`.
    pub fn args(self, args: impl IntoIterator<Item: Into<OsString>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets `requirepass`, and the password that a replica sends to its primary.
    pub fn password(mut self, password: &str) -> Self {
        self.options.password = Some(password.to_owned());
        self
    }

    /// Listens on a Unix socket too; see [`RedisServer::socket_path`].
    pub fn unix_socket(mut self) -> Self {
        self.options.unix_socket = true;
        self
    }

    /// Listens on a TLS port too, with a certificate for 127.0.0.1 and localhost by a private CA;
    /// see [`RedisServer::tls_port`] and [`RedisServer::ca_path`].
    pub fn tls(mut self) -> Self {
        self.options.tls = Some(Signed::ByAuthority);
        self
    }

    /// Listens on a TLS port too, with a certificate for 127.0.0.1 and localhost that it has signed itself: [`RedisServer::ca_path`] is that
    /// certificate.
    pub fn self_signed(mut self) -> Self {
        self.options.tls = Some(Signed::ByItself);
        self
    }

    /// Makes it a replica of the server on `port`. [`start`](Self::start) does not wait for the first
    /// synchronisation; `INFO replication` says `master_link_status:up` after it.
    pub fn replica_of(self, port: u16) -> Self {
        self.arg("--replicaof")
            .arg("127.0.0.1")
            .arg(port.to_string())
    }

    /// Gives the server a virtual clock, which only the test moves, on Linux; see [`RedisServer::clock`].
    pub fn virtual_clock(mut self) -> Self {
        self.options.virtual_clock = true;
        self
    }

    /// Puts arguments before those of the caller, which override them. With TLS, the servers speak it to one another too.
    pub(crate) fn peer(mut self, args: &[&str]) -> Self {
        let tls = ["--tls-cluster", "yes", "--tls-replication", "yes"];
        let tls = tls.iter().filter(|_| self.options.tls.is_some());
        let first = args.iter().chain(tls).map(Into::into);
        self.options.args.splice(0..0, first);
        self
    }

    /// With TLS if this server has it, and with its certificate, so that each trusts the other.
    pub(crate) fn trusting(mut self, server: &RedisServer) -> Self {
        let files = server.tls().map(|(_, files)| files.clone());
        self.options.tls = files.map(Signed::Already);
        self
    }

    /// Starts so many, at once.
    pub(crate) fn start_all(&self, count: usize) -> Result<Vec<RedisServer>, String> {
        thread::scope(|scope| {
            let start = |_| scope.spawn(|| self.clone().try_start());
            let starts: Vec<_> = (0..count).map(start).collect();
            let started = starts.into_iter().map(|start| {
                let ended = start.join();
                ended.unwrap_or_else(|panic| resume_unwind(panic))
            });
            started.collect()
        })
    }

    /// Environment variables, also of a restarted server.
    pub fn envs<N: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        for (name, value) in variables {
            self.options.environment.push((name.into(), value.into()));
        }
        self
    }

    /// The program to run, instead of `$REDIS_SERVER_BIN` or the `redis-server` or `valkey-server` on
    /// the path. A script must `exec` the server, or the wrong process would be paused and killed.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.binary = Some(path.into());
        self
    }

    /// Starts the server and returns when it answers.
    pub fn start(self) -> RedisServer {
        done(self.try_start())
    }

    /// Like [`start`](Self::start). An error says why there is no server.
    pub fn try_start(self) -> Result<RedisServer, String> {
        let named = || env::var_os("REDIS_SERVER_BIN").filter(|path| !path.is_empty());
        let asked = self.options.binary.clone();
        let asked = asked.or_else(|| named().map(PathBuf::from));
        let program = find_program(asked.as_deref()).ok_or_else(|| missing(asked.as_deref()))?;
        let directory = Directory::make("leasehold-redis-")
            .map_err(|error| format!("cannot make a directory for a server: {error}"))?;
        let certificates = self
            .options
            .tls
            .clone()
            .map(|signed| tls::generate(directory.path(), signed));
        let clock = self
            .options
            .virtual_clock
            .then(|| ServerClock::create(directory.path()));
        let reserve = if self.options.bus {
            ReservedPort::with_bus
        } else {
            ReservedPort::new
        };
        let mut launch = Launch {
            options: self.options,
            program,
            directory,
            port: reserve(),
            tls_port: reserve(),
            certificates,
            clock,
        };
        for _ in 0..PORT_ATTEMPTS {
            if let Some(process) = launch.run()? {
                return Ok(RedisServer::new(launch, process));
            }
            // Another program of this host has it.
            launch.port = reserve();
            launch.tls_port = reserve();
        }
        Err(format!(
            "{} found {PORT_ATTEMPTS} ports taken; its last words:\n{}",
            launch.program.display(),
            launch.directory.last_words()
        ))
    }
}

fn missing(asked: Option<&Path>) -> String {
    let what = match asked {
        Some(asked) => format!("there is no program {}", asked.display()),
        None => "neither redis-server nor valkey-server is installed".into(),
    };
    format!(
        "{what}: apt install redis-server, dnf install valkey, brew install redis, or set \
         REDIS_SERVER_BIN=/path/to/redis-server"
    )
}

impl RedisServer {
    /// Starts a plain server and returns when it answers.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with options.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }
}
