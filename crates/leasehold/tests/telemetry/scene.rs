//! Stores and clients with one time, which only the test lets pass.

use std::time::Duration;

use leasehold::{Client, ClientBuilder, Clock, Memory};
use testkit::{RedisServer, TestTime};
use tokio::time::{sleep, timeout};

use crate::common::{LONG, Place, test_time, timed};

/// A store, and the time of its servers and clients.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) time: TestTime,
    clock: Clock,
}

impl Scene {
    pub(crate) fn memory() -> Self {
        let (time, clock) = test_time(&[]);
        let place = Place::Memory(Memory::new(clock.clone()));
        Self { place, time, clock }
    }

    pub(crate) fn redis() -> Self {
        Self::at(Place::Redis(Box::new(server())))
    }

    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "only its numbers are tested")
    )]
    pub(crate) fn quorum() -> Self {
        Self::at(Place::quorum_of((0..3).map(|_| server()).collect()))
    }

    /// A store of servers with virtual clocks.
    pub(crate) fn at(place: Place) -> Self {
        let (time, clock) = test_time(place.servers());
        Self { place, time, clock }
    }

    /// The server of a store that has one.
    pub(crate) fn server(&self) -> &RedisServer {
        &self.place.servers()[0]
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        timed(&self.clock)
    }

    pub(crate) async fn client(&self) -> Client {
        let client = self.place.connect(self.builder()).await;
        client.expect("it works")
    }

    /// The output of `future`, for which a limit or a deadline has to pass: time passes second by second.
    pub(crate) async fn as_seconds_pass<T>(
        &self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> T {
        let passes = async {
            loop {
                sleep(Duration::from_millis(5)).await;
                self.time.pass(Duration::from_secs(1));
            }
        };
        let first = async {
            tokio::select! {
                output = future => output,
                () = passes => unreachable!("time does not end"),
            }
        };
        timeout(LONG, first).await.expect(what)
    }
}

fn server() -> RedisServer {
    RedisServer::builder().virtual_clock().start()
}
