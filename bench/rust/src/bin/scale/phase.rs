//! A writer before a long line of readers: how long one script stops the server after the release, and when the last of them reads.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::ReadLock;
use leasehold_bench::{Args, Connection, Part, join, now_ns, seconds_since};

use crate::hold;

/// The clients of a process, which may open some 20,000 files.
const EACH: usize = 1000;

/// The longest command in the log of the server, in microseconds.
const LONGEST: &str = "local most = 0
    for _, entry in ipairs(redis.call('SLOWLOG', 'GET', '1000000')) do most = math.max(most, entry[3]) end
    return most";

/// `readers=N`: so many clients wait, each with its own connection.
pub(crate) async fn run(args: &Args) {
    let count: usize = args.get("readers", 10_000);
    let mut redis = Connection::open(args.port());
    redis.ask(&["CONFIG", "SET", "maxclients", &(count + 100).to_string()]);
    let writer = hold::connect(args).await;
    let write = writer.rw_lock("one").write().acquire().await;
    let write = write.expect("it is free");
    let numbers = (0..count).step_by(EACH);
    let mut processes: Vec<_> = numbers
        .map(|first| spawn(args.port(), EACH.min(count - first)))
        .collect();
    let all = count.to_string();
    while redis.ask(&["ZCARD", "{one}:lh-queue"]) != all {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    redis.ask(&["CONFIG", "SET", "slowlog-max-len", "1000000"]);
    redis.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    redis.ask(&["SLOWLOG", "RESET"]);
    // The log counts the time in which the server waits for a core, so the readers leave it both until it has carried out the release.
    signal(&processes, "STOP");
    let released = now_ns();
    write.release().await.expect("it is held");
    let release = longest_ms(&mut redis);
    redis.ask(&["SLOWLOG", "RESET"]);
    signal(&processes, "CONT");
    for process in &mut processes {
        let said = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        assert_eq!(said.map_while(Result::ok).count(), 1, "all of them read");
    }
    let last = seconds_since(released);
    redis.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    let part = Part("phase");
    part.figure("readers", count as f64);
    part.figure("release_ms", release);
    part.figure("longest_script_ms", longest_ms(&mut redis).max(release));
    part.figure("all_read_after_s", last);
}

fn longest_ms(redis: &mut Connection) -> f64 {
    let longest = redis.ask(&["EVAL", LONGEST, "0"]);
    longest.parse::<f64>().expect("a number") / 1000.0
}

fn signal(processes: &[Child], name: &str) {
    let ids = processes.iter().map(|process| process.id().to_string());
    let done = Command::new("kill")
        .arg(format!("-{name}"))
        .args(ids)
        .status();
    assert!(done.is_ok_and(|status| status.success()), "kill -{name}");
}

fn spawn(port: u16, readers: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("phase-readers");
    command.args([format!("port={port}"), format!("readers={readers}")]);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    pipes.spawn().expect("it starts")
}

/// `readers=N` clients of one process. It ends when all of them read.
pub(crate) async fn readers(args: &Args) {
    let mut clients = Vec::new();
    for _ in 0..args.get("readers", EACH) {
        clients.push(hold::connect(args).await);
    }
    let locks = clients.iter().map(|client| client.rw_lock("one").read());
    let leases = join(locks.map(|lock| tokio::spawn(read(lock))).collect()).await;
    println!("{} read", leases.len());
    std::process::exit(0);
}

async fn read(lock: ReadLock) -> leasehold::ReadLease {
    let lease = lock.acquire().await;
    lease.expect("the writer lets it in")
}
