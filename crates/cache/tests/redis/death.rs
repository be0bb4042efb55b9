//! The test kills the process that loads.

use std::thread;
use std::time::Duration;

use testkit::{RedisServer, eventually};

use crate::fleet::{Fleet, PLENTY, total, waiters};

const LEASE: Duration = Duration::from_secs(60);

/// The lease ends by the server's clock, which only this test moves.
#[test]
fn another_client_takes_over_within_lease_without_leftovers() {
    let server = RedisServer::builder().virtual_clock().start();
    let mut fleet = Fleet::of(server, 4);
    // The first process loads for longer than the test lasts. The others request the entry meanwhile.
    fleet.processes[0].order("offer key=hot callers=1 closed=1 lease=60000");
    eventually(PLENTY, "the first one loads", || {
        fleet.source.loads("hot") == 1
    });
    let mut loader = fleet.processes.remove(0);
    fleet.begin("offer key=hot callers=20 takes=20 lease=60000");
    eventually(PLENTY, "the others wait", || {
        waiters(&fleet.server, "hot") == 3
    });
    loader.kill();
    let clock = fleet.server.clock();
    let moment = Duration::from_millis(1);
    clock.advance(LEASE.saturating_sub(moment));
    // Long enough for each of the others to ask.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(fleet.source.loads("hot"), 1, "its lease is not over");
    clock.advance(2 * moment);
    let told = fleet.end();
    assert_eq!(fleet.source.loads("hot"), 2, "one took over: {told:?}");
    let refused = total(&told, "busy") + total(&told, "error");
    assert_eq!(refused, 0, "{told:?}");
    fleet.assert_nothing_stays();
    assert!(fleet.keys().len() >= 2, "{:?}", fleet.keys());
}
