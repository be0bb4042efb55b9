//! Encrypted connections, to a server whose certificate is trusted or not, and to the wrong port.
//!
//! Which authorities are trusted is read from the environment once in a process, so each story runs in a process of its own:
//! this test program again, with `SSL_CERT_FILE` set.

use std::env;
use std::path::Path;
use std::process::Command;

use leasehold::{Client, StoreErrorKind};
use testkit::RedisServer;

use crate::scene::{CANARY, LONG, connect, millis, refused, take, within};

const TARGET: &str = "LEASEHOLD_FAULTS_TLS_URL";

/// Runs the ignored test `story` of this file in another process that trusts `authority`.
fn in_another_process(story: &str, authority: &Path, url: &str) {
    let output = Command::new(env::current_exe().expect("a test has a path"))
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            &format!("tls::{story}"),
        ])
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR")
        .env(TARGET, url)
        .output()
        .expect("run this program again");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    let said = said.concat();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{story}:\n{said}"
    );
}

fn target() -> String {
    env::var(TARGET).expect("set by the test that starts this one")
}

fn tls_server() -> RedisServer {
    RedisServer::builder().tls().password(CANARY).start()
}

#[test]
fn a_server_whose_authority_is_trusted() {
    let server = tls_server();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("rediss://:{CANARY}@{host}:{}/", server.tls_port());
        in_another_process("trusted", server.ca_path(), &url);
    }
    let known = server.cli(&["EXISTS", "{orders}:lh-fence"]).int();
    assert_eq!(known, 1, "it was this server");
}

#[tokio::test]
#[ignore = "started by a_server_whose_authority_is_trusted"]
async fn trusted() {
    let (one, two) = (connect(&target()).await, connect(&target()).await);
    let lease = take(&one, "orders", LONG).await;
    let lock = two.mutex("orders").ttl(LONG);
    let waiting = async {
        let next = within("the waiter's turn", lock.acquire()).await;
        next.expect("granted").release().await.expect("held");
    };
    let giving = async {
        while one
            .inspect("orders")
            .await
            .expect("an answer")
            .queue
            .is_empty()
        {}
        lease.release().await.expect("held");
    };
    tokio::join!(waiting, giving);
}

#[test]
fn a_server_whose_authority_is_not_trusted() {
    let (server, other) = (tls_server(), tls_server());
    let url = format!("rediss://:{CANARY}@127.0.0.1:{}/", server.tls_port());
    in_another_process("not_trusted", other.ca_path(), &url);
}

#[tokio::test]
#[ignore = "started by a_server_whose_authority_is_not_trusted"]
async fn not_trusted() {
    let asked = within("a verdict", Client::connect(&target())).await;
    let error = refused(asked, StoreErrorKind::Unreachable, "rediss://127.0.0.1:");
    println!("{error}");
    assert!(error.detail.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_port() {
    let server = tls_server();
    for (scheme, port) in [("rediss", server.port()), ("redis", server.tls_port())] {
        let host = format!("{scheme}://127.0.0.1:{port}");
        let url = format!("{scheme}://:{CANARY}@127.0.0.1:{port}/");
        let builder = Client::builder().request_timeout(millis(1000));
        let asked = within("a verdict", builder.connect(&url)).await;
        let error = crate::scene::store_error(asked);
        println!("{error}");
        assert!(error.to_string().contains(&host), "{error}");
        assert!(
            error.to_string().contains("TLS"),
            "what to look at: {error}"
        );
    }
}
