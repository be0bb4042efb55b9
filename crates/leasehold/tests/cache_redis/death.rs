//! The test kills the process that loads.

use std::time::Duration;

use testkit::eventually;

use crate::fleet::{Fleet, PLENTY, total};
use crate::source::monotonic;

const LEASE: Duration = Duration::from_secs(2);

/// The delay that a busy machine may add before it runs a process.
const SLACK: Duration = Duration::from_secs(3);

#[test]
fn another_client_takes_over_within_lease_without_leftovers() {
    let mut fleet = Fleet::start(4);
    // The first process loads for longer than the test lasts. The others request the entry meanwhile.
    fleet.processes[0].order("offer key=hot callers=1 takes=60000 lease=2000");
    eventually(PLENTY, "the first one loads", || {
        fleet.source.loads("hot") == 1
    });
    let mut loader = fleet.processes.remove(0);
    fleet.begin("offer key=hot callers=20 takes=20 lease=2000");
    eventually(PLENTY, "the others wait", || {
        let control = fleet.server.cli(&["HKEYS", "{hot}:lh-cache"]);
        let control = control
            .array()
            .iter()
            .filter(|field| field.text().starts_with("w:"));
        control.count() == 3
    });
    assert_eq!(fleet.source.loads("hot"), 1, "the lease was renewed");
    assert_eq!(fleet.source.record("hot")[0].process, loader.id());
    loader.kill();
    let killed = monotonic();
    let told = fleet.end();
    let record = fleet.source.record("hot");
    let next = record[1].at.saturating_sub(killed);
    assert_eq!(fleet.source.loads("hot"), 2, "one took over: {told:?}");
    assert!(next <= LEASE + SLACK, "{next:?}");
    assert_eq!(
        total(&told, "busy") + total(&told, "failed") + total(&told, "error"),
        0,
        "{told:?}"
    );
    fleet.assert_nothing_stays();
    assert!(fleet.keys().len() >= 2, "{:?}", fleet.keys());
}
