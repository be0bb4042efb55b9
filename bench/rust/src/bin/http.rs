//! Clients of `leasehold serve`, for `bench/http`: each has a session and a connection, and takes and releases a lock of its own again and again.
//! Prints one line of JSON. A thread per client, since a client in another language is a program of its own.
//!
//!     http ADDRESS CLIENTS SECONDS PAUSE_MS      the token is in LEASEHOLD_TOKEN

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

type Times = Vec<Duration>;

struct Client {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Client {
    fn connect(address: &str, token: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let head = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        Ok(Self {
            stream: BufReader::new(stream),
            head,
        })
    }

    /// The value of a field in the answer, which has this status.
    fn ask(&mut self, line: &str, body: &str, status: &str, field: &str) -> io::Result<String> {
        let length = body.len();
        let kind = "Content-Type: application/json";
        let request = format!(
            "{line} HTTP/1.1\r\n{}{kind}\r\nContent-Length: {length}\r\n\r\n{body}",
            self.head
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut first, mut length) = (String::new(), 0);
        self.stream.read_line(&mut first)?;
        loop {
            let mut header = String::new();
            self.stream.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut document = vec![0; length];
        self.stream.read_exact(&mut document)?;
        let document = String::from_utf8_lossy(&document);
        let begin = format!("\"{field}\":\"");
        let value = document
            .split_once(&begin)
            .and_then(|(_, rest)| rest.split('"').next());
        match value {
            Some(value) if first.contains(status) => Ok(value.to_owned()),
            _ => Err(io::Error::other(format!("{line}: {first}{document}"))),
        }
    }

    /// The times from asking for the lock to the answer, and of its release.
    fn work(
        mut self,
        lock: usize,
        share: f64,
        seconds: f64,
        pause: Duration,
        all: &Barrier,
    ) -> io::Result<[Times; 2]> {
        let session = self.ask(
            "POST /v1/sessions",
            "{\"ttl_ms\":60000}",
            " 201 ",
            "session",
        )?;
        let body =
            format!("{{\"session\":\"{session}\",\"lock\":\"lock:{lock}\",\"wait_ms\":30000}}");
        let mut times = [Vec::new(), Vec::new()];
        all.wait();
        // Otherwise all would ask at once after each pause.
        thread::sleep(pause.mul_f64(share));
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            let asked = Instant::now();
            let lease = self.ask("POST /v1/leases", &body, " 201 ", "lease")?;
            times[0].push(asked.elapsed());
            let asked = Instant::now();
            self.ask(&format!("DELETE /v1/leases/{lease}"), "", " 200 ", "schema")?;
            times[1].push(asked.elapsed());
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
        Ok(times)
    }
}

/// In milliseconds.
fn percentile(times: &Times, share: f64) -> f64 {
    let at = (times.len() as f64 * share) as usize;
    times[at.min(times.len() - 1)].as_secs_f64() * 1e3
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [address, clients, seconds, pause] = &words[..] else {
        return Err("ADDRESS CLIENTS SECONDS PAUSE_MS".into());
    };
    let (clients, seconds) = (clients.parse()?, seconds.parse()?);
    let (pause, token) = (
        Duration::from_millis(pause.parse()?),
        env::var("LEASEHOLD_TOKEN")?,
    );
    let all = Barrier::new(clients);
    let done: io::Result<Vec<_>> = thread::scope(|scope| {
        let works: Vec<_> = (0..clients)
            .map(|lock| {
                let (all, token) = (&all, &token);
                scope.spawn(move || match Client::connect(address, token) {
                    Ok(client) => {
                        client.work(lock, lock as f64 / clients as f64, seconds, pause, all)
                    }
                    // The others wait for all.
                    Err(error) => panic!("{address}: {error}"),
                })
            })
            .collect();
        works
            .into_iter()
            .map(|work| work.join().expect("a client"))
            .collect()
    });
    let done = done?;
    let [acquires, releases] = [0, 1].map(|which| {
        let mut times: Times = done.iter().flat_map(|times| times[which].clone()).collect();
        times.sort_unstable();
        times
    });
    println!(
        "{{\"cycles\":{:.0},\"acquire_p50\":{:.3},\"acquire_p99\":{:.3},\"acquire_max\":{:.3},\"release_p50\":{:.3},\"release_p99\":{:.3}}}",
        acquires.len() as f64 / seconds,
        percentile(&acquires, 0.5),
        percentile(&acquires, 0.99),
        percentile(&acquires, 1.0),
        percentile(&releases, 0.5),
        percentile(&releases, 0.99),
    );
    Ok(())
}
