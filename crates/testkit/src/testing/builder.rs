//! The options of a redis-server under test.

use std::ffi::OsString;
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use super::clock::ServerClock;
use super::launch::{Launch, Options};
use super::net::ReservedPort;
use super::server::RedisServer;
use super::tls::{self, Signed};

const PORT_ATTEMPTS: u32 = 20;

/// Options of a server to start; made by [`RedisServer::builder`].
#[derive(Debug, Default)]
#[must_use = "nothing is started before `start`"]
pub struct RedisServerBuilder {
    options: Options,
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

    /// Gives the server a virtual clock, which only the test moves; see [`RedisServer::clock`].
    #[cfg(target_os = "linux")]
    pub fn virtual_clock(mut self) -> Self {
        self.options.virtual_clock = true;
        self
    }

    /// The program to run, instead of `$REDIS_SERVER_BIN` or the `redis-server` on the path. A
    /// script must `exec` the server, or the wrong process would be paused and killed.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.binary = Some(path.into());
        self
    }

    /// Starts the server and returns when it answers.
    pub fn start(self) -> RedisServer {
        let dir = tempfile::Builder::new()
            .prefix("leasehold-redis-")
            .tempdir()
            .expect("create the server's directory");
        let certificates = self
            .options
            .tls
            .map(|signed| tls::generate(dir.path(), signed));
        #[cfg(target_os = "linux")]
        let clock = self
            .options
            .virtual_clock
            .then(|| ServerClock::create(dir.path()));
        let mut launch = Launch {
            options: self.options,
            dir,
            port: ReservedPort::new(),
            tls_port: ReservedPort::new(),
            certificates,
            #[cfg(target_os = "linux")]
            clock,
        };
        for _ in 0..PORT_ATTEMPTS {
            if let Ok(process) = launch.run() {
                return RedisServer::new(launch, process);
            }
            // A program of this host that is no test.
            launch.port = ReservedPort::new();
            launch.tls_port = ReservedPort::new();
        }
        panic!(
            "redis-server found {PORT_ATTEMPTS} ports taken; the last log:\n{}",
            launch.log()
        );
    }
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
