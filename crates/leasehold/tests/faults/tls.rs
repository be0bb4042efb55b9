//! Encrypted connections, to a server whose certificate is trusted or not, and to the wrong port.
//!
//! Which authorities are trusted is read from the environment once in a process, so those stories run in a process of their
//! own: an example, in which a hundred tasks want one lock, with `SSL_CERT_FILE` set.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use leasehold::Client;
use testkit::RedisServer;

use crate::scene::{CANARY, millis, within};

/// Runs the example `flash_sale` on the server at `url`, trusting `authority`.
fn flash_sale(authority: &Path, url: &str) -> Output {
    let mut folder = env::current_exe().expect("a test has a path");
    folder.pop();
    folder.pop();
    Command::new(folder.join("examples/flash_sale"))
        .args(["--url", url])
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("cargo builds the examples with the tests")
}

fn tls_server() -> RedisServer {
    RedisServer::builder().tls().password(CANARY).start()
}

#[test]
fn a_server_whose_authority_is_trusted() {
    let server = tls_server();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("rediss://:{CANARY}@{host}:{}/", server.tls_port());
        let done = flash_sale(server.ca_path(), &url);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains("with the lock:    10 of 10"), "{done:?}");
    }
    let known = server.cli(&["EXISTS", "leasehold:fence"]).int();
    assert_eq!(known, 1, "it was this server");
}

#[test]
fn a_server_whose_authority_is_not_trusted() {
    let (server, other) = (tls_server(), tls_server());
    let host = format!("127.0.0.1:{}", server.tls_port());
    let done = flash_sale(other.ca_path(), &format!("rediss://:{CANARY}@{host}/"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        !done.status.success() && said.contains("certificate"),
        "{said}"
    );
    assert!(said.contains(&host) && !said.contains(CANARY), "{said}");
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
