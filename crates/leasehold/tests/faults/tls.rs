//! Encrypted connections: to servers with a trusted certificate and without, and to the wrong port.
//!
//! A process reads the trusted authorities from the environment only once. So these tests run another process, an example in which a
//! hundred tasks want one lock, with `SSL_CERT_FILE` set.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use leasehold::rustls::crypto::ring;
use leasehold::rustls::pki_types::pem::PemObject;
use leasehold::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use leasehold::rustls::{ClientConfig, RootCertStore};
use leasehold::{Client, Error, StoreError, StoreErrorKind, Tls};
use testkit::{RedisServer, RedisServerBuilder};

use crate::common::invalid;
use crate::scene::{CANARY, kill_connections, patient, store_error, within};

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

fn tls() -> RedisServerBuilder {
    RedisServer::builder().tls().password(CANARY)
}

fn tls_server() -> RedisServer {
    tls().start()
}

/// A server that wants a certificate of its clients.
fn strict() -> RedisServerBuilder {
    tls().arg("--tls-auth-clients").arg("yes")
}

fn url(server: &RedisServer) -> String {
    format!("rediss://:{CANARY}@127.0.0.1:{}/", server.tls_port())
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

async fn connects(url: &str, tls: impl Into<Tls>) -> Result<Client, Error> {
    let builder = patient().tls(tls);
    within("a verdict", builder.connect(url)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_the_program_names() {
    let (server, other) = (tls_server(), tls_server());
    let url = url(&server);
    let client = connects(&url, config(&server, false))
        .await
        .expect("trusted");
    let lease = client.mutex("a").acquire().await.expect("a lease");
    lease.release().await.expect("held");
    let refused = store_error(connects(&url, config(&other, false)).await);
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_certificate_of_its_clients() {
    let server = strict().start();
    let url = format!("rediss://:{CANARY}@localhost:{}/", server.tls_port());
    let client = connects(&url, config(&server, true))
        .await
        .expect("it has one");
    assert!(client.mutex("a").try_acquire().await.is_ok());
    let refused = store_error(connects(&url, config(&server, false)).await);
    assert_eq!(refused.kind, StoreErrorKind::Untrusted, "{refused}");
}

/// The fingerprint that the client reports of a certificate that it does not trust.
fn fingerprint(refused: &StoreError) -> &str {
    let at = refused.detail.find("sha256:").expect("a fingerprint");
    &refused.detail[at..at + "sha256:".len() + 64]
}

/// Takes and releases a lock, or returns the error of the connection.
async fn lock_over(url: &str, tls: Tls) -> Result<(), StoreError> {
    match connects(url, tls).await {
        Ok(client) => {
            let lease = client.mutex("a").acquire().await.expect("a lease");
            lease.release().await.expect("held");
            Ok(())
        }
        Err(Error::Store(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_signed_certificate_is_trusted_by_its_file_or_its_fingerprint() {
    let server = RedisServer::builder()
        .self_signed()
        .password(CANARY)
        .start();
    let url = url(&server);
    let other = tls_server();
    let stranger = || Tls::new().ca_file(other.ca_path());
    let refused = lock_over(&url, stranger()).await.expect_err("a stranger");
    assert_eq!(refused.kind, StoreErrorKind::Untrusted, "{refused}");
    assert!(
        refused.detail.contains("signed by no authority"),
        "{refused}"
    );
    let pin = fingerprint(&refused).to_owned();

    let own = || Tls::new().ca_file(server.ca_path());
    lock_over(&url, own()).await.expect("its own certificate");
    lock_over(&url, Tls::new().pin(&pin))
        .await
        .expect("the pin");
    let two = Tls::new().pin("0".repeat(64)).pin(pin.to_uppercase());
    lock_over(&url, two).await.expect("one of two pins");
    let elsewhere = || Tls::new().server_name("db.internal");
    lock_over(&url, elsewhere().pin(&pin))
        .await
        .expect("whatever its name is");

    let wrong = Tls::new().pin("0".repeat(64));
    let refused = lock_over(&url, wrong)
        .await
        .expect_err("another certificate");
    assert!(refused.detail.contains("not the pinned one"), "{refused}");
    assert_eq!(fingerprint(&refused), pin);
    let other_name = elsewhere().ca_file(server.ca_path());
    let refused = lock_over(&url, other_name).await.expect_err("another name");
    assert_eq!(refused.kind, StoreErrorKind::Untrusted, "{refused}");
    let said = refused.detail.replace("127.0.0.1, ", "");
    assert!(
        said.contains("is for localhost, not for db.internal"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_of_a_url_are_as_good_as_settings() {
    let server = strict().start();
    let (certificate, key) = server.certificate_paths();
    let url = |host: &str, options: &str| {
        format!(
            "rediss://:{CANARY}@{host}:{}/?tls_ca={}{options}",
            server.tls_port(),
            server.ca_path().display()
        )
    };
    let ours = format!(
        "&tls_cert={}&tls_key={}",
        certificate.display(),
        key.display()
    );
    for url in [
        url("127.0.0.1", &ours),
        url("localhost", &format!("{ours}&tls_name=127.0.0.1")),
    ] {
        let client = within("a client", patient().connect(&url))
            .await
            .expect("trusted");
        assert!(client.mutex("a").try_acquire().await.is_ok());
    }
    let lacks = within("a verdict", patient().connect(&url("127.0.0.1", ""))).await;
    let refused = store_error(lacks);
    assert!(
        refused
            .detail
            .contains("wants a certificate of this client"),
        "{refused}"
    );
    let two_sources = patient().tls(Tls::new());
    let no_file = url("127.0.0.1", "&tls_cert=/no/such");
    for (builder, url, says) in [
        (
            two_sources,
            &url("127.0.0.1", &ours),
            "leave one of them out",
        ),
        (patient(), &no_file, "/no/such"),
    ] {
        let refused = invalid(builder.connect(url).await).to_string();
        assert!(refused.contains(says), "{refused}");
    }
}

/// The client learns of the refusal after its own handshake: over TLS 1.3 by an alert that comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_certificate_of_a_client_is_told_over_each_version() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = strict().arg("--tls-protocols").arg(version).start();
        let other = tls_server();
        let url = url(&server);
        let trusting = || Tls::new().ca_file(server.ca_path());
        let (certificate, key) = other.certificate_paths();
        for tls in [trusting(), trusting().client_certificate(certificate, key)] {
            let refused = lock_over(&url, tls)
                .await
                .expect_err("no certificate of its own");
            assert_eq!(
                refused.kind,
                StoreErrorKind::Untrusted,
                "{version}: {refused}"
            );
            let said = &refused.detail;
            assert!(
                said.contains("certificate of this client"),
                "{version}: {refused}"
            );
            assert!(!refused.may_have_taken_effect, "{version}: {refused}");
        }
        let (certificate, key) = server.certificate_paths();
        let ours = trusting().client_certificate(certificate, key);
        lock_over(&url, ours).await.expect("its own certificate");
    }
}

/// Server and client get other certificates while a lease is held. For a moment the client's files do not fit together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_change_cost_no_lease() {
    let (server, other) = (tls_server(), tls_server());
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.crt");
    fs::copy(server.ca_path(), &ca).expect("a copy");
    let url = url(&server);
    let client = connects(&url, Tls::new().ca_file(&ca))
        .await
        .expect("trusted");
    let lease = client.mutex("a").acquire().await.expect("a lease");
    let again = async || {
        kill_connections(&server);
        let another = within("a new connection", client.mutex("b").acquire()).await;
        another.expect("trusted").release().await.expect("held");
    };
    fs::write(&ca, "this is no certificate yet").expect("write");
    // By the former files.
    again().await;
    let (certificate, key) = other.certificate_paths();
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    server.cli(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        &text(certificate),
        "tls-key-file",
        &text(key),
    ]);
    fs::copy(other.ca_path(), &ca).expect("a copy");
    again().await;
    lease.release().await.expect("held");
}

#[tokio::test]
async fn nothing_is_sent_in_clear_with_tls_configured() {
    let server = tls_server();
    let url = format!("redis://:{CANARY}@127.0.0.1:{}/", server.port());
    let refused = invalid(connects(&url, config(&server, false)).await).to_string();
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
        let error = store_error(asked);
        println!("{error}");
        assert!(error.to_string().contains(&host), "{error}");
        assert!(
            error.to_string().contains("TLS"),
            "what to look at: {error}"
        );
    }
}
