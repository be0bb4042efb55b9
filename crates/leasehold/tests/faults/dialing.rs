//! Streams that a function of the program makes: tunnels to a server whose name nobody can look up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Error, StoreErrorKind, blocking};
use testkit::{RedisServer, ReservedPort};
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::common::{self, invalid};
use crate::executor::executor;
use crate::scene::{
    LONG, PLENTY, Timed, beside, has_its_turn, is_free, patient, queue_up, queued, refused,
    store_error, take, within,
};

/// The time limit of a function that does not end. A stall only lets it end later.
const EXPIRES_SOON: Duration = Duration::from_secs(1);

/// A name that only the function knows, and its port.
const NOWHERE: &str = "redis://locks.invalid:7777/";

/// The way to a server through tunnels, which a test can count.
#[derive(Clone)]
struct Way {
    to: Arc<AtomicU16>,
    dialed: Arc<AtomicU32>,
}

impl Way {
    fn to(port: u16) -> Self {
        let (to, dialed) = (Arc::new(port.into()), Arc::default());
        Self { to, dialed }
    }

    /// The near end of a tunnel, whose far end is at the server. Its task runs where the function does.
    async fn tunnel(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        assert_eq!((host, port), ("locks.invalid", 7777));
        self.dialed.fetch_add(1, Ordering::SeqCst);
        let at = ("127.0.0.1", self.to.load(Ordering::SeqCst));
        let mut server = TcpStream::connect(at).await?;
        let (near, mut far) = duplex(1024);
        let carry = async move { drop(copy_bidirectional(&mut far, &mut server).await) };
        drop(Handle::current().spawn(carry));
        Ok(near)
    }

    fn dialed(&self) -> u32 {
        self.dialed.load(Ordering::SeqCst)
    }

    fn by(&self, builder: ClientBuilder) -> ClientBuilder {
        let way = self.clone();
        builder.dial(move |host: String, port| {
            let way = way.clone();
            async move { way.tunnel(&host, port).await }
        })
    }
}

/// The clock stands still, so a waiter does not poll: it hears of its turn over the tunnel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_behind_tunnels_exclude_and_wake_each_other() {
    let timed = Timed::start();
    let way = Way::to(timed.proxy.port());
    let connected = || async {
        let builder = way.by(common::timed(&timed.clock));
        let client = within("a connection", builder.connect(NOWHERE)).await;
        client.expect("the tunnel leads to it")
    };
    let (one, two) = (connected().await, connected().await);
    assert_eq!(one.store(), NOWHERE.trim_end_matches('/'));
    let lease = take(&one, "orders", LONG).await;
    let waiter = queue_up(&timed.server, &two, "orders", LONG);
    lease.release().await.expect("held");
    has_its_turn(waiter).await;

    // Both tunnels break. Each client makes another one.
    let lease = take(&one, "orders", LONG).await;
    let dialed = way.dialed();
    timed.proxy.cut();
    let renewed = async { while lease.extend(LONG).await.is_err() {} };
    timed.passing("a renewal", renewed).await;
    let again = || way.dialed() >= dialed + 2;
    timed.eventually("both dial again", again).await;
    let waiter = beside(two.mutex("orders").ttl(LONG).acquire_owned());
    let waits = || queued(&timed.server, "orders") == 1;
    timed.eventually("it waits", waits).await;
    lease.release().await.expect("held all the time");
    timed.has_its_turn(waiter).await;
    assert!(is_free(&timed.server, "orders"));
}

/// The tunnel belongs to the client, and not to the executor on which the client was made.
#[test]
fn a_tunnel_outlives_the_executor_of_the_caller() {
    let server = RedisServer::start();
    let way = Way::to(server.port());
    let executor = executor();
    let connecting = async { within("a connection", way.by(patient()).connect(NOWHERE)).await };
    let client = executor.block_on(connecting).expect("it works");
    drop(executor);
    let client = blocking::Client::from(client);
    let lease = client.mutex("orders").acquire().expect("it is free");
    assert!(!is_free(&server, "orders"));
    lease.release().expect("held");
    assert_eq!(way.dialed(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_the_function_is_that_of_the_client() {
    let fails = |_: String, _: u16| async {
        Err::<TcpStream, _>(io::Error::other("the bastion wants another key"))
    };
    let connecting = patient().dial(fails).connect(NOWHERE);
    let kind = StoreErrorKind::Unreachable;
    let error = refused(within("a verdict", connecting).await, kind, "locks.invalid");
    let text = error.to_string();
    let says = "the dial function failed: the bastion wants another key";
    assert!(
        text.contains(says) && !error.may_have_taken_effect,
        "{text}"
    );

    let panics = |_: String, _: u16| async move {
        let broken: Option<TcpStream> = None;
        broken.ok_or_else(|| panic!("the function is broken"))
    };
    let connecting = patient().dial(panics).connect(NOWHERE);
    let text = store_error(within("a verdict", connecting).await).to_string();
    assert!(text.contains("it panicked"), "{text}");

    let hangs = |_: String, _: u16| std::future::pending::<io::Result<TcpStream>>();
    let hasty = Client::builder().request_timeout(EXPIRES_SOON).dial(hangs);
    let error = store_error(within("a verdict", hasty.connect(NOWHERE)).await);
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");

    // There is nobody to dial at a port that is closed, and no name to look up.
    let nobody = ReservedPort::new();
    let connecting = Way::to(nobody.number()).by(patient()).connect(NOWHERE);
    let text = store_error(within("a verdict", connecting).await).to_string();
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_socket_file_is_not_dialed() {
    let way = Way::to(1);
    let refused = way.by(patient()).connect("unix:/run/redis.sock").await;
    let text = invalid(refused).to_string();
    assert!(text.contains("dial function"), "{text}");
    // Other stores have nothing to dial.
    let client = way.by(patient()).connect("memory:").await;
    assert!(client.is_ok_and(|client| client.store() == "memory:"));
}

/// The certificate has to be that of the host in the URL, wherever the tunnel leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_goes_through_the_tunnel() {
    let server = RedisServer::builder().tls().start();
    let (port, ca) = (server.tls_port(), server.ca_path().display());
    for (host, is_known) in [("localhost", true), ("other.invalid", false)] {
        let dial = move |_: String, _: u16| TcpStream::connect(("127.0.0.1", port));
        let url = format!("rediss://{host}:7777/?tls_ca={ca}");
        let connecting = patient().dial(dial).connect(&url);
        match within("a verdict", connecting).await {
            Ok(client) => {
                assert!(is_known);
                take(&client, "orders", PLENTY)
                    .await
                    .release()
                    .await
                    .expect("held");
            }
            Err(Error::Store(error)) => {
                assert!(
                    !is_known && error.kind == StoreErrorKind::Untrusted,
                    "{error}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
}
