//! Locks of the processes of one host, in an SQLite file. It must not be used across hosts, nor over a fork.
//!
//! Each step is one transaction, in which `leasehold-core` decides on one lock ([`db`]). The file has each lock as one
//! value ([`lock`]). Time is the boot clock, which all processes of the host share. A shared kernel allows two more
//! things. A lock whose holder's process is gone is free at once ([`process`]). A waiting client notices a grant by
//! another process within 5 ms, since it checks whether the file has changed ([`waiters`]).
//!
//! # Guarantees
//!
//! - If a process is killed at any point, the last committed step remains, and no other process is delayed.
//! - If a process is stopped in the middle of a transaction, it delays all others; their steps time out without effect.
//! - A file on a network file system must not be shared by two hosts: each would judge it by its own clock.
//! - If the file is removed or replaced, or one that SQLite keeps beside it, its data may be lost. The next step of a
//!   client notices it ([`places`]); then the client asks for each of its leases. Fences keep rising.

#[cfg(feature = "entries")]
mod cache;
mod db;
mod fault;
mod file;
mod firings;
mod lock;
mod path;
mod process;
#[cfg(test)]
mod tests;

#[cfg(any(feature = "doctor", feature = "entries"))]
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::ready;
#[cfg(feature = "entries")]
use leasehold_core::cache::Step as EntryStep;
use leasehold_core::once::{self, Firing};
use leasehold_core::{LockName, Step};

use self::db::Db;
use self::file::BUSY_LIMIT;
pub use self::path::make_private;
use crate::clock::Clock;
#[cfg(feature = "doctor")]
use crate::doctor::{Examined, Facts, FileFacts};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::runtime;
use crate::store::contract::{
    Answering, Attach, Done, IndexRequest, Listener, Notice, Store, answered,
};
#[cfg(feature = "entries")]
use crate::store::contract::{EntryStore, Looked, Taken};

/// One client's access to the locks in a file. A thread does the blocking work. A request that waits behind timed-out
/// steps times out too.
pub(crate) struct LocalStore {
    worker: Worker,
    /// The name of this store in errors.
    label: String,
    clock: Clock,
    listener: Listener,
}

/// The thread that does the blocking work.
enum Worker {
    /// A thread. When the sender is dropped, it closes the file and ends.
    Thread(Sender<DbJob>),
    /// The caller, on virtual time: a paused runtime does not notice a thread at work and would advance its clock
    /// meanwhile.
    Inline(Box<Mutex<Db>>),
}

type DbJob = Box<dyn FnOnce(&mut Db) + Send>;

impl LocalStore {
    /// Opens the file at `path`, which is the part after `local:` in a URL. If it is empty, opens a file in the user's
    /// runtime directory.
    ///
    /// # Errors [`Error::Invalid`] if the path is invalid, [`Error::Store`] if the file cannot be used.
    pub(crate) fn open(path: &str, attach: Attach) -> Result<Self, Error> {
        let (clock, listener) = (attach.clock.clone(), attach.listener.clone());
        let db = Db::open(path, attach)?;
        let label = db.file.label.clone();
        let worker = if clock.is_virtual() {
            Worker::Inline(Box::new(Mutex::new(db)))
        } else {
            let (sender, requests) = mpsc::channel();
            let tell = listener.clone();
            runtime::thread("leasehold-local".into(), move || {
                serve(db, &requests, &*tell);
            })
            .map_err(|error| StoreError::new(&label, StoreErrorKind::Exhausted, error))?;
            Worker::Thread(sender)
        };
        Ok(Self {
            worker,
            label,
            clock,
            listener,
        })
    }

    /// Does `work` on the file and passes the outcome to `done`. A job that waited for too long times out.
    fn run<T>(
        &self,
        work: impl FnOnce(&mut Db) -> Result<T, StoreError> + Send + 'static,
        done: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        match &self.worker {
            Worker::Inline(db) => {
                // A step that panicked was rolled back.
                let mut db = db.lock().unwrap_or_else(PoisonError::into_inner);
                let outcome = work(&mut db);
                db.file.fill();
                let notices = db.notices();
                drop(db);
                // Outside the lock: a listener may take a step at once.
                notices.into_iter().for_each(&*self.listener);
                done(outcome);
            }
            Worker::Thread(sender) => {
                let (asked, listener) = (self.clock.now(), self.listener.clone());
                let in_time = move |db: &mut Db| {
                    let waited = db.attach.clock.now().since(asked);
                    let outcome = if waited > BUSY_LIMIT {
                        let detail =
                            format!("other processes kept the file locked for {waited:.1?}");
                        Err(StoreError::new(
                            &db.file.label,
                            StoreErrorKind::TimedOut,
                            detail,
                        ))
                    } else {
                        work(db)
                    };
                    db.notices().into_iter().for_each(&*listener);
                    done(outcome);
                    db.file.fill();
                };
                // Fails only when the thread has ended. Then `done` is dropped, which reports an unknown outcome.
                drop(sender.send(Box::new(in_time)));
            }
        }
    }

    /// Does `work` on the file and waits for the outcome. If the thread ends first, the outcome is unknown.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Answering<'_, T> {
        answered(move |tell| self.run(work, move |outcome| drop(tell.send(outcome)))).boxed()
    }
}

/// Does the jobs until all senders are gone. Between them, looks for grants by other processes.
fn serve(mut db: Db, requests: &Receiver<DbJob>, tell: &dyn Fn(Notice)) {
    loop {
        let request = match db.next_look() {
            Some(left) => requests.recv_timeout(left),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match request {
            Ok(work) => work(&mut db),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        db.look_if_due();
        db.notices().into_iter().for_each(tell);
    }
}

impl Store for LocalStore {
    fn label(&self) -> &str {
        &self.label
    }

    /// A process notices waiters of other processes only when it looks, and it looks only while it waits itself.
    fn tells_wanted(&self) -> bool {
        false
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let name = name.clone();
        self.run(
            move |db| db.step(&name, &step),
            move |answer| done.answer(answer),
        );
    }

    fn index(&self, request: IndexRequest) -> Answering<'_, Vec<String>> {
        match request {
            IndexRequest::Read => self.ask(Db::names),
            // The file itself shows every name that is held or waited for.
            IndexRequest::Remember(_) | IndexRequest::Forget(_) => ready(Ok(Vec::new())).boxed(),
        }
    }

    fn once<'a>(
        &'a self,
        name: &'a LockName,
        firing: &'a Firing,
        step: &'a once::Step,
    ) -> Option<Answering<'a, once::Answer>> {
        let (name, firing, step) = (name.clone(), firing.clone(), step.clone());
        Some(self.ask(move |db| db.once_step(&name, &firing, &step)))
    }

    #[cfg(feature = "entries")]
    fn entries(self: Arc<Self>) -> Option<Arc<dyn EntryStore>> {
        Some(self)
    }
}

#[cfg(feature = "entries")]
impl EntryStore for LocalStore {
    fn look<'a>(&'a self, keys: &'a [LockName], _: bool) -> Answering<'a, Looked> {
        let keys = keys.to_vec();
        self.ask(move |db| db.entries(&keys))
    }

    fn take<'a>(&'a self, key: &'a LockName, step: &'a EntryStep) -> Answering<'a, Taken> {
        let (key, step) = (key.clone(), step.clone());
        self.ask(move |db| db.entry_step(&key, &step))
    }
}

/// Opens the file as a client would, and looks at where it is.
///
/// # Errors
/// The file cannot be opened or read.
#[cfg(feature = "doctor")]
pub(crate) async fn examine(given: &str) -> Result<Examined, Error> {
    let attach = Attach {
        client: leasehold_core::ClientId::new(0),
        listener: Arc::new(|_| {}),
        clock: Clock::system(),
        tasks: runtime::Tasks::here().ok_or_else(StoreError::closed)?,
        limit: BUSY_LIMIT,
    };
    let store = LocalStore::open(given, attach)?;
    let names = store.index(IndexRequest::Read).await?;
    let path = path::locate(given)?.path;
    let mut facts = FileFacts::new(&path, rusqlite::version());
    facts.locks = names.len();
    let why = |db: &mut Db| Ok(db.file.refusal.as_ref().map(|why| why.detail.clone()));
    facts.refusal = store.ask(why).await?;
    facts.is_writable = facts.refusal.is_none() && may_write(&path);
    facts.file_system = file::file_system(&path).map(|(name, _)| name.to_owned());
    Ok(Examined::new(path::label(&path), Facts::File(facts)))
}

/// SQLite keeps files beside the file, in the same directory.
#[cfg(feature = "doctor")]
fn may_write(path: &std::path::Path) -> bool {
    use nix::unistd::{AccessFlags, access};

    let write = AccessFlags::W_OK;
    access(path, write).is_ok()
        && path
            .parent()
            .is_none_or(|folder| access(folder, write).is_ok())
}
