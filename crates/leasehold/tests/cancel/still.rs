//! Stores whose clocks stand still, while clients have real time. There nothing ends by its time: neither a lease, nor a grant that its
//! waiter does not claim. Only the store in a file has no clock of its own, and the nodes of a quorum have real time: they refuse fences
//! that are ten seconds ahead of their clocks, and a test may last longer. A lease still outlasts [`crate::SOON`] there.

use leasehold::{Clock, Memory};
use testkit::RedisServer;

use crate::common::Place;

pub(crate) fn memory() -> Place {
    Place::Memory(Memory::new(Clock::manual()))
}

pub(crate) fn local() -> Place {
    Place::local()
}

pub(crate) fn redis() -> Place {
    Place::Redis(Box::new(RedisServer::builder().virtual_clock().start()))
}

/// Makes tests of behaviours, `async fn(Place)`, for every store, with clocks that stand still where they can.
macro_rules! on_every_still_store {
    ($($behaviour:ident)*) => {
        on_every_still_store! { memory: $($behaviour)* }
        on_every_still_store! { local: $($behaviour)* }
        on_every_still_store! { redis: $($behaviour)* }
        $crate::common::on_every_store! { cluster: $($behaviour)* }
        $crate::common::on_every_store! { quorum: $($behaviour)* }
        $crate::common::on_every_store! { majority: $($behaviour)* }
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
