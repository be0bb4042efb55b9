//! Encrypted connections: to servers with a trusted certificate and without, and to the wrong port.
//!
//! A process reads the trusted authorities from the environment only once. So these tests run another process, an example in which a
//! hundred tasks want one lock, with `SSL_CERT_FILE` set.

use std::env;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use leasehold::rustls::crypto::ring;
use leasehold::rustls::pki_types::pem::PemObject;
use leasehold::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use leasehold::rustls::{ClientConfig, RootCertStore};
use leasehold::{Client, Error, StoreErrorKind};
use testkit::RedisServer;

use crate::scene::{CANARY, patient, within};

/// The time limit of a server that does not answer. A stall only lets it end later.
const EXPIRES_SOON: Duration = Duration::from_secs(1);

/// Runs the example `flash_sale` on the server at `url`. The example trusts `authority`.
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

/// A configuration that trusts only this server's authority, and has a client certificate if `with_certificate` is true.
fn config(server: &RedisServer, with_certificate: bool) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(server.ca_path()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    if !with_certificate {
        return config.with_no_client_auth();
    }
    let (certificate, key) = server.certificate_paths();
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    config
        .with_client_auth_cert(vec![certificate], key)
        .expect("they belong together")
}

async fn connects(url: &str, config: ClientConfig) -> Result<Client, Error> {
    let builder = patient().tls(config);
    within("a verdict", builder.connect(url)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_the_program_names() {
    let (server, other) = (tls_server(), tls_server());
    let url = format!("rediss://:{CANARY}@127.0.0.1:{}/", server.tls_port());
    let client = connects(&url, config(&server, false))
        .await
        .expect("trusted");
    let lease = client.mutex("a").acquire().await.expect("a lease");
    lease.release().await.expect("held");
    let refused = crate::scene::store_error(connects(&url, config(&other, false)).await);
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_certificate_of_its_clients() {
    let builder = RedisServer::builder().tls().password(CANARY);
    let server = builder.arg("--tls-auth-clients").arg("yes").start();
    let url = format!("rediss://:{CANARY}@localhost:{}/", server.tls_port());
    let client = connects(&url, config(&server, true))
        .await
        .expect("it has one");
    assert!(client.mutex("a").try_acquire().await.is_ok());
    let refused = crate::scene::store_error(connects(&url, config(&server, false)).await);
    assert_eq!(refused.kind, StoreErrorKind::Unreachable, "{refused}");
}

#[tokio::test]
async fn nothing_is_sent_in_clear_with_tls_configured() {
    let server = tls_server();
    let url = format!("redis://:{CANARY}@127.0.0.1:{}/", server.port());
    let Err(Error::Invalid(refused)) = connects(&url, config(&server, false)).await else {
        panic!("it was taken");
    };
    let refused = refused.to_string();
    assert!(refused.contains("rediss://"), "{refused}");
    assert!(!refused.contains(CANARY), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_port() {
    let server = tls_server();
    for (scheme, port) in [("rediss", server.port()), ("redis", server.tls_port())] {
        let host = format!("{scheme}://127.0.0.1:{port}");
        let url = format!("{scheme}://:{CANARY}@127.0.0.1:{port}/");
        let builder = Client::builder().request_timeout(EXPIRES_SOON);
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
