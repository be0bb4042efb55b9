//! A minimal blocking Redis client, for the bare commands and for `INFO`.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::Duration;

/// The script that deletes a key if it has this value.
pub const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// Appends a command to `buffer`.
pub fn encode(buffer: &mut Vec<u8>, command: &[&str]) {
    let mut put = |text: String| buffer.extend_from_slice(text.as_bytes());
    put(format!("*{}\r\n", command.len()));
    for word in command {
        put(format!("${}\r\n{word}\r\n", word.len()));
    }
}

/// One blocking connection.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("redis-server answers");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self(BufReader::new(stream))
    }

    pub fn send(&mut self, command: &[&str]) {
        let mut buffer = Vec::new();
        encode(&mut buffer, command);
        self.send_bytes(&buffer);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("a connection");
    }

    pub fn time_limit(&self, limit: Duration) {
        let set = self.0.get_ref().set_read_timeout(Some(limit));
        set.expect("a time limit");
    }

    /// True if a byte arrives within the time limit.
    pub fn has_more(&mut self) -> bool {
        self.0.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// The next reply. An array has one item per line.
    pub fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply");
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1.min(line.len()));
        match kind {
            "$" if rest != "-1" => {
                let mut body = vec![0; rest.parse::<usize>().expect("a length") + 2];
                self.0.read_exact(&mut body).expect("a reply");
                body.truncate(body.len() - 2);
                String::from_utf8_lossy(&body).into_owned()
            }
            "*" | ">" if rest != "-1" => self.items(rest, 1),
            "%" => self.items(rest, 2),
            "-" => panic!("redis-server: {rest}"),
            _ => rest.to_owned(),
        }
    }

    fn items(&mut self, count: &str, each: usize) -> String {
        let count = each * count.parse::<usize>().expect("a length");
        let items: Vec<_> = (0..count).map(|_| self.reply()).collect();
        items.join("\n")
    }

    pub fn ask(&mut self, command: &[&str]) -> String {
        self.send(command);
        self.reply()
    }

    /// CPU time of the server so far, in seconds.
    pub fn server_cpu(&mut self) -> f64 {
        let mut used = |field| self.info::<f64>("cpu", field);
        used("used_cpu_user") + used("used_cpu_sys")
    }

    /// A number from `INFO`.
    pub fn info<T: FromStr<Err: Debug>>(&mut self, section: &str, field: &str) -> T {
        let text = self.ask(&["INFO", section]);
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.unwrap_or_else(|| panic!("INFO {section} has no {field}"));
        value.trim().parse().expect("a number")
    }
}
