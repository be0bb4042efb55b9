//! Executes steps as transactions, one after another. The rules are core's, called in [`Db::transition`].

mod tidy;

use std::cell::Cell;
use std::mem;
use std::time::Duration;

use leasehold_core::{Block, LockName, Outcome, Owner, Reply, Step, Wake};
use rusqlite::{Connection, Transaction, TransactionBehavior};

#[cfg(feature = "entries")]
use super::cache;
use super::fault::{Fault, lacks_space, takes_no_writes};
use super::places::Places;
use super::process::{self, Process, Processes};
use super::rows::{Rows, signed};
use super::waiters::LocalWaiters;
use super::{file, path};
use crate::clock::{Clock, Moment};
use crate::error::{Error, Replaced, StoreError, StoreErrorKind};
use crate::store::contract::{Attach, Notice};
#[cfg(feature = "entries")]
use crate::store::entries::{Looked, Taken};

/// One client's connection to the file. Its methods block for about [`file::BUSY_LIMIT`] at most.
pub(super) struct Db {
    conn: Connection,
    /// The part after `local:` in the URL.
    given: String,
    /// The name of this store in errors.
    label: String,
    /// The files that `conn` is open on; `None` once it is closed.
    places: Option<Places>,
    /// Why `conn` only reads; the next step tries again to open the file for writing.
    refusal: Option<StoreError>,
    clock: Clock,
    attach: Attach,
    /// Notices for the client, not yet delivered.
    notices: Vec<Notice>,
    process: Process,
    waiting: LocalWaiters,
    looked_at: Moment,
    steps: u32,
    /// The pages that the file was seen to have.
    pages: Cell<u32>,
    /// The pages at the begin of the transaction that is under way, with those in the log.
    begun_with: Cell<u32>,
    /// A step has added pages that the file does not have yet.
    has_grown: Cell<bool>,
}

impl Db {
    /// Opens the file that `given` names.
    pub(super) fn open(given: &str, attach: Attach, clock: Clock) -> Result<Self, Error> {
        let at = path::locate(given)?;
        let label = path::label(&at.path);
        if !clock.is_virtual() && !process::has_hosts_clock() {
            let detail = "this process is in a time namespace, so its deadlines are not valid for other processes of the host";
            return Err(StoreError::new(label, StoreErrorKind::Unavailable, detail).into());
        }
        let (conn, places, refusal) = match file::open(&at, &label) {
            Ok((conn, places)) => (conn, places, None),
            Err(why) if !takes_no_writes(&why) => return Err(why.into()),
            Err(why) => match file::open_to_read(&at, &label) {
                Ok((conn, places)) => (conn, places, Some(why)),
                Err(_) => return Err(why.into()),
            },
        };
        let (process, waiting, looked_at) =
            (Process::current(), LocalWaiters::default(), clock.now());
        let given = given.to_owned();
        let mut this = Self {
            conn,
            given,
            label,
            places,
            refusal,
            clock,
            attach,
            notices: Vec::new(),
            process,
            waiting,
            looked_at,
            steps: 0,
            pages: Cell::new(file::pages(&at.path)),
            begun_with: Cell::new(0),
            has_grown: Cell::new(false),
        };
        // As in `execute`: there may be room in the log.
        let again = |why| {
            if file::rewind(&this.conn) {
                this.register()
            } else {
                Err(why)
            }
        };
        if this.refusal.is_none()
            && let Err(fault) = this.register().or_else(again)
        {
            let why = fault.of(&this.label);
            if !takes_no_writes(&why) {
                return Err(why.into());
            }
            this.refusal = Some(why);
        }
        Ok(this)
    }

    /// The clock that judges deadlines.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The name of this store in errors.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The error of a request that waited for too long.
    pub(super) fn timed_out(&self, waited: Duration) -> StoreError {
        StoreError::new(
            &self.label,
            StoreErrorKind::TimedOut,
            format!("other processes kept the file locked for {waited:.1?}"),
        )
    }

    /// Registers this process, and cleans up after earlier ones.
    fn register(&self) -> Result<(), Fault> {
        let begun = self.begin()?;
        if !self.clock.is_virtual() {
            file::begin_after_boot(&self.conn, self.clock.store_now())?;
        }
        process::register(&self.conn, self.attach.client, &self.process)?;
        self.has_room()?;
        begun.commit()?;
        // Waiters for a lock that this frees belong to other clients, which look for themselves. If this fails, steps
        // will too.
        drop(self.tidy());
        file::checkpoint_at(&self.conn, file::LOG_PAGES)
    }

    /// Takes one step. Time is read inside the transaction: a step is judged by the time at which it is executed.
    pub(super) fn step(&mut self, name: &LockName, step: &Step) -> Result<Reply, StoreError> {
        self.reopen_if_replaced()?;
        let key = name.key();
        let outcome = if matches!(step, Step::Inspect) {
            self.look_up(key)
        } else {
            self.execute(key, step)
        }?;
        self.waiting
            .note(key, step, &outcome.reply, self.clock.store_now());
        self.tell(key, &outcome);
        self.tidy_if_due();
        Ok(outcome.reply)
    }

    /// The names that are held or waited for.
    pub(super) fn names(&mut self) -> Result<Vec<String>, StoreError> {
        self.reopen_if_replaced()?;
        let now = signed(self.clock.store_now().millis());
        let sql = "SELECT key FROM holders WHERE expires_at_ms >= ?1 UNION SELECT key FROM waiters WHERE seen_until_ms >= ?1";
        let keys = || {
            self.conn
                .prepare_cached(sql)?
                .query_map([now], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()
        };
        keys().map_err(|error| Fault::from(error).of(&self.label))
    }

    /// Takes one step on a cache entry in its own transaction.
    #[cfg(feature = "entries")]
    pub(super) fn entry_step(
        &mut self,
        key: &LockName,
        step: &leasehold_core::cache::Step,
    ) -> Result<Taken, StoreError> {
        self.reopen_if_replaced()?;
        let failed = |fault: Fault| fault.of(&self.label);
        self.refuse()?;
        let begun = self.begin().map_err(failed)?;
        let now = self.clock.store_now();
        let reply = cache::step(&self.conn, now, key.key(), step).map_err(failed)?;
        self.commit(begun)?;
        self.tidy_if_due();
        let now_ms = now.millis();
        Ok(Taken { reply, now_ms })
    }

    /// The values stored under `keys`. Does not wait for writers.
    #[cfg(feature = "entries")]
    pub(super) fn entries(&mut self, keys: &[LockName]) -> Result<Looked, StoreError> {
        self.reopen_if_replaced()?;
        let now = self.clock.store_now();
        let values = cache::look(&self.conn, now, keys).map_err(|fault| fault.of(&self.label))?;
        let now_ms = now.millis();
        Ok(Looked { values, now_ms })
    }

    /// When to look for grants by other processes; `None` if no request waits.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let pause = self.waiting.pause()?;
        Some(pause.saturating_sub(self.clock.now().since(self.looked_at)))
    }

    /// Takes the notices for the client. The caller delivers them without holding a lock.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    /// Looks for grants by other processes to waiters of this client. Failures do not matter, since wakes are hints.
    pub(super) fn look_if_due(&mut self) {
        if self.next_look().is_none_or(|left| !left.is_zero()) {
            return;
        }
        self.looked_at = self.clock.now();
        self.waiting.looked();
        for owner in self.holders_if_changed().unwrap_or_default() {
            if let Some(key) = self.waiting.granted(&owner) {
                let wake = Wake {
                    owner,
                    fence: None,
                    block: Block::ONE,
                    at_us: 0,
                    queued: 0,
                };
                self.notices.push(Notice::Granted { key, wake });
            }
        }
        self.waiting.forget_silent(self.clock.store_now());
    }

    /// The holders of this client, if another connection has changed the file since the last call.
    fn holders_if_changed(&mut self) -> rusqlite::Result<Vec<Owner>> {
        let version = self
            .conn
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if self.waiting.seen_version.replace(version) == Some(version) {
            return Ok(Vec::new());
        }
        let mut select = self
            .conn
            .prepare_cached("SELECT owner FROM holders WHERE client = ?1")?;
        let tokens = select.query_map([self.attach.client.get().cast_signed()], |row| {
            row.get::<_, String>(0)
        })?;
        Ok(tokens
            .filter_map(|token| Owner::parse(&token.ok()?))
            .collect())
    }

    fn begin(&self) -> Result<Transaction<'_>, Fault> {
        let begun = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)?;
        self.begun_with.set(file::page_count(&self.conn)?);
        Ok(begun)
    }

    /// Refuses a transaction that adds pages to a file on a full disk. There may be room for them in the log. But no
    /// checkpoint could write them to the file, and when the log is full, no holder could renew.
    fn has_room(&self) -> Result<(), Fault> {
        let pages = file::page_count(&self.conn)?;
        if pages > self.begun_with.get() && lacks_space(&self.label) {
            return Err(Fault::NoSpace);
        }
        self.has_grown.set(pages > self.pages.get());
        Ok(())
    }

    /// Gives the file the pages that a step has added. It may sync the disk, so the answer to the step comes first.
    pub(super) fn fill(&self) {
        // Best effort: the next step tries again.
        if self.has_grown.take()
            && let Ok(pages) = file::fill(&self.conn, self.pages.get())
        {
            self.pages.set(pages);
        }
    }

    /// The error of every step that writes, while the file can only be read.
    fn refuse(&self) -> Result<(), StoreError> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    /// Why the file cannot be written now, if it can only be read.
    #[cfg(feature = "doctor")]
    pub(super) fn refusal(&self) -> Option<&StoreError> {
        self.refusal.as_ref()
    }

    /// Executes a step that may change the lock. If the log cannot grow, writes to its start again: a holder that no
    /// process can replace, since none can write, renews its lease in the space that the file has.
    fn execute(&self, key: &str, step: &Step) -> Result<Outcome, StoreError> {
        self.refuse()?;
        match self.execute_once(key, step) {
            Err(why) if takes_no_writes(&why) && self.is_in_place() && file::rewind(&self.conn) => {
                self.execute_once(key, step)
            }
            outcome => outcome,
        }
    }

    fn execute_once(&self, key: &str, step: &Step) -> Result<Outcome, StoreError> {
        let failed = |fault: Fault| fault.of(&self.label);
        let begun = self.begin().map_err(failed)?;
        let outcome = self.transition(key, step).map_err(failed)?;
        self.commit(begun)?;
        Ok(outcome)
    }

    /// Commits a step. If the files were replaced meanwhile, other processes may not see it.
    fn commit(&self, begun: Transaction<'_>) -> Result<(), StoreError> {
        self.has_room().map_err(|fault| fault.of(&self.label))?;
        begun
            .commit()
            .map_err(|error| Fault::from(error).of(&self.label).unknown())?;
        if self.is_in_place() {
            return Ok(());
        }
        let detail = format!("{} meanwhile", Replaced::File);
        Err(StoreError::new(&self.label, StoreErrorKind::Unavailable, detail).unknown())
    }

    /// Executes a step that only reads, and so does not wait for writers.
    fn look_up(&self, key: &str) -> Result<Outcome, StoreError> {
        let look = || {
            // One state of the file for all reads.
            let _begun = Transaction::new_unchecked(&self.conn, TransactionBehavior::Deferred)?;
            self.transition(key, &Step::Inspect)
        };
        look().map_err(|fault: Fault| fault.of(&self.label))
    }

    /// Applies one step of the rules to the rows of `key`, inside a transaction.
    fn transition(&self, key: &str, step: &Step) -> Result<Outcome, Fault> {
        let rows = Rows::load(&self.conn, key)?;
        let presence = Processes {
            db: &self.conn,
            client: self.attach.client,
            observer: &self.process,
        };
        let mut state = rows.state();
        let (mut counter, now) = (rows.counter(), self.clock.store_now());
        let outcome = state.apply(&mut counter, now, step, &presence);
        // A step that only reads has to work on a file that cannot be written.
        if !matches!(step, Step::Inspect) {
            rows.save(&self.conn, key, (&state, counter), now)?;
        }
        Ok(outcome)
    }

    /// Queues notices for the waiters of this client that were granted a lock. Other clients look for themselves.
    fn tell(&mut self, key: &str, outcome: &Outcome) {
        for wake in outcome
            .wakes
            .iter()
            .filter(|wake| wake.owner.client() == self.attach.client)
        {
            self.waiting.granted(&wake.owner);
            self.notices.push(Notice::Granted {
                key: key.into(),
                wake: wake.clone(),
            });
        }
    }

    /// Opens the file again if it was removed or replaced, or one beside it: by a cleaner of temporary files, at the end
    /// of a login session, or when a backup is restored. Other processes share the new files, which may lack the last
    /// steps. So the client asks for its leases again.
    fn reopen_if_replaced(&mut self) -> Result<(), StoreError> {
        if self.is_in_place() {
            return Ok(());
        }
        // Before the file is opened again, since SQLite gives a new connection the shared memory of the old one.
        self.close();
        let mut next =
            Self::open(&self.given, self.attach.clone(), self.clock.clone()).map_err(|error| {
                match error {
                    Error::Store(error) => error,
                    other => StoreError::new(
                        &self.label,
                        StoreErrorKind::Unreachable,
                        format!("the file is gone: {other}"),
                    ),
                }
            })?;
        next.waiting = mem::take(&mut self.waiting);
        next.notices = self.notices();
        if self.refusal.is_none() {
            next.notices
                .extend([Notice::Replaced(Replaced::File), Notice::Reconnected]);
        }
        next.waiting.seen_version = None;
        *self = next;
        Ok(())
    }

    /// True if other processes that open the file see the steps of this connection.
    fn is_in_place(&self) -> bool {
        self.refusal.is_none() && self.places.as_ref().is_some_and(Places::are_kept)
    }

    /// Closes the files. A connection to nothing replaces the one to them; without memory for it, they stay open.
    fn close(&mut self) {
        if let Ok(none) = Connection::open_in_memory() {
            file::close(mem::replace(&mut self.conn, none), self.places.take());
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if self.is_in_place() {
            // Best effort: otherwise the next cleanup of any process does it.
            drop(process::unregister(
                &self.conn,
                self.attach.client.get().cast_signed(),
            ));
        }
        self.close();
    }
}
