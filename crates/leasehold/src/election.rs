//! One leader among many processes: [`Client::election`].

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::HolderView;

use crate::backoff::jittered;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::lease::{Engine, Lease, LossWatch, unless_lost};
use crate::mutex::Mutex;

/// The TTL of a term by default: a crashed leader is followed after this time.
const TTL: Duration = Duration::from_secs(10);

/// How long a candidate waits after a term that was lost, or that was shorter than this.
const PAUSE: Duration = Duration::from_secs(1);

/// The shortest time between two looks at the leader.
const LOOK: Duration = Duration::from_millis(10);

/// The election of a leader: a lock whose holder leads. Each lease of it is a *term*, and its [fence](Lease::fence) is the number of the term.
/// Made by [`Client::election`].
///
/// Candidates wait in a queue, and take over in the order in which they came. A leader that steps down is followed at once; one that crashes,
/// after the TTL.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use std::ops::ControlFlow;
/// # let client = leasehold::Client::embedded()?;
/// let election = client.election("indexer").note("10.0.0.7:8080");
/// let served = election
///     .lead(async |term| {
///         println!("leading in term {}", term.fence());
///         ControlFlow::Break("the work of a leader")       // or Continue: campaign again
///     })
///     .await?;
/// # let _ = served; client.close().await; Ok(()) }
/// ```
///
/// **A leader can be paused for longer than its lease**, as any holder of a lock, and then there are two for a while. Send the number of the
/// term with each access to what the leader changes, and let that refuse a lower one: see [`Gate`](crate::Gate).
#[derive(Clone)]
#[must_use = "an election does nothing until someone campaigns"]
pub struct Election {
    client: Client,
    mutex: Mutex,
}

impl Client {
    /// The election of this name. It is the lock of the same name, with a TTL of 10 s. Does no I/O.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            mutex: self.mutex(name).ttl(TTL),
            client: self.clone(),
        }
    }
}

impl Election {
    /// How long a term lasts without renewal: the time until a crashed leader is followed. 10 ms to 24 h; default 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.mutex = self.mutex.ttl(ttl);
        self
    }

    /// A text that others see beside the leader, such as its address. At most 128 bytes. It stays the same for a term.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.mutex = self.mutex.note(note);
        self
    }

    /// The longest time of a term. Then it is lost, and the leader campaigns again behind those who wait: leadership goes round. At least
    /// 10 ms; default: no limit.
    pub fn max_term(mut self, max_term: Duration) -> Self {
        self.mutex = self.mutex.max_hold(max_term);
        self
    }

    /// Waits until this process leads. Releasing or dropping the term steps down.
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn campaign(&self) -> Result<Lease, Error> {
        self.mutex.acquire().await
    }

    /// Campaigns, and does `work` in each term until it returns [`ControlFlow::Break`]. If a term is lost, `work` is cancelled at its next
    /// `.await`, and this process campaigns again. That is another term, with another number.
    ///
    /// `work` gets a watch on its term, and not the lease, so that the future can be spawned.
    ///
    /// After a term that was lost, and after one of less than a second, it waits for about a second first. While the store does not answer, it
    /// goes on campaigning.
    ///
    /// # Errors
    /// As [`Mutex::acquire`], unless a retry [may succeed](Error::is_unavailable).
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` at its current `.await`, and steps down.
    pub async fn lead<B, W: Future<Output = ControlFlow<B>>>(
        &self,
        mut work: impl FnMut(LossWatch) -> W,
    ) -> Result<B, Error> {
        loop {
            let begun = self.mutex.engine.clock.now();
            match self.campaign().await {
                Ok(term) => {
                    let output = unless_lost(term.lost(), work(term.watch())).await;
                    // What the release says does not change what the work has decided.
                    drop(term.release().await);
                    match output {
                        Ok(ControlFlow::Break(output)) => return Ok(output),
                        Ok(ControlFlow::Continue(())) if self.since(begun) >= PAUSE => continue,
                        Ok(ControlFlow::Continue(())) | Err(_) => {}
                    }
                }
                Err(error) if error.is_unavailable() => {}
                Err(error) => return Err(error),
            }
            self.pause(jittered(PAUSE)).await?;
        }
    }

    /// The leader, if there is one: who it is, its note, the number of its term, and since when it leads.
    ///
    /// # Errors
    /// As [`Client::inspect`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn leader(&self) -> Result<Option<HolderView>, Error> {
        let name = self.mutex.name.clone()?;
        Ok(self.client.inspect(name.as_str()).await?.holder)
    }

    /// Watches who leads, by a look each `every`, at least 10 ms. The [first](LeaderWatch::changed) one comes at once.
    pub fn watch_leader(&self, every: Duration) -> LeaderWatch {
        LeaderWatch {
            election: self.clone(),
            every: every.max(LOOK),
            told: (false, None),
        }
    }

    fn since(&self, begun: Moment) -> Duration {
        self.mutex.engine.clock.now().since(begun)
    }

    async fn pause(&self, pause: Duration) -> Result<(), Error> {
        let sleep = |engine: Arc<Engine>| async move {
            engine.clock.sleep(pause).await;
            Ok(())
        };
        self.mutex.engine.run(sleep).await
    }
}

/// Tells each change of the leader. Made by [`Election::watch_leader`].
#[derive(Debug)]
#[must_use = "a watch does nothing until it is asked"]
pub struct LeaderWatch {
    election: Election,
    every: Duration,
    /// Whether it has told, and the leader then.
    told: (bool, Option<HolderView>),
}

impl LeaderWatch {
    /// Waits until another one leads than it told last, or nobody. The first call returns at once.
    ///
    /// A leader that came and went between two looks is not told. The same process in another term is another leader.
    ///
    /// # Errors
    /// As [`Election::leader`]. The next call looks again.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn changed(&mut self) -> Result<Option<HolderView>, Error> {
        loop {
            let leader = self.election.leader().await?;
            if self.told.0 && is_same(self.told.1.as_ref(), leader.as_ref()) {
                self.election.pause(self.every).await?;
            } else {
                self.told = (true, leader.clone());
                return Ok(leader);
            }
        }
    }
}

/// Whether these are one leader in one term.
fn is_same(one: Option<&HolderView>, other: Option<&HolderView>) -> bool {
    let of = |leader: Option<&HolderView>| leader.map(|leader| (leader.who.clone(), leader.fence));
    of(one) == of(other)
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("mutex", &self.mutex)
            .finish_non_exhaustive()
    }
}
