//! Tests of the guard with what a program does not see: its shared loads, and stores that lose or delay messages.

mod client_ends;
mod lost_messages;
mod schedules;
mod stages;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold::entries::{EntryStore, Looked, Taken};
use leasehold::{Client, Clock, Memory, StoreError, StoreErrorKind, testing};
use leasehold_core::LockName;
use leasehold_core::cache::{Reply, Step};
use tokio::time::sleep;

use crate::Cache;
use crate::guard::Guard;

const SECOND: Duration = Duration::from_secs(1);

/// A store in memory on virtual time, and its clients.
struct Scene {
    clock: Clock,
    memory: Memory,
    /// How often the source was read.
    loads: Arc<AtomicU32>,
}

impl Scene {
    fn new() -> Self {
        let clock = Clock::virtual_time();
        let memory = Memory::new(clock.clone());
        Self {
            clock,
            memory,
            loads: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let builder = Client::builder().clock(self.clock.clone());
        builder.embedded(&self.memory).unwrap()
    }

    /// The cache of a new client, which has no other user.
    fn cache(&self) -> Cache {
        Cache::in_process(&self.client(), 10_000, 3_600 * SECOND)
    }
}

/// The number of shared loads of a cache.
fn shared_loads(cache: &Cache) -> usize {
    cache.guard.loads.shared().len()
}

/// What is lost of a step.
#[derive(PartialEq, Eq)]
enum Lost {
    Nothing,
    Request,
    Reply,
}

/// The delay of a request, and that of its reply. A look has no step and no reply.
type Late = Box<dyn Fn(Option<&Step>, Option<&Reply>) -> Duration + Send + Sync>;

/// A network between a client and its store.
struct Network {
    store: Arc<dyn EntryStore>,
    late: Late,
    loses: Box<dyn Fn(&Step) -> Lost + Send + Sync>,
}

impl Network {
    /// A cache of `client` behind a network.
    fn cache(
        client: &Client,
        late: impl Fn(Option<&Step>, Option<&Reply>) -> Duration + Send + Sync + 'static,
        loses: impl Fn(&Step) -> Lost + Send + Sync + 'static,
    ) -> Cache {
        let (late, loses) = (Box::new(late), Box::new(loses));
        let entries = client
            .entries()
            .over(|store| Arc::new(Self { store, late, loses }));
        Cache::over(client, Guard::new(&entries, client.id(), None))
    }

    async fn passes(&self, delay: Duration) {
        // Even a sleep of no time may end later.
        if !delay.is_zero() {
            sleep(delay).await;
        }
    }
}

impl EntryStore for Network {
    fn look<'a>(
        &'a self,
        keys: &'a [LockName],
        watch: bool,
    ) -> BoxFuture<'a, Result<Looked, StoreError>> {
        async move {
            self.passes((self.late)(None, None)).await;
            let looked = self.store.look(keys, watch).await;
            self.passes((self.late)(None, None)).await;
            looked
        }
        .boxed()
    }

    fn take<'a>(
        &'a self,
        key: &'a LockName,
        step: &'a Step,
    ) -> BoxFuture<'a, Result<Taken, StoreError>> {
        async move {
            let mut unreachable = testing::store_error(StoreErrorKind::Unreachable);
            unreachable.may_have_taken_effect = true;
            let lost = (self.loses)(step);
            if lost == Lost::Request {
                return Err(unreachable);
            }
            self.passes((self.late)(Some(step), None)).await;
            let taken = self.store.take(key, step).await;
            let reply = taken.as_ref().ok().map(|taken| &taken.reply);
            self.passes((self.late)(Some(step), reply)).await;
            if lost == Lost::Reply {
                return Err(unreachable);
            }
            taken
        }
        .boxed()
    }
}
