//! Executes steps as transactions, one after another. The rules are core's, called in [`Db::transition`].

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::time::Duration;

use leasehold_core::once::{self, Firing};
use leasehold_core::{
    Block, Fence, LockName, Now, Outcome, Owner, Presence, Reply, Step, WAITER_GRACE, Waiter, Wake,
};

#[cfg(feature = "entries")]
use super::cache;
use super::fault::{Fault, takes_no_writes};
use super::file::{LOG_PAGES, OpenFile};
use super::lock::{self, StoredLock, signed};
use super::process::{self, Process};
use super::{file, firings, path};
use crate::clock::Moment;
use crate::error::{Error, Replaced, StoreError, StoreErrorKind};
use crate::store::contract::{Attach, Notice, Scope};
#[cfg(feature = "entries")]
use crate::store::entries::{Looked, Taken};

/// How many steps pass between two cleanups, and how many names one cleanup touches at most.
const TIDY_EVERY: u32 = 1024;
const TIDY_AT_MOST: usize = 256;
/// How many cache entries one cleanup deletes at most. There are more of them, and deleting is cheap.
#[cfg(feature = "entries")]
const ENTRIES_AT_MOST: u32 = 2048;

/// One client's access to the file. Its methods block for about [`file::BUSY_LIMIT`] at most.
pub(super) struct Db {
    pub(super) file: OpenFile,
    /// The part after `local:` in the URL.
    given: String,
    /// Its clock judges deadlines.
    pub(super) attach: Attach,
    /// Notices for the client, not yet delivered.
    notices: Vec<Notice>,
    process: Process,
    waiting: LocalWaiters,
    looked_at: Moment,
    steps: u32,
}

impl Db {
    /// Opens the file that `given` names.
    pub(super) fn open(given: &str, attach: Attach) -> Result<Self, Error> {
        let at = path::locate(given)?;
        let label = path::label(&at.path);
        if !attach.clock.is_virtual() && !process::has_hosts_clock() {
            let detail = "this process is in a time namespace, so its deadlines are not valid for other processes of the host";
            return Err(StoreError::new(label, StoreErrorKind::Unavailable, detail).into());
        }
        let file = OpenFile::open(&at, label)?;
        let mut this = Self {
            file,
            given: given.to_owned(),
            looked_at: attach.clock.now(),
            attach,
            notices: Vec::new(),
            process: Process::current(),
            waiting: LocalWaiters::default(),
            steps: 0,
        };
        if this.file.refusal.is_none()
            && let Err(mut why) = this.register()
        {
            // An opening is no step, so it has no effect that a caller asks for.
            why.may_have_taken_effect = false;
            if !takes_no_writes(&why) {
                return Err(why.into());
            }
            this.file.refusal = Some(why);
        }
        Ok(this)
    }

    /// Registers this process, and cleans up after earlier ones.
    fn register(&self) -> Result<(), StoreError> {
        self.file.write(|| {
            if !self.attach.clock.is_virtual() {
                file::begin_after_boot(&self.file.conn, self.attach.clock.store_now())?;
            }
            process::register(&self.file.conn, self.attach.client, &self.process)?;
            Ok(())
        })?;
        // Waiters for a lock that this frees belong to other clients, which look for themselves.
        drop(self.tidy());
        let file = &self.file;
        file.ask(|| Ok(file::checkpoint_at(&file.conn, LOG_PAGES)?))
    }

    /// Takes one step. Time is read inside the transaction: a step is judged by the time at which it is executed.
    pub(super) fn step(&mut self, name: &LockName, step: &Step) -> Result<Reply, StoreError> {
        self.reopen_if_replaced()?;
        let key = name.key();
        let transition = || self.transition(key, step);
        let outcome = if matches!(step, Step::Inspect) {
            self.file.read(transition)
        } else {
            self.file.write(transition)
        }?;
        self.waiting
            .note(key, step, &outcome.reply, self.attach.clock.store_now());
        self.tell(key, &outcome);
        self.tidy_if_due();
        Ok(outcome.reply)
    }

    /// The names that are held or waited for.
    pub(super) fn names(&mut self) -> Result<Vec<String>, StoreError> {
        self.reopen_if_replaced()?;
        let now = signed(self.attach.clock.store_now().millis());
        self.file.ask(|| Ok(self.keys(lock::LIVE, now)?))
    }

    /// Takes one step on a firing of a lock in its own transaction.
    pub(super) fn once_step(
        &mut self,
        name: &LockName,
        firing: &Firing,
        step: &once::Step,
    ) -> Result<once::Answer, StoreError> {
        self.reopen_if_replaced()?;
        let transition = || {
            let now = self.attach.clock.store_now();
            firings::step(&self.file.conn, now, name.key(), firing, step)
        };
        let answer = if matches!(step, once::Step::Look) {
            self.file.read(transition)
        } else {
            self.file.write(transition)
        }?;
        self.tidy_if_due();
        Ok(answer)
    }

    /// Takes one step on a cache entry in its own transaction.
    #[cfg(feature = "entries")]
    pub(super) fn entry_step(
        &mut self,
        key: &LockName,
        step: &leasehold_core::cache::Step,
    ) -> Result<Taken, StoreError> {
        self.reopen_if_replaced()?;
        let taken = self.file.write(|| {
            let now = self.attach.clock.store_now();
            Ok(Taken {
                reply: cache::step(&self.file.conn, now, key.key(), step)?,
                now_ms: now.millis(),
            })
        })?;
        self.tidy_if_due();
        Ok(taken)
    }

    /// The values stored under `keys`. Does not wait for writers.
    #[cfg(feature = "entries")]
    pub(super) fn entries(&mut self, keys: &[LockName]) -> Result<Looked, StoreError> {
        self.reopen_if_replaced()?;
        let now = self.attach.clock.store_now();
        let file = &self.file;
        let values = file.ask(|| cache::look(&file.conn, now, keys))?;
        let now_ms = now.millis();
        Ok(Looked { values, now_ms })
    }

    /// When to look for grants by other processes; `None` if no request waits.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let pause = (!self.waiting.owners.is_empty()).then_some(self.waiting.pause)?;
        Some(pause.saturating_sub(self.attach.clock.now().since(self.looked_at)))
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
        self.looked_at = self.attach.clock.now();
        // Slowly longer. A lock that is held for a moment is then handed over in a fraction of that moment, and a lock
        // that is held for long costs little to wait for.
        self.waiting.pause = (self.waiting.pause * 5 / 4).min(LOOK_EVERY);
        for owner in self.holders_if_changed().unwrap_or_default() {
            if let Some(WaiterEntry { key, .. }) = self.waiting.owners.remove(&owner) {
                let wake = Wake {
                    owner,
                    fence: None,
                    slot: None,
                    block: Block::ONE,
                    at_us: 0,
                    queued: 0,
                };
                self.notices.push(Notice::Granted { key, wake });
            }
        }
        let now_ms = self.attach.clock.store_now().millis();
        let waiters = &mut self.waiting.owners;
        waiters.retain(|_, waiter| waiter.until_ms >= now_ms);
    }

    /// The holders of the locks that this client waits for, if another connection has changed the file since the last
    /// call.
    fn holders_if_changed(&mut self) -> rusqlite::Result<Vec<Owner>> {
        let conn = &self.file.conn;
        let version = conn
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if self.waiting.seen_version.replace(version) == Some(version) {
            return Ok(Vec::new());
        }
        // Many waiters may wait for one lock, which is read once.
        let waiters = self.waiting.owners.values();
        let keys: BTreeSet<&str> = waiters.map(|waiter| waiter.key.as_str()).collect();
        let holders = |key| StoredLock::holders(&self.file.conn, key).unwrap_or_default();
        let holders = keys.into_iter().flat_map(holders);
        Ok(holders.map(|holder| holder.owner).collect())
    }

    /// Applies one step of the rules to the lock with this key, inside a transaction.
    fn transition(&self, key: &str, step: &Step) -> Result<Outcome, Fault> {
        let before = StoredLock::load(&self.file.conn, key)?;
        let (mut lock, now) = (before.clone(), self.attach.clock.store_now());
        let outcome = lock.state.apply(&mut lock.counter, now, step, self);
        // Writes nothing after an inspection, which has to work on a file that cannot be written.
        lock.save(&before, &self.file.conn, key, now)?;
        Ok(outcome)
    }

    /// Queues notices for the waiters of this client that were granted a lock. Other clients look for themselves.
    fn tell(&mut self, key: &str, outcome: &Outcome) {
        let client = self.attach.client;
        let wakes = outcome.wakes.iter();
        for wake in wakes.filter(|wake| wake.owner.client() == client) {
            self.waiting.owners.remove(&wake.owner);
            let (key, wake) = (key.into(), wake.clone());
            self.notices.push(Notice::Granted { key, wake });
        }
    }

    /// Cleans up once in many steps.
    fn tidy_if_due(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(TIDY_EVERY) {
            // If this fails, the next cleanup will do the work.
            for (key, outcome) in self.tidy().unwrap_or_default() {
                self.tell(&key, &outcome);
            }
        }
    }

    /// Applies the passage of time to unused names, and forgets clients whose process is gone.
    fn tidy(&self) -> Result<Vec<(String, Outcome)>, StoreError> {
        let now = self.attach.clock.store_now();
        self.file.ask(|| firings::sweep(&self.file.conn, now))?;
        #[cfg(feature = "entries")]
        self.file
            .ask(|| cache::sweep(&self.file.conn, now, ENTRIES_AT_MOST))?;
        let (keys, gone) = self.file.ask(|| self.unused(now))?;
        if keys.is_empty() && gone.is_empty() {
            return Ok(Vec::new());
        }
        // Every step first applies the passage of time. This one does nothing else, since no grant has this fence.
        let advance = Step::Break {
            fence: Fence::new(0),
        };
        self.file.write(|| {
            let mut outcomes = Vec::new();
            for key in keys.iter().take(TIDY_AT_MOST) {
                outcomes.push((key.clone(), self.transition(key, &advance)?));
            }
            for client in &gone {
                process::unregister(&self.file.conn, *client)?;
            }
            Ok(outcomes)
        })
    }

    /// The names that ended or belong to clients whose process is gone, and these clients.
    fn unused(&self, now: Now) -> Result<(Vec<String>, Vec<i64>), Fault> {
        let gone = process::gone(&self.file.conn, &self.process)?;
        let mut keys = self.keys(lock::ENDED, signed(now.millis()))?;
        for client in &gone {
            keys.extend(self.keys(lock::OF_CLIENT, *client)?);
        }
        Ok((keys, gone))
    }

    /// The keys that a query with one number selects.
    fn keys(&self, sql: &str, number: i64) -> rusqlite::Result<Vec<String>> {
        self.file
            .conn
            .prepare_cached(sql)?
            .query_map([number], |row| row.get(0))?
            .collect()
    }

    /// Opens the file again if it was removed or replaced, or one beside it: by a cleaner of temporary files, at the end
    /// of a login session, or when a backup is restored. Other processes share the new files, which may lack the last
    /// steps. So the client asks for its leases again.
    fn reopen_if_replaced(&mut self) -> Result<(), StoreError> {
        if self.file.is_in_place() {
            return Ok(());
        }
        // Before the file is opened again, since SQLite gives a new connection the shared memory of the old one.
        self.file.close();
        let opened = Self::open(&self.given, self.attach.clone());
        let mut next = opened.map_err(|error| match error {
            Error::Store(error) => error,
            other => {
                let detail = format!("the file is gone: {other}");
                StoreError::new(&self.file.label, StoreErrorKind::Unreachable, detail)
            }
        })?;
        next.waiting = mem::take(&mut self.waiting);
        next.notices = self.notices();
        if self.file.refusal.is_none() {
            next.notices.extend([
                Notice::Replaced(Replaced::File, Scope::All),
                Notice::Reconnected { node: 0 },
            ]);
        }
        next.waiting.seen_version = None;
        *self = next;
        Ok(())
    }
}

/// Judges the presence of owners by the processes of their clients.
impl Presence for Db {
    fn holder_gone(&self, owner: &Owner) -> bool {
        let client = owner.client();
        // A missing or unreadable row proves nothing.
        client != self.attach.client
            && process::find(&self.file.conn, client)
                .is_ok_and(|other| other.is_gone(&self.process))
    }

    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        self.holder_gone(&waiter.owner)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if self.file.is_in_place() {
            // Best effort: otherwise the next cleanup of any process does it.
            drop(process::unregister(
                &self.file.conn,
                self.attach.client.get().cast_signed(),
            ));
        }
    }
}

/// The pause before the first look at the file after a request begins to wait, and the longest pause between two looks.
const FIRST_LOOK: Duration = Duration::from_micros(100);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The waiters of this client, as known from the answers. Used to notice grants by other processes: a hint only, safety does not depend on it.
#[derive(Default)]
struct LocalWaiters {
    owners: HashMap<Owner, WaiterEntry>,
    /// The version of the file at the last look. It changes when another connection commits.
    seen_version: Option<i64>,
    /// Until the next look. Counts only if there are waiters.
    pause: Duration,
}

struct WaiterEntry {
    key: String,
    /// After this time, the store has given the waiter up.
    until_ms: u64,
}

impl LocalWaiters {
    /// Learns from the reply to a step.
    fn note(&mut self, key: &str, step: &Step, reply: &Reply, now: Now) {
        let (Step::Acquire { owner, .. }
        | Step::Extend { owner, .. }
        | Step::Release { owner, .. }) = step
        else {
            return;
        };
        if let Reply::Busy(busy) = reply
            && matches!(step, Step::Acquire { wait: Some(_), .. })
        {
            let grace = (busy.poll_after + WAITER_GRACE).as_millis();
            let grace = u64::try_from(grace).unwrap_or(u64::MAX);
            let entry = WaiterEntry {
                key: key.into(),
                until_ms: now.millis().saturating_add(grace),
            };
            if self.owners.insert(owner.clone(), entry).is_none() {
                self.pause = FIRST_LOOK;
            }
        } else {
            self.owners.remove(owner);
        }
    }
}
