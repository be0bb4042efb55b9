//! The cached source: slow, and it logs each read as a line at the end of a file, outside of Redis.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use leasehold_bench::now_ns;

/// Length of a value in bytes.
const LENGTH: usize = 1000;

/// The access of one reader to the source.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) folder: std::sync::Arc<str>,
    pub(crate) key: String,
    pub(crate) takes: Duration,
    pub(crate) fails: bool,
}

impl Source {
    /// Reads the source. The value begins with the start time of the read.
    pub(crate) async fn read(self) -> Result<String, String> {
        let begun = self.note("begun");
        tokio::time::sleep(self.takes).await;
        self.note(if self.fails { "failed" } else { "ended" });
        if self.fails {
            return Err("the source is down".to_owned());
        }
        Ok(format!("{begun:<LENGTH$}"))
    }

    fn note(&self, what: &str) -> u64 {
        let now = now_ns();
        let line = format!("{what} {} {} {now}\n", self.key, std::process::id());
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(Path::new(&*self.folder).join("reads"));
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the record can be written");
        now
    }
}

/// The earliest read time of a true value: the start of the last ended invalidation, or 0.
pub(crate) struct Floor(Option<File>);

impl Floor {
    pub(crate) fn open(folder: &str) -> Self {
        Self(File::open(Path::new(folder).join("floor")).ok())
    }

    pub(crate) fn now(&self) -> u64 {
        let mut bytes = [0; 8];
        match self
            .0
            .as_ref()
            .map(|file| file.read_exact_at(&mut bytes, 0))
        {
            Some(Ok(())) => u64::from_le_bytes(bytes),
            _ => 0,
        }
    }
}

/// The start time of the read that returned this value.
pub(crate) fn begun(value: &str) -> u64 {
    value.trim_end().parse().expect("a value of the source")
}
