//! Passwords that change while a client lives. The client requests the password at each dial.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use leasehold::doctor::{Examination, Facts};
use leasehold::{Client, Credentials, Error, StoreErrorKind};
use testkit::RedisServer;

use crate::common::invalid;
use crate::scene::{
    CANARY, kill_connections, kill_until_connected, millis, patient, store_error, within,
};

/// The current password, which an operator can change.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicU32>,
}

impl Vault {
    fn put(&self, password: &str) {
        *self.password.lock().expect("no panic") = Some(password.to_owned());
    }

    fn get(&self) -> Result<Credentials, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let password = self.password.lock().expect("no panic").clone();
        let password = password.ok_or("the vault is sealed")?;
        Ok(Credentials::password(password).user("default"))
    }

    async fn connects(&self, url: &str) -> Result<Client, Error> {
        let vault = self.clone();
        let builder = patient().credentials(move || std::future::ready(vault.get()));
        within("a verdict", builder.connect(url)).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_rotated_costs_no_lease() {
    let server = RedisServer::builder().password(CANARY).start();
    let vault = Vault::default();
    vault.put(CANARY);
    let client = vault.connects(&server.url()).await.expect("it is right");
    let lease = client.mutex("a").acquire().await.expect("a lease");
    let asked = vault.asked.load(Ordering::SeqCst);

    server.cli(&["CONFIG", "SET", "requirepass", "of tomorrow"]);
    vault.put("of tomorrow");
    // An existing connection stays. The next dial needs the new password.
    kill_until_connected(&server);
    let renewed = async {
        while let Err(error) = lease.extend(millis(30_000)).await {
            assert!(matches!(error, Error::Store(_)), "{error}");
        }
    };
    within("a renewal", renewed).await;
    assert!(vault.asked.load(Ordering::SeqCst) > asked);
    lease.release().await.expect("held all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_without_credentials_is_asked_again() {
    let server = RedisServer::builder().password(CANARY).start();
    let vault = Vault::default();
    let error = store_error(vault.connects(&server.url()).await);
    assert!(error.to_string().contains("the vault is sealed"), "{error}");
    assert!(error.kind.is_transient() && !error.may_have_taken_effect);

    vault.put("wrong");
    let error = store_error(vault.connects(&server.url()).await);
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");

    vault.put(CANARY);
    vault.connects(&server.url()).await.expect("it is right");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_hangs_or_panics_is_to_blame_and_is_asked_again() {
    let server = RedisServer::builder().password(CANARY).start();
    let turn = Arc::new(AtomicU32::new(0));
    let asked = turn.clone();
    let source = move || {
        let turn = asked.fetch_add(1, Ordering::SeqCst);
        assert!(turn != 1, "the source is broken");
        async move {
            assert!(turn != 2, "the source is broken, and says so late");
            if turn == 3 {
                std::future::pending::<()>().await;
            }
            Ok::<_, String>(Credentials::password(CANARY))
        }
    };
    let builder = Client::builder().request_timeout(millis(6_000));
    let url = server.url();
    let connecting = builder.credentials(source).connect(&url);
    let client = within("a connection", connecting)
        .await
        .expect("it is right");
    let lease = client.mutex("a").acquire().await.expect("a lease");
    kill_connections(&server);
    let renewed = async {
        while let Err(error) = lease.extend(millis(30_000)).await {
            let text = error.to_string();
            let is_known = text.contains("credentials") || !text.contains("port");
            assert!(is_known, "{text}");
        }
    };
    within("a renewal", renewed).await;
    assert!(turn.load(Ordering::SeqCst) > 4);
    lease.release().await.expect("held all the time");
}

#[tokio::test]
async fn a_password_in_clear_is_seen_by_the_doctor() {
    let server = RedisServer::builder().password(CANARY).start();
    let vault = Vault::default();
    vault.put(CANARY);
    // The address of this host as one number, which the client does not recognise as private.
    let url = server.url().replace("127.0.0.1", "2130706433");
    let builder = Client::builder().credentials(move || std::future::ready(vault.get()));
    let how = Examination::new(millis(30_000)).quick(true);
    let examined = builder.examine(&url, &how).await.expect("it answers");
    let Facts::Server(server) = examined.facts else {
        panic!("a server");
    };
    let transport = server.transport;
    assert!(transport.has_password, "{transport:?}");
    assert!(!transport.is_private, "{transport:?}");
    assert!(!transport.is_loopback, "{transport:?}");
}

#[tokio::test]
async fn a_url_that_has_a_password_besides_is_refused() {
    let vault = Vault::default();
    for url in [
        "redis://:S3CR3T@127.0.0.1:1/",
        "redis://app:S3CR3T@127.0.0.1:1/",
    ] {
        let refused = invalid(vault.connects(url).await).to_string();
        assert!(
            refused.contains("credentials") && !refused.contains("S3CR3T"),
            "{refused}"
        );
    }
    assert_eq!(vault.asked.load(Ordering::SeqCst), 0);
}
