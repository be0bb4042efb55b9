//! The file and its layout. A database of another program or of a newer version is never written.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;

use leasehold_core::Now;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::fault::{self, Fault, lacks_space, takes_no_writes};
use super::lock::signed;
use super::path::FileLocation;
use crate::error::{Replaced, StoreError, StoreErrorKind};

/// Marks the databases of this library: `LHld`.
const APPLICATION: i64 = 0x4c48_6c64;

/// The version of the layout below. Raise it with every change that older versions would not understand.
const VERSION: i64 = 3;

/// `state` is a lock as `lock.rs` writes it, and `until_ms` the last millisecond at which a holder or a waiter
/// counts. `counter` has one row: the last fence drawn, and when a lease was last granted or extended. Times are
/// milliseconds of the boot clock. `client` is the client id as a signed number.
const LAYOUT: &str = "
    CREATE TABLE locks (key TEXT PRIMARY KEY, until_ms INTEGER NOT NULL, state TEXT NOT NULL);
    CREATE TABLE counter (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL, used_at_ms INTEGER NOT NULL);
    CREATE TABLE clients (client INTEGER PRIMARY KEY, pid INTEGER NOT NULL, started INTEGER, namespace TEXT);
";

/// How long to wait for other processes, approximately. One of their steps takes some 50 microseconds.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// Serializes opening within a process. Closing any descriptor of a file drops all locks that the process has on it, so
/// no other connection may use a new file while its creator closes it.
///
/// Holds the shared memory of each file that this process has open: SQLite uses one for all connections to the file.
static OPENING: Mutex<BTreeMap<FileId, Weak<FileId>>> = Mutex::new(BTreeMap::new());

fn one_at_a_time() -> MutexGuard<'static, BTreeMap<FileId, Weak<FileId>>> {
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection, and the places of its files if they could be read.
type Opened = Result<(Connection, Option<Places>), StoreError>;

/// The file, open for one client. Its methods block for about [`BUSY_LIMIT`] at most.
///
/// The file has the pages of a step as soon as the step is answered, so that a holder can renew its lease on a full disk. A step
/// writes to the log, and a checkpoint later writes the log to the file; then it only writes over pages. A step that finds no room for
/// more pages is refused. When the log cannot grow, it is written from its start again.
pub(super) struct OpenFile {
    pub(super) conn: Connection,
    /// The name of this store in errors.
    pub(super) label: String,
    /// The files that `conn` is open on; `None` once it is closed.
    places: Option<Places>,
    /// Why `conn` only reads; the next step tries again to open the file for writing.
    pub(super) refusal: Option<StoreError>,
    /// The pages that the file was seen to have, without those that are only in the log.
    pages: Cell<u32>,
    /// A step has added pages that the file does not have yet.
    has_grown: Cell<bool>,
}

impl OpenFile {
    /// Opens the database. Creates it if necessary. If it takes no writes, opens it for reading, without a change to any file.
    pub(super) fn open(at: &FileLocation, label: String) -> Result<Self, StoreError> {
        let ((conn, places), refusal) = match open_to_write(at, &label) {
            Ok(opened) => (opened, None),
            Err(why) if !takes_no_writes(&why) => return Err(why),
            Err(why) => match settled(&mut one_at_a_time(), at, &label, connect_to_read) {
                Ok(opened) => (opened, Some(why)),
                Err(_) => return Err(why),
            },
        };
        let pages = fs::metadata(&at.path).map_or(0, |file| file.len() / u64::from(PAGE));
        Ok(Self {
            conn,
            label,
            places,
            refusal,
            pages: Cell::new(u32::try_from(pages).unwrap_or(u32::MAX)),
            has_grown: Cell::new(false),
        })
    }

    /// Does `work`, each statement by itself. A statement that reads does not wait for writers.
    pub(super) fn ask<T>(&self, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, StoreError> {
        work().map_err(|fault| fault.of(&self.label))
    }

    /// Does `work`, which only reads, on one state of the file. Does not wait for writers.
    pub(super) fn read<T>(&self, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, StoreError> {
        self.ask(|| {
            let _begun = Transaction::new_unchecked(&self.conn, TransactionBehavior::Deferred)?;
            work()
        })
    }

    /// Does `work` in one transaction. If the log cannot grow, writes to its start again: a holder that no process can
    /// replace, since none can write, renews its lease in the space that the file has.
    ///
    /// # Errors
    /// Also if the files were replaced meanwhile: other processes may not see the transaction.
    pub(super) fn write<T>(&self, work: impl Fn() -> Result<T, Fault>) -> Result<T, StoreError> {
        if let Some(why) = &self.refusal {
            return Err(why.clone());
        }
        match self.write_once(&work) {
            Err(why) if takes_no_writes(&why) && self.is_in_place() && rewind(&self.conn) => {
                self.write_once(&work)
            }
            outcome => outcome,
        }
    }

    fn write_once<T>(&self, work: impl Fn() -> Result<T, Fault>) -> Result<T, StoreError> {
        let prepare = || -> Result<_, Fault> {
            let begun = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)?;
            let begun_with = count(&self.conn)?;
            let done = work()?;
            // There may be room for more pages in the log. But no checkpoint could write them to the file, and when the log is
            // full, no holder could renew.
            let pages = count(&self.conn)?;
            if pages > begun_with && lacks_space(&self.label) {
                return Err(Fault::NoSpace);
            }
            self.has_grown.set(pages > self.pages.get());
            Ok((begun, done))
        };
        let (begun, done) = self.ask(prepare)?;
        begun
            .commit()
            .map_err(|error| Fault::from(error).of(&self.label).unknown())?;
        if self.is_in_place() {
            return Ok(done);
        }
        let detail = format!("{} meanwhile", Replaced::File);
        Err(StoreError::new(&self.label, StoreErrorKind::Unavailable, detail).unknown())
    }

    /// Gives the file the pages that a step has added. It may sync the disk, so the answer to the step comes first.
    pub(super) fn fill(&self) {
        // SQLite would leave this to the next checkpoint, which may find the disk full.
        if self.has_grown.take()
            && let Ok(pages) = count(&self.conn)
            && pages > self.pages.get()
            && checkpoint(&self.conn)
        {
            self.pages.set(pages);
        }
    }

    /// True if other processes that open the file see the steps of this connection.
    pub(super) fn is_in_place(&self) -> bool {
        self.refusal.is_none() && self.places.as_ref().is_some_and(Places::are_kept)
    }

    /// Closes the files. A connection to nothing replaces the one to them; without memory for it, they stay open.
    ///
    /// If they were removed or replaced, leaves the new ones as they are.
    pub(super) fn close(&mut self) {
        let Ok(none) = Connection::open_in_memory() else {
            return;
        };
        let (db, places) = (mem::replace(&mut self.conn, none), self.places.take());
        let _memories = one_at_a_time();
        let lost = places.as_ref().filter(|places| !places.are_kept());
        // Held until the connection is closed.
        let alone = lost.and_then(|places| lock_directory(&places.path).ok());
        let remains = lost.map(|places| places.leave(&db, alone.is_some()));
        // Both under the locks, the connection first.
        drop((db, places));
        for file in remains.into_iter().flatten() {
            // If this fails, SQLite may find the file malformed, which is told.
            drop(fs::remove_file(file));
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the database. Creates it if necessary.
fn open_to_write(at: &FileLocation, store: &str) -> Opened {
    let path = at.path.as_path();
    let mut memories = one_at_a_time();
    refuse_network(path, store)?;
    let failed = |error: io::Error| fault::of_io(store, "cannot create the file", &error);
    // Held until the layout exists: no other process of the host creates or deletes the files meanwhile.
    let _one_process = lock_directory(path).map_err(failed)?;
    clear_remains(path).map_err(failed)?;
    create(path, at.mode).map_err(failed)?;
    settled(&mut memories, at, store, connect)
}

/// Opens a connection with `connect`, and notes the shared memory that it uses.
fn settled(
    memories: &mut BTreeMap<FileId, Weak<FileId>>,
    at: &FileLocation,
    store: &str,
    connect: fn(&Path) -> Result<Connection, Fault>,
) -> Opened {
    // Read before the file is opened, so that a replacement in between is detected later.
    let main = identity(&at.path);
    let memory = main.and_then(|main| memories.get(&main)?.upgrade());
    let is_other = |memory: &Arc<FileId>| identity(&beside(&at.path, "-shm")) != Some(**memory);
    if memory.as_ref().is_some_and(is_other) {
        let detail = "its -shm file was removed or replaced, and another client of this process still uses the old one; use or close that client, or start this program again";
        return Err(StoreError::new(store, StoreErrorKind::Unavailable, detail));
    }
    let db = connect(&at.path).map_err(|fault| fault.of(store))?;
    let places = main.and_then(|main| Places::of(at, main, memory));
    memories.retain(|_, memory| memory.strong_count() > 0);
    if let (Some(main), Some(places)) = (main, &places) {
        memories.insert(main, Arc::downgrade(&places.memory));
    }
    Ok((db, places))
}

fn connect_to_read(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reads = |mut db: Connection| {
        db.busy_handler(Some(wait_a_little))?;
        if is_new(&db)? {
            return Err(Fault::Content("empty".into()));
        }
        Ok(db)
    };
    let shared = Connection::open_with_flags(path, flags).map_err(Fault::from);
    let refused = match shared.and_then(reads) {
        Ok(db) => return Ok(db),
        Err(refused) => refused,
    };
    // The shared memory cannot be made. Without steps in the log, the file alone is complete. A later step opens it
    // again, so it sees the steps of other processes.
    if fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return Err(refused);
    }
    let mut uri = OsString::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.push(format!("%{byte:02x}")),
            byte => uri.push(OsStr::from_bytes(&[*byte])),
        }
    }
    uri.push("?immutable=1");
    reads(Connection::open_with_flags(
        uri,
        flags | OpenFlags::SQLITE_OPEN_URI,
    )?)
}

/// Refuses network file systems. Each host would judge the file by its own clock, and SQLite's locks do not work across
/// hosts.
fn refuse_network(path: &Path, store: &str) -> Result<(), StoreError> {
    // An unknown file system is not refused: if it does not work, the next step fails.
    let Some((name, true)) = file_system(path) else {
        return Ok(());
    };
    let detail = format!(
        "it is on a network file system ({name}), which other hosts may share; use a local file, or Redis"
    );
    Err(StoreError::new(store, StoreErrorKind::Protocol, detail))
}

/// The file system of the directory of `path`, if its kind is known, and whether hosts share it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn file_system(path: &Path) -> Option<(&'static str, bool)> {
    use nix::sys::statfs;
    const KNOWN: [(statfs::FsType, &str, bool); 11] = [
        (statfs::NFS_SUPER_MAGIC, "NFS", true),
        (statfs::SMB_SUPER_MAGIC, "SMB", true),
        (statfs::FsType(0xfe53_4d42), "SMB", true),
        (statfs::FsType(0xff53_4d42), "CIFS", true),
        (statfs::FsType(0x00c3_6400), "Ceph", true),
        (statfs::EXT4_SUPER_MAGIC, "ext4", false),
        (statfs::TMPFS_MAGIC, "tmpfs", false),
        (statfs::BTRFS_SUPER_MAGIC, "btrfs", false),
        // Not defined for musl.
        (statfs::FsType(0x5846_5342), "XFS", false),
        (statfs::OVERLAYFS_SUPER_MAGIC, "overlayfs", false),
        (statfs::FsType(0x2fc1_2fc1), "ZFS", false),
    ];
    let found = statfs::statfs(path.parent()?).ok()?.filesystem_type();
    KNOWN
        .into_iter()
        .find_map(|(kind, name, is_shared)| (kind == found).then_some((name, is_shared)))
}

/// Unknown on other systems.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn file_system(_path: &Path) -> Option<(&'static str, bool)> {
    None
}

/// Keeps other processes from opening files in the directory of `path`, until the result is dropped. Waits for a
/// stopped process no longer than for a transaction.
fn lock_directory(path: &Path) -> io::Result<File> {
    let directory = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let pause = Duration::from_millis(1);
    for _ in 0..BUSY_LIMIT.as_millis() {
        match directory.try_lock() {
            Ok(()) => return Ok(directory),
            Err(TryLockError::WouldBlock) => sleep(pause),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "another process has been opening it for too long",
    ))
}

/// Deletes the files that SQLite kept beside a database that was removed without them. A new database with an old log
/// would be corrupt, and SQLite would truncate the shared memory of processes that still use the old files.
fn clear_remains(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Creates an empty file, which is an empty database. SQLite does not create it, so that it is never accessible to more
/// users than requested. The `-wal` and `-shm` files get its mode, and their group from the directory.
fn create(path: &Path, mode: u32) -> io::Result<()> {
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match created {
        // Independent of the umask.
        Ok(file) => file.set_permissions(Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    // One thread at a time uses a connection, so SQLite's mutex is not needed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags)?;
    db.busy_handler(Some(wait_a_little))?;
    db.set_prepared_statement_cache_capacity(32);
    // Checked before anything is written, even the journal mode.
    is_new(&db)?;
    db.pragma_update(None, "page_size", PAGE)?;
    use_wal(&db)?;
    checkpoint_at(&db, LOG_PAGES_AT_OPENING)?;
    // A crash of the system may undo the last steps. It also ends every process that held a lock, and fences keep
    // rising, since they are never below wall time. So only the integrity of the file matters, which NORMAL ensures.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    let begun = Transaction::new_unchecked(&db, TransactionBehavior::Immediate)?;
    if is_new(&begun)? {
        begun.execute_batch(LAYOUT)?;
        begun.pragma_update(None, "application_id", APPLICATION)?;
        begun.pragma_update(None, "user_version", VERSION)?;
    }
    begun.execute_batch(super::firings::LAYOUT)?;
    #[cfg(feature = "entries")]
    begun.execute_batch(super::cache::LAYOUT)?;
    begun.commit()?;
    Ok(db)
}

/// True if the database is empty. Fails if it belongs to another program or version.
fn is_new(db: &Connection) -> Result<bool, Fault> {
    let application: i64 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version) {
        (APPLICATION, VERSION) => Ok(false),
        (APPLICATION, newer) if newer > VERSION => Err(Fault::Content(format!(
            "written by a newer version of leasehold (layout {newer}, this one knows {VERSION}); upgrade, or use another file"
        ))),
        (APPLICATION, older) => Err(Fault::Content(format!(
            "written by an earlier version of leasehold (layout {older}, this one knows {VERSION}); remove it when no program uses it, or use another file"
        ))),
        (0, 0) if objects == 0 => Ok(true),
        _ => Err(Fault::Content(
            "the SQLite database of another program; use another file".into(),
        )),
    }
}

/// Turns the write-ahead log on: a step needs no sync, and readers do not wait for writers.
fn use_wal(db: &Connection) -> Result<(), Fault> {
    for tries in 0.. {
        match db.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        }) {
            Ok(mode) if mode == "wal" => break,
            Ok(mode) => {
                return Err(Fault::Content(format!(
                    "cannot be shared here: the journal mode stays {mode:?}"
                )));
            }
            // When several processes open a new file at once, SQLite gives up without calling the busy handler.
            Err(error) if is_busy(&error) && wait_a_little(tries) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Waits before try number `tries` to get the file. Returns false after too long a wait. SQLite's own handler sleeps 1
/// to 100 ms at a time, for a lock that is held for 50 microseconds.
fn wait_a_little(tries: i32) -> bool {
    const LONGEST: Duration = Duration::from_millis(1);
    let pause = Duration::from_micros(50)
        .saturating_mul(1 << tries.clamp(0, 10))
        .min(LONGEST);
    let waited = LONGEST.saturating_mul(tries.cast_unsigned());
    let patient = waited < BUSY_LIMIT;
    if patient {
        sleep(pause);
    }
    patient
}

/// Deletes all locks and clients if the system has been booted since the file was last used: all their processes are
/// gone. Fences continue.
///
/// A boot shows in the boot clock: after it, the clock is behind the last grant or extension, whose time is stored with
/// the counter. If it is not behind, no deadline is further away than its lease was long. The kernel's boot id cannot
/// be used: LXC and systemd-nspawn give each container its own one, so that two containers with a shared file would
/// each delete the other's locks.
pub(super) fn begin_after_boot(db: &Connection, now: Now) -> Result<(), Fault> {
    let now = signed(now.millis());
    let last_used = "SELECT coalesce(max(used_at_ms), 0) FROM counter";
    if now >= db.query_row(last_used, [], |row| row.get::<_, i64>(0))? {
        return Ok(());
    }
    db.execute_batch("DELETE FROM locks; DELETE FROM clients;")?;
    db.execute("UPDATE counter SET used_at_ms = ?1", [now])?;
    Ok(())
}

/// Device and inode: identifies a file even after it was renamed. No other file gets them while it is open.
type FileId = (u64, u64);

/// The files that a connection is open on.
///
/// SQLite keeps a log (`-wal`) and shared memory (`-shm`) beside the file. A process that opens the file finds them by name. If other files
/// have these names, that process and this connection do not see each other's steps.
struct Places {
    given: PathBuf,
    path: PathBuf,
    main: FileId,
    log: Option<FileId>,
    /// Alive as long as a connection of this process uses this shared memory.
    memory: Arc<FileId>,
}

impl Places {
    /// The files at this place, which a connection has just opened. `main` and `memory` are known from before.
    fn of(at: &FileLocation, main: FileId, memory: Option<Arc<FileId>>) -> Option<Self> {
        let memory = match memory {
            Some(memory) => memory,
            None => Arc::new(identity(&beside(&at.path, "-shm"))?),
        };
        let log = identity(&beside(&at.path, "-wal"));
        Some(Self {
            given: at.given.clone(),
            path: at.path.clone(),
            main,
            log,
            memory,
        })
    }

    /// True if a process that opens the file now opens the same files.
    fn are_kept(&self) -> bool {
        identity(&self.given) == Some(self.main) && self.now() == (self.log, Some(*self.memory))
    }

    /// Prepares `db` to be closed after its files were removed or replaced.
    ///
    /// If no process can have opened other files since, a checkpoint saves the steps of a log that was removed. Otherwise
    /// the close must not write to the file: it would overwrite the steps of that process with older ones. `alone` is true
    /// if no process opens files here meanwhile.
    ///
    /// Returns the files that are left of a file that another one has replaced. They must be removed when `db` is closed:
    /// SQLite would apply the old log to the new file.
    fn leave(&self, db: &Connection, alone: bool) -> Vec<PathBuf> {
        let (log, memory) = self.now();
        let other = |now: Option<FileId>, own: Option<FileId>| now.is_some() && now != own;
        let found = identity(&self.path);
        let is_unseen = alone
            && found == Some(self.main)
            && !other(log, self.log)
            && !other(memory, Some(*self.memory));
        if is_unseen {
            // If this fails, the steps in the log are lost, and every holder learns it.
            drop(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        }
        drop(db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
        let is_replaced = alone && other(found, Some(self.main));
        let own = [
            ("-wal", log.filter(|_| log == self.log)),
            ("-shm", memory.filter(|_| memory == Some(*self.memory))),
        ];
        let own = own
            .into_iter()
            .filter(|(_, own)| is_replaced && own.is_some());
        own.map(|(suffix, _)| beside(&self.path, suffix)).collect()
    }

    /// The log and the shared memory that have their names now.
    fn now(&self) -> (Option<FileId>, Option<FileId>) {
        let at = |suffix| identity(&beside(&self.path, suffix));
        (at("-wal"), at("-shm"))
    }
}

/// The path of a file that SQLite keeps beside `path`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The file that `path` leads to now, if any.
fn identity(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The size of a page. A step writes two or three, and more if many wait. With small pages, the log lasts longer
/// between two syncs, which stop all processes.
const PAGE: u32 = 1024;

/// The size of the log, in pages, at which it is checkpointed into the database. A checkpoint syncs the disk and stops
/// all processes.
pub(super) const LOG_PAGES: u32 = 4000;

/// The size at which an opening process checkpoints the log. A process without concurrent ones reads the whole log
/// first. So each run of a short command would start later than the previous one, by up to 4 ms with 4000 pages
/// (measured).
const LOG_PAGES_AT_OPENING: u32 = 500;

/// Writes the log to the file. Returns false if that failed, or if a reader or another checkpoint was in the way; the
/// next step then tries again.
fn checkpoint(db: &Connection) -> bool {
    let done = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (busy, all, written): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(busy == 0 && all == written)
    });
    done == Ok(true)
}

/// Makes the next step write to the start of the log, over steps that the file has now. Returns false if that failed.
fn rewind(db: &Connection) -> bool {
    let busy = db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
        row.get::<_, i64>(0)
    });
    busy == Ok(0)
}

/// From now on, the writer of the log's page number `pages` checkpoints it.
pub(super) fn checkpoint_at(db: &Connection, pages: u32) -> rusqlite::Result<()> {
    db.pragma_update(None, "wal_autocheckpoint", pages)
}

/// The number of pages, with those that are only in the log, or in the transaction that is under way.
fn count(db: &Connection) -> rusqlite::Result<u32> {
    db.prepare_cached("PRAGMA page_count")?
        .query_row([], |row| row.get(0))
}
