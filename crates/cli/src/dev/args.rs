//! The arguments of `leasehold dev`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Start a private redis-server or valkey-server, to try things with
#[derive(Debug, Args)]
#[command(override_usage = "leasehold dev [OPTIONS] [-- CMD [ARG...]]", after_help = ABOUT)]
pub(crate) struct Dev {
    /// Listen on 127.0.0.1:N instead of a socket, for any user of this host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: Option<u16>,

    /// The server program; by default redis-server, else valkey-server
    #[arg(long, value_name = "PATH")]
    pub(super) server: Option<PathBuf>,

    /// A command to run with the server; the server ends with it
    #[arg(last = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

const ABOUT: &str = "\
Three ways to use it:
  eval \"$(leasehold dev)\"       sets LEASEHOLD_URL in this shell; the server ends with the shell
  leasehold dev -- make test    runs a command with LEASEHOLD_URL set, and ends with its status
  leasehold dev                 at a terminal: runs until Ctrl-C, and prints the setting for other shells

The server listens on a socket in a new directory that only you may enter, evicts nothing
(maxmemory-policy noeviction), and writes its data there (appendonly yes). The directory is
removed with the server.";
