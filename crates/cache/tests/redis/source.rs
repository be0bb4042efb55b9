//! The cached source. It appends each read to a file outside of Redis, and has a register for each key. Each read is one line in one write,
//! so no read is lost.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// The folder of a fleet.
#[derive(Debug, Clone)]
pub(crate) struct Source(PathBuf);

impl Source {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Reads the source. Takes the value of the register of `key` in the middle of the read. A `closed` source is one that the test opens.
    pub(crate) async fn read(
        self,
        key: String,
        takes: Duration,
        closed: bool,
    ) -> Result<u64, String> {
        self.note("begun", &key);
        sleep(takes / 2).await;
        while closed && !self.is_signed("open", &key) {
            sleep(Duration::from_millis(2)).await;
        }
        let value = self.register(&key);
        sleep(takes / 2).await;
        Ok(value)
    }

    /// Adds a line to the record: `begun` for a read, `refused` for a call that the cache answered with an error.
    pub(crate) fn note(&self, what: &str, key: &str) {
        let line = format!("{what} {key}\n");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.0.join("reads"));
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the record can be written");
    }

    /// The number of these lines so far.
    pub(crate) fn count(&self, what: &str, key: &str) -> usize {
        let text = fs::read_to_string(self.0.join("reads")).unwrap_or_default();
        let line = format!("{what} {key}\n");
        text.split_inclusive('\n')
            .filter(|read| *read == line)
            .count()
    }

    /// The number of reads of `key` that have begun.
    pub(crate) fn loads(&self, key: &str) -> usize {
        self.count("begun", key)
    }

    /// Gives all processes a sign about `key`: `open` lets its closed source go on, `enough` ends their calls.
    pub(crate) fn sign(&self, what: &str, key: &str) {
        File::create(self.0.join(format!("{what}-{key}"))).expect("a sign can be given");
    }

    pub(crate) fn is_signed(&self, what: &str, key: &str) -> bool {
        self.0.join(format!("{what}-{key}")).exists()
    }

    /// The current value of the register of `key`.
    pub(crate) fn register(&self, key: &str) -> u64 {
        self.number("register", key)
    }

    /// The oldest value that may still count as fresh.
    pub(crate) fn floor(&self, key: &str) -> u64 {
        self.number("floor", key)
    }

    pub(crate) fn write_register(&self, key: &str, value: u64) {
        self.write_number("register", key, value);
    }

    /// Every value below this has been invalidated.
    pub(crate) fn raise_floor(&self, key: &str, value: u64) {
        self.write_number("floor", key, value);
    }

    fn number(&self, what: &str, key: &str) -> u64 {
        let mut bytes = [0; 8];
        let file = File::open(self.0.join(format!("{what}-{key}")));
        match file.and_then(|file| file.read_exact_at(&mut bytes, 0)) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }

    /// Writes eight bytes in one call, so that no reader sees a part of them.
    fn write_number(&self, what: &str, key: &str, value: u64) {
        let path = self.0.join(format!("{what}-{key}"));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path);
        file.and_then(|file| file.write_all_at(&value.to_le_bytes(), 0))
            .expect("a number can be written");
    }
}
