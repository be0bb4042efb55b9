//! Steps as transactions, one after another. Must never decide a lock rule: `leasehold-core` does, in [`Db::transition`].

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Block, Fence, LockName, Outcome, Owner, Reply, Step, Wake};
use rusqlite::{Connection, Transaction, TransactionBehavior};

#[cfg(feature = "cache")]
use super::cache;
use super::fault::Fault;
use super::process::{self, Process, Processes};
use super::rows::{Rows, signed};
use super::waiters::LocalWaiters;
use super::{file, path};
use crate::clock::{Clock, Moment};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::store::contract::{Attach, Notice};
#[cfg(feature = "cache")]
use crate::store::entries::{Looked, Taken};

/// How many steps pass between two times of tidying up, and how many names one of them touches at most.
const TIDY_EVERY: u32 = 1024;
const TIDY_AT_MOST: usize = 256;
/// The same for cache entries, of which a program has more, and which need only be deleted.
#[cfg(feature = "cache")]
const ENTRIES_AT_MOST: u32 = 2048;

/// One client's connection to the file. Its methods block, for about [`file::BUSY_LIMIT`] at most.
pub(super) struct Db {
    conn: Connection,
    /// What followed `local:` in the URL.
    given: String,
    path: PathBuf,
    /// How errors call this store.
    label: String,
    /// The file that `conn` is open on.
    identity: Option<file::FileId>,
    clock: Clock,
    attach: Attach,
    /// What the client is to be told.
    notices: Vec<Notice>,
    process: Process,
    waiting: LocalWaiters,
    looked_at: Moment,
    steps: u32,
}

impl Db {
    /// Opens the file that `given` means.
    pub(super) fn open(given: &str, attach: Attach, clock: Clock) -> Result<Self, Error> {
        let path::FileLocation { path, mode } = path::locate(given)?;
        let label = path::label(&path);
        if !clock.is_virtual() && !process::has_hosts_clock() {
            let detail = "this process is in a time namespace, so that its deadlines mean nothing to other processes of the host";
            return Err(StoreError::new(label, StoreErrorKind::Unavailable, detail).into());
        }
        let (conn, identity) = file::open(&path, mode, &label)?;
        let (process, waiting, looked_at) =
            (Process::current(), LocalWaiters::default(), clock.now());
        let given = given.to_owned();
        let this = Self {
            conn,
            given,
            path,
            label,
            identity,
            clock,
            attach,
            notices: Vec::new(),
            process,
            waiting,
            looked_at,
            steps: 0,
        };
        this.move_in().map_err(|fault| fault.of(&this.label))?;
        Ok(this)
    }

    /// The clock that deadlines are judged by.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How errors call this store.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The failure of a request that stood in line for too long.
    pub(super) fn timed_out(&self, waited: Duration) -> StoreError {
        StoreError::new(
            &self.label,
            StoreErrorKind::TimedOut,
            format!("other processes kept the file locked for {waited:.1?}"),
        )
    }

    /// Clears what earlier processes left behind, and says that this one is here.
    fn move_in(&self) -> Result<(), Fault> {
        let begun = self.begin()?;
        if !self.clock.is_virtual() {
            file::begin_after_boot(&self.conn, self.clock.store_now())?;
        }
        process::register(&self.conn, self.attach.client, &self.process)?;
        begun.commit()?;
        // Whoever waits for what this frees belongs to another client, which looks for itself. If it fails, steps will too.
        drop(self.tidy());
        file::carry_over_at(&self.conn, file::LOG_AT_WORK)
    }

    /// Takes one step. Time is read inside of the transaction: a step that had to wait is judged by when it is taken.
    pub(super) fn step(&mut self, name: &LockName, step: &Step) -> Result<Reply, StoreError> {
        self.stay_on_the_file()?;
        let key = name.key();
        let outcome = if matches!(step, Step::Inspect) {
            self.look_up(key)
        } else {
            self.carry_out(key, step)
        }?;
        self.waiting
            .note(key, step, &outcome.reply, self.clock.store_now());
        self.tell(key, &outcome);
        self.tidy_if_due();
        Ok(outcome.reply)
    }

    fn tidy_if_due(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(TIDY_EVERY) {
            // If it fails, the next time will do.
            for (key, outcome) in self.tidy().unwrap_or_default() {
                self.tell(&key, &outcome);
            }
        }
    }

    /// The names that are held or waited for.
    pub(super) fn names(&mut self) -> Result<Vec<String>, StoreError> {
        self.stay_on_the_file()?;
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

    /// Takes one step on a cache entry, in a transaction of its own, and says when.
    #[cfg(feature = "cache")]
    pub(super) fn entry_step(
        &mut self,
        key: &LockName,
        step: &leasehold_core::cache::Step,
    ) -> Result<Taken, StoreError> {
        self.stay_on_the_file()?;
        let failed = |fault: Fault| fault.of(&self.label);
        let begun = self.begin().map_err(failed)?;
        let now = self.clock.store_now();
        let reply = cache::step(&self.conn, now, key.key(), step).map_err(failed)?;
        begun
            .commit()
            .map_err(|error| failed(error.into()).unknown())?;
        self.tidy_if_due();
        let now_ms = now.millis();
        Ok(Taken { reply, now_ms })
    }

    /// What is stored under `keys`. Waits for nobody.
    #[cfg(feature = "cache")]
    pub(super) fn entries(&mut self, keys: &[LockName]) -> Result<Looked, StoreError> {
        self.stay_on_the_file()?;
        let now = self.clock.store_now();
        let values = cache::look(&self.conn, now, keys).map_err(|fault| fault.of(&self.label))?;
        let now_ms = now.millis();
        Ok(Looked { values, now_ms })
    }

    /// When to look for grants by other processes; `None` while nobody waits for one.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let pause = self.waiting.pause()?;
        Some(pause.saturating_sub(self.clock.now().since(self.looked_at)))
    }

    /// What to tell the client since this was asked last: by whoever works here, once nothing of this is locked.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Notes for waiters of this client what other processes have granted them. Only a hint, so failures do not matter.
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

    /// The holders of this client, if another connection has changed the file since this was asked last.
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
        Ok(Transaction::new_unchecked(
            &self.conn,
            TransactionBehavior::Immediate,
        )?)
    }

    /// A step that may change the lock.
    fn carry_out(&self, key: &str, step: &Step) -> Result<Outcome, StoreError> {
        let failed = |fault: Fault| fault.of(&self.label);
        let begun = self.begin().map_err(failed)?;
        let outcome = self.transition(key, step).map_err(failed)?;
        begun
            .commit()
            .map_err(|error| failed(error.into()).unknown())?;
        Ok(outcome)
    }

    /// A step that looks only, and so waits for nobody.
    fn look_up(&self, key: &str) -> Result<Outcome, StoreError> {
        let look = || {
            // It ends by being rolled back.
            let _begun = Transaction::new_unchecked(&self.conn, TransactionBehavior::Deferred)?;
            self.transition(key, &Step::Inspect)
        };
        look().map_err(|fault: Fault| fault.of(&self.label))
    }

    /// Lets the rules take one step on the rows of `key`, inside of a transaction.
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
        rows.save(&self.conn, key, (&state, counter), now)?;
        Ok(outcome)
    }

    /// Lets time pass for names that nobody asks for any more, and forgets clients whose process is gone.
    fn tidy(&self) -> Result<Vec<(String, Outcome)>, Fault> {
        #[cfg(feature = "cache")]
        cache::sweep(&self.conn, self.clock.store_now(), ENTRIES_AT_MOST)?;
        // Every step advances the lock, and this one does nothing else: no grant has this fence.
        let advance = Step::Break {
            fence: Fence::new(0),
        };
        let gone: Vec<_> = process::all(&self.conn)?
            .into_iter()
            .filter(|(_, process)| process.is_gone(&self.process))
            .collect();
        let mut keys = self.outdated()?;
        for (client, _) in &gone {
            let mut held = self
                .conn
                .prepare_cached("SELECT key FROM holders WHERE client = ?1")?;
            keys.extend(
                held.query_map([client], |row| row.get(0))?
                    .collect::<rusqlite::Result<Vec<String>>>()?,
            );
        }
        if keys.is_empty() && gone.is_empty() {
            return Ok(Vec::new());
        }
        let begun = self.begin()?;
        let mut outcomes = Vec::new();
        for key in keys.into_iter().take(TIDY_AT_MOST) {
            let outcome = self.transition(&key, &advance)?;
            outcomes.push((key, outcome));
        }
        for (client, _) in gone {
            process::unregister(&self.conn, client)?;
        }
        begun.commit()?;
        Ok(outcomes)
    }

    /// Names with something that has expired.
    fn outdated(&self) -> rusqlite::Result<Vec<String>> {
        let now = signed(self.clock.store_now().millis());
        let sql = "SELECT key FROM holders WHERE expires_at_ms < ?1 UNION
            SELECT key FROM waiters WHERE seen_until_ms < ?1 AND key NOT IN (SELECT key FROM holders)";
        self.conn
            .prepare_cached(sql)?
            .query_map([now], |row| row.get(0))?
            .take(TIDY_AT_MOST)
            .collect()
    }

    /// Notes for the waiters of this client that they were granted a lock. Those of others look for themselves.
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

    /// Moves on if the file was removed or replaced, by a cleaner of temporary files or at the end of a login session: others
    /// share the new one. What the old one knew is lost, which every holder learns when it next extends its lease.
    fn stay_on_the_file(&mut self) -> Result<(), StoreError> {
        if self.identity.is_some() && file::identity(&self.path) == self.identity {
            return Ok(());
        }
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
        next.waiting = std::mem::take(&mut self.waiting);
        next.notices = self.notices();
        next.waiting.seen_version = None;
        *self = next;
        Ok(())
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // Best effort: whoever tidies up next does it otherwise.
        drop(process::unregister(
            &self.conn,
            self.attach.client.get().cast_signed(),
        ));
    }
}
