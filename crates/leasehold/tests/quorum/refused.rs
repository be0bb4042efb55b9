//! Servers that are no good as nodes: a replica, one with another password or an unknown certificate, one that does not say which it is,
//! one whose mark is garbage, and a full one. The others decide.

use std::fs;

use leasehold::{Client, Error, NodeView, StoreError, StoreErrorKind};
use testkit::RedisServer;

use crate::common::eventually;
use crate::scene::{NAME, Nodes, TTL, Timed, connect, host, lock, refusal, take};

/// A client can hold the lock without the first server. Without the second one it cannot, and learns about the first.
async fn two_decide(nodes: &Timed, client: &Client, kind: StoreErrorKind, why: &str) {
    let lease = nodes.passing("the lock", take(client)).await;
    nodes.outlives_its_ttl(&lease).await;
    nodes.release(lease).await;

    nodes.0[1].kill();
    let error = nodes.passing("an answer", refusal(client)).await;
    let said = error.to_string();
    assert_eq!(error.kind, kind, "{said}");
    assert!(said.contains(&host(&nodes.0[0])), "{said}");
    assert!(said.contains(why), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica_is_no_node() {
    let (nodes, primary) = (Timed::start(), RedisServer::start());
    let client = nodes.client().await;
    let lease = take(&client).await;
    let port = primary.port().to_string();
    let made = nodes.0[0].cli(&["REPLICAOF", "127.0.0.1", &port]);
    assert_eq!(made.text(), "OK");
    nodes.release(lease).await;
    let newcomer = nodes.client().await;
    let lease = nodes.passing("the lock", take(&newcomer)).await;
    nodes.release(lease).await;
    two_decide(&nodes, &client, StoreErrorKind::ReadOnly, "a replica of").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_password_is_no_node() {
    let server = || RedisServer::builder().virtual_clock();
    let nodes = Timed::of(Nodes::of(vec![
        server().password("right").start(),
        server().start(),
        server().start(),
    ]));
    let hosts = nodes.0.iter().map(host).collect::<Vec<_>>().join(",");
    let url = format!("redis+quorum://:S3CR3T@{hosts}/");
    let client = nodes.connect(&url).await;
    two_decide(&nodes, &client, StoreErrorKind::Denied, "WRONGPASS").await;
    let error = nodes.passing("an answer", refusal(&client)).await;
    let said = format!("{error:?}");
    assert!(!said.contains("S3CR3T"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_say_which_it_is_is_no_node() {
    let nodes = Timed::start();
    let rule = nodes.0[0].cli(&["ACL", "SETUSER", "default", "-info"]);
    assert_eq!(rule.text(), "OK");
    let client = nodes.client().await;
    let why = "ACL SETUSER USER +info; leasehold doctor --acl prints the whole line";
    two_decide(&nodes, &client, StoreErrorKind::Denied, why).await;
    // With the line that the error names, it is a node.
    let rule = nodes.0[0].cli(&["ACL", "SETUSER", "default", "+info"]);
    assert_eq!(rule.text(), "OK");
    let decided = eventually("two servers decide again", async || {
        let taken = lock(&client).try_acquire().await;
        matches!(taken, Ok(Some(_)))
    });
    nodes.passing("two servers decide again", decided).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_mark_is_garbage_says_what_to_do() {
    const MARK: &str = "leasehold:quorum";
    fn says_it(error: &StoreError) {
        let said = error.to_string();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{said}");
        for words in ["its key leasehold:quorum holds no mark", "delete it there"] {
            assert!(said.contains(words), "{said}");
        }
    }
    let nodes = Nodes::start();
    let (holder, client) = (nodes.client().await, nodes.client().await);
    let lease = take(&holder).await;
    nodes.vote(&[0, 1, 2]).await;
    for write in ["SET", "RPUSH"] {
        for server in &nodes.0[..2] {
            server.cli(&["DEL", MARK]);
            server.cli(&[write, MARK, "hello"]);
        }
        says_it(&refusal(&client).await);
        match Client::connect(&nodes.url("")).await {
            Err(Error::Store(error)) => says_it(&error),
            other => panic!("expected a store error, got {other:?}"),
        }
    }
    // A holder can let go over the connection that it has.
    lease.release().await.expect("a majority confirms it");
    nodes.are_clean().await;
    for server in &nodes.0[..2] {
        assert_eq!(server.cli(&["DEL", MARK]).int(), 1);
    }
    let newcomer = nodes.client().await;
    eventually("a quarantine begins", async || {
        let said = refusal(&newcomer).await.to_string();
        said.contains("gives no vote for another")
    })
    .await;
}

/// Servers with certificates of three authorities. Clients need one of the first authority.
fn encrypted() -> Nodes {
    let server = || {
        RedisServer::builder()
            .tls()
            .option("tls-auth-clients", "yes")
    };
    let first = server().start();
    let trusted = first.ca_path().to_str().expect("UTF-8").to_owned();
    let other = || server().option("tls-ca-cert-file", &trusted).start();
    let others = [other(), other()];
    Nodes::of([first].into_iter().chain(others).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_an_unknown_certificate_is_no_node() {
    let nodes = encrypted();
    let address = |node: usize| format!("rediss://127.0.0.1:{}", nodes.0[node].tls_port());
    let folder = tempfile::tempdir().expect("a folder");
    // Trusts the authorities of these servers.
    let url = |trusted: &[usize]| {
        let read = |node: &usize| fs::read_to_string(nodes.0[*node].ca_path()).expect("PEM");
        let file = folder.path().join(format!("{}.crt", trusted.len()));
        fs::write(&file, trusted.iter().map(read).collect::<String>()).expect("a file");
        let hosts = nodes
            .0
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.tls_port()));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        format!("rediss+quorum://{hosts}/?tls_ca={}", file.display())
    };
    let (certificate, key) = nodes.0[0].certificate_paths();
    let ours = format!(
        "&tls_cert={}&tls_key={}",
        certificate.display(),
        key.display()
    );

    for trusted in [&[0, 1, 2][..], &[1, 2]] {
        let client = connect(&format!("{}{ours}", url(trusted))).await;
        let lease = take(&client).await;
        nodes.vote(trusted).await;
        lease.extend(TTL).await.expect("it is held");
        // A look waits only briefly for a server that is slower than a majority.
        let is_late = |view: &NodeView| {
            let error = view.seen.as_ref().err();
            error.is_some_and(|error| error.kind == StoreErrorKind::TimedOut)
        };
        let mut views = Vec::new();
        eventually("all votes, and no late server", async || {
            let seen = client.inspect_nodes(NAME).await.expect("it is open");
            let votes = seen.votes();
            views = seen.nodes;
            votes == trusted.len() && !views.iter().any(is_late)
        })
        .await;
        for (node, view) in views.iter().enumerate() {
            assert_eq!(view.node, address(node));
            assert_eq!(view.seen.is_ok(), trusted.contains(&node), "{view:?}");
            if let Err(error) = &view.seen {
                let said = error.to_string();
                assert_eq!(error.kind, StoreErrorKind::Untrusted, "{said}");
                assert!(said.contains(&address(node)), "{said}");
                assert!(said.contains("signed by no authority"), "{said}");
            }
        }
        lease.release().await.expect("it is held");
        nodes.are_clean().await;
    }
    let all = url(&[0, 1, 2]);
    for (url, why) in [
        (all, "wants a certificate of this client"),
        (format!("{}{ours}", url(&[2])), "signed by no authority"),
    ] {
        let refused = Client::connect(&url).await.expect_err("two refuse");
        let said = refused.to_string();
        assert!(said.contains(&address(0)) && said.contains(why), "{said}");
    }
}

/// The first two addresses lead to one server. With two votes from it, the third would not be needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_two_addresses_is_one_node() {
    let nodes = Timed::start();
    let (twice, other) = (nodes.0[0].port(), nodes.0[1].port());
    let url = format!("redis+quorum://127.0.0.1:{twice},localhost:{twice},127.0.0.1:{other}/");
    let client = nodes.connect(&url).await;
    let refused = async || {
        let inspected = client.inspect_nodes(NAME).await.expect("it is open");
        let errors = inspected.nodes.into_iter().map(|view| view.seen.err());
        errors.collect::<Vec<_>>()
    };
    let asked = eventually("all were asked", async || {
        refused().await.iter().flatten().count() == 1 && refused().await[2].is_none()
    });
    nodes.passing("all were asked", asked).await;
    let errors = refused().await;
    let error = errors.into_iter().flatten().next().expect("one is refused");
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    let why = "each vote must come from a server of its own";
    assert!(error.to_string().contains(why), "{error}");

    let lease = nodes.passing("the lock", take(&client)).await;
    nodes.outlives_its_ttl(&lease).await;
    nodes.release(lease).await;
    nodes.0[1].kill();
    let refusal = eventually("one server is no majority", async || {
        let outcome = lock(&client).try_acquire().await;
        outcome.is_err_and(|error| error.to_string().contains("no majority (2 of 3 nodes"))
    });
    nodes.passing("one server is no majority", refusal).await;
    // A server that is started again is known as one node still.
    nodes.0[1].restart();
    nodes.0[0].restart();
    let connected = eventually("both are connected again", async || {
        refused().await.iter().flatten().count() == 1
    });
    nodes.passing("both are connected again", connected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_with_three_addresses_is_refused() {
    let nodes = Nodes::start_with(|server| server.option("bind", "127.0.0.1 127.0.0.2"));
    let port = nodes.0[0].port();
    let url = format!("redis+quorum://127.0.0.1:{port},localhost:{port},127.0.0.2:{port}/");
    let refused = Client::connect(&url).await.expect_err("one server");
    let said = refused.to_string();
    assert!(
        said.contains("each vote must come from a server of its own"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_gives_no_vote_and_lets_go() {
    let nodes = Timed::start_with(|server| server.option("maxmemory-policy", "noeviction"));
    let client = nodes.client().await;
    let lease = take(&client).await;
    nodes.vote(&[0, 1, 2]).await;
    let full = nodes.0[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(full.text(), "OK");
    // A release takes no memory.
    nodes.release(lease).await;
    nodes.are_clean().await;
    two_decide(&nodes, &client, StoreErrorKind::Full, "OOM").await;
    assert_eq!(nodes.0[0].cli(&["EXISTS", NAME]).int(), 0);
}
