//! The limits of a server's connections.

#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]
#![allow(clippy::disallowed_methods, reason = "a server beside its test")]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use leasehold::Client;
use leasehold_serve::{Address, Guard, LeaseApi, Limits, Listener, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tower::ServiceExt;

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
    // For the request of the last one, which must arrive.
    limits.head = Duration::from_secs(6);
    let (at, _end) = serve(limits).await;
    let mut silent = TcpStream::connect(&at).await.unwrap();
    let mut slow = TcpStream::connect(&at).await.unwrap();
    slow.write_all(b"GET /healthz HT").await.unwrap();
    let mut idle = TcpStream::connect(&at).await.unwrap();
    is_served(&mut idle).await;
    for connection in [&mut silent, &mut slow, &mut idle] {
        assert!(is_closed(connection).await);
    }
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

/// A balancer must see at once that the server ends, while an answer is under way.
#[tokio::test]
async fn a_server_that_ends_refuses_connections_before_its_last_answer() {
    let address = Address::Tcp(([127, 0, 0, 1], 0).into());
    let listener = Listener::bind(&address).await.unwrap();
    let at = listener.address().unwrap().replace("http://", "");
    let (answer, waits) = watch::channel(());
    let slow = get(move || {
        let mut waits = waits.clone();
        async move { drop(waits.changed().await) }
    });
    let router = Server::new(Guard::new(None)).mount(Router::new().route("/slow", slow));
    let (end, ends) = oneshot::channel::<()>();
    let mut limits = Limits::default();
    limits.end = LIMIT;
    let served = tokio::spawn(listener.serve(router.router(), limits, async { drop(ends.await) }));
    let mut asking = TcpStream::connect(&at).await.unwrap();
    let request = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
    asking.write_all(request).await.unwrap();
    while answer.receiver_count() < 2 {
        tokio::task::yield_now().await;
    }
    drop(end);
    while TcpStream::connect(&at).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!served.is_finished());
    drop(answer);
    assert!(is_closed(&mut asking).await);
    served.await.unwrap();
}

/// Sends a request to the routes.
async fn ask(routes: &Router, method: &str, path: &str, body: String) -> (u16, Body) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", "application/json");
    let request = request.body(Body::from(body)).unwrap();
    let answer = routes.clone().oneshot(request).await.unwrap();
    (answer.status().as_u16(), answer.into_body())
}

#[tokio::test]
async fn streams_leave_connections_for_beats() {
    let client = Client::embedded().unwrap();
    let routes = LeaseApi::new(&client).waits(1).routes();
    let opens = "{\"ttl_ms\":60000}".to_owned();
    let (_, opened) = ask(&routes, "POST", "/v1/sessions", opens).await;
    let opened = axum::body::to_bytes(opened, usize::MAX).await.unwrap();
    let opened: serde_json::Value = serde_json::from_slice(&opened).unwrap();
    let session = opened["session"].as_str().unwrap();
    let events = format!("/v1/sessions/{session}/events");
    let stream = ask(&routes, "GET", &events, String::new()).await;
    assert_eq!(stream.0, 200);
    let waits = format!("{{\"session\":\"{session}\",\"lock\":\"x\",\"wait_ms\":1}}");
    let beat = format!("/v1/sessions/{session}/beat");
    for (method, path, body, status) in [
        ("GET", events.as_str(), "", 429),
        ("POST", "/v1/leases", waits.as_str(), 429),
        ("POST", beat.as_str(), "", 200),
    ] {
        let answer = ask(&routes, method, path, body.to_owned()).await;
        assert_eq!(answer.0, status, "{method} {path}");
    }
    drop(stream);
    let waits = ask(&routes, "POST", "/v1/leases", waits).await;
    assert_eq!(waits.0, 201);
}

#[tokio::test]
async fn a_socket_is_replaced_only_if_its_server_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("serve.sock");
    let address = Address::Unix(path.clone());
    let kind = async || Listener::bind(&address).await.unwrap_err().kind();
    // Whose connections fail, but are not refused.
    let other = UnixDatagram::bind(&path).unwrap();
    assert_eq!(kind().await, ErrorKind::AddrInUse);
    assert!(path.exists());
    drop(other);
    fs::remove_file(&path).unwrap();

    let listener = Listener::bind(&address).await.unwrap();
    assert_eq!(kind().await, ErrorKind::AddrInUse);
    // A server that is about to begin, or whose file was removed, is seen too.
    fs::remove_file(&path).unwrap();
    assert_eq!(kind().await, ErrorKind::AddrInUse);
    fs::write(&path, "of another program").unwrap();
    drop(listener);
    assert!(path.exists());
    fs::remove_file(&path).unwrap();
    drop(Listener::bind(&address).await.unwrap());
    assert!(!path.exists());
}
