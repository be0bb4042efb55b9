//! A private server of the lab: it keeps its data over a restart, and ends with the lab.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold_lab::host_time;
use leasehold_lab::server::OwnServer;

/// Long: a write is confirmed when it is on the disk, which may be busy.
const ANSWER: Duration = Duration::from_secs(10);

fn ask(server: &OwnServer, words: &[&str], limit: Duration) -> redis::RedisResult<String> {
    let client = redis::Client::open(server.url())?;
    let mut connection = client.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
}

#[test]
fn killed_server_keeps_confirmed_writes() {
    let mut server = OwnServer::start(&["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    let (url, first) = (server.url(), server.pid());
    assert_eq!(ask(&server, &["SET", "k", "v"], ANSWER).unwrap(), "OK");
    server.kill().unwrap();
    assert!(ask(&server, &["GET", "k"], ANSWER).is_err());
    assert_eq!(server.pid(), None);
    server.restart().unwrap();
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), first);
    assert_eq!(ask(&server, &["GET", "k"], ANSWER).unwrap(), "v");
}

#[test]
fn stopped_server_answers_no_client() {
    let server = OwnServer::start(&[]).unwrap();
    server.stop().unwrap();
    assert!(ask(&server, &["PING"], Duration::from_millis(200)).is_err());
    server.cont().unwrap();
    assert_eq!(ask(&server, &["PING"], ANSWER).unwrap(), "PONG");
}

#[test]
fn says_why_it_does_not_start() {
    let why = OwnServer::start(&["--no-such-option", "1"]).unwrap_err();
    assert!(why.contains("no-such-option"), "{why}");
}

/// An environment variable: this program is the lab of the test below, which is to be killed.
const IS_LAB: &str = "LEASEHOLD_TEST_IS_LAB";

#[test]
fn ends_with_a_lab_that_is_killed_even_while_it_is_stopped() {
    if std::env::var_os(IS_LAB).is_some() {
        let server = OwnServer::start(&[]).unwrap();
        server.stop().unwrap();
        println!("pid {}", server.pid().unwrap());
        thread::sleep(Duration::from_mins(1));
        return;
    }
    let name = thread::current().name().unwrap().to_owned();
    let mut lab = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &name])
        .env(IS_LAB, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(lab.stdout.take().unwrap()).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| line.split("pid ").nth(1).map(str::to_owned))
        .unwrap();
    let process = format!("/proc/{pid}/cmdline");
    let process = Path::new(&process);
    let runs = || std::fs::read(process).is_ok_and(|line| !line.is_empty());
    assert!(runs());
    lab.kill().unwrap();
    lab.wait().unwrap();
    let from = host_time::up();
    while runs() && host_time::up().saturating_sub(from) < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!runs(), "the server outlived the lab");
}
