//! Work that is done once among all hosts: [`Mutex::once`].

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::once::{Answer, Firing, Keep, Reply, Run, Step};
use leasehold_core::{Fence, Invalid, Owner};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::{Error, LossCause, Lost, StoreError, StoreErrorKind};
use crate::lease::{Engine, Lease, WaitLimit, unless_lost};
use crate::mutex::Mutex;

/// The first and the longest pause before a step is tried again while the lease lasts.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// One firing of work under a lock: among all hosts, at most one run of it is successful. Made by [`Mutex::once`].
///
/// A lock alone does not do this: it is free again after the work, and a host whose clock is a little behind takes it for the same firing.
/// Here a successful run leaves a *mark* beside the lock. Who comes later finds it, and does not run.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::{Error, Turn};
/// # let client = leasehold::Client::embedded()?;
/// let nightly = client.once("nightly", "2026-11-27");
/// for _ in 0..2 {
///     match nightly.run(async |lease| Ok::<_, Error>(lease.fence())).await? {
///         Turn::Mine(fence) => println!("done under fence {fence}"),
///         Turn::Done(run) => println!("{} has done it at {:?}", run.by.host(), run.at),
///         other => println!("{other:?}"),
///     }
/// }
/// # client.close().await; Ok(()) }
/// ```
///
/// # What counts as a run
///
/// - A run that **succeeds** is marked while its lease lasts, in the same atomic step that checks the lease.
/// - A run that **fails**, is dropped or crashes leaves the firing open. So does one whose lease was lost, even if its work was done to the
///   end: another run may have begun. Make the work safe to repeat, or let the resource compare [fences](crate::Gate).
/// - The next caller of an open firing begins the next run, up to [`Once::tries`].
///
/// All runs of one lock exclude each other, also those of different firings.
///
/// # How long it lasts
///
/// The mark is kept for [`Once::keep`] in the store, by its clock. It lasts as long as the store keeps its data: a failover that loses the
/// last writes, or a Redis without persistence that restarts, may lose it, and then the firing is open. Name a firing by what it is about, such
/// as the date of the report, and not by the clock of the host.
///
/// A quorum keeps no firings: its nodes would have to agree on the mark.
#[derive(Clone)]
#[must_use = "a firing does nothing until it is run"]
pub struct Once {
    mutex: Mutex,
    firing: Result<Firing, Invalid>,
    tries: NonZeroU32,
    keep: Duration,
}

/// Whether it was this caller's turn to do the work of a firing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it says whether the work ran"]
pub enum Turn<T> {
    /// It was. The output of the work, or the number of the run that has begun.
    Mine(T),
    /// The work was done before, by this run.
    Done(PastRun),
    /// As many runs have begun as [may](Once::tries), and none was successful. This is the last one.
    Spent(PastRun),
}

/// A run of a firing that has begun before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastRun {
    /// Who ran: its host, its process id and its note.
    pub by: Owner,
    /// The fence of its lease.
    pub fence: Fence,
    /// Which run of the firing it is, counted from 1.
    pub number: u32,
    /// Whether it was successful, so that the firing is done.
    pub is_done: bool,
    /// When it was marked as done, or when it began if it was not, by the store's clock.
    pub at: SystemTime,
}

impl Client {
    /// One firing of the work under the lock of this name: [`Client::mutex`], then [`Mutex::once`].
    pub fn once(&self, name: impl AsRef<str>, firing: impl AsRef<str>) -> Once {
        self.mutex(name).once(firing)
    }
}

impl Mutex {
    /// The work of one firing under this lock: a date, the time of a cron job, the number of an order. 1 to 256 bytes without control
    /// characters. Does no I/O.
    ///
    /// All settings of the mutex count. [`Mutex::at_least`] counts from the begin of a run.
    pub fn once(&self, firing: impl AsRef<str>) -> Once {
        Once {
            mutex: self.clone(),
            firing: Firing::new(firing.as_ref()),
            tries: NonZeroU32::MAX,
            keep: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }

    /// The time by the clock of the store: in a cluster, of the node that keeps this lock. A firing that is named by it has one name on all
    /// hosts, whatever their own clocks say.
    ///
    /// # Errors
    /// As [`Once::past`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn store_time(&self) -> Result<SystemTime, Error> {
        let answer = self.once("time").ask(Step::Look, false).await?;
        Ok(wall(answer.now_us))
    }
}

impl Once {
    /// How many runs may begin until one is successful. 0 counts as 1. Default: no limit.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = NonZeroU32::new(tries).unwrap_or(NonZeroU32::MIN);
        self
    }

    /// How long the store keeps the firing after its last run: 1 s to 400 days. Default: 7 days. Then it is as if it had never run.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        let name = self.mutex.name.as_ref();
        name.map_or("", |name| name.as_str())
    }

    /// Waits for the lock, and runs `work` if no run was successful before. If `work` returns `Ok`, the firing is done. If it returns an error,
    /// the firing stays open.
    ///
    /// # Errors
    /// The error of `work`. Otherwise, as the error type that `work` names:
    /// - [`Error::Lost`] when the lease was lost. The work was cancelled, or had ended and is not marked as done.
    /// - [`Error::Store`] when the store gave no verdict. If [it says so](StoreError::may_have_taken_effect) and the work has ended, it may be
    ///   marked as done: look with [`Once::past`].
    /// - [`Error::Invalid`] for bad settings, and for a quorum.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` at its current `.await`, and leaves the firing open. Once `work` has ended, the firing may be marked.
    pub async fn run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Turn<T>, E> {
        let turn = self.run_if(WaitLimit::Forever, work).await?;
        turn.ok_or_else(|| Error::from(StoreError::closed()).into())
    }

    /// As [`Once::run`], but waits for the lock for at most `limit`.
    ///
    /// # Errors
    /// As [`Once::run`], and [`Error::Timeout`] when the lock was busy until the limit.
    ///
    /// # Cancel safety
    /// As [`Once::run`].
    pub async fn run_within<T, E: From<Error>>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Turn<T>, E> {
        let turn = self.run_if(WaitLimit::Within(limit), work).await?;
        turn.ok_or_else(|| Error::from(StoreError::closed()).into())
    }

    /// As [`Once::run`], but does not wait. `None` when the lock is held: this firing may run just now, or another one.
    ///
    /// # Errors
    /// As [`Once::run`].
    ///
    /// # Cancel safety
    /// As [`Once::run`].
    pub async fn try_run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Option<Turn<T>>, E> {
        self.run_if(WaitLimit::Once, work).await
    }

    /// Begins a run under this lease of the lock, for a caller that does the work by itself, as in another process. Then call [`Once::finish`].
    /// [`Turn::Mine`] has the number of the run, counted from 1.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Turn;
    /// # let client = leasehold::Client::embedded()?;
    /// let lock = client.mutex("nightly");
    /// let (nightly, lease) = (lock.once("2026-11-27"), lock.acquire().await?);
    /// if let Turn::Mine(number) = nightly.begin(&lease).await? {
    ///     println!("run {number} under fence {}", lease.fence());
    ///     nightly.finish(&lease).await?;
    /// }
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost. [`Error::Store`] when the store gave no verdict that a repeat could change.
    /// [`Error::Invalid`] for bad settings, for a lease of another lock, and for a quorum.
    ///
    /// # Cancel safety
    /// After the future was dropped, the run may count among the [`tries`](Once::tries). Another call tells.
    pub async fn begin(&self, lease: &Lease) -> Result<Turn<u32>, Error> {
        let begin = Step::Begin {
            owner: lease.owner().clone(),
            fence: lease.fence(),
            tries: self.tries,
            keep: Keep::new(self.keep)?,
        };
        Ok(match self.settle(lease, begin).await? {
            Reply::Begun(run) => Turn::Mine(run.number),
            Reply::Finished(run) => Turn::Done(PastRun::of(run, true)),
            Reply::Spent(run) => Turn::Spent(PastRun::of(run, false)),
            Reply::NotHeld | Reply::New => return Err(not_held(lease)),
        })
    }

    /// Marks the firing as done, in a step that checks the lease.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost: the firing stays open. Otherwise as [`Once::begin`]. The firing may be marked if
    /// [the error says so](StoreError::may_have_taken_effect): look with [`Once::past`].
    ///
    /// # Cancel safety
    /// After the future was dropped, the firing may be marked or not. Another call tells.
    pub async fn finish(&self, lease: &Lease) -> Result<(), Error> {
        let finish = Step::Finish {
            owner: lease.owner().clone(),
            fence: lease.fence(),
            keep: Keep::new(self.keep)?,
        };
        let said = match self.settle(lease, finish).await {
            // The answer may have been lost, and not the lease.
            Err(Error::Lost(lost)) => match self.ask(Step::Look, false).await {
                Ok(answer) => answer.reply,
                Err(_) => return Err(lost.into()),
            },
            said => said?,
        };
        match said {
            Reply::Finished(run) if run.fence == lease.fence() => Ok(()),
            _ => Err(not_held(lease)),
        }
    }

    /// The last run of the firing that is known. Changes nothing, and does not wait for the lock.
    ///
    /// # Errors
    /// [`Error::Store`] when the store gave no verdict, [`Error::Invalid`] for a bad name, and for a quorum.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn past(&self) -> Result<Option<PastRun>, Error> {
        Ok(match self.ask(Step::Look, false).await?.reply {
            Reply::Finished(run) => Some(PastRun::of(run, true)),
            Reply::Begun(run) | Reply::Spent(run) => Some(PastRun::of(run, false)),
            Reply::New | Reply::NotHeld => None,
        })
    }

    async fn run_if<T, E: From<Error>>(
        &self,
        limit: WaitLimit,
        work: impl AsyncFnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Option<Turn<T>>, E> {
        let lease = match self.enter(limit).await? {
            None => return Ok(None),
            Some(Turn::Mine(lease)) => lease,
            Some(Turn::Done(past)) => return Ok(Some(Turn::Done(past))),
            Some(Turn::Spent(last)) => return Ok(Some(Turn::Spent(last))),
        };
        let output = unless_lost(lease.lost(), work(&lease)).await;
        let output = output.map_err(Error::from)??;
        self.leave(lease).await?;
        Ok(Some(Turn::Mine(output)))
    }

    /// Takes the lock, and begins a run under it.
    pub(crate) async fn enter(&self, limit: WaitLimit) -> Result<Option<Turn<Lease>>, Error> {
        // Before the lock is taken, so that bad settings and a mark are told at once, also while another firing runs.
        Keep::new(self.keep)?;
        match self.past().await {
            Ok(Some(past)) if past.is_done => return Ok(Some(Turn::Done(past))),
            // Who waits for the lock also waits for the store.
            Err(error) if !error.is_unavailable() || matches!(limit, WaitLimit::Once) => {
                return Err(error);
            }
            Ok(_) | Err(_) => {}
        }
        let Some(lease) = self.mutex.take(limit).await? else {
            return Ok(None);
        };
        let turn = self.begin(&lease).await?;
        let turn = turn.and_then(|_| {
            // Who finds that there is nothing to do keeps the lock for no time.
            self.mutex.keep(&lease);
            Ok::<_, Error>(lease)
        })?;
        Ok(Some(turn))
    }

    /// Ends a successful run.
    pub(crate) async fn leave(&self, lease: Lease) -> Result<(), Error> {
        self.finish(&lease).await?;
        // What the release says does not change that the work is done. Without an answer, it goes on in the background.
        drop(lease.release().await);
        Ok(())
    }

    /// Takes a step by the holder of the lock, again and again until the store answers or the lease is lost.
    async fn settle(&self, lease: &Lease, step: Step) -> Result<Reply, Error> {
        if lease.key() != self.mutex.name.as_ref().map_err(Invalid::clone)?.key() {
            let why = "is the name of the lease's lock, and the firing belongs to another one";
            return Err(Invalid::new("lease", lease.name(), why).into());
        }
        let answer = unless_lost(lease.lost(), self.ask(step, true)).await??;
        Ok(answer.reply)
    }

    /// Takes a step on the client's thread. With `insists`, tries again as long as that may help.
    async fn ask(&self, step: Step, insists: bool) -> Result<Answer, Error> {
        let (name, firing) = (self.mutex.name.clone()?, self.firing.clone()?);
        let asking = |engine: Arc<Engine>| async move {
            let mut pauses = Backoff::new(PAUSE[0], PAUSE[1]);
            loop {
                let Some(answer) = engine.store.once(&name, &firing, &step) else {
                    let kind = StoreErrorKind::Misconfigured;
                    let why = "a quorum keeps no firings; use one server for them";
                    return Err(StoreError::new(engine.store.label(), kind, why));
                };
                match engine.telemetry.answered(answer.await) {
                    Err(error) if insists && error.kind.is_transient() => {
                        engine.clock.sleep(pauses.pause()).await;
                    }
                    answer => return answer,
                }
            }
        };
        self.mutex.engine.run(asking).await
    }
}

impl<T> Turn<T> {
    /// Goes on with what is [`Turn::Mine`].
    pub(crate) fn and_then<U, E>(self, next: impl FnOnce(T) -> Result<U, E>) -> Result<Turn<U>, E> {
        Ok(match self {
            Self::Mine(mine) => Turn::Mine(next(mine)?),
            Self::Done(past) => Turn::Done(past),
            Self::Spent(last) => Turn::Spent(last),
        })
    }
}

impl PastRun {
    fn of(run: Run, is_done: bool) -> Self {
        Self {
            by: run.owner,
            fence: run.fence,
            number: run.number,
            is_done,
            at: wall(run.at_us),
        }
    }
}

fn wall(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// The error for a lease that the store does not know any more.
fn not_held(lease: &Lease) -> Error {
    let lost = lease.loss().unwrap_or_else(|| Lost {
        name: lease.name().to_owned(),
        fence: Some(lease.fence()),
        cause: LossCause::NotHeld(None),
        replaced: None,
    });
    lost.into()
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("mutex", &self.mutex)
            .field("firing", &self.firing)
            .finish_non_exhaustive()
    }
}
