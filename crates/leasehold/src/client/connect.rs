//! Builds a client from its settings and connects it to its store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{Invalid, KeyTemplate, Namespace, Naming};
use tokio::sync::oneshot;

use super::Client;
use super::builder::ClientBuilder;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined};
use crate::error::{Error, StoreError, StoreErrorKind, within};
use crate::lease::{Engine, EngineConfig, EngineHandle, Identity, NoticeSink};
use crate::runtime::Tasks;
#[cfg(feature = "redis")]
use crate::store::QuorumInit;
use crate::store::memory::Memory;
use crate::store::{self, Attach, Store};
use crate::telemetry::{Observation, Telemetry};

impl ClientBuilder {
    /// Connects to the store at `url`; see [`Client::connect`] for the forms of a URL.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL, [`Error::Store`] when the store does not answer as it should.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. No lock has been taken by then.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let target = self.target(url)?;
        self.connect_to(target).await
    }

    /// Connects to a quorum of 3 to 9 independent servers, one URL each: `redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix:`. A
    /// majority of them decides about each lock. The servers must not replicate each other. All clients must name the same servers.
    ///
    /// The URL `redis+quorum://host1,host2,host3/` for [`ClientBuilder::connect`] means the same; see [`Client::connect`].
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Client;
    ///
    /// let client = Client::builder()
    ///     .quorum_longest_ttl(Duration::from_secs(30))
    ///     .connect_quorum(["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"])
    ///     .await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL, for less than 3 or more than 9 servers, for a server that is named twice, and for the
    /// URL of a quorum among the URLs. [`Error::Store`] when less than a majority of the servers answer as they should.
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::connect`].
    #[cfg(feature = "redis")]
    pub async fn connect_quorum(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Client, Error> {
        let target = self.with_settings(store::Target::quorum(urls)?)?;
        self.connect_to(target).await
    }

    async fn connect_to(self, target: store::Target) -> Result<Client, Error> {
        let client = self.build(|attach| store::open(target, attach))?;
        let (telemetry, store) = (&client.engine.telemetry, &client.engine.store);
        telemetry.observe(Observation::Connecting(store.label()));
        if let Err(error) = client
            .run(|engine| async move { engine.telemetry.answered(engine.store.ready().await) })
            .await
        {
            client.engine.close().await;
            return Err(error);
        }
        telemetry.observe(Observation::Connected(store.label()));
        Ok(client)
    }

    /// Gathers the facts that decide whether the store at `url` is fit for locks. On Redis it uses a scratch lock
    /// `leasehold:doctor:*`, removes it, and changes nothing else. It takes about five seconds, or well under one second if
    /// `how` is quick, always in real time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let how = Examination::new(Duration::from_secs(30)).quick(true);
    /// let examined = Client::builder().examine("memory:", &how).await?;
    /// println!("{:?}", examined.facts);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL. [`Error::Store`] if no store answers. A refusal by the store is a fact, not an error.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the examination ends by itself on its own thread, and removes its scratch lock.
    #[cfg(feature = "doctor")]
    pub async fn examine(self, url: &str, how: &Examination) -> Result<Examined, Error> {
        let target = self.target(url)?;
        self.examine_target(target, how).await
    }

    /// The same for a quorum of servers, as [`ClientBuilder::connect_quorum`] takes them. It uses a scratch lock on each server, and takes no
    /// vote.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let how = Examination::new(Duration::from_secs(30));
    /// println!("{:?}", Client::builder().examine_quorum(servers, &how).await?.facts);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::examine`]; [`Error::Store`] if no server answers.
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::examine`].
    #[cfg(all(feature = "doctor", feature = "redis"))]
    pub async fn examine_quorum(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
        how: &Examination,
    ) -> Result<Examined, Error> {
        let target = self.with_settings(store::Target::quorum(urls)?)?;
        self.examine_target(target, how).await
    }

    #[cfg(feature = "doctor")]
    async fn examine_target(
        &self,
        target: store::Target,
        how: &Examination,
    ) -> Result<Examined, Error> {
        self.check_request_timeout()?;
        let how = how.clone().keys(self.naming()?.pattern(&how.keys));
        let limit = self.request_timeout;
        aside("leasehold-doctor", async move {
            store::examine(&target, &how, limit).await
        })
        .await
    }

    /// Marks the servers of a new quorum, so that they vote at once. Without a mark, a server may have lost its data: the first client that
    /// asks it for a vote marks it, and it keeps out until all leases from before have ended. `urls` are the servers, or one URL of a
    /// quorum, as for [`ClientBuilder::connect_quorum`] and [`ClientBuilder::connect`].
    ///
    /// Servers that have the mark of this quorum are left alone. With `again`, other marks are replaced: to change the number of servers or
    /// the longest TTL. Before that, stop all clients. The servers then vote when all leases under the former terms have ended.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, QuorumInit};
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// if Client::builder().init_quorum(servers, false).await? == QuorumInit::New {
    ///     println!("all servers vote now");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL. [`Error::Store`] when a server does not answer, is a replica, is named twice, or has
    /// another mark. Then no server was changed, unless a server failed between the first look and its mark.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the work ends by itself on its own thread.
    #[cfg(feature = "redis")]
    pub async fn init_quorum(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
        again: bool,
    ) -> Result<QuorumInit, Error> {
        self.check_request_timeout()?;
        let urls: Vec<String> = urls
            .into_iter()
            .map(|url| url.as_ref().to_owned())
            .collect();
        let target = match &urls[..] {
            [url] => self.target(url)?,
            urls => self.with_settings(store::Target::quorum(urls)?)?,
        };
        let limit = self.request_timeout;
        aside("leasehold-quorum", async move {
            store::init_quorum(&target, again, limit).await
        })
        .await
    }

    /// A client of `memory`. Other clients of this process may use the same [`Memory`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, Clock, Memory};
    ///
    /// let memory = Memory::new(Clock::system());
    /// let here = Client::builder().embedded(&memory)?;
    /// let there = Client::builder().embedded(&memory)?;
    /// let lease = here.mutex("orders").acquire().await?;
    /// assert!(there.mutex("orders").try_acquire().await?.is_none());
    /// # drop(lease); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting, [`Error::Store`] when the system refuses a thread.
    pub fn embedded(self, memory: &Memory) -> Result<Client, Error> {
        self.build(|attach| Ok(Arc::new(memory.attach(attach))))
    }

    fn target(&self, url: &str) -> Result<store::Target, Invalid> {
        let target = store::Target::parse(url)?;
        #[cfg(feature = "redis")]
        let target = self.with_settings(target)?;
        Ok(target)
    }

    /// Adds the settings for servers.
    #[cfg(feature = "redis")]
    fn with_settings(&self, target: store::Target) -> Result<store::Target, Invalid> {
        let (longest_ttl, durable) = (self.quorum_longest_ttl, self.quorum_durable);
        target.with(&self.access, longest_ttl, durable)
    }

    fn check_request_timeout(&self) -> Result<(), Invalid> {
        within(
            "request timeout",
            self.request_timeout,
            Duration::from_millis(10),
            Duration::from_secs(60),
        )
    }

    /// The key template around the namespace.
    fn naming(&self) -> Result<Naming, Invalid> {
        self.naming_by(self.key_template.as_deref())
    }

    fn naming_by(&self, template: Option<&str>) -> Result<Naming, Invalid> {
        let namespace = self.namespace.as_deref().map(Namespace::new).transpose()?;
        let template = template.map(KeyTemplate::new);
        Ok(Naming::new(
            template.transpose()?.as_ref(),
            namespace.as_ref(),
        ))
    }

    pub(crate) fn build(
        self,
        open: impl FnOnce(Attach) -> Result<Arc<dyn Store>, Error>,
    ) -> Result<Client, Error> {
        self.check_request_timeout()?;
        within(
            "outage timeout",
            self.outage_timeout,
            Duration::ZERO,
            Duration::from_secs(24 * 60 * 60),
        )?;
        let longest = Duration::from_secs(60);
        within("drop timeout", self.drop_timeout, Duration::ZERO, longest)?;
        let limit = self.request_timeout;
        let naming = self.naming()?;
        #[cfg(feature = "entries")]
        let entry_naming = self.naming_by(None)?;
        let identity = Identity::new(self.host)?;

        let wire = NoticeSink::default();
        let (start, started) = oneshot::channel::<BoxFuture<'static, ()>>();
        let main = move || async move {
            // An error: there is no store, so there is nothing to keep.
            if let Ok(run) = started.await {
                run.await;
            }
        };
        let tasks = if self.clock.is_virtual() {
            let tasks = Tasks::here().ok_or_else(no_runtime)?;
            drop(tasks.handle().spawn(main()));
            tasks
        } else {
            Tasks::on_thread(format!("lh-{}", identity.client), main)
                .map_err(|error| StoreError::new("client", StoreErrorKind::Exhausted, error))?
        };
        let attach = Attach {
            client: identity.client,
            listener: wire.listener(),
            clock: self.clock.clone(),
            tasks: tasks.clone(),
            limit,
        };
        let telemetry = Telemetry::here(&self.metric_names);
        let store = open(attach)?;
        let plan = EngineConfig {
            clock: self.clock,
            tasks,
            identity,
            outage_timeout: self.outage_timeout,
            request_timeout: self.request_timeout,
            telemetry,
        };
        let (engine, run) = Engine::new(store, plan, &wire);
        let engine = EngineHandle::new(engine, self.drop_timeout);
        // Fails only if the thread has ended, which every later request will say.
        drop(start.send(run.boxed()));
        Ok(Client {
            #[cfg(feature = "entries")]
            entry_naming,
            engine,
            naming,
            close_limit: (limit * 2).max(Duration::from_secs(1)),
        })
    }
}

/// Does work on a thread of its own, since the caller may be on any executor.
#[cfg(any(feature = "doctor", feature = "redis"))]
async fn aside<T: Send + 'static>(
    thread: &str,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    let main = move || async move {
        // Fails if the caller has gone.
        drop(reply.send(work.await));
    };
    let _started: Tasks = Tasks::on_thread(thread.into(), main)
        .map_err(|error| StoreError::new("client", StoreErrorKind::Exhausted, error))?;
    answer.await.map_err(|_| StoreError::closed())?
}

fn no_runtime() -> Invalid {
    let why = "virtual time follows a tokio runtime, and there is none here: connect inside of one, as in a \
               #[tokio::test(start_paused = true)], or use Clock::system()";
    Invalid::new("clock", "virtual time", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request would time out, or none ever.
    #[cfg(feature = "doctor")]
    #[tokio::test]
    async fn examine_refuses_timeouts_that_connect_refuses() {
        for timeout in [Duration::ZERO, Duration::from_secs(61)] {
            let builder = || Client::builder().request_timeout(timeout);
            let how = Examination::new(Duration::from_secs(30));
            let refused = builder().examine("memory:", &how).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            let refused = builder().connect("memory:").await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
}
