//! The server stops, or dies and restarts without its data.

use std::time::Duration;

use leasehold::Client;
use leasehold_cache::Cache;
use testkit::{RedisServer, eventually};
use tokio::runtime::Builder;

use crate::common::LONG;
use crate::fleet::{Fleet, PLENTY, total};

#[test]
fn a_pause_of_the_server_during_a_load_makes_nobody_load_again() {
    let mut fleet = Fleet::start(4);
    fleet.begin("offer key=hot callers=20 takes=300");
    eventually(PLENTY, "it is loaded", || fleet.source.loads("hot") == 1);
    fleet.server.pause();
    std::thread::sleep(Duration::from_millis(500));
    fleet.server.resume();
    let told = fleet.end();
    let told = [told, fleet.all("offer key=hot callers=20")].concat();
    assert_eq!(fleet.source.loads("hot"), 1, "{told:?}");
    assert_eq!(total(&told, "busy"), 0, "{told:?}");
}

/// While the server is away, no process may load, and each call returns an error. After the restart without data, one process loads.
#[test]
fn without_the_server_nobody_loads_and_one_does_when_it_is_back() {
    let mut fleet = Fleet::start(4);
    fleet.store("hot", "");
    fleet.begin("offer key=hot every=10000 endless=1");
    eventually(PLENTY, "they read it", || fleet.commands()["get"] > 50);
    fleet.server.kill();
    eventually(PLENTY, "they are told", || {
        fleet.source.count("refused", "hot") > 20
    });
    assert_eq!(fleet.source.loads("hot"), 1, "nobody loads unguarded");
    fleet.server.restart();
    eventually(PLENTY, "one loads", || fleet.source.loads("hot") > 1);
    fleet.source.sign("enough", "hot");
    let told = fleet.end();
    assert!(total(&told, "error") > 0, "{told:?}");
    assert_eq!(total(&told, "busy"), 0, "{told:?}");
    for process in &mut fleet.processes {
        eventually(PLENTY, "it is connected again", || {
            process.order("offer key=hot callers=1");
            !process.answer().contains_key("error")
        });
    }
    let told = fleet.all("offer key=hot every=4000 calls=100");
    assert_eq!(fleet.source.loads("hot"), 2, "{told:?}");
    assert_eq!(total(&told, "error"), 0, "{told:?}");
    fleet.assert_nothing_stays();
}

/// The runtime that created the clients does not run. Each client's own thread does the work.
#[test]
fn a_blocked_runtime_costs_no_answer() {
    let server = RedisServer::start();
    let runtime = || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime")
    };
    let (blocked, callers, url) = (runtime(), runtime(), server.url());
    let builder = || Client::builder().request_timeout(LONG);
    let connecting = || blocked.block_on(builder().connect(&url)).expect("it works");
    let [reading, loading, changing] = [(); 3].map(|()| Cache::new(&connecting()));
    let found = callers.block_on(reading.get::<u32>("hot"));
    assert!(found.expect("it is answered").is_none());
    let one = || async { Ok::<u32, String>(1) };
    let loaded = callers.block_on(async { loading.get_or_refresh("hot", one).await });
    assert_eq!(*loaded.expect("it is answered"), 1);
    let invalidated = callers.block_on(changing.invalidate("hot"));
    invalidated.expect("it is answered");
}
