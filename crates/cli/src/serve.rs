//! `leasehold serve`: leases over HTTP, for programs that cannot start a child process.

#![expect(
    clippy::doc_markdown,
    reason = "comments that are help are read on a terminal"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold_serve::{Address, Guard, LeaseApi, Limits, Listener, Metrics, Server, Token};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::config;
use crate::exit::{CONFIG, Exit, SOFTWARE, USAGE, exit};
use crate::messages::say;
use crate::output;
use crate::session::{closing, in_runtime};
use crate::store::{StoreArgs, TtlArgs};
use crate::terminal::Signals;

/// The port of `leasehold serve`.
const PORT: u16 = 7787;

/// The time limit for the release of all leases at the end. They may be many.
const CLOSE: Duration = Duration::from_secs(10);

/// The files that a server opens beside its connections: those to the nodes of the store, and a few more.
const SPARE: usize = 64;

const ABOUT: &str = "\
Prints its address and a fresh token, once, and serves until a signal ends it. Then it releases all
leases. Each request needs the header `Authorization: Bearer TOKEN`:
  curl -X POST -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:7787/v1/sessions
A socket needs no token: only this user can connect to it.
  leasehold serve --socket /run/user/1000/leasehold.sock
A lease belongs to a session. It is released when its client ends the session, or gives no sign of life.
For a program that can start a child, `leasehold hold` needs no port and no token.

Exit codes: 128+n ended by signal n; 64 wrong usage; 69 the store does not answer; 77 it refuses user,
password or permission; 78 no store, or the address or the token file cannot be used. See docs/http.md.";

/// Serve leases over HTTP on this host, for programs in any language
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Serve {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    ttl: TtlArgs,

    /// A lock with numbers of its own in /metrics, or the begin of names before *; all others are counted together
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    metric_name: Vec<String>,

    /// Print the address and the token as one JSON document (leasehold.serve/1)
    #[arg(long)]
    json: bool,
}

/// The options of a server: where it listens, and what guards it.
#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// The address to listen on, with a port; port 0 is a free one [default: 127.0.0.1:7787; of ui, 7788]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "socket")]
    listen: Option<SocketAddr>,

    /// Listen on a socket instead, to which only this user can connect
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// The file with the token; without it, TCP has a fresh token. At least 32 characters
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Allow an address of --listen that other hosts can reach. Requests are not encrypted
    #[arg(long, requires = "token_file", hide_short_help = true)]
    listen_anywhere: bool,

    /// Take requests to this host name too. Without it: localhost and IP addresses
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    allow_host: Vec<String>,

    /// Take requests from pages of this origin too, such as https://locks.example
    #[arg(long, value_name = "ORIGIN", hide_short_help = true)]
    allow_origin: Vec<String>,

    /// The path before all routes, for a proxy that passes it on: /leasehold
    #[arg(
        long,
        value_name = "PATH",
        default_value = "",
        hide_default_value = true,
        hide_short_help = true
    )]
    base_path: String,

    /// The most requests a second
    #[arg(long, value_name = "N", default_value = "10000", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..))]
    max_rate: u32,
}

/// A server that is bound to its address.
pub(crate) struct BoundServer {
    pub(crate) listener: Listener,
    pub(crate) server: Server,
    /// The address with the base path.
    pub(crate) url: String,
    /// A token that was made for this server, to print.
    pub(crate) token: Option<Token>,
}

impl ListenArgs {
    /// Binds the address, which has this port by default.
    pub(crate) async fn bind(&self, port: u16) -> Result<BoundServer, Exit> {
        let address = match (&self.socket, self.listen) {
            (Some(path), _) => Address::Unix(path.clone()),
            (None, Some(address)) => Address::Tcp(address),
            (None, None) => Address::Tcp((Ipv4Addr::LOCALHOST, port).into()),
        };
        if let Address::Tcp(address) = &address
            && !is_loopback(address.ip())
            && !self.listen_anywhere
        {
            return Err(exit!(
                USAGE,
                "--listen {address}: other hosts can reach this address (exit {USAGE})\n    next    --listen 127.0.0.1:{}, behind a proxy that encrypts; or --listen-anywhere with --token-file",
                address.port()
            ));
        }
        let chosen = self.token_file.as_deref().map(token_in).transpose()?;
        let is_made = chosen.is_none() && self.socket.is_none();
        let made = is_made.then(Token::fresh).transpose().map_err(|error| {
            exit!(
                SOFTWARE,
                "the system has no random numbers: {error} (exit {SOFTWARE})"
            )
        })?;
        let guard = Guard::new(chosen.or(made.clone()))
            .allow(&self.allow_host, &self.allow_origin)
            .map_err(|why| exit!(USAGE, "{why} (exit {USAGE})"))?
            .rate(self.max_rate);
        let server = Server::new(guard).base(&self.base_path);
        let server = server.map_err(|why| exit!(USAGE, "--base-path: {why} (exit {USAGE})"))?;
        let refused = |error| {
            exit!(
                CONFIG,
                "cannot listen on {address}: {error} (exit {CONFIG})"
            )
        };
        let listener = Listener::bind(&address).await.map_err(refused)?;
        let url = listener.address()? + &self.base_path;
        Ok(BoundServer {
            listener,
            server,
            url,
            token: made,
        })
    }
}

/// Also for an address of IPv4 in the form of IPv6.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn token_in(file: &Path) -> Result<Token, Exit> {
    config::warn_if_open(file, "token");
    let refuse = |why: String| {
        exit!(
            CONFIG,
            "cannot use the token file {}: {why} (exit {CONFIG})\n    next    (umask 077; openssl rand -hex 32 > FILE)",
            file.display()
        )
    };
    let text = std::fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
    Token::new(text.trim_end_matches(['\r', '\n'])).map_err(refuse)
}

/// As many connections as there may be open files for.
fn limits() -> Limits {
    let mut limits = Limits::default();
    let wanted = limits.connections.saturating_add(SPARE);
    let files = raise_open_files(u64::try_from(wanted).unwrap_or(u64::MAX));
    if let Some(files) = files.ok().and_then(|files| usize::try_from(files).ok()) {
        let connections = files.saturating_sub(SPARE).max(1);
        limits.connections = limits.connections.min(connections);
    }
    limits
}

/// Lets this process open up to so many files, as far as the system allows. Returns how many it may open.
fn raise_open_files(wanted: u64) -> nix::Result<u64> {
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let raised = wanted.min(most).max(now);
    setrlimit(Resource::RLIMIT_NOFILE, raised, most)?;
    Ok(raised)
}

/// The document of `--json`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.serve/1")]
pub(crate) struct ServeDocument<'a> {
    pub(crate) url: &'a str,
    pub(crate) store: &'a str,
    pub(crate) token: Option<&'a str>,
}

/// Runs the verb.
pub(crate) fn serve(args: &Serve) -> Result<Exit, Exit> {
    let mut target = args.store.target()?;
    let ttl = target.ttl(args.ttl.typed)?;
    // Before the client: it uses the recorder that is there then.
    let metrics = Metrics::install().map_err(|why| exit!(SOFTWARE, "{why} (exit {SOFTWARE})"))?;
    target.builder = target.builder.metric_names(&args.metric_name);
    in_runtime(async {
        let mut signals = Signals::catch()?;
        let mut bound = args.listen.bind(PORT).await?;
        bound.server = bound.server.mount(metrics.routes());
        let client = tokio::select! {
            biased;
            signal = signals.next_ending() => return Err(Exit::by(signal)),
            client = target.connect() => client?,
        };
        let work = serve_leases(&client, args, bound, ttl, &mut signals);
        let work = async {
            tokio::select! {
                done = work => done,
                never = metrics.upkeep() => match never {},
            }
        };
        closing(&target, &client, Box::pin(work)).await
    })
}

async fn serve_leases(
    client: &Client,
    args: &Serve,
    bound: BoundServer,
    ttl: Duration,
    signals: &mut Signals,
) -> Result<Exit, Exit> {
    let limits = limits();
    // The others are for beats, releases and probes.
    let waits = limits.connections / 4 * 3;
    let leases = LeaseApi::new(client).ttl(ttl).waits(waits.max(1));
    let router = bound.server.mount(leases.routes()).router();
    let token = bound.token.as_ref().map(Token::secret);
    if args.json {
        output::print_json(&ServeDocument {
            url: &bound.url,
            store: client.store(),
            token,
        })?;
    } else {
        let token = token.map(|token| format!("token {token}\n"));
        output::print(&format!(
            "listening on {}\n{}",
            bound.url,
            token.unwrap_or_default()
        ))?;
    }
    let mut ended: Option<Signal> = None;
    let stop = async {
        ended = Some(signals.next_ending().await);
        // Streams of events end, and waiting requests are answered.
        leases.close();
    };
    bound.listener.serve(router, limits, stop).await;
    let all_are_released = tokio::select! {
        biased;
        _ = signals.next_ending() => false,
        closed = client.close_within(CLOSE) => closed,
    };
    if !all_are_released {
        say("the store has not confirmed the release of all leases: the others end with their TTL");
    }
    Err(ended.map_or_else(|| Exit::quiet(0), Exit::by))
}
