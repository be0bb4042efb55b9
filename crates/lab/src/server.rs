//! Connections to servers, and questions to private ones.

use std::time::Duration;

use testkit::RedisServer;

/// The time limit for an answer of a private server.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// A new connection to a server, on which each answer may take so long.
pub(crate) fn connect(url: &str, limit: Duration) -> redis::RedisResult<redis::Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    Ok(connection)
}

/// Sends a command on a new connection.
pub(crate) fn ask<T: redis::FromRedisValue>(
    server: &RedisServer,
    words: &[&str],
) -> Result<T, String> {
    let asked = connect(&server.url(), ANSWER).and_then(|mut connection| {
        let mut command = redis::Cmd::new();
        command.arg(words).query(&mut connection)
    });
    asked.map_err(|error| format!("{}: {error}", words.join(" ")))
}

/// Makes a server a replica of the one on this port, or a primary.
pub(crate) fn follow(server: &RedisServer, port: Option<u16>) -> Result<(), String> {
    let port = port.map(|port| port.to_string());
    match port {
        Some(port) => ask(server, &["REPLICAOF", "127.0.0.1", &port]),
        None => ask(server, &["REPLICAOF", "NO", "ONE"]),
    }
}

/// The time on a server's clock, in microseconds.
pub(crate) fn time_us(server: &RedisServer) -> Result<i64, String> {
    let (seconds, micros): (i64, i64) = ask(server, &["TIME"])?;
    Ok(seconds * 1_000_000 + micros)
}
