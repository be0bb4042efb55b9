//! A `leasehold serve` for an actor over HTTP. It lives on if that is killed, and has its address again after a restart.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use testkit::RedisServer;

use crate::peer::ending_with_us;
use crate::scene::unconfigured;

/// A socket needs none, but an address does.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(super) struct Gateway {
    dir: TempDir,
    child: Child,
}

impl Gateway {
    pub(super) fn start(server: &RedisServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, TOKEN).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let child = serve(&dir, server);
        Self { dir, child }
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn start_again(&mut self, server: &RedisServer) {
        self.child = serve(&self.dir, server);
    }

    /// Tells the actor where it is.
    pub(super) fn tell(&self, actor: &mut Command) {
        actor.env("LEASEHOLD_SOCKET", self.dir.path().join("socket"));
        actor.env("LEASEHOLD_TOKEN", TOKEN);
    }

    /// Sends SIGTERM, and waits until it has ended.
    pub(super) fn end(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(143), "the gateway ended");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts it, and waits until it listens.
fn serve(dir: &TempDir, server: &RedisServer) -> Child {
    let mut command = unconfigured(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["serve", "--url", &server.url()]);
    command.arg("--socket").arg(dir.path().join("socket"));
    command.arg("--token-file").arg(dir.path().join("token"));
    let mut command = ending_with_us(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line:?}");
    child
}
