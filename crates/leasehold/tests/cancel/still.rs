//! Stores whose clocks stand still, while clients have real time. There nothing ends by its time: neither a lease, nor a grant that its
//! waiter does not claim. Only the store in a file has no clock of its own.

use leasehold::{Clock, Memory};
use testkit::RedisServer;

use crate::common::Place;

pub(crate) fn memory() -> Place {
    Place::Memory(Memory::new(Clock::manual()))
}

pub(crate) fn local() -> Place {
    Place::local()
}

fn server() -> RedisServer {
    RedisServer::builder().virtual_clock().start()
}

pub(crate) fn redis() -> Place {
    Place::Redis(Box::new(server()))
}

pub(crate) fn quorum() -> Place {
    Place::quorum_of((0..3).map(|_| server()).collect())
}

pub(crate) fn majority() -> Place {
    quorum().without_one()
}

/// Makes tests of behaviours, `async fn(Place)`, for every store, each with a clock that stands still.
macro_rules! on_every_still_store {
    ($($behaviour:ident)*) => {
        on_every_still_store! { memory: $($behaviour)* }
        on_every_still_store! { local: $($behaviour)* }
        on_every_still_store! { redis: $($behaviour)* }
        on_every_still_store! { quorum: $($behaviour)* }
        on_every_still_store! { majority: $($behaviour)* }
    };
    ($store:ident: $($behaviour:ident)*) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    super::$behaviour($crate::still::$store()).await;
                }
            )*
        }
    };
}
pub(crate) use on_every_still_store;
