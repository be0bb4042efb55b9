//! The telemetry of a cluster names its nodes.

use leasehold::Client;
use testkit::RedisCluster;
use tracing::subscriber::set_default;

use crate::common::{TTL, eventually, take};
use crate::listener::Listener;
use crate::recorder::Numbers;

#[tokio::test]
async fn each_node_of_a_cluster_is_lost_and_restored_by_its_name() {
    let (listener, numbers) = (Listener::default(), Numbers::default());
    let _listening = set_default(listener.clone());
    // A node has its series from its first failure on, which the client's thread counts.
    metrics::set_global_recorder(numbers.clone()).expect("no other test sets one");
    let cluster = RedisCluster::start(2, 0);
    let store = format!("redis+cluster://{}", cluster.addresses());
    let client = Client::connect(&store).await.expect("it works");
    let nodes_of = |message: &str| -> Vec<String> {
        let all = listener.all(message);
        assert!(
            all.iter().all(|said| said.fields["store"] == store),
            "{all:?}"
        );
        all.iter().map(|said| said.fields["node"].clone()).collect()
    };
    let mut urls = Vec::new();
    // The URL begins with the first node.
    for node in cluster.nodes().iter().rev() {
        let names = (0..).map(|number| format!("n{number}"));
        let mut here =
            names.filter(|name| cluster.primary(cluster.slot(name)).port() == node.port());
        let lease = take(&client, &here.next().expect("a name")).await;
        node.kill();
        urls.push(format!("redis://{}", node.address()));
        eventually("lost", async || nodes_of("connection lost") == urls).await;
        lease.extend(TTL).await.expect_err("its node is dead");
        let all = numbers.all().into_iter();
        let of_node = |series: &String| series.contains(urls.last().expect("one"));
        let failures: i64 = all.filter(of_node).map(|series| numbers.sum(&series)).sum();
        assert!(failures > 0, "{:?}", numbers.all());
        drop(lease);
        if urls.len() == 1 {
            node.restart();
            eventually("restored", async || nodes_of("connection restored") == urls).await;
            cluster.settle();
        }
    }
}
