//! The limits of a server's connections.

#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]
#![allow(clippy::disallowed_methods, reason = "a server beside its test")]

use std::time::Duration;

use axum::Router;
use leasehold_serve::{Address, Guard, Limits, Listener, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A time limit that only a fault reaches.
const LIMIT: Duration = Duration::from_secs(30);

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A server with these limits: its address, and the sender that ends it when it is dropped.
async fn serve(limits: Limits) -> (String, oneshot::Sender<()>) {
    let address = Address::Tcp(([127, 0, 0, 1], 0).into());
    let listener = Listener::bind(&address).await.unwrap();
    let at = listener.address().unwrap().replace("http://", "");
    let router: Router = Server::new(Guard::new(None)).router();
    let (end, ends) = oneshot::channel::<()>();
    tokio::spawn(listener.serve(router, limits, async { drop(ends.await) }));
    (at, end)
}

/// Asks for the health of the server, and leaves the connection open.
async fn is_served(connection: &mut TcpStream) {
    connection.write_all(HEALTH).await.unwrap();
    let mut answer = [0; 12];
    let read = timeout(LIMIT, connection.read_exact(&mut answer)).await;
    read.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

/// Whether the server has closed the connection, after all that it has sent.
async fn is_closed(connection: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let read = timeout(LIMIT, connection.read_to_end(&mut rest)).await;
    // A reset closes it too.
    read.is_ok()
}

#[tokio::test]
async fn connections_that_say_nothing_are_closed() {
    let mut limits = Limits::default();
    limits.head = Duration::from_millis(200);
    let (at, _end) = serve(limits).await;
    let mut silent = TcpStream::connect(&at).await.unwrap();
    assert!(is_closed(&mut silent).await);
    let mut slow = TcpStream::connect(&at).await.unwrap();
    slow.write_all(b"GET /healthz HT").await.unwrap();
    assert!(is_closed(&mut slow).await);
    let mut idle = TcpStream::connect(&at).await.unwrap();
    is_served(&mut idle).await;
    assert!(is_closed(&mut idle).await);
}

#[tokio::test]
async fn a_connection_too_many_waits_for_the_end_of_another() {
    let mut limits = Limits::default();
    limits.connections = 1;
    let (at, _end) = serve(limits).await;
    let mut first = TcpStream::connect(&at).await.unwrap();
    is_served(&mut first).await;
    let mut second = TcpStream::connect(&at).await.unwrap();
    second.write_all(HEALTH).await.unwrap();
    let mut byte = [0];
    let early = timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(early.is_err(), "{early:?}");
    drop(first);
    is_served(&mut second).await;
}

#[tokio::test]
async fn the_end_waits_for_no_idle_connection() {
    let mut limits = Limits::default();
    limits.end = Duration::from_secs(600);
    let (at, end) = serve(limits).await;
    let mut idle = TcpStream::connect(&at).await.unwrap();
    is_served(&mut idle).await;
    drop(end);
    assert!(is_closed(&mut idle).await);
    assert!(TcpStream::connect(&at).await.is_err());
}
