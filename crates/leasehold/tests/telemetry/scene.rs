//! Stores and clients with one time, which only the test lets pass.

use leasehold::{Client, ClientBuilder, Clock, Memory};
use testkit::{RedisServer, TestTime};

use crate::common::{Place, as_seconds_pass, test_time, timed};

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

    /// The output of `future`, for which a limit or a deadline has to pass.
    pub(crate) async fn as_seconds_pass<T>(
        &self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> T {
        as_seconds_pass(&self.time, what, future).await
    }
}

fn server() -> RedisServer {
    RedisServer::builder().virtual_clock().start()
}
