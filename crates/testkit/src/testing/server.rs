//! A real redis-server as a child process, with the faults of a process: stopped, killed,
//! restarted. Its data and files go when it is dropped.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::clock::ServerClock;
use super::launch::Launch;
use super::resp::{Reply, RespConn, shown};
use super::tls::Certificates;
use super::wait::{done, eventually, lock};
use crate::process::Process;

/// A private redis-server on 127.0.0.1, without persistence. Dropping it kills it and removes its
/// directory, also while it is paused.
///
/// All methods take `&self`, so that it can be shared with the threads and tasks of a test.
#[derive(Debug)]
pub struct RedisServer {
    // Before `launch`, and therefore dropped first: the process ends before its directory is removed.
    process: Mutex<Option<Process>>,
    launch: Launch,
    idle: Mutex<Option<RespConn>>,
}

impl RedisServer {
    pub(crate) fn new(launch: Launch, process: Process) -> Self {
        Self {
            process: Mutex::new(Some(process)),
            launch,
            idle: Mutex::new(None),
        }
    }

    /// The TCP port, the same after a restart.
    pub fn port(&self) -> u16 {
        self.launch.port.number()
    }

    /// `redis://127.0.0.1:PORT/`, without the password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// `127.0.0.1:PORT`: where other nodes of its cluster, replicas and sentinels know it. With `tls`, that is its TLS port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.peer_port())
    }

    pub(crate) fn peer_port(&self) -> u16 {
        self.tls().map_or(self.port(), |(port, _)| port)
    }

    pub(crate) fn tls(&self) -> Option<(u16, &Certificates)> {
        self.launch.tls()
    }

    /// Whether it was neither killed nor paused, and has not ended.
    pub fn is_running(&self) -> bool {
        lock(&self.process).as_mut().is_some_and(Process::runs)
    }

    /// The password, if it was started with one.
    pub fn password(&self) -> Option<&str> {
        self.launch.options.password.as_deref()
    }

    /// The Unix socket; panics unless started with `unix_socket`.
    #[track_caller]
    pub fn socket_path(&self) -> PathBuf {
        self.launch
            .socket_path()
            .expect("the server was started without `.unix_socket()`")
    }

    /// The TLS port; panics unless started with `tls`.
    #[track_caller]
    pub fn tls_port(&self) -> u16 {
        self.launch
            .tls()
            .expect("the server was started without `.tls()`")
            .0
    }

    /// The certificate (PEM) of the CA that signed the server's; panics unless started with `tls`.
    #[track_caller]
    pub fn ca_path(&self) -> &Path {
        &self.certificates().ca
    }

    /// The certificate (PEM) that the CA signed, and its key: the server's, also usable for a client. Panics unless started with `tls`.
    #[track_caller]
    pub fn certificate_paths(&self) -> (&Path, &Path) {
        let files = self.certificates();
        (&files.cert, &files.key)
    }

    #[track_caller]
    fn certificates(&self) -> &Certificates {
        self.launch
            .tls()
            .expect("the server was started without `.tls()`")
            .1
    }

    /// The server's clock; panics unless started with `virtual_clock`.
    #[track_caller]
    pub fn clock(&self) -> ServerClock {
        self.launch
            .clock
            .clone()
            .expect("the server was started without `.virtual_clock()`")
    }

    /// The server's log since its last start.
    pub fn log(&self) -> String {
        self.launch.directory.log()
    }

    /// Stops the process (SIGSTOP). Connections stay open and the kernel accepts new ones, but the
    /// server does not answer. When this returns, it has stopped.
    #[track_caller]
    pub fn pause(&self) {
        done(self.try_pause());
    }

    /// Like [`pause`](Self::pause). An error says why it cannot.
    pub fn try_pause(&self) -> Result<(), String> {
        self.with_process(Process::pause)
    }

    /// Continues a paused process (SIGCONT): it then executes all commands received in the meantime.
    #[track_caller]
    pub fn resume(&self) {
        done(self.try_resume());
    }

    /// Like [`resume`](Self::resume). An error says why it cannot.
    pub fn try_resume(&self) -> Result<(), String> {
        self.with_process(Process::resume)
    }

    /// Kills the process (SIGKILL) and waits for its end. Does nothing if it is dead already.
    pub fn kill(&self) {
        let process = lock(&self.process).take();
        drop(process);
    }

    /// Kills the process if it runs and starts it anew on the same port with the same options,
    /// empty unless an option made it persistent. Returns when it answers.
    #[track_caller]
    pub fn restart(&self) {
        done(self.try_restart());
    }

    /// Like [`restart`](Self::restart). An error says why it does not start.
    pub fn try_restart(&self) -> Result<(), String> {
        let mut process = lock(&self.process);
        drop(process.take());
        *process = Some(self.launch.run_again()?);
        Ok(())
    }

    /// One command and its reply: `server.cli(&["SET", "a", "b"])`. An error reply is a
    /// [`Reply::Err`]; no reply within 20 s is a panic.
    ///
    /// The connection is kept for later calls: do not `SELECT`, `SUBSCRIBE` or `MULTI` here, use
    /// [`connection`](Self::connection).
    #[track_caller]
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        done(self.reply(args))
    }

    /// Like [`cli`](Self::cli). An error names the server and says why there is no reply, or is its error reply.
    pub fn try_cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, String> {
        let reply = self.reply(args)?;
        match reply.error() {
            Some(error) => Err(format!("{} to {}: {error}", self.address(), shown(args))),
            None => Ok(reply),
        }
    }

    /// A command whose words are separated by spaces.
    pub(crate) fn ask(&self, command: &str) -> Result<Reply, String> {
        self.try_cli(&command.split(' ').collect::<Vec<_>>())
    }

    fn reply<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, String> {
        // Taken out while in use: another thread's call must not wait for a blocking command, and a
        // connection that failed in the middle of a command must not be used again.
        let kept = lock(&self.idle).take().filter(RespConn::is_idle);
        let mut connection = kept.map_or_else(|| self.try_connection(), Ok)?;
        let failed = |error| format!("{}: no reply to {}: {error}", self.address(), shown(args));
        let reply = connection.try_command(args).map_err(failed)?;
        *lock(&self.idle) = Some(connection);
        Ok(reply)
    }

    /// Waits until this replica has the data of its primary; panics after `limit`.
    #[track_caller]
    pub fn follows(&self, limit: Duration) {
        eventually(limit, "the replica follows", || {
            let info = self.cli(&["INFO", "replication"]).text();
            info.contains("master_link_status:up")
        });
    }

    /// A new connection for the caller, logged in if the server has a password.
    #[track_caller]
    pub fn connection(&self) -> RespConn {
        done(self.try_connection())
    }

    fn try_connection(&self) -> Result<RespConn, String> {
        let failed = |error| format!("cannot connect to {}: {error}", self.url());
        self.launch.connect().map_err(failed)
    }

    fn with_process(
        &self,
        act: impl FnOnce(&mut Process) -> Result<(), String>,
    ) -> Result<(), String> {
        act(lock(&self.process)
            .as_mut()
            .ok_or("the server was killed")?)
    }
}
