//! A redis-server under test: options, process faults, and the client that examines it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use leasehold_testkit::{Directory, RedisServer, Reply, RespConn, eventually};

const SOON: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

fn timed_out(result: std::io::Result<Reply>) -> bool {
    let error = result.expect_err("no reply was expected");
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[track_caller]
fn is_refused(reply: &Reply, why: &str) {
    let is_it = reply.error().is_some_and(|text| text.starts_with(why));
    assert!(is_it, "{reply:?}");
}

/// The value of a setting.
fn setting(server: &RedisServer, name: &str) -> String {
    server.cli(&["CONFIG", "GET", name]).array()[1].text()
}

fn process_state(pid: i64) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn pid(server: &RedisServer) -> i64 {
    let info = server.cli(&["INFO", "server"]).text();
    let mut lines = info.lines();
    let pid = lines.find_map(|line| line.strip_prefix("process_id:"));
    pid.expect("a process id").parse().expect("a number")
}

#[test]
fn answers_commands_of_any_bytes() {
    let server = RedisServer::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    assert_eq!(server.url(), url);
    assert_eq!(server.cli(&["SET", "a", "b"]).text(), "OK");
    assert_eq!(server.cli(&["GET", "a"]).text(), "b");
    assert!(server.cli(&["GET", "none"]).is_nil());
    assert_eq!(server.cli(&["INCR", "n"]).int(), 1);
    is_refused(&server.cli(&["INCR", "a"]), "ERR value");
    let raw: &[u8] = b"\0\r\n\xff";
    server.cli(&[b"SET".as_slice(), b"raw", raw]);
    assert_eq!(server.cli(&["GET", "raw"]).bytes(), raw);
    assert_eq!(server.cli(&["MGET", "a", "none"]).array()[1], Reply::Nil);
}

#[test]
fn keeps_nothing_on_disk() {
    let server = RedisServer::start();
    assert_eq!(setting(&server, "save"), "");
    let dir = setting(&server, "dir");
    assert!(Path::new(&dir).join("log").exists());
    let log = server.log();
    assert!(log.contains("Ready to accept connections"), "{log}");
    let pid = pid(&server);
    drop(server);
    assert!(!Path::new(&dir).exists());
    assert_eq!(process_state(pid), None);
}

#[test]
fn cli_survives_its_connection_being_killed() {
    let server = RedisServer::start();
    let id = server.cli(&["CLIENT", "ID"]).int();
    let again = server.cli(&["CLIENT", "ID"]).int();
    assert_eq!(again, id, "one connection is kept");
    let mut other = server.connection();
    let kills = ["CLIENT", "KILL", "ID", &id.to_string()];
    assert_eq!(other.command(&kills).int(), 1);
    assert_ne!(server.cli(&["CLIENT", "ID"]).int(), id);
}

#[test]
fn cli_does_not_queue_behind_a_blocking_call() {
    let server = RedisServer::start();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| server.cli(&["BLPOP", "list", "15"]));
        eventually(SOON, "the client blocks", || {
            server
                .cli(&["INFO", "clients"])
                .text()
                .contains("blocked_clients:1")
        });
        server.cli(&["RPUSH", "list", "item"]);
        assert_eq!(waiter.join().expect("no panic").array()[1].text(), "item");
    });
}

#[test]
fn pipelines_in_order_on_a_connection_of_ones_own() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let words = |line: &str| {
        line.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    };
    let lines = ["MULTI", "INCR n", "LPUSH n x", "EXEC", "GET n"];
    let replies = connection.commands(&lines.map(words));
    assert_eq!(replies.len(), 5);
    assert_eq!(replies[3].array()[0], Reply::Int(1));
    assert!(replies[3].array()[1].error().is_some());
    assert_eq!(replies[4].int(), 1);
    connection.send(&["SUBSCRIBE", "news"]).expect("sent");
    let mut heard = |at: usize| connection.receive().expect("received").array()[at].text();
    assert_eq!(heard(0), "subscribe");
    server.cli(&["PUBLISH", "news", "hello"]);
    assert_eq!(heard(2), "hello");
}

#[test]
fn options_reach_the_server() {
    let server = RedisServer::builder()
        .option("maxmemory", "3mb")
        .option("--maxmemory-policy", "noeviction")
        .arg("--databases")
        .arg("3")
        .start();
    assert_eq!(setting(&server, "maxmemory"), (3 << 20).to_string());
    assert_eq!(setting(&server, "databases"), "3");
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn bad_option_shows_the_servers_message() {
    drop(RedisServer::builder().option("no-such-option", "1").start());
}

#[test]
fn password_is_required_and_used() {
    let server = RedisServer::builder().password("a secret").start();
    assert_eq!(server.password(), Some("a secret"));
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
    let mut stranger = RespConn::connect(server.port());
    is_refused(&stranger.command(&["GET", "a"]), "NOAUTH");
    server.restart();
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
}

#[test]
fn unix_socket_answers() {
    let server = RedisServer::builder().unix_socket().start();
    let mut stream = UnixStream::connect(server.socket_path()).expect("the socket");
    stream.write_all(b"PING\r\n").expect("sent");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("received");
    assert_eq!(&reply, b"+PONG\r\n");
}

fn tls_ping(host: &str, port: u16, ca: &Path) -> String {
    let done = Command::new("redis-cli")
        .args(["--tls", "-h", host, "-p", &port.to_string(), "--cacert"])
        .arg(ca)
        .arg("PING")
        .output()
        .expect("run redis-cli");
    let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    text.into_owned()
}

#[test]
fn tls_is_trusted_by_its_own_ca_only() {
    let server = RedisServer::builder().tls().start();
    let other = RedisServer::builder().tls().start();
    let (port, ca) = (server.tls_port(), server.ca_path());
    assert!(tls_ping("127.0.0.1", port, ca).contains("PONG"));
    let refused = tls_ping("127.0.0.1", port, other.ca_path());
    assert!(refused.contains("certificate verify failed"), "{refused}");
    // redis-cli does not compare names, and accepts a CA as a leaf. Other programs do not.
    let openssl = |words: &str, file: &Path| {
        let done = Command::new("openssl")
            .args(words.split(' '))
            .arg(file)
            .output();
        String::from_utf8(done.expect("run openssl").stdout).expect("text")
    };
    let leaf = ca.with_file_name("server.crt");
    let shown = openssl(
        "x509 -noout -ext subjectAltName,basicConstraints -in",
        &leaf,
    );
    assert!(
        shown.contains("IP Address:127.0.0.1") && shown.contains("DNS:localhost"),
        "{shown}"
    );
    assert!(shown.contains("CA:FALSE"), "{shown}");
    assert!(openssl("x509 -noout -ext basicConstraints -in", ca).contains("CA:TRUE"));
    server.restart();
    assert!(
        tls_ping("localhost", port, ca).contains("PONG"),
        "the same CA after a restart"
    );
}

#[test]
fn replica_follows_its_master() {
    let master = RedisServer::builder().password("pw").start();
    let replica = RedisServer::builder()
        .password("pw")
        .replica_of(master.port())
        .start();
    master.cli(&["SET", "a", "b"]);
    eventually(SOON, "the replica has the key", || {
        replica.cli(&["GET", "a"]) == Reply::Str(b"b".to_vec())
    });
    let info = replica.cli(&["INFO", "replication"]).text();
    assert!(info.contains("master_link_status:up"), "{info}");
}

#[test]
fn paused_server_answers_after_resume() {
    let server = RedisServer::start();
    let pid = pid(&server);
    for round in 1..=3 {
        let mut connection = server.connection();
        connection.set_timeout(SHORT);
        server.pause();
        server.pause();
        assert_eq!(process_state(pid), Some('T'));
        assert!(timed_out(connection.try_command(&["INCR", "n"])));
        server.resume();
        connection.set_timeout(SOON);
        assert_eq!(connection.receive().expect("the late reply").int(), round);
    }
    server.pause();
    drop(server);
    assert_eq!(process_state(pid), None, "also a paused server ends");
}

#[test]
fn killed_server_restarts_empty_on_the_same_port() {
    let server = RedisServer::start();
    server.cli(&["SET", "a", "b"]);
    let (port, first) = (server.port(), pid(&server));
    server.kill();
    server.kill();
    assert_eq!(process_state(first), None);
    assert!(RespConn::try_connect(port).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert!(server.cli(&["GET", "a"]).is_nil());
    let second = pid(&server);
    server.pause();
    server.restart();
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
    assert_eq!(process_state(second), None);
}

#[test]
fn killed_server_keeps_confirmed_writes_if_it_is_persistent() {
    let server = RedisServer::builder()
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .start();
    server.cli(&["SET", "a", "b"]);
    server.kill();
    server.restart();
    assert_eq!(server.cli(&["GET", "a"]).text(), "b");
}

/// With this variable, the test below is the server's owner, which the test without it kills.
const IS_OWNER: &str = "LEASEHOLD_TEST_IS_OWNER";

#[test]
fn server_ends_with_a_killed_owner_even_while_it_is_paused() {
    if env::var_os(IS_OWNER).is_some() {
        let server = RedisServer::start();
        let pid = pid(&server);
        server.pause();
        println!("pid {pid}");
        thread::sleep(Duration::from_mins(1));
        return;
    }
    let name = "server_ends_with_a_killed_owner_even_while_it_is_paused";
    // What the owner leaves behind is removed here.
    let directory = Directory::make("leasehold-owner-").expect("a directory");
    let mut owner = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture"])
        .env(IS_OWNER, "1")
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run this test");
    let lines = BufReader::new(owner.stdout.take().expect("piped")).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| line.split("pid ").nth(1).map(str::to_owned))
        .expect("the server runs");
    let pid = pid.parse().expect("a number");
    assert_eq!(process_state(pid), Some('T'));
    owner.kill().expect("killed");
    owner.wait().expect("ended");
    eventually(SOON, "the server ends", || {
        matches!(process_state(pid), None | Some('Z'))
    });
}

#[test]
fn restart_waits_for_its_port_and_for_its_own_process() {
    let server = RedisServer::start();
    server.kill();
    let squatter = TcpListener::bind(("127.0.0.1", server.port())).expect("the port is free");
    thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart());
        // Simulates a server of another test that won the race for the port.
        let (mut asking, _) = squatter.accept().expect("asked for readiness");
        asking
            .write_all(b"+PONG\r\n$14\r\nprocess_id:1\r\n\r\n")
            .expect("answered");
        thread::sleep(SHORT);
        assert!(!restart.is_finished());
        drop(squatter);
        restart.join().expect("no panic");
    });
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
}

#[test]
#[should_panic(expected = "found 20 ports taken")]
fn start_tries_other_ports_and_says_when_it_gives_up() {
    let squatter = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = squatter.local_addr().expect("bound").port();
    // The option overrides each port that the kit tries.
    let server = RedisServer::builder().option("port", &port.to_string());
    drop(server.start());
}

#[test]
#[should_panic(expected = "the server was killed")]
fn a_killed_server_cannot_be_paused() {
    let server = RedisServer::start();
    server.kill();
    server.pause();
}

#[test]
#[should_panic(expected = "has ended")]
fn a_server_that_ended_by_itself_cannot_be_paused() {
    let server = RedisServer::start();
    let pid = pid(&server);
    server
        .connection()
        .try_command(&["SHUTDOWN", "NOW"])
        .expect_err("the connection is closed");
    eventually(SOON, "the process ends", || process_state(pid) == Some('Z'));
    server.pause();
}

#[test]
#[should_panic(expected = "there is no program /nonexistent/redis-server: apt install")]
fn missing_binary_names_the_remedy() {
    let missing = RedisServer::builder().binary("/nonexistent/redis-server");
    drop(missing.start());
}

/// The test below also runs this test, with another environment.
#[test]
fn start_in_the_present_environment() {
    drop(RedisServer::start());
}

#[test]
fn the_environment_names_the_binary() {
    let done = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "start_in_the_present_environment", "--nocapture"])
        .env("REDIS_SERVER_BIN", "/nonexistent/from-env")
        .output()
        .expect("run this test");
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.contains("there is no program /nonexistent/from-env"),
        "{said}"
    );
}
