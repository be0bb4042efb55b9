//! Starts each program twice beside one redis-server, as two hosts would, and checks what the two do together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use leasehold::blocking::Client;
use tempfile::NamedTempFile;
use testkit::{Process, RedisServer, eventually, watched};

const PATIENCE: Duration = Duration::from_secs(60);

/// A program of an example. It ends with this value.
struct Host {
    _process: Process,
    output: NamedTempFile,
}

impl Host {
    fn start(program: &str, server: &RedisServer, settings: &[(&str, &str)]) -> Self {
        let output = NamedTempFile::new().expect("a file");
        let stdout = File::create(output.path()).expect("a file");
        let mut command = watched(Path::new(program));
        command.env("REDIS_URL", server.url()).stdout(stdout);
        command.envs(settings.iter().copied());
        Self {
            _process: Process::spawn(&mut command).expect("the program starts"),
            output,
        }
    }

    /// The whole lines that the program has printed.
    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.output.path()).expect("text");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(str::to_owned).collect()
    }
}

/// A service that charges accounts, and a client of it.
struct Service {
    _host: Host,
    address: String,
}

impl Service {
    fn start(server: &RedisServer, provider: &Provider) -> Self {
        let settings = [("LISTEN", "127.0.0.1:0"), ("PROVIDER", &provider.address())];
        let host = Host::start(env!("CARGO_BIN_EXE_axum_by_key"), server, &settings);
        let mut address = None;
        eventually(PATIENCE, "the service listens", || {
            let lines = host.lines();
            let told = lines
                .first()
                .and_then(|line| line.strip_prefix("listening on "));
            address = told.map(str::to_owned);
            address.is_some()
        });
        Self {
            _host: host,
            address: address.expect("an address"),
        }
    }

    /// Sends a request. A client that goes away drops the connection.
    fn charge(&self, account: u64) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the service listens");
        let request = format!(
            "POST /accounts/{account}/charge HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }
}

fn is_served(mut request: TcpStream) {
    let mut response = String::new();
    request.set_read_timeout(Some(PATIENCE)).expect("a limit");
    request.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(response.ends_with("charged\n"), "{response}");
}

/// What the service asks. It answers when the test does.
struct Provider(TcpListener);

impl Provider {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        Self(listener)
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("an address").to_string()
    }

    /// The next request, if there is one.
    fn asked(&self) -> Option<Asked> {
        match self.0.accept() {
            Ok((stream, _)) => Some(Asked::read(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&self) -> Asked {
        let mut next = None;
        eventually(PATIENCE, "the provider is asked", || {
            next = self.asked();
            next.is_some()
        });
        next.expect("a request")
    }
}

/// A request that the provider has not answered.
struct Asked {
    stream: BufReader<TcpStream>,
    account: u64,
    fence: u64,
}

impl Asked {
    fn read(stream: TcpStream) -> Self {
        stream.set_nonblocking(false).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let (mut stream, mut line) = (BufReader::new(stream), String::new());
        stream.read_line(&mut line).expect("a request");
        let (account, fence) = line.trim_end().split_once(' ').expect("two numbers");
        Self {
            account: account.parse().expect("a number"),
            fence: fence.parse().expect("a number"),
            stream,
        }
    }

    fn answer(self) {
        self.stream
            .into_inner()
            .write_all(b"charged\n")
            .expect("the service reads");
    }
}

#[test]
fn axum_serves_an_account_one_request_at_a_time() {
    let server = RedisServer::start();
    let provider = Provider::new();
    let services = [(); 2].map(|()| Service::start(&server, &provider));
    let [a, b] = &services;
    let client = Client::connect(&server.url()).expect("a server");
    let queued = |waiters: usize| {
        eventually(PATIENCE, "the queue of account 7 changes", || {
            client.inspect("accounts:7").expect("a server").queue.len() == waiters
        });
    };

    let first = a.charge(7);
    let asked_first = provider.next();
    let second = b.charge(7);
    queued(1);

    // Another account does not wait for this one, in the same process.
    let other = b.charge(8);
    let asked_other = provider.next();
    assert_eq!([asked_first.account, asked_other.account], [7, 8]);
    asked_other.answer();
    is_served(other);
    assert!(
        provider.asked().is_none(),
        "the second request did not wait"
    );

    let fence = asked_first.fence;
    asked_first.answer();
    is_served(first);
    let mut asked_second = provider.next();
    assert!(asked_second.fence > fence, "a later fence is higher");

    // A client that goes away while it waits leaves the queue.
    let third = a.charge(7);
    queued(1);
    drop(third);
    queued(0);

    // One that goes away while it is served frees the lock: the service gives up the call to the provider, and the next request is served.
    let fence = asked_second.fence;
    drop(second);
    let last = a.charge(7);
    let asked_last = provider.next();
    assert!(asked_last.fence > fence, "a later fence is higher");
    assert_eq!(asked_second.stream.read(&mut [0]).expect("an end"), 0);
    asked_last.answer();
    is_served(last);
}

/// Waits until two hosts have told of three ticks. Of each, one host has done the job, and the other one has left it.
fn each_tick_is_one_job(program: &str) {
    let server = RedisServer::start();
    let hosts = ["a", "b"].map(|name| Host::start(program, &server, &[("HOST", name)]));
    let mut ticks = BTreeMap::new();
    eventually(PATIENCE, "both hosts tell of three ticks", || {
        ticks = told_by_all(&hosts);
        ticks.len() >= 3
    });
    for (tick, told) in ticks {
        let (done, left): (Vec<_>, Vec<_>) = told
            .iter()
            .partition(|told| told.ends_with(" has printed 7 pages"));
        assert_eq!(done.len(), 1, "tick {tick}: {told:?}");
        let is_left = |told: &&String| told.contains(" leaves it");
        assert!(left.iter().all(is_left), "tick {tick}: {told:?}");
    }
}

/// The ticks of which all hosts have told, in lines such as `42: a has printed 7 pages`.
fn told_by_all(hosts: &[Host]) -> BTreeMap<String, Vec<String>> {
    let mut ticks = BTreeMap::<_, (BTreeSet<_>, Vec<_>)>::new();
    for (host, lines) in hosts.iter().map(Host::lines).enumerate() {
        for line in lines {
            if let Some((tick, told)) = line.split_once(": ") {
                let (by, all) = ticks.entry(tick.to_owned()).or_default();
                by.insert(host);
                all.push(told.to_owned());
            }
        }
    }
    let whole = ticks
        .into_iter()
        .filter(|(_, (by, _))| by.len() == hosts.len());
    whole.map(|(tick, (_, told))| (tick, told)).collect()
}

#[test]
fn a_tick_of_tokio_cron_scheduler_is_one_job() {
    each_tick_is_one_job(env!("CARGO_BIN_EXE_cron_once"));
}

#[test]
fn a_tick_of_apalis_is_one_job() {
    each_tick_is_one_job(env!("CARGO_BIN_EXE_apalis_once"));
}
