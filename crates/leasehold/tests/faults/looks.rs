//! What it costs a server to be looked at.

use std::iter;
use std::time::Duration;

use futures_util::future::join_all;
use testkit::RedisServer;

use crate::scene::{connect, take};

/// A lease that is not renewed during the test.
const HOUR: Duration = Duration::from_secs(3600);

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).text();
    let calls = |line: &str| -> Option<u64> {
        let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
        calls.split(',').next()?.parse().ok()
    };
    stats.lines().filter_map(calls).sum()
}

/// A page or a `watch` looks at all of them each second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_a_thousand_locks_takes_at_most_forty_requests() {
    let server = RedisServer::start();
    let (client, operator) = (connect(&server.url()).await, connect(&server.url()).await);
    let names: Vec<_> = (0..1000).map(|number| format!("job:{number:03}")).collect();
    let leases = join_all(names.iter().map(|name| take(&client, name, HOUR))).await;
    let index = names.iter().flat_map(|name| ["9e15", name]);
    let index: Vec<_> = iter::chain(["ZADD", "leasehold:index"], index).collect();
    server.cli(&index);
    for round in 0..10 {
        let before = scripts(&server);
        let found = operator.inspect_all(|_| true).await.expect("it answers");
        let after = scripts(&server);
        assert_eq!(found.len(), leases.len());
        // Beside them, one request reads the index.
        assert!(after - before < 40, "{round}: {}", after - before);
    }
}
